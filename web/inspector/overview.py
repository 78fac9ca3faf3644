"""Summarizes all sessions for the home page: the list, what waits for people, charts over time.

The gateway's reader keeps this bounded summary up to date as it folds, so no request reads the log
or folds a session. The summary is a cache in memory, rebuilt from the stores at every start. Every
answer is for one user; None means all users (development mode).

The number of kept sessions is limited. The sessions dropped first are those that changed longest
ago and wait for nobody. The charts and the total still count a dropped session, and its next event
brings it back.
"""

import heapq
import math
import secrets
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ...client.status import Situation
from ...processors.advice.prices import PriceTable, usd
from ...processors.fold.projections.partition import ANSWERS, PartitionView, worker_id
from ...processors.fold.views import SessionViews
from ...schemas.events.parts import ReadBlob
from .cards import Card, Done, TurnDone

HOUR_MS = 3_600_000
HOURS_MAX = 31 * 24
"""For how many hours the charts keep sums."""

ROWS_MAX = 5_000
"""The most sessions in one response, and the most of one user that are kept."""

SESSIONS_MAX = 100_000
"""The most sessions of all users that are kept, at about 2 KB each."""

SLACK = 1.1
"""How far a limit may be exceeded before sessions are dropped, so that they are sorted rarely."""

GROUPS_MAX = 12
"""The most agents, and the most models, that charts name; all others are summed as OTHERS."""

OTHERS = "others"
PER_DOUBLING = 4
"""Buckets of a histogram for each doubling of a time, so percentiles have an error of about 9 %."""

FAILED = "failed"


class Cell:
    """The sums over one hour for one agent and model. Percentiles are computed from `times`, a
    histogram of durations.
    """

    __slots__ = ("errors", "picodollars", "times", "tokens", "turns", "unpriced")

    def __init__(self) -> None:
        self.picodollars = self.unpriced = self.tokens = self.turns = self.errors = 0
        self.times: Counter[int] = Counter()

    def add(self, other: "Cell") -> None:
        """Add another cell's sums."""
        self.picodollars += other.picodollars
        self.unpriced += other.unpriced
        self.tokens += other.tokens
        self.turns += other.turns
        self.errors += other.errors
        self.times.update(other.times)


def bucket_of(ms: int) -> int:
    """The histogram bucket of a duration."""
    return int(PER_DOUBLING * math.log2(max(1, ms)))


def percentile(times: Counter[int], share: float) -> int | None:
    """The duration, in ms, below which a `share` of the durations lie; None if there are no
    durations.
    """
    wanted = share * times.total()
    for bucket in sorted(times):
        wanted -= times[bucket]
        if wanted <= 0:
            return round(2 ** ((bucket + 0.5) / PER_DOUBLING))
    return None


class Key(NamedTuple):
    """The agent and the model that sums belong to. For turns, the model is ''."""

    agent: str
    model: str


Hours = dict[int, dict[Key, Cell]]


class _Listed(NamedTuple):
    """A session in the list. `version`: the version of its newest change."""

    card: Card
    line: dict[str, Any]
    version: int

    @property
    def status(self) -> str:
        found = Situation(self.line["status"], self.line["reason"])
        return FAILED if found.has_failed else found.status

    @property
    def waits(self) -> bool:
        return bool(self.card.calls) or self.status == FAILED

    @property
    def order(self) -> tuple[bool, int]:
        """Sort key: sessions that wait for a person first, then the most recently changed sessions.
        """
        return self.waits, max(self.line["updated_at"], self.card.changed_at)


class Overview:
    """The summary of all sessions. The gateway's reader calls `clear`, `forget`, `take` and
    `changed`; requests call the other methods, from any thread.

    per_user, sessions_max: the most sessions of one user, and of all users, that are kept.
    """

    def __init__(
        self,
        prices: PriceTable,
        read: ReadBlob,
        *,
        per_user: int = ROWS_MAX,
        sessions_max: int = SESSIONS_MAX,
    ) -> None:
        self._prices, self._read = prices, read
        self._per_user, self._sessions_max = per_user, sessions_max
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._boot, self._version = secrets.token_hex(4), 0
        self._users: dict[str, OrderedDict[str, _Listed]] = defaultdict(OrderedDict)
        self._owners: dict[str, str] = {}
        self._dropped: dict[str, Counter[int]] = defaultdict(Counter)  # by user and partition
        self._hours: dict[tuple[int, str], Hours] = defaultdict(dict)

    # -- the reader --------------------------------------------------------------------------------

    def clear(self) -> None:
        """Remove all sessions."""
        with self._lock:
            self._begin()

    def forget(self, partition: int) -> None:
        """Remove the sessions of a partition, which will be folded again."""
        with self._lock:
            self._boot = secrets.token_hex(4)  # pages load the list again
            for sessions in self._users.values():
                of_it = [n for n, found in sessions.items() if found.line["partition"] == partition]
                for name in of_it:
                    del sessions[name], self._owners[name]
            for counts in self._dropped.values():
                del counts[partition]
            for key in [key for key in self._hours if key[0] == partition]:
                del self._hours[key]

    def take(
        self, views: SessionViews, line: dict[str, Any], before: SessionViews | None = None
    ) -> None:
        """Update a session from its new views.

        `line`: the session's summary.
        `before`: the views before the event; None if the session is read from a store.
        """
        session_id, user = line["session_id"], line["user_id"]
        with self._lock:
            found = self._users[user].get(session_id)
            card = Card(self._prices, self._read) if found is None else found.card
            if found is None and before is not None and before.turn.known:
                card.feed(before)  # the session was dropped, so the charts have this part
                self._dropped[user][line["partition"]] -= 1
            for done in card.feed(views):
                self._count(line, done)
            self._put(session_id, user, card, line)
            self._drop_oldest(user)

    def changed(self, line: dict[str, Any]) -> None:
        """Update the summary of a session whose views did not change."""
        with self._lock:
            found = self._users[line["user_id"]].get(line["session_id"])
            if found is not None:
                self._put(line["session_id"], line["user_id"], found.card, line)

    def _put(self, session_id: str, user: str, card: Card, line: dict[str, Any]) -> None:
        self._version += 1
        sessions = self._users[user]
        sessions[session_id] = _Listed(card, line, self._version)
        sessions.move_to_end(session_id)
        self._owners[session_id] = user

    def _drop_oldest(self, user: str) -> None:
        """Drop sessions of this user, or of all users, if there are too many."""
        if len(self._users[user]) > self._per_user * SLACK:
            self._drop([self._users[user]], self._per_user)
        if len(self._owners) > self._sessions_max * SLACK:
            self._drop([*self._users.values()], self._sessions_max)

    def _drop(self, users: list[OrderedDict[str, _Listed]], limit: int) -> None:
        """Drop sessions of these users until `limit` are left."""
        everyone = [one for sessions in users for one in sessions.values()]
        for one in heapq.nsmallest(len(everyone) - limit, everyone, key=lambda one: one.order):
            name, owner = one.line["session_id"], one.line["user_id"]
            del self._users[owner][name], self._owners[name]
            self._dropped[owner][one.line["partition"]] += 1

    def _count(self, line: dict[str, Any], done: Done) -> None:
        hour = done.at // HOUR_MS
        hours = self._hours[line["partition"], line["user_id"]]
        cells = hours.get(hour)
        if cells is None:
            newest = max(hours, default=hour)
            if hour <= newest - HOURS_MAX:
                return
            cells = hours[hour] = {}
            for old in [old for old in hours if old <= max(newest, hour) - HOURS_MAX]:
                del hours[old]
        agent = line["agent"]
        if isinstance(done, TurnDone):
            cell = cells.setdefault(Key(agent, ""), Cell())
            cell.turns += 1
            cell.errors += done.failed
            cell.times[bucket_of(done.ms)] += 1
            return
        cell = cells.setdefault(Key(agent, done.model or "unknown"), Cell())
        cell.turns += 1
        cell.tokens += done.tokens
        cell.picodollars += done.picodollars or 0
        cell.unpriced += done.picodollars is None
        if done.ms is None:
            return
        cell.times[bucket_of(done.ms)] += 1

    # -- requests ----------------------------------------------------------------------------------

    def home(self, user: str | None, since: str, limit: int) -> dict[str, Any]:
        """The rows that changed since a version, or all rows if the version is not from this
        overview.

        `total`: the number of sessions.
        `most`: how many of them can be listed.
        """
        with self._lock:
            boot, _, version = since.partition(".")
            is_known = boot == self._boot and version.isdigit()
            sessions = self._sessions(user)
            if is_known:
                found = [one for each in sessions for one in _newer(each, int(version))]
            else:
                everyone = (one for each in sessions for one in each.values())
                found = heapq.nlargest(limit, everyone, key=lambda one: one.order)
            kept = sum(map(len, sessions))
            return {
                "version": f"{self._boot}.{self._version}",
                "whole": not is_known,
                "total": kept + self._dropped_of(user),
                "most": min(kept, ROWS_MAX),
                "rows": [one.card.json(one.line, one.status) for one in found],
            }

    def row(self, session_id: str) -> dict[str, Any] | None:
        """A session's row; None if it is not kept. The caller checks the user."""
        with self._lock:
            owner = self._owners.get(session_id)
            if owner is None:
                return None
            one = self._users[owner][session_id]
            return one.card.json(one.line, one.status)

    def title(self, session_id: str) -> str:
        """A session's title; "" if it has none or is not kept. The caller checks the user."""
        with self._lock:
            owner = self._owners.get(session_id)
            return "" if owner is None else self._users[owner][session_id].card.title

    def agents(self, user: str | None, partitions: Iterable[PartitionView]) -> list[dict[str, Any]]:
        """The agents that live workers serve, and agents of the user's sessions that no worker
        serves.
        """
        workers: dict[str, set[str]] = defaultdict(set)
        places: Counter[str] = Counter()
        held = total = 0
        for view in partitions:
            total += 1
            names, owner = _served(view)
            held += owner is not None
            for name in names:
                places[name] += 1
                workers[name].add(worker_id(owner or ""))
        with self._lock:
            used = {one.line["agent"] for each in self._sessions(user) for one in each.values()}
        return [
            {"name": name, "workers": len(workers.get(name, ())), "partitions": places[name],
             "of": total}
            for name in sorted(used | workers.keys())
        ]

    def charts(self, user: str | None, end: int, hours: int, step: int) -> dict[str, Any]:
        """Sums by interval up to `end` (Unix ms): in total, by agent and by model.

        hours: the time shown.
        step: the length of an interval, in hours.
        """
        last = end // HOUR_MS
        first, count = last - hours + 1, hours // step
        everything: list[Cell] = [Cell() for _ in range(count)]
        agents: dict[str, list[Cell]] = defaultdict(lambda: [Cell() for _ in range(count)])
        models: dict[str, list[Cell]] = defaultdict(lambda: [Cell() for _ in range(count)])
        with self._lock:
            for key, kept in self._hours.items():
                if user not in (None, key[1]):
                    continue
                for hour, cells in kept.items():
                    if first <= hour <= last:
                        place = min(count - 1, (hour - first) // step)
                        for (agent, model), cell in cells.items():
                            _add(everything[place], cell, is_request=bool(model))
                            _add(agents[agent][place], cell, is_request=bool(model))
                            if model:
                                models[model][place].add(cell)
        return {
            "first_at": first * HOUR_MS,
            "step_ms": step * HOUR_MS,
            "count": count,
            "all": series(everything),
            "agents": dict(named(agents)),
            "models": dict(named(models)),
        }

    def _dropped_of(self, user: str | None) -> int:
        users = self._dropped if user is None else {user} & self._dropped.keys()
        return sum(self._dropped[name].total() for name in users)

    def _sessions(self, user: str | None) -> list[OrderedDict[str, _Listed]]:
        if user is None:
            return list(self._users.values())
        found = self._users.get(user)
        return [] if found is None else [found]


def _newer(sessions: OrderedDict[str, _Listed], version: int) -> Iterator[_Listed]:
    """The sessions that changed after a version, newest change first."""
    for one in reversed(sessions.values()):
        if one.version <= version:
            return
        yield one


def _served(view: PartitionView) -> tuple[set[str], str | None]:
    """The agents that the live holders of a partition serve, and the owner of the partition.

    If no live worker holds the partition for one of the roles, returns an empty set and None.
    """
    found: set[str] | None = None
    owner = None
    for role in ANSWERS:
        holder = view.holder(role)
        if holder is None or holder.owner in holder.gone:
            return set(), None
        names = {agent.name for agent in holder.agents}
        found, owner = names if found is None else found & names, holder.owner
    return found or set(), owner


def _add(total: Cell, cell: Cell, *, is_request: bool) -> None:
    """Add a cell to a total over all models.

    A cell of model requests adds only its tokens and cost: the total counts turns and their times,
    not requests.
    """
    if not is_request:
        total.add(cell)
        return
    total.picodollars += cell.picodollars
    total.unpriced += cell.unpriced
    total.tokens += cell.tokens


def named(groups: dict[str, list[Cell]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The series of each group, most used first. Groups after GROUPS_MAX are summed as OTHERS."""
    order = sorted(groups, key=lambda name: (-sum(cell.turns for cell in groups[name]), name))
    for name in order[:GROUPS_MAX]:
        yield name, series(groups[name])
    rest = [groups[name] for name in order[GROUPS_MAX:]]
    if rest:
        yield OTHERS, series([_sum(cells) for cells in zip(*rest, strict=True)])


def _sum(cells: Iterable[Cell]) -> Cell:
    total = Cell()
    for cell in cells:
        total.add(cell)
    return total


def series(cells: list[Cell]) -> dict[str, Any]:
    """For each measure, the list of its values by interval; and the totals over all intervals."""
    total = _sum(cells)
    return {
        **{name: [row[name] for row in map(_numbers, cells)] for name in _numbers(total)},
        "total": _numbers(total),
    }


def _numbers(cell: Cell) -> dict[str, Any]:
    return {
        "usd": usd(cell.picodollars),
        "unpriced": cell.unpriced,
        "tokens": cell.tokens,
        "turns": cell.turns,
        "errors": cell.errors,
        "p50": percentile(cell.times, 0.5),
        "p95": percentile(cell.times, 0.95),
    }

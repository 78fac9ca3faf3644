"""The pages of a member: every member answers for every key.

A page asks the members that own the partitions it needs, itself without a hop, for their part at
/part/KIND, and merges the parts. A member refuses a partition that it does not own or has not
restored and caught up with; the page is then 503 with Retry-After, never an old or empty answer.
Requests run in threads of the server and read RocksDB directly, so that Faust's loop never waits.
"""

import heapq
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from ..log.partition import partition_for
from ..processors.worker.page_access import JSON, Answer, text
from ..processors.worker.pages import Pages
from ..schemas.ids import is_id
from . import answers, rows
from .answers import Json
from .book import TooLate
from .member import FleetApp
from .order import Order

LIMIT, LIMIT_MAX = 100, 5_000
HOURS_MAX = 24 * 366
HOP_S = 5.0
RETRY_AFTER_S = 1
DAY_HOURS, MONTH_HOURS = 24, 31 * 24
Query = dict[str, str]


class Unavailable(Exception):
    """A partition has no member that may answer for it now."""


class Wrong(Exception):
    """The request is wrong."""


class FleetPages(Pages):
    """The server. It has no application while a member starts."""

    routes: "Routes | None" = None

    def __init__(self, address: tuple[str, int], token: str | None) -> None:
        super().__init__(address, token, lambda _: None)

    def answer_to(self, path: str, query: str) -> Answer | None:
        """The page for a path."""
        if path == "/healthz":
            return text("ok")
        if self.routes is None:
            return unavailable("the member starts")
        return self.routes.answer(path, dict(parse_qsl(query, keep_blank_values=True)))


class Routes:
    """The pages of one application."""

    def __init__(self, app: FleetApp) -> None:
        self._app, self._book = app, app.book
        self._partitions = app.settings.partitions
        self._parts: dict[str, Callable[[list[int], Query], Json]] = {
            "sessions": self._sessions_part, "inbox": self._inbox_part, "hours": self._hours_part,
        }  # fmt: skip

    def answer(self, path: str, query: Query) -> Answer | None:
        """The page for a path, or None."""
        try:
            found = self._found(path.removeprefix("/").split("/"), query)
        except Unavailable as error:
            return unavailable(str(error))
        except Wrong as error:
            return text(f"400: {error}", 400)
        if isinstance(found, dict):
            return Answer(msgspec.json.encode(found), content_type=JSON)
        return found

    def _found(self, path: list[str], query: Query) -> Json | Answer | None:
        match path:
            case ["fleet", "users", user, "sessions"] if is_id(user):
                return self._sessions(query, user)
            case ["fleet", "sessions"]:
                return self._sessions(query, None)
            case ["fleet", "users", user, "inbox"] if is_id(user):
                return self._inbox(query, user)
            case ["fleet", "inbox"]:
                return self._inbox(query, None)
            case ["fleet", "hours"]:
                return self._hours(query)
            case ["fleet", "agents"]:
                return self._agents()
            case ["part", kind] if kind in self._parts:
                places = [_number(part, 0, self._partitions - 1)
                          for part in query.pop("partitions", "").split(",")]  # fmt: skip
                return self._part(kind, places, query)
            case ["status"]:
                return self.status()
            case ["metrics"]:
                return Answer(self.metrics().encode())
            case ["readyz"]:
                return text("ready") if self.is_ready() else text(f"not ready: {self._why()}", 503)
        return None

    # -- asking the owners -------------------------------------------------------------------------

    @property
    def _all(self) -> list[int]:
        return list(range(self._partitions))

    def _ask(self, kind: str, places: list[int], query: Query) -> list[Json]:
        """The parts of all owners of these partitions."""
        owners = self._app.owners()
        by_owner: dict[str, list[int]] = {}
        for partition in places:
            if partition not in owners:
                raise Unavailable(f"no member owns partition {partition} yet")
            by_owner.setdefault(owners[partition], []).append(partition)
        own = self._app.member.url
        return [
            self._part(kind, owned, dict(query)) if url.rstrip("/") == own.rstrip("/")
            else self._hop(url, kind, owned, query)
            for url, owned in by_owner.items()
        ]  # fmt: skip

    def _hop(self, url: str, kind: str, places: list[int], query: Query) -> Json:
        sent = urlencode({"partitions": ",".join(map(str, places)), **query})
        request = urllib.request.Request(f"{url.rstrip('/')}/part/{kind}?{sent}")
        if self._app.settings.web_token:
            request.add_header("Authorization", f"Bearer {self._app.settings.web_token}")
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=HOP_S) as answer:
                found: Json = msgspec.json.decode(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Unavailable(f"the member of partition {places[0]} does not answer "
                              f"({type(error).__name__})") from None
        return found

    def _part(self, kind: str, places: list[int], query: Query) -> Json:
        self._demand(places)
        try:
            found = self._parts[kind](places, query)
        except (Unavailable, Wrong):
            raise
        except Exception as error:  # a store was closed by a rebalance
            raise Unavailable(f"a partition moved ({type(error).__name__})") from None
        self._demand(places)
        return found

    def _demand(self, places: Iterable[int]) -> None:
        try:
            self._book.demand_time()
        except TooLate as late:
            raise Unavailable(str(late)) from None
        if self._app.rebalancing:
            raise Unavailable("the group is rebalancing")
        for partition in places:
            if not self._book.is_ready(partition):
                raise Unavailable(f"partition {partition} is being restored")

    def _db(self, table: str, partition: int) -> Any:
        db = self._app.stores[table].store.partition_db(partition)
        if db is None:
            raise Unavailable(f"partition {partition} is being restored")
        return db

    # -- sessions ----------------------------------------------------------------------------------

    def _sessions(self, query: Query, user: str | None) -> Json:
        limit = _number(query.get("limit") or str(LIMIT), 1, LIMIT_MAX)
        sent = {"limit": str(limit), **_sent(query, user)}
        return answers.merged_sessions(self._ask("sessions", self._of_user(user), sent), limit)

    def _of_user(self, user: str | None) -> list[int]:
        return self._all if user is None else [partition_for(user, self._partitions)]

    def _sessions_part(self, places: list[int], query: Query) -> Json:
        limit = _number(query.get("limit", ""), 1, LIMIT_MAX)
        after = _after(query.get("after"))
        orders = {place: self._order(place, query.get("user")) for place in places}
        pages = (
            [(item, place) for item in order.page(after, limit + 1)]
            for place, order in orders.items()
        )
        first = list(islice(heapq.merge(*pages, reverse=True), limit + 1))
        shown = [self._session(place, item.key) for item, place in first[:limit]]
        left = answers.cursor(shown[-1]) if len(first) > limit else None
        return {"sessions": shown, "total": sum(map(len, orders.values())), "next": left}

    def _order(self, partition: int, user: str | None) -> Order:
        """The order of a user's sessions, or of all sessions. The latter is kept."""
        restored, db = self._book.restored, self._db(rows.SESSIONS, partition)
        if user is None:
            return self._app.orders.of(partition, restored, lambda: _changes_of(db, b""))
        order = Order()
        order.fill(_changes_of(db, f"{user}/".encode()))
        return order

    def _session(self, partition: int, key: bytes) -> Json:
        row = rows.decoded(rows.SESSIONS, self._db(rows.SESSIONS, partition).get(key))
        if not isinstance(row, rows.SessionRow):
            row = rows.SessionRow(damaged=True)
        row.user_id, row.session_id = rows.session_of(key)
        return answers.session(row)

    # -- the inbox ---------------------------------------------------------------------------------

    def _inbox(self, query: Query, user: str | None) -> Json:
        parts = self._ask("inbox", self._of_user(user), _sent(query, user))
        return answers.merged_inboxes(parts, LIMIT_MAX)

    def _inbox_part(self, places: list[int], query: Query) -> Json:
        user, begin = query.get("user"), _after(query.get("after"))
        parts = (
            answers.inbox(owner, row, self._waiting(partition, owner, row), begin)
            for partition in places
            for owner, row in _inboxes_of(self._db(rows.INBOX, partition), user)
        )
        return answers.merged_inboxes(parts, LIMIT_MAX)

    def _waiting(
        self, partition: int, user: str, row: rows.InboxRow
    ) -> dict[str, rows.SessionRow]:
        """The rows of the sessions that wait."""
        db, found = self._db(rows.SESSIONS, partition), {}
        for session_id in {entry.session_id for entry in row.entries.values()}:
            stored = rows.decoded(rows.SESSIONS, db.get(rows.session_key(user, session_id)))
            if isinstance(stored, rows.SessionRow):
                stored.user_id, stored.session_id = user, session_id
                found[session_id] = stored
        return found

    # -- hours -------------------------------------------------------------------------------------

    def _hours(self, query: Query) -> Json:
        scope, value = query.get("scope", rows.ALL), query.get("value", "")
        if scope not in rows.SCOPES:
            raise Wrong(f"scope is one of {', '.join(rows.SCOPES)}")
        last = _number(query.get("to") or str(self._hour()), 0, 9_999_999)
        first = _number(query.get("from") or str(max(0, last - DAY_HOURS + 1)), 0, last)
        if last - first >= HOURS_MAX:
            raise Wrong(f"at most {HOURS_MAX} hours")
        sent = {"scope": scope, "value": value, "from": str(first), "to": str(last)}
        parts = self._ask("hours", self._of_scope(scope, value), sent)
        found = answers.values_of(parts).get(value, {})
        empty = rows.HourRow()
        return {
            "first_hour": first,
            "hours": [answers.cell(found.get(hour, empty)) for hour in range(first, last + 1)],
            "names": sorted({name for part in parts for name in part["names"]}),
        }

    def _of_scope(self, scope: str, value: str) -> list[int]:
        return self._of_user(value if scope == rows.USER and value else None)

    def _agents(self) -> Json:
        """Each agent's turns over the last day and the last 31 days. The last hour is that of the
        newest fact, or this machine's if that is later: its clock may be slow."""
        parts = self._ask("hours", self._all, {"scope": rows.AGENT, "from": "0", "to": "9999999"})
        now = max([self._hour(), *(part["newest"] for part in parts)])
        return {
            "hour": now,
            "agents": [
                {
                    "agent": agent,
                    "day": answers.cell(answers.total(hours, now - DAY_HOURS + 1, now)),
                    "month": answers.cell(answers.total(hours, now - MONTH_HOURS + 1, now)),
                }
                for agent, hours in sorted(answers.values_of(parts).items())
            ],
        }

    def _hour(self) -> int:
        return int(time.time() * 1000) // rows.HOUR_MS

    def _hours_part(self, places: list[int], query: Query) -> Json:
        scope, value = query.get("scope", ""), query.get("value")
        first, last = int(query.get("from", "")), int(query.get("to", ""))
        if value is None and first == 0:
            first = max(0, self._newest(places) - MONTH_HOURS - DAY_HOURS)
        values: answers.Values = {}
        names: set[str] = set()
        for partition in places:
            db = self._db(rows.HOURS, partition)
            own = set(_names(db, scope)) if scope in (rows.AGENT, rows.MODEL) else set()
            names |= own
            for name in own if value is None else {value}:
                for cell, row in _cells(db, scope, name, first, last):
                    values.setdefault(name, {}).setdefault(cell.hour, rows.HourRow()).add(row)
        return {"values": answers.plain(values), "names": sorted(names),
                "newest": self._newest(places)}  # fmt: skip

    def _newest(self, places: list[int]) -> int:
        """The hour of the newest cell."""
        newest = 0
        for partition in places:
            end = rows.Cell(rows.ALL, "", 9_999_999, partition).key
            for key, _ in self._db(rows.HOURS, partition).items(backwards=True, from_key=end):
                if key.startswith(b"all|"):
                    newest = max(newest, rows.cell_of(key).hour)
                break
        return newest

    # -- the member itself -------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether the group gave this member partitions, and it may answer for those it owns."""
        owned = self._book.owned()
        if not owned and not self._book.standby:
            return False
        try:
            self._demand(owned)
        except Unavailable:
            return False
        return True

    def _why(self) -> str:
        if not self._book.owned() and not self._book.standby:
            return "the group has given this member no partition"
        return "restoring" if self._app.in_recovery else "reading the latest facts"

    def status(self) -> Json:
        """The state of this member."""
        owned = self._book.owned()
        return {
            "member": self._app.member.name,
            "url": self._app.member.url,
            "ready": self.is_ready(),
            "partitions": {
                str(partition): {
                    "next": following, "lag": self._lag(partition, following),
                    "ready": self._book.is_ready(partition),
                }
                for partition, following in sorted(owned.items())
            },
            "standby": sorted(self._book.standby),
            "owners": {str(p): url for p, url in sorted(self._app.owners().items())},
            "folded": self._book.folded,
            "restored_rows": self._book.restored_rows,
            "pending_rows": self._book.pending,
            "rewound": self._book.rewound,
            "unknown_facts": dict(self._book.unknown),
            "damaged_records": dict(self._book.damaged),
        }  # fmt: skip

    def _lag(self, partition: int, following: int) -> int:
        return max(0, self._app.end_of(partition) - following)

    def metrics(self) -> str:
        """The numbers of this member for Prometheus."""
        book, owned = self._book, self._book.owned()
        lines = [
            f"foldlog_fleet_ready {int(self.is_ready())}",
            f"foldlog_fleet_partitions {len(owned)}",
            f"foldlog_fleet_partitions_ready {sum(book.is_ready(p) for p in owned)}",
            f"foldlog_fleet_standby_partitions {len(book.standby)}",
            f"foldlog_fleet_lag {sum(self._lag(p, n) for p, n in owned.items())}",
            f"foldlog_fleet_facts_total {book.folded}",
            f"foldlog_fleet_unknown_facts_total {book.unknown.total()}",
            f"foldlog_fleet_damaged_records_total {book.damaged.total()}",
            f"foldlog_fleet_restored_rows_total {book.restored_rows}",
            f"foldlog_fleet_pending_rows {book.pending}",
        ]
        kinds = (
            f"# TYPE {line.split()[0]} {'counter' if '_total ' in line else 'gauge'}\n{line}\n"
            for line in lines
        )
        return "".join(kinds)


def unavailable(why: str) -> Answer:
    """The page that tells a client to ask again."""
    body = msgspec.json.encode({"error": why})
    return Answer(body, 503, JSON, (("Retry-After", str(RETRY_AFTER_S)),))


def _number(given: str, low: int, high: int) -> int:
    if not given.isascii() or not given.isdigit() or not low <= int(given) <= high:
        raise Wrong(f"a number from {low} to {high} is needed")
    return int(given)


def _sent(query: Query, user: str | None) -> Query:
    """What the owners need of a query about the sessions of a user, or of all users."""
    found = {"after": query.get("after"), "user": user}
    return {name: value for name, value in found.items() if value}


def _after(cursor: str | None) -> tuple[int, str] | None:
    try:
        return answers.after(cursor) if cursor else None
    except ValueError:
        raise Wrong("`after` is the `next` of an earlier answer") from None


def _items(db: Any, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    for key, value in db.items(from_key=prefix) if prefix else db.items():
        if not key.startswith(prefix):
            return
        yield key, value


def _changes_of(db: Any, prefix: bytes) -> Iterator[tuple[bytes, int]]:
    """The sessions whose keys begin with a prefix, with the time of their last change."""
    for key, value in _items(db, prefix):
        if b"/" in key:
            yield key, rows.changed_at(value)


def _inboxes_of(db: Any, user: str | None) -> Iterator[tuple[str, rows.InboxRow]]:
    found = _items(db, b"") if user is None else [(user.encode(), db.get(user.encode()))]
    for key, value in found:
        row = rows.decoded(rows.INBOX, value)
        if isinstance(row, rows.InboxRow) and not key.startswith(b"__faust"):
            yield key.decode(), row


def _cells(
    db: Any, scope: str, value: str, first: int, last: int
) -> Iterator[tuple[rows.Cell, rows.HourRow]]:
    begin = f"{scope}|{value}|{first:07}".encode()
    prefix = f"{scope}|{value}|".encode()
    for key, stored in db.items(from_key=begin):
        if not key.startswith(prefix):
            return
        cell, row = rows.cell_of(key), rows.decoded(rows.HOURS, stored)
        if cell.value != value:
            continue
        if cell.hour > last:
            return
        if isinstance(row, rows.HourRow):
            yield cell, row


def _names(db: Any, scope: str) -> Iterator[str]:
    """The values of a scope, with one seek for each."""
    prefix = at = f"{scope}|".encode()
    while True:
        key = next(iter(db.keys(from_key=at)), None)
        if key is None or not key.startswith(prefix):
            return
        value = rows.cell_of(key).value
        yield value
        at = f"{scope}|{value}|:".encode()  # after the digits of hours

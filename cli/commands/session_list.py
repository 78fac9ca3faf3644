"""Lists the sessions of the log for people, with titles, status, cost and time, and with filters.
"""

import math
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ...client.fleet import FleetUnavailable, find_fleet
from ...client.holders import holders_of
from ...client.show import Everything, summaries
from ...client.spending import TOKENS, caching_json, cost_json, saving_of, session_cost
from ...client.status import REASON_WORDS, WORDS, Situation, Status, why_unserved
from ...log.partition import partition_for
from ...processors.advice.prices import Cost, InputCost, input_cost
from ...processors.fold.projections.ledger import Spent
from ...processors.fold.projections.partition import PartitionView
from ...web.inspector import fleet_rows
from ...web.inspector.cards import Card
from ..terminal.printing import brief, has_styles, note, table
from ..terminal.turn_meter import took

if TYPE_CHECKING:
    from ...client.fleet import FleetClient
    from ...processors.advice.prices import PriceTable
    from ...processors.fold.views import SessionViews
    from ...schemas.events.parts import ReadBlob
    from ..edge import Edge

PAGE = 5_000
"""The sessions in one answer of the fleet, which is its most."""

FAILED = "failed"
STATUSES = (*map(str, Status), FAILED)
"""The words that --status takes."""

TURN_OPEN = "open"
"""The status shown for `busy` in a list from the fleet if the log did not show in time whether a
worker serves the agent."""
HOLDERS_S = 2.0
"""How long the log is read for that."""
SHOWN = {**WORDS, FAILED: "failed", TURN_OPEN: "turn open"}

OPEN = ("busy", TURN_OPEN, "asks", "doubt", "unserved")
"""The statuses of a session whose turn may still run."""

RED, YELLOW, GREEN, DIM = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[2m"
COLOURS = {
    "busy": GREEN, "asks": YELLOW, "doubt": RED, "unserved": RED, "frozen": RED, FAILED: RED,
    "terminated": DIM,
}
TITLE_CHARS, TITLE_CHARS_MIN = 48, 32
COLUMNS = "session title status agent user turn cost cached time changed".split()
DROPPED = "cached time user turn cost".split()
"""Columns that are left out on a narrow terminal, in this order."""

_AGO = re.compile(r"(\d{1,9})\s*(s|m|min|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Wanted(NamedTuple):
    """The filters of a list. `since_ms`: only sessions that changed at or after this time."""

    user: str | None = None
    agents: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    since_ms: int = 0


class Listed(NamedTuple):
    """One session of the list. `ms`: how long its turns took, without waits for people. `input`:
    the cost of its input, with and without caching."""

    line: dict[str, Any]
    status: str
    title: str
    ms: int
    cost: Cost
    input: InputCost

    def json(self) -> dict[str, Any]:
        """The row of `sessions --json`. If the last turn failed, `status` is idle, and the field
        `failed` says so.
        """
        return {
            **self.line,
            "status": TURN_OPEN if self.status == TURN_OPEN else self.line["status"],
            **cost_json(self.cost),
            "caching": caching_json(self.input),
            "title": self.title,
            "turns_ms": self.ms,
            "failed": self.status == FAILED,
        }


def listed(
    everything: Everything, wanted: Wanted, prices: "PriceTable", read: "ReadBlob"
) -> Iterator[Listed]:
    """The sessions that pass the filters, most recently changed first."""

    def passes(views: "SessionViews") -> bool:
        return (
            wanted.user in (None, views.state.user_id)
            and (not wanted.agents or views.turn.agent in wanted.agents)
            and views.state.updated_at >= wanted.since_ms
        )

    for line in summaries(everything, passes):
        views = everything.sessions[line["session_id"]]
        card = Card(prices, read)
        card.feed(views)
        status = _shown(line)
        if not wanted.statuses or status in wanted.statuses or line["status"] in wanted.statuses:
            cost = session_cost(views.ledger, prices)
            saving = saving_of(views.ledger, prices)
            yield Listed(line, status, card.title, card.in_turns_ms, cost, saving)


def _shown(line: Mapping[str, Any]) -> str:
    found = Situation(line["status"], line["reason"])
    return FAILED if found.has_failed else found.status


def find_listed(edge: "Edge", wanted: Wanted) -> tuple[list[Listed], int]:
    """The sessions that pass the filters, most recently changed first, and the number of all
    sessions: from the fleet, otherwise from a fold of the log, with the reason on stderr."""
    fleet, why = find_fleet(edge.settings), "no fleet runs here"
    if fleet is not None:
        try:
            return _from_fleet(edge, fleet, wanted), fleet.sessions(limit=1)["total"]
        except FleetUnavailable as error:
            why = str(error)
    note(f"{why}, so the log is folded")
    client = edge.client()
    everything = client.everything()
    rows = list(listed(everything, wanted, edge.prices, client.read_blob))
    return rows, sum(views.turn.known for views in everything.sessions.values())


def _from_fleet(edge: "Edge", fleet: "FleetClient", wanted: Wanted) -> list[Listed]:
    asked = [
        found for found in _asked(fleet, wanted)
        if not wanted.agents or found["agent"] in wanted.agents
    ]  # fmt: skip
    holders = _holders(edge, asked, wanted)
    lines = (_line(found, edge.settings.partitions, holders) for found in asked)
    return [
        Listed(line, status, found["title"], found["ms"], _cost(found), _input(found, edge.prices))
        for found, (line, status) in zip(asked, lines, strict=True)
        if not wanted.statuses or {status, line["status"]} & {*wanted.statuses}
    ]


def _holders(
    edge: "Edge", asked: Sequence[dict[str, Any]], wanted: Wanted
) -> dict[int, PartitionView]:
    """The holders of the partitions with open turns, if the list needs them. The fleet knows no
    workers."""
    if wanted.statuses and not {*wanted.statuses} & {"busy", "unserved"}:
        return {}
    places = {
        partition_for(found["session_id"], edge.settings.partitions)
        for found in asked if fleet_rows.situation_of(found).status is Status.BUSY
    }  # fmt: skip
    within_s = math.inf if "unserved" in wanted.statuses else HOLDERS_S
    return holders_of(edge.log, places, within_s) if places else {}


def _asked(fleet: "FleetClient", wanted: Wanted) -> Iterator[dict[str, Any]]:
    after: str | None = ""
    while after is not None:
        page = fleet.sessions(wanted.user, limit=PAGE, after=after)
        for found in page["sessions"]:
            if found["changed_at"] < wanted.since_ms:
                return
            yield found
        after = page["next"]


def _line(
    found: dict[str, Any], partitions: int, holders: Mapping[int, PartitionView]
) -> tuple[dict[str, Any], str]:
    """The line as `client.show.summary`, and the status that is shown."""
    situation = fleet_rows.situation_of(found)
    place = partition_for(found["session_id"], partitions)
    is_busy = situation.status is Status.BUSY
    lacks = why_unserved(found["agent"], holders.get(place)) if is_busy else None
    if lacks is not None:
        situation = Situation(Status.UNSERVED, lacks)
    names = ("session_id", "user_id", "agent", "phase", "project_id", "turn")
    line = {
        **{name: found[name] for name in names}, **situation._asdict(),
        "updated_at": found["changed_at"], "partition": place,
    }  # fmt: skip
    return line, TURN_OPEN if is_busy and place not in holders else _shown(line)


def _cost(found: dict[str, Any]) -> Cost:
    used = found["usage"].values()
    return Cost(sum(u["picodollars"] for u in used), sum(u["unpriced"] for u in used))


def _input(found: dict[str, Any], prices: "PriceTable") -> InputCost:
    return input_cost(
        (
            Spent(turn=0, step=0, attempt=1, outcome="complete", model=model, response_id="",
                  offset=0, **{name: used[name] for name in TOKENS})
            for model, used in found["usage"].items()
        ),
        prices,
    )


class TimeParam(click.ParamType):
    """Parses a time to Unix ms: `2h` (ago), or a date with or without a time of day."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Unix ms. Raises click.BadParameter."""
        if isinstance(value, int):
            return value
        now = time.time()
        ago = _AGO.fullmatch(value.strip())
        try:
            if ago is not None:
                then = datetime.fromtimestamp(now) - timedelta(
                    seconds=int(ago[1]) * _SECONDS[ago[2]]
                )
            elif value.strip() in ("today", "yesterday"):
                midnight = datetime.fromtimestamp(now).replace(
                    hour=0, minute=0, second=0, microsecond=0
                )
                then = midnight - timedelta(days=value.strip() == "yesterday")
            else:
                then = datetime.fromisoformat(value.strip())
            return max(0, int(then.timestamp() * 1000))
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r} is not a time. Give 30m, 2h, 3d, today, or a date as in "
                      "2026-11-23 or 2026-11-23T14:00.", param, ctx)


def ago(at_ms: int, now_ms: int) -> str:
    """How long ago a time is, as text."""
    seconds = max(0, now_ms - at_ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return "just now"


def print_list(rows: Sequence[Listed], *, numbered: bool = False) -> None:
    """Print the sessions as a table.

    On a terminal it has colours, and titles that fit the width.
    """
    now = time.time_ns() // 1_000_000
    shown = [
        {
            "": number,
            "session": row.line["session_id"],
            "title": brief(row.title, TITLE_CHARS),
            "status": _words(row),
            "agent": row.line["agent"],
            "user": row.line["user_id"],
            "turn": row.line["turn"],
            "cost": _cost_text(row),
            "cached": None if row.input.saved is None else f"{row.input.saved:.0%}",
            "time": took(row.ms) if row.ms else None,
            "changed": ago(row.line["updated_at"], now),
        }
        for number, row in enumerate(rows, 1)
    ]
    columns = ["", *COLUMNS] if numbered else list(COLUMNS)
    if sys.stdout.isatty():
        columns, chars = _fitted(shown, columns, shutil.get_terminal_size().columns)
        for cell in shown:
            cell["title"] = brief(str(cell["title"]), chars)
    colours = has_styles(sys.stdout)

    def style(number: int, column: str) -> str:
        return COLOURS.get(rows[number].status, "") if colours and column == "status" else ""

    table(shown, columns, style)


def _words(row: Listed) -> str:
    words, until = REASON_WORDS.get(row.line["reason"], SHOWN[row.status]), row.line["until"]
    if row.status != Status.BUSY or until is None:
        return words
    return words + time.strftime(" until %H:%M:%S", time.localtime(until / 1000))


def _cost_text(row: Listed) -> str | None:
    if row.cost == Cost(0) and row.status in OPEN:  # the fleet learns it when the turn ends
        return None
    return str(row.cost) if row.cost.picodollars or not row.cost.unpriced else "unknown"


def _fitted(
    rows: Sequence[Mapping[str, Any]], columns: list[str], width: int
) -> tuple[list[str], int]:
    """The columns that fit the terminal, and the maximum number of characters of a title."""

    def room() -> int:
        widths = (max(len(name), *(len(str(row[name] or "-")) for row in rows), 0) + 2
                  for name in columns if name != "title")
        return width - sum(widths)

    for name in DROPPED:
        if rows and room() < TITLE_CHARS_MIN:
            columns = [column for column in columns if column != name]
    return columns, min(TITLE_CHARS, max(TITLE_CHARS_MIN // 2, room() if rows else 0))

"""Folds one session into its row on the home page: title, cost, activity, what it waits for.

Folds only append rows to the transcript and the ledger, and a card reads only the new rows. So an
update costs the same for a long session as for a short one. All of a card's data is bounded. Times
are the broker's, in Unix ms.
"""

import re
from array import array
from bisect import bisect_right
from enum import IntEnum
from typing import Any, NamedTuple

from ...client.printable import blocks_of, text_of, whole
from ...client.status import FAILED_ENDS, Reason
from ...client.waiting import asking, doubtful, note_doubt
from ...log.blobs import BlobError
from ...processors.advice.prices import PriceTable, usd
from ...processors.facts.turn_clock import TurnClock
from ...processors.fold.calls import CallStatus
from ...processors.fold.projections.ledger import Spent
from ...processors.fold.projections.transcript import FAILED as FAILED_ATTEMPT, Line
from ...processors.fold.projections.turn_view import Call
from ...processors.fold.views import SessionViews
from ...schemas.events.parts import Body, ReadBlob
from .summary import brief

TITLE_CHARS = 100
"""The longest title, which is one line on a wide screen."""

SENTENCE_CHARS_MIN = 12
"""A first sentence shorter than this ("Hi.") is not used as the title."""

RUNS_MAX = 64
"""The most runs of the activity strip; with more runs, the oldest half is dropped."""

CALLS_MAX = 8
"""The most calls of one session that are listed as waiting for a person."""

REASON_CHARS = 240
"""The longest text of an error or of a doubt."""

ARGS_BYTES_MAX = 2_000
"""The longest arguments that the home page shows; the session's page shows longer arguments."""

LINES_READ_MAX = 200
"""How many of the newest lines are searched for the time of background work."""

_SENTENCE = re.compile(r"(.+?\w{3}[.!?])(?:\s|$)")  # an initial ("T. Okafor") ends no sentence


class Run(IntEnum):
    """The kinds of runs in the activity strip."""

    MODEL = 0
    TOOL = 1
    PERSON = 2
    DOUBT = 3
    FAILED = 4


class TurnDone(NamedTuple):
    """A turn that ended.

    `ms`: the time from its first message to its end, without waits for people.
    """

    at: int
    ms: int
    failed: bool


class RequestDone(NamedTuple):
    """A request to a model.

    `ms`: how long it took; None for background work and failed requests.
    """

    at: int
    model: str
    tokens: int
    picodollars: int | None
    ms: int | None


Done = TurnDone | RequestDone


class Card:
    """The row of one session.

    `feed` updates the card from the views, and returns the turns and requests that ended since
    `feed` was last called.
    """

    def __init__(self, prices: PriceTable, read: ReadBlob) -> None:
        self._prices, self._read = prices, read
        self._lines = self._spent = 0  # rows read so far
        self.title = ""
        self.started_at = 0
        self.picodollars = self.unpriced = self.tokens = 0
        self.in_turns_ms = 0  # sum over ended turns
        self.runs: array[int] = array("q")  # kind, start and length of each
        self.calls: list[dict[str, Any]] = []
        self.failure: dict[str, Any] | None = None
        self.waits_since = 0
        self.is_open = False
        self._clock = TurnClock()
        self._tools: dict[str, int] = {}  # since when each running call runs
        self.changed_at = 0  # the time of the newest line
        self._doubts: dict[str, Line] = {}  # the lines with the reasons of doubts
        self._left: dict[str, int] = {}  # calls that were in doubt when their turn ended
        self._tries = 0
        self._last: Line | None = None  # the last failed or lost attempt of this turn
        self._answer_ms: dict[int, int] = {}  # duration of new answers, by offset

    def feed(self, views: SessionViews) -> list[Done]:
        """Read the rows that were added to the transcript and the ledger since the last call."""
        done: list[Done] = []
        self.started_at = self.started_at or views.turn.since
        self.changed_at = self.changed_at or self.started_at
        opened = -1 if views.origin is None else views.origin.opened
        for line in views.transcript.lines.since(self._lines):
            if not self.title and line.kind == "message":
                self.title = self._title(line.body)
            if line.offset > opened:  # the parent has counted inherited lines
                ended = self._line(line)
                if ended is not None:
                    done.append(ended)
        done += [self._request(views, row) for row in views.ledger.spent.since(self._spent)]
        self._lines, self._spent = len(views.transcript.lines), len(views.ledger.spent)
        self._answer_ms.clear()
        self.is_open = views.turn.open
        self._waiting(views)
        return done

    # -- the transcript ----------------------------------------------------------------------------

    def _line(self, line: Line) -> TurnDone | None:
        clock = self._clock
        self.changed_at = line.at
        note_doubt(self._doubts, line)
        if clock.begin(line):
            self._tries, self._last, self.failure = 0, None, None
        match line.kind:
            case "answer" | "partial":
                self._answer_ms[line.offset] = line.at - clock.since
                self._run(Run.MODEL, clock.since, line.at)
            case "attempt":
                self._run(Run.FAILED, clock.since, line.at)
                self._tries, self._last = self._tries + 1, line
            case "call":
                self._tools[line.call] = line.at
            case "approval":
                self._run(Run.PERSON, clock.people.get(line.call, line.at), line.at)
                self._tools[line.call] = line.at
            case "resolved":
                self._left.pop(line.call, None)
                self._run(Run.DOUBT, clock.people.get(line.call, line.at), line.at)
            case "doubt" | "result":
                began = self._tools.pop(line.call, None)
                if began is not None:
                    self._run(Run.TOOL, began, line.at)
            case "ended":
                self._end_turn(line)
        ms = clock.advance(line)
        return None if ms is None else TurnDone(line.at, ms, line.name in FAILED_ENDS)

    def _end_turn(self, line: Line) -> None:
        self.in_turns_ms += max(0, line.at - self._clock.began_at)
        self.failure = None
        if line.name in FAILED_ENDS:
            last = self._last
            self.failure = {
                "reason": str(line.name), "limit": line.text,
                "error": brief(last.text, REASON_CHARS) if last is not None else "",
                "code": last.code if last is not None and last.name == FAILED_ATTEMPT else "",
                "detail": brief(last.note, REASON_CHARS) if last is not None else "",
                "tries": self._tries, "turn": line.turn, "step": line.step, "at": line.at,
            }
        self._tools.clear()
        self._left.update(self._clock.people)

    def _run(self, kind: Run, start: int, end: int) -> None:
        if len(self.runs) >= 3 * RUNS_MAX:
            self.runs = self.runs[3 * (RUNS_MAX // 2) :]
        self.runs.extend((kind, start, max(0, end - start)))

    def _title(self, body: Body | None) -> str:
        try:
            data = whole(body, self._read)
        except BlobError:
            return ""
        texts = [block.get("text") for block in blocks_of(data) if block.get("type") == "text"]
        text = "".join(text for text in texts if isinstance(text, str)) or text_of(data)
        text = text.strip()
        first = _SENTENCE.match(text[: 4 * TITLE_CHARS].split("\n", 1)[0])
        is_title = first is not None and len(first[1]) >= SENTENCE_CHARS_MIN
        return brief(first[1].rstrip(".") if first and is_title else text, TITLE_CHARS)

    # -- the ledger --------------------------------------------------------------------------------

    def _request(self, views: SessionViews, row: Spent) -> RequestDone:
        cost, tokens = self._prices.cost(row), row.read_tokens + row.output_tokens
        self.tokens += tokens
        self.picodollars += cost or 0
        self.unpriced += cost is None
        ms = self._answer_ms.get(row.offset) if row.outcome == "complete" else None
        return RequestDone(_time_of(views, row.offset), row.model, tokens, cost, ms)

    # -- now ---------------------------------------------------------------------------------------

    def _waiting(self, views: SessionViews) -> None:
        waiting = (*asking(views.turn), *doubtful(views.turn))
        self.calls = [self._call(call) for call in waiting[:CALLS_MAX]]
        if waiting:
            since = {**self._left, **self._clock.people}
            self.waits_since = min(since.get(call.key, call.proposed_at) for call in waiting)
        elif self.failure is not None:
            self.waits_since = self.failure["at"]

    def _call(self, call: Call) -> dict[str, Any]:
        """A call that waits for a person, as JSON. `args` is None if the arguments are too long."""
        args, doubt = None, self._doubts.get(call.key)
        if call.args.ref is None:
            data = whole(call.args, None)
            args = data.decode("utf-8", "replace") if len(data) <= ARGS_BYTES_MAX else None
        return {
            "call": call.key,
            "name": call.name,
            "asks": call.status == CallStatus.ASKS,
            "why": brief(doubt.note, REASON_CHARS) if doubt is not None else "",
            "args": args,
            "args_sha256": call.args_sha256,
            "expires_at": call.expires_at,
        }

    def _now(self, reason: Reason) -> tuple[Run, int] | None:
        """What runs now and since when, or None. `reason`: why the session has its status."""
        if self.calls:
            return (Run.PERSON if self.calls[0]["asks"] else Run.DOUBT), self.waits_since
        if reason is Reason.TOOL:
            return Run.TOOL, min(self._tools.values(), default=self._clock.since)
        return (Run.MODEL, self._clock.since) if reason is Reason.MODEL else None

    def json(self, line: dict[str, Any], status: str) -> dict[str, Any]:
        """The row as JSON for the page. `line`: the session's summary."""
        known = self.picodollars or not self.unpriced
        return {
            "id": line["session_id"],
            "user": line["user_id"],
            "agent": line["agent"],
            "title": self.title,
            "status": status,
            "reason": line["reason"],
            "until": line["until"],
            "turns": line["turn"],
            "usd": usd(self.picodollars) if known else None,
            "unpriced": self.unpriced,
            "tokens": self.tokens,
            "started_at": self.started_at,
            "updated_at": max(line["updated_at"], self.changed_at),
            "in_turns_ms": self.in_turns_ms,
            "turn_at": self._clock.began_at if self.is_open else None,
            "runs": self.runs.tolist(),
            "now": self._now(line["reason"]),
            "phase": line["phase"],
            "waits": self.calls,
            "waits_since": self.waits_since,
            "failure": self.failure if status == "failed" else None,
        }


def _time_of(views: SessionViews, offset: int) -> int:
    """The time of an event of background work. Such an event has no transcript line, so this is the
    time of the last line at or before the event's offset.
    """
    lines = views.transcript.lines
    recent = lines.since(max(0, len(lines) - LINES_READ_MAX))
    place = bisect_right(recent, offset, key=lambda line: line.offset)
    return recent[place - 1].at if place else views.turn.since


"""Encodes the items that a session shows to its viewers as AG-UI 1.0 events. Pure: uses no clock
and no HTTP.

A thread is a session, a run is a turn (`SESSION:TURN`). A run ends early, as an interrupt, when the
turn continues only after a person answers; the events after the answer open another run of the same
turn (`SESSION:TURN.1`, whose parent is the run before). Lines after a turn, such as the late result
of a call in doubt, are a run too. AG-UI has no event that withdraws a message. So when an attempt
is superseded, the open message is closed, a CUSTOM event reports it, and MESSAGES_SNAPSHOT removes
the message.
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, assert_never

from ....client.printable import no_text, text_of, whole
from ....client.transcript_stream import Attempt, Dropped, LineAdded, Settled, Shown, Token
from ....processors.fold.projections.ledger import ANSWER, LedgerView, Spent
from ....processors.fold.projections.session_state import SessionState, as_json
from ....processors.fold.projections.transcript import Line
from ....processors.fold.views import SessionViews
from ....schemas.events.parts import ReadBlob
from .attempt_output import AttemptOutput
from .calls import Calls
from .messages import Event, Message, Messages, answer, event, snapshots

VERSION = "1.0"
CANCELLED = ("cancelled", "interrupted", "terminated")
FAILED = ("failed", "budget_exceeded")
CUSTOM_KINDS = (
    "phase", "project", "terminated", "attempt", "asks", "approval", "doubt", "taken",
)
"""Kinds of lines that have no AG-UI event of their own.

They are sent as CUSTOM with the kind as name.
"""


class Encoder:
    """Turns the items that a session shows, from its first item on, into events for one viewer.

    `messages`: the messages of a client that received every event.
    """

    def __init__(self, thread: str, read: ReadBlob | None) -> None:
        self.thread, self._read = thread, read
        self.messages = Messages()
        self.run: str | None = None  # the open run
        self.turn, self._part = 0, -1  # the last run's turn, and its number in the turn
        self._started: Event | None = None  # first and last event of the last run
        self._finish: Event | None = None
        self._step: str | None = None
        self._seen: SessionState | None = None  # the state last sent, and its JSON
        self._state: dict[str, Any] | None = None
        self._offset = self._closed = -1  # offsets of the newest line, and of a run's last line
        self._calls = Calls()
        self._output: AttemptOutput | None = None
        self._results: Counter[str] = Counter()
        self._error = ""
        self._out: list[Event] = []

    # -- input -------------------------------------------------------------------------------------

    def show(self, shown: Shown, views: SessionViews) -> list[Event]:
        """The events for one shown item. `views`: the session's views after the item."""
        of = shown.line if isinstance(shown, LineAdded) else shown.of
        if isinstance(shown, LineAdded | Settled):
            self._offset = shown.line.offset
        self._open_run(max(of.turn, self.turn))
        self._send_state(views.state)
        match shown:
            case Token():
                self._open_step(shown.of)
                self._token(shown)
            case Dropped():
                self._drop(shown)
            case Settled():
                self._open_step(shown.of)
                self._settle(shown)
            case LineAdded():
                self._line(shown.line)
            case _:
                assert_never(shown)
        self._close_run(shown.line if isinstance(shown, LineAdded) else None, views)
        out, self._out = self._out, []
        return out

    def close(self) -> list[Event]:
        """The events that end this stream while its run continues. Does not change the encoder."""
        if self.run is None:
            return []
        message = f"the stream was cut, the run continues: connect to thread {self.thread} again"
        return [*self._open_ends(), event("RUN_ERROR", message=message, code="stream_cut")]

    def join(self, known: list[Message]) -> list[Event]:
        """The events that bring a client with the messages `known` up to date.

        If a run is open, they open it and leave it open; otherwise they end with the end of the
        last run. Before the first run there are no events. Does not change the encoder.
        """
        if self._started is None:
            return []
        out = [self._started, *snapshots(known, self.messages.all)]
        if self._state is not None:
            out.append(event("STATE_SNAPSHOT", snapshot=dict(self._state)))
        if self.run is None:
            return [*out, self._finish] if self._finish is not None else out
        if self._step is not None:
            out.append(event("STEP_STARTED", stepName=self._step))
        return [*out, *(self._output.reopened() if self._output else ())]

    def enter(self, shown: Shown, views: SessionViews, known: list[Message]) -> list[Event]:
        """Like `show`, for a client that joins at this item and has the messages `known`. A client
        that sent a new message has one message more than this encoder.
        """
        is_behind = self.run is not None or known != self.messages.all
        self._seen = self._state = None
        events = self.show(shown, views)
        return self.join(known) if is_behind else events

    @property
    def interrupted(self) -> bool:
        """Whether the last run ended because a person must answer."""
        outcome = (self._finish or {}).get("outcome", {})
        return self.run is None and outcome.get("type") == "interrupt"

    @property
    def interrupts(self) -> list[str]:
        """The ids of the interrupts with which the last run ended."""
        outcome = (self._finish or {}).get("outcome", {})
        return [interrupt["id"] for interrupt in outcome.get("interrupts", ())]

    # -- runs, steps, state ------------------------------------------------------------------------

    def _open_run(self, turn: int) -> None:
        if self.run is not None:
            return  # TURN_ENDED closes the run of each turn
        if turn != self.turn:
            self._part, self._calls = -1, Calls()
        self.turn, self._part = turn, self._part + 1
        self.run = f"{self.thread}:{turn}" + (f".{self._part}" if self._part else "")
        parent = {} if self._started is None else {"parentRunId": self._started["runId"]}
        fields = {"threadId": self.thread, "runId": self.run, "protocolVersion": VERSION}
        self._started, self._finish = event("RUN_STARTED", **fields, **parent), None
        self._emit(self._started)

    def _close_run(self, line: Line | None, views: SessionViews) -> None:
        """End the run if its turn has ended, if no turn is open, or if a person must answer."""
        if line is not None and line.kind == "ended":
            self._calls.ended = True
            finished = self._run_result(line.name)
        elif self._calls.ended or self.turn == 0:
            finished = self._success({"turn": self.turn})
        elif interrupts := self._calls.interrupts(views.turn.calls):
            outcome = {"type": "interrupt", "interrupts": interrupts}
            finished = self._run_finished(outcome=outcome)
        else:
            return
        self._emit(*self._open_ends())
        rows = _spent_in(views.ledger, self.turn, self._closed, self._offset)
        if rows:
            finished["usage"] = _usage_of(rows)
        self._closed = self._offset
        self._emit(finished)
        self.run, self._step, self._output, self._finish = None, None, None, finished

    def _run_result(self, reason: str) -> Event:
        if reason in FAILED:
            message = self._error if reason == "failed" and self._error else f"turn: {reason}"
            return event("RUN_ERROR", message=message, code=reason)
        if reason in CANCELLED:
            return self._run_finished(outcome={"type": "cancelled"})
        return self._success({"turn": self.turn, "reason": reason})

    def _success(self, result: dict[str, Any]) -> Event:
        return self._run_finished(result=result, outcome={"type": "success"})

    def _run_finished(self, **fields: Any) -> Event:
        return event("RUN_FINISHED", threadId=self.thread, runId=self.run, **fields)

    def _open_step(self, place: Attempt | Line) -> None:
        """Begin the step of an attempt or line, unless its turn is over."""
        name = f"{place.turn}.{place.step}"
        if place.turn != self.turn or place.step == 0 or name == self._step:
            return
        if self._step is not None:
            self._emit(event("STEP_FINISHED", stepName=self._step))
        self._step = name
        self._emit(event("STEP_STARTED", stepName=name))

    def _open_ends(self) -> list[Event]:
        ends = self._output.ends() if self._output else []
        if self._step is not None:
            ends.append(event("STEP_FINISHED", stepName=self._step))
        return ends

    def _send_state(self, state: SessionState) -> None:
        if state is self._seen:
            return
        before, now = self._state, json.loads(as_json(state))
        self._seen, self._state = state, now
        if before is None:
            self._emit(event("STATE_SNAPSHOT", snapshot=now))
        elif before != now:
            changed = [name for name in now if before[name] != now[name]]
            delta = [{"op": "replace", "path": f"/{n}", "value": now[n]} for n in changed]
            self._emit(event("STATE_DELTA", delta=delta))

    # -- the model's output ------------------------------------------------------------------------

    def _token(self, token: Token) -> None:
        if self._output is None or self._output.of != token.of:
            self._output = AttemptOutput(self.thread, token.of)
        self._emit(*self._output.take(token))

    def _drop(self, dropped: Dropped) -> None:
        if self._output is None:
            return
        value = {**dropped.of._asdict(), "why": dropped.why}
        dropping = event("CUSTOM", name="attempt_dropped", value=value)
        self._emit(*self._output.ends(), dropping)
        gone = set(self._output.message_ids())
        self._replace([m for m in self.messages.all if m["id"] not in gone])
        self._output = None

    def _settle(self, settled: Settled) -> None:
        """Send the part of the final content that has not streamed, and correct what differs."""
        line, of = settled.line, settled.of
        if line.body is not None and line.body.ref is not None and self._read is None:
            self._close_speech()
            return
        calls = line.kind == "answer" and line.name == "tool_use"
        content = whole(line.body, self._read)
        want = answer(self.thread, of.turn, of.step, content, calls=calls)
        output = self._output or AttemptOutput(self.thread, of)
        self._emit(*output.rest_of_calls(want, self.messages))
        self._output = output
        self._close_speech()
        for message in want:
            if "encryptedValue" in message and self.messages.get(message["id"]):
                value = message["encryptedValue"]
                fields = {"subtype": "message", "entityId": message["id"], "encryptedValue": value}
                self._emit(event("REASONING_ENCRYPTED_VALUE", **fields))
        mine = {*output.message_ids(), *(m["id"] for m in want)}
        self._replace([*(m for m in self.messages.all if m["id"] not in mine), *want])
        self._calls.proposed(call["id"] for m in want for call in m.get("toolCalls", ()))
        if why := no_text(line, self._read):
            value = {"turn": of.turn, "step": of.step, "offset": line.offset, "why": why}
            self._emit(event("CUSTOM", name="silent", value=value))

    def _close_speech(self) -> None:
        """Close the streaming output."""
        self._emit(*(self._output.ends() if self._output else ()))
        self._output = None

    def _replace(self, want: list[Message]) -> None:
        self._emit(*snapshots(self.messages.all, want))

    # -- lines -------------------------------------------------------------------------------------

    def _line(self, line: Line) -> None:
        if line.call:
            self._open_step(line)
        answers = line.kind in ("result", "resolved")
        if line.kind == "message":
            self._message(line)
        elif answers or (line.kind == "approval" and line.code != "allow"):
            content = whole(line.body, self._read).decode("utf-8", "replace") if answers else ""
            self._result(line.call, content, line.text)
        elif line.kind == "ended":
            for key in self._calls.unanswered():
                self._result(key, "", f"no result: the turn ended ({line.name})")
        if line.kind == "attempt" and line.name == "failed":
            self._error = line.text
        if line.kind in CUSTOM_KINDS:
            fields = ("kind", "turn", "step", "call", "name", "text", "offset", "at")
            value = {name: getattr(line, name) for name in fields}
            self._emit(event("CUSTOM", name=line.kind, value=value))
        if line.turn == self.turn:
            self._calls.take(line)

    def _message(self, line: Line) -> None:
        text, name = text_of(whole(line.body, self._read)), line.name
        self._emit(
            event("TEXT_MESSAGE_START", messageId=name, role="user"),
            event("TEXT_MESSAGE_CONTENT", messageId=name, delta=text),
            event("TEXT_MESSAGE_END", messageId=name),
        )

    def _result(self, call: str, content: str, outcome: str) -> None:
        self._results[call] += 1  # a call in doubt may get several results
        ids = {"messageId": f"{self.thread}/{call}/result{self._results[call]}", "toolCallId": call}
        metadata = {"outcome": outcome}
        fields = {"content": content or outcome, "role": "tool", "metadata": metadata}
        self._emit(event("TOOL_CALL_RESULT", **ids, **fields))

    def _emit(self, *events: Event) -> None:
        for one in events:
            self.messages.apply(one)
        self._out += events


def _spent_in(ledger: LedgerView, turn: int, after: int, upto: int) -> list[Spent]:
    """A turn's attempts that reported after the offset `after`, up to `upto`. Background work
    belongs to no turn, so to no run.
    """
    first = bisect_right(ledger.spent, after, key=attrgetter("offset"))
    rows = ledger.spent.since(first)
    return [r for r in rows if (r.kind, r.turn) == (ANSWER, turn) and r.offset <= upto]


def _usage_of(rows: Iterable[Spent]) -> list[dict[str, Any]]:
    """One TokenUsage per model, in order of first use. The log does not name the provider."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        parts = {
            "inputTokens": row.read_tokens,
            "outputTokens": row.output_tokens,
            "totalTokens": row.read_tokens + row.output_tokens,
            "cachedInputTokens": row.cache_read_tokens,
            "cacheWriteInputTokens": row.cache_write_tokens,
        }
        so_far = found.setdefault(row.model, {"model": row.model} if row.model else {})
        for name, tokens in parts.items():
            so_far[name] = so_far.get(name, 0) + tokens
    return list(found.values())

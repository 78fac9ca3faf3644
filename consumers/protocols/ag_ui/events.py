"""AG-UI 1.0: what a viewer is shown, as events of the protocol. Pure: no clock, no HTTP.

A thread is a session, a run is a turn (`SESSION:TURN`). A run ends early, as an interrupt, where it
can only go on when a person answers; what comes then opens another run of the same turn
(`SESSION:TURN.1`, its parent the one before). What comes after a turn, as the late result of a call
in doubt, is a run as well. AG-UI can not take a message back: where an attempt is superseded the
open message is closed, a CUSTOM event says what takes its place, and MESSAGES_SNAPSHOT removes it.
"""

import json
from collections import Counter
from typing import Any

from ....processors.fold.projections.session_state import SessionState, as_json
from ....processors.fold.projections.transcript import Line
from ....processors.fold.views import SessionViews
from ....schemas.events.parts import ReadBlob
from ...contents import text_of, whole
from ...transcript_stream import Attempt, Dropped, Settled, Shown, Token, Told
from .calls import Calls
from .messages import Event, Message, Messages, answer, event, snapshots
from .speech import Speech
from .usage import spent_in, usage_of

VERSION = "1.0"
CANCELLED = ("cancelled", "interrupted", "terminated")
FAILED = ("failed", "budget_exceeded")
SAID_OUTSIDE = (
    "phase", "project", "terminated", "attempt", "asks", "approval", "doubt", "taken",
)
"""Lines for which AG-UI has no event: they come as CUSTOM, named by their kind."""


class Encoder:
    """Turns what one viewer is shown of a session, from its start, into events.

    `messages` are what a client has that got every event.
    """

    def __init__(self, thread: str, read: ReadBlob | None) -> None:
        self.thread, self._read = thread, read
        self.messages = Messages()
        self.run: str | None = None  # the run that is open
        self.turn, self._part = 0, -1  # the turn of the last run, and which of its runs that was
        self._started: Event | None = None  # how the last run began, and how it ended
        self._finish: Event | None = None
        self._step: str | None = None
        self._seen: SessionState | None = None  # the state that was told, and as it was told
        self._state: dict[str, Any] | None = None
        self._offset = self._closed = -1  # of the newest line, and of the one that ended a run
        self._calls = Calls()
        self._speech: Speech | None = None
        self._results: Counter[str] = Counter()
        self._error = ""
        self._out: list[Event] = []

    # -- what comes --------------------------------------------------------------------------------

    def show(self, shown: Shown, views: SessionViews) -> list[Event]:
        """The events of one thing shown; `views`: the session's, after it."""
        of = shown.line if isinstance(shown, Told) else shown.of
        if isinstance(shown, Told | Settled):
            self._offset = shown.line.offset
        self._open_run(max(of.turn, self.turn))
        self._tell_state(views.state)
        match shown:
            case Token():
                self._open_step(shown.of)
                self._token(shown)
            case Dropped():
                self._drop(shown)
            case Settled():
                self._open_step(shown.of)
                self._settle(shown)
            case Told():
                self._line(shown.line)
        self._close_run(shown.line if isinstance(shown, Told) else None, views)
        out, self._out = self._out, []
        return out

    def close(self) -> list[Event]:
        """What ends the stream here, while its run goes on elsewhere. Changes nothing."""
        if self.run is None:
            return []
        message = f"the stream was cut, the run goes on: connect to thread {self.thread} again"
        return [*self._open_ends(), event("RUN_ERROR", message=message, code="stream_cut")]

    def join(self, known: list[Message]) -> list[Event]:
        """What brings a client that has some messages here: into the open run, or to the end of the
        last one. Changes nothing."""
        if self._started is None:
            return []
        out = [self._started, *snapshots(known, self.messages.all)]
        if self._state is not None:
            out.append(event("STATE_SNAPSHOT", snapshot=dict(self._state)))
        if self.run is None:
            return [*out, self._finish] if self._finish is not None else out
        if self._step is not None:
            out.append(event("STEP_STARTED", stepName=self._step))
        return [*out, *(self._speech.reopened() if self._speech else ())]

    def enter(self, shown: Shown, views: SessionViews, known: list[Message]) -> list[Event]:
        """As `show`, for a client that begins with this, and has some messages; with a message of
        its own it has one more than this has before."""
        lacks = self.run is not None or known != self.messages.all
        self._seen = self._state = None
        events = self.show(shown, views)
        return self.join(known) if lacks else events

    @property
    def interrupted(self) -> bool:
        """Whether the last run ended because a person must answer."""
        outcome = (self._finish or {}).get("outcome", {})
        return self.run is None and outcome.get("type") == "interrupt"

    # -- runs, steps, state ------------------------------------------------------------------------

    def _open_run(self, turn: int) -> None:
        if self.run is not None:
            return  # TURN_ENDED closed it if this were another turn's
        if turn != self.turn:
            self._part, self._calls = -1, Calls()
        self.turn, self._part = turn, self._part + 1
        self.run = f"{self.thread}:{turn}" + (f".{self._part}" if self._part else "")
        parent = {} if self._started is None else {"parentRunId": self._started["runId"]}
        named = {"threadId": self.thread, "runId": self.run, "protocolVersion": VERSION}
        self._started, self._finish = event("RUN_STARTED", **named, **parent), None
        self._say(self._started)

    def _close_run(self, line: Line | None, views: SessionViews) -> None:
        """End the run if its turn has ended, if none is open, or if only a person can go on."""
        if line is not None and line.kind == "ended":
            self._calls.ended = True
            finished = self._finished(line.name)
        elif self._calls.ended or self.turn == 0:
            finished = self._success({"turn": self.turn})
        elif interrupts := self._calls.interrupts(views.turn.calls):
            outcome = {"type": "interrupt", "interrupts": interrupts}
            finished = self._run_finished(outcome=outcome)
        else:
            return
        for closing in self._open_ends():
            self._say(closing)
        rows = spent_in(views.ledger, self.turn, self._closed, self._offset)
        if rows:
            finished["usage"] = usage_of(rows)
        self._closed = self._offset
        self._say(finished)
        self.run, self._step, self._speech, self._finish = None, None, None, finished

    def _finished(self, reason: str) -> Event:
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
        """Be in that step, unless it is one of a turn that is over."""
        name = f"{place.turn}.{place.step}"
        if place.turn != self.turn or place.step == 0 or name == self._step:
            return
        if self._step is not None:
            self._say(event("STEP_FINISHED", stepName=self._step))
        self._step = name
        self._say(event("STEP_STARTED", stepName=name))

    def _open_ends(self) -> list[Event]:
        ends = self._speech.ends() if self._speech else []
        if self._step is not None:
            ends.append(event("STEP_FINISHED", stepName=self._step))
        return ends

    def _tell_state(self, state: SessionState) -> None:
        if state is self._seen:
            return
        told, now = self._state, json.loads(as_json(state))
        self._seen, self._state = state, now
        if told is None:
            self._say(event("STATE_SNAPSHOT", snapshot=now))
        elif told != now:
            changed = [name for name in now if told[name] != now[name]]
            delta = [{"op": "replace", "path": f"/{n}", "value": now[n]} for n in changed]
            self._say(event("STATE_DELTA", delta=delta))

    # -- what the model says -----------------------------------------------------------------------

    def _token(self, token: Token) -> None:
        if self._speech is None or self._speech.of != token.of:
            self._speech = Speech(self.thread, token.of)
        for said in self._speech.take(token):
            self._say(said)

    def _drop(self, dropped: Dropped) -> None:
        if self._speech is None:
            return
        for end in self._speech.ends():
            self._say(end)
        of = dropped.of
        value = {"turn": of.turn, "step": of.step, "attempt": of.attempt, "why": dropped.why}
        self._say(event("CUSTOM", name="attempt_dropped", value=value))
        gone = set(self._speech.message_ids())
        self._replace([m for m in self.messages.all if m["id"] not in gone])
        self._speech = None

    def _settle(self, settled: Settled) -> None:
        """Say what is missing of the final words; correct what was said otherwise."""
        line, of = settled.line, settled.of
        if line.body is not None and line.body.ref is not None and self._read is None:
            self._hush()
            return
        calls = line.kind == "answer" and line.name == "tool_use"
        content = whole(line.body, self._read)
        want = answer(self.thread, of.turn, of.step, content, calls=calls)
        speech = self._speech or Speech(self.thread, of)
        for missing in speech.rest_of_calls(want, self.messages):
            self._say(missing)
        self._speech = speech
        self._hush()
        for message in want:
            if "encryptedValue" in message and self.messages.get(message["id"]):
                value = message["encryptedValue"]
                named = {"subtype": "message", "entityId": message["id"], "encryptedValue": value}
                self._say(event("REASONING_ENCRYPTED_VALUE", **named))
        mine = {*speech.message_ids(), *(m["id"] for m in want)}
        self._replace([*(m for m in self.messages.all if m["id"] not in mine), *want])
        made = [call["id"] for m in want for call in m.get("toolCalls", ())]
        self._calls.proposed(made)

    def _hush(self) -> None:
        """Nothing streams any more."""
        for end in self._speech.ends() if self._speech else ():
            self._say(end)
        self._speech = None

    def _replace(self, want: list[Message]) -> None:
        for snapshot in snapshots(self.messages.all, want):
            self._say(snapshot)

    # -- lines -------------------------------------------------------------------------------------

    def _line(self, line: Line) -> None:
        if line.call:
            self._open_step(line)
        answers = line.kind in ("result", "resolved")
        if line.kind == "message":
            self._message(line)
        elif answers or (line.kind == "approval" and line.text != "allow"):
            content = whole(line.body, self._read).decode("utf-8", "replace") if answers else ""
            self._result(line.call, content, line.text)
        elif line.kind == "ended":
            for key in self._calls.unanswered():
                self._result(key, "", f"no result: the turn ended ({line.name})")
        if line.kind == "attempt" and line.name == "failed":
            self._error = line.text
        if line.kind in SAID_OUTSIDE:
            fields = ("kind", "turn", "step", "call", "name", "text", "offset", "at")
            value = {name: getattr(line, name) for name in fields}
            self._say(event("CUSTOM", name=line.kind, value=value))
        if line.turn == self.turn:
            self._calls.take(line)

    def _message(self, line: Line) -> None:
        text = text_of(whole(line.body, self._read))
        name = line.name
        self._say(event("TEXT_MESSAGE_START", messageId=name, role="user"))
        self._say(event("TEXT_MESSAGE_CONTENT", messageId=name, delta=text))
        self._say(event("TEXT_MESSAGE_END", messageId=name))

    def _result(self, call: str, content: str, outcome: str) -> None:
        self._results[call] += 1  # a doubt may be answered, and answered again
        named = {"messageId": f"{self.thread}/{call}/result{self._results[call]}"}
        named |= {"toolCallId": call}
        metadata = {"outcome": outcome}
        said = {"content": content or outcome, "role": "tool", "metadata": metadata}
        self._say(event("TOOL_CALL_RESULT", **named, **said))

    def _say(self, said: Event) -> None:
        self.messages.apply(said)
        self._out.append(said)

"""Encodes one turn as a UI message stream of the Vercel AI SDK 7, chunk by chunk.

This is a pure fold of shown items: `begin(session, turn)`, then `encode(state, thing, read,
steered)` for each item. The message's parts depend only on the log, however the stream was cut and
whenever a client joined: a line that arrives during a step is sent after the step, and streamed
text that was not final is corrected (`reset-step`). The message contains only the model's turn,
with one exception: a user's message that steers the turn is in it as `steering-message`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, assert_never

from ....client.printable import no_text, whole
from ....client.transcript_stream import Attempt, Dropped, LineAdded, Settled, Shown, Token
from ....processors.fold.projections.transcript import Line
from ....processors.fold.views import SessionViews
from ....schemas import events as ev
from ....schemas.enums import ChunkKind, Decision, EndReason, Outcome, Resolution
from ....schemas.events.parts import ReadBlob
from ....schemas.ids import call_key
from .parts import Part, approval_id, final_parts, text_of, user_parts, value_of

Chunk = dict[str, Any]
Steered = Callable[[str, int], bool]
"""Returns whether a message joined a running turn: see `steered_in`."""

FINISH = {
    EndReason.END_TURN: "stop",
    EndReason.STOP_TOOL: "stop",
    EndReason.SHOULD_STOP: "stop",
    EndReason.MAX_TOKENS: "length",
    EndReason.REFUSAL: "content-filter",
    EndReason.INTERRUPTED: "interrupted",
}
"""The protocol's finishReason by EndReason, else `other`. The metadata has the EndReason."""
ABORTED = (EndReason.CANCELLED, EndReason.TERMINATED)

TYPES = {"text": "text", "thinking": "reasoning"}
"""The protocol's name of a block, by the block's kind."""

NO_RESULT = "The turn ended before this call had a result."


class Block(NamedTuple):
    """A streaming part.

    kind: text, thinking or tool.
    `sent`: the characters that were sent.
    """

    number: int
    kind: str
    sent: int = 0
    call: str = ""
    name: str = ""
    open: bool = True


class CallState(NamedTuple):
    """A call of this turn. status: proposed, running, asks, denied, doubt, done."""

    key: str
    name: str
    status: str = "proposed"
    approval: str = ""
    why: str = ""


class State(NamedTuple):
    """The part of a turn's message that has been sent.

    step: the last step begun.
    settled: the last step whose content is final.
    blocks: the blocks of the streaming attempt.
    later: lines that wait for the end of their step.
    steering: messages that may steer the turn.
    reason: why the turn ended, '' while it is open.
    """

    session_id: str
    turn: int
    step: int = 0
    settled: int = 0
    blocks: tuple[Block, ...] = ()
    calls: tuple[CallState, ...] = ()
    later: tuple[Line, ...] = ()
    steering: tuple[Line, ...] = ()
    failure: str = ""
    reason: str = ""

    @property
    def waits(self) -> bool:
        """Whether the turn cannot continue until a person has answered an approval request."""
        statuses = {call.status for call in self.calls}
        return "asks" in statuses and statuses <= {"asks", "denied", "doubt", "done"}


def message_id(session_id: str, turn: int) -> str:
    """The id of a turn's message; it never changes."""
    return f"{session_id}:{turn}"


def begin(session_id: str, turn: int) -> tuple[State, list[Chunk]]:
    """The initial state of a turn, and its first chunks."""
    start = {"type": "start", "messageId": message_id(session_id, turn)}
    metadata = {"session": session_id, "turn": turn}
    return State(session_id, turn), [{**start, "messageMetadata": metadata}]


def encode(
    state: State, thing: Shown, read: ReadBlob, steered: Steered
) -> tuple[State, list[Chunk]]:
    """The state after one shown item, and the chunks for this item. An item of another turn has no
    chunks.
    """
    encoder = _Encoder(state, read, steered)
    match thing:
        case LineAdded():
            if thing.line.turn == state.turn:
                encoder.line(thing.line)
        case Token() | Dropped() | Settled() if thing.of.turn != state.turn or state.reason:
            pass
        case Token():
            encoder.token(thing)
        case Dropped():
            encoder.dropped(thing.of)
        case Settled():
            encoder.settled(thing.of, thing.line)
        case _:
            assert_never(thing)
    return encoder.state, encoder.out


def paused(state: State) -> list[Chunk]:
    """The chunks that end a response because its turn waits for approvals."""
    assert state.waits
    return [{"type": "finish-step"}, {"type": "finish", "finishReason": "tool-calls"}]


def steered_in(views: SessionViews) -> Steered:
    """Return a function that takes a message and a turn. It returns whether, according to these
    views, the message joined the turn after the turn's first request.
    """

    def steered(message: str, turn: int) -> bool:
        row = views.messages.progress.last(message)
        if row is None or row.turn != turn:
            return False
        # A message that was queued when the session was terminated has only this row.
        return row.reason != EndReason.TERMINATED or any(
            row.message_id == message and not row.reason for row in views.messages.progress
        )

    return steered


class _Encoder:
    """Writes the chunks of one shown item, and updates the state."""

    def __init__(self, state: State, read: ReadBlob, steered: Steered) -> None:
        self.state, self.out = state, list[Chunk]()
        self._read, self._steered = read, steered

    def _put(self, type: str, **fields: Any) -> None:
        self.out.append({"type": type, **fields})

    def _set(self, **changes: Any) -> None:
        self.state = self.state._replace(**changes)

    # -- steps ---------------------------------------------------------------------------------

    def _begin_step(self, step: int) -> None:
        """Begin every step up to `step` that has not begun."""
        while self.state.step < step:
            if self.state.step:
                self._flush(self.state.step)
                self._steer(self.state.step)
                self._put("finish-step")
            self._put("start-step")
            self._set(step=self.state.step + 1)

    def _flush(self, step: int) -> None:
        """Send the lines that waited for the end of a step."""
        ready = [line for line in self.state.later if line.step <= step]
        self._set(later=tuple(line for line in self.state.later if line.step > step))
        for line in ready:
            self._note(line)

    def _steer(self, step: int) -> None:
        """Send the messages that the next step's request includes."""
        ready = [line for line in self.state.steering if line.step <= step]
        joined = [line for line in ready if self._steered(line.name, self.state.turn)]
        self._set(steering=tuple(line for line in self.state.steering if line not in joined))
        for line in joined:
            parts = user_parts(self.state.session_id, line.body, self._read)
            self._put("steering-message", id=line.name, parts=parts)

    # -- content -------------------------------------------------------------------------------

    def token(self, token: Token) -> None:
        """Send a piece of a block; the first piece begins the part."""
        self._begin_step(token.of.step)
        tool = token.kind in (ChunkKind.TOOL_NAME, ChunkKind.TOOL_INPUT)
        kind = "tool" if tool else str(token.kind)
        block = self._block(token.block, kind)
        if block is None:
            if token.kind == ChunkKind.TOOL_INPUT or not token.text:
                return
            block = self._begin_block(token.of.step, token.block, kind, token.text)
        if token.kind != ChunkKind.TOOL_NAME:
            self._extend(block, token.text)

    def _block(self, number: int, kind: str) -> Block | None:
        for block in self.state.blocks:
            if (block.number, block.kind) == (number, kind):
                return block
        return None

    def _begin_block(self, step: int, number: int, kind: str, name: str = "") -> Block:
        for before in self.state.blocks:
            if before.kind == "text" and before.open:
                self._end(before)
        block = Block(number, kind)
        if kind == "tool":
            index = sum(before.kind == "tool" for before in self.state.blocks)
            block = block._replace(call=call_key(self.state.turn, step, index), name=name)
            self._put("tool-input-start", toolCallId=block.call, toolName=name, dynamic=True)
        else:
            self._put(f"{TYPES[kind]}-start", id=self._id(number))
        self._set(blocks=(*self.state.blocks, block))
        return block

    def _extend(self, block: Block, text: str) -> None:
        if not text or not block.open:
            return  # an ended part cannot continue; it is corrected when the step settles
        if block.kind == "tool":
            self._put("tool-input-delta", toolCallId=block.call, inputTextDelta=text)
        else:
            self._put(f"{TYPES[block.kind]}-delta", id=self._id(block.number), delta=text)
            self._change(block, sent=block.sent + len(text))

    def _end(self, block: Block, **more: Any) -> None:
        self._put(f"{TYPES[block.kind]}-end", id=self._id(block.number), **more)
        self._change(block, open=False)

    def _change(self, block: Block, **changes: Any) -> None:
        after = block._replace(**changes)
        self._set(blocks=tuple(after if b == block else b for b in self.state.blocks))

    def _id(self, number: int) -> str:
        return f"{self.state.turn}.{self.state.step}.{number}"

    def dropped(self, of: Attempt) -> None:
        """Withdraw the output of an attempt."""
        if self.state.blocks and self.state.step == of.step:
            self._put("reset-step")
        self._set(blocks=())

    def settled(self, of: Attempt, line: Line) -> None:
        """Send the part of the final content that was not sent yet, or all of it if the part that
        was sent differs from it.
        """
        self._begin_step(of.step)
        final = list(final_parts(line, self._read))
        if not self._agrees(final):
            self.dropped(of)
        for part in final:
            if part.kind == "tool":
                self._propose(of.step, part)
                continue
            block = self._block(part.number, part.kind)
            block = block or self._begin_block(of.step, part.number, part.kind)
            self._extend(block, part.text[block.sent :])
            block = self._block(part.number, part.kind)
            if block is not None and block.open:
                self._end(block, **part.more)
        if why := no_text(line, self._read):
            self._put("data-silent", id=str(line.offset), data={"why": why})
        self._set(blocks=(), settled=of.step)
        self._flush(of.step)

    def _agrees(self, final: list[Part]) -> bool:
        """Whether the final parts begin with what was sent."""
        sent = self.state.blocks
        pairs = zip(sent, final, strict=False)
        return len(sent) <= len(final) and all(
            (block.number, block.kind, block.name) == (part.number, part.kind, part.name)
            and (block.sent <= len(part.text) if block.open else block.sent == len(part.text))
            for block, part in pairs
        )

    def _propose(self, step: int, part: Part) -> None:
        earlier = [call for call in self.state.calls if call.key.split(".")[1] == str(step)]
        key = call_key(self.state.turn, step, len(earlier))
        fields = {"toolCallId": key, "toolName": part.name, "dynamic": True}
        self._put("tool-input-available", **fields, input=part.input)
        self._set(calls=(*self.state.calls, CallState(key, part.name)))

    # -- lines ---------------------------------------------------------------------------------

    def line(self, line: Line) -> None:
        """Send a line of this turn's transcript."""
        call = next((call for call in self.state.calls if call.key == line.call), None)
        match line.kind:
            case "message" if line.step and not self.state.reason:
                self._set(steering=(*self.state.steering, line))
            case "phase" | "project" if not self.state.reason:
                if line.step > self.state.settled:
                    self._set(later=(*self.state.later, line))
                else:
                    self._note(line)
            case "attempt":
                self._set(failure=line.text)
                data = {"what": line.name, "why": line.text}
                self._put("data-attempt", data=data, transient=True)
            case "ended":
                self._ended(line)
            case "call" if call:
                self._update_call(call, status="running")
            case "asks" if call:
                approval = approval_id(call.key, line.body)
                self._put("tool-approval-request", approvalId=approval, toolCallId=call.key)
                self._update_call(call, status="asks", approval=approval)
            case "approval" if call and call.status == "asks":
                self._decided(call, line.code)
            case "result" if call:
                if call.status == "doubt":
                    self._doubt(call, why=call.why, resolved=line.code)
                self._result(call, line.code, line.body)
            case "doubt" if call and call.status != "doubt":  # the next line only asks a person
                self._doubt(call, why=line.text)
            case "resolved" if call:
                if call.why:
                    self._doubt(call, why=call.why, resolved=line.code)
                self._result(call, line.code, line.body)

    def _note(self, line: Line) -> None:
        field = {"phase": "trigger", "project": "project_id"}[line.kind]
        self._put(f"data-{line.kind}", id=str(line.offset), data={field: line.name})

    def _update_call(self, call: CallState, **changes: Any) -> None:
        after = call._replace(**changes)
        calls = tuple(after if c.key == call.key else c for c in self.state.calls)
        self._set(calls=calls)

    def _decided(self, call: CallState, decision: str) -> None:
        allowed = decision == Decision.ALLOW
        more = {} if decision in tuple(Decision) else {"reason": decision}
        approval = {"approvalId": call.approval, "approved": allowed}
        self._put("tool-approval-response", **approval, **more)
        if not allowed:
            self._put("tool-output-denied", toolCallId=call.key)
        self._update_call(call, status="running" if allowed else "denied")

    def _doubt(self, call: CallState, **fields: str) -> None:
        """Send or update the part for a call in doubt."""
        data = {"call": call.key, "tool": call.name, **fields}
        self._put("data-doubt", id=call.key, data=data)
        status = "done" if "resolved" in fields else "doubt"
        self._update_call(call, status=status, why=fields["why"])

    def _result(self, call: CallState, outcome: str, body: ev.Body | None) -> None:
        call = next(c for c in self.state.calls if c.key == call.key)
        if call.status == "asks":
            self._decided(call, outcome)  # the approval ended without an answer
            return
        if call.status == "denied":
            return
        data = whole(body, self._read)
        if outcome in (Outcome.OK, Resolution.HAPPENED):
            self._put("tool-output-available", toolCallId=call.key, output=value_of(data))
        else:
            text = text_of(data) or f"{call.name}: {outcome}"
            self._put("tool-output-error", toolCallId=call.key, errorText=text)
        self._update_call(call, status="done")

    def _ended(self, line: Line) -> None:
        """Close everything at the end of the turn."""
        self._begin_step(line.step)
        self._flush(line.step)
        self._steer(line.step)
        for call in self.state.calls:
            if call.status == "asks":
                self._decided(call, "the turn ended")
            elif call.status in ("proposed", "running", "doubt"):
                self._put("tool-output-error", toolCallId=call.key, errorText=NO_RESULT)
        if self.state.step:
            self._put("finish-step")
        metadata = {"reason": line.name}
        self._set(reason=line.name, later=(), steering=())
        if line.name in ABORTED:
            self._put("message-metadata", messageMetadata=metadata)
            self._put("abort", reason=line.name)
        elif line.name == EndReason.FAILED:
            self._put("message-metadata", messageMetadata=metadata)
            self._put("error", errorText=self.state.failure or "the turn failed")
        else:
            reason = FINISH.get(EndReason(line.name), "other")
            self._put("finish", finishReason=reason, messageMetadata=metadata)

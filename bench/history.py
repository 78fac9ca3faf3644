"""Makes a realistic log for benches: a turn has 27 events, with 20 chunks and a tool result of 1.8
KB.

The events are those that a worker would write. Each event is folded at once to check that it is
accepted, because a bench with ignored events would measure nothing.
"""

import json
from collections.abc import Iterator
from typing import Any

from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import SessionViews, initial
from foldlog.processors.wake.decide import END_REASONS
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry, digest

CHUNKS = 20  # of 28 characters, as a short answer streams
RESULT = ("line of a tool's result, " * 75)[:1800].encode()
PREFIX = "p" * 64
USAGE = ev.Usage(
    input_tokens=900,
    cache_read_tokens=100,
    cache_write_5m_tokens=0,
    cache_write_1h_tokens=0,
    output_tokens=150,
    raw=b'{"input_tokens":900,"cache_read_input_tokens":100,"output_tokens":150}',
)


class Session:
    """A session that grows by whole turns. Each method yields (writer, event) in order.

    `offsets` counts the offsets of the session's partition, which decisions name as their basis.
    """

    def __init__(self, name: str, offsets: Iterator[int]) -> None:
        self.views: SessionViews = initial(name)
        self._offsets = offsets

    def _fold(self, writer: str, event: Any) -> tuple[str, Any]:
        offset = next(self._offsets)
        entry = Entry(self.views.session_id, 0, offset, offset, writer, event)
        self.views, ruling = fold(self.views, entry)
        assert ruling.accepted, (event, ruling, self.views.frozen)
        return writer, event

    def opened(self) -> Iterator[tuple[str, Any]]:
        """The events before the first turn."""
        yield self._fold("producer", ev.SessionOpened(user_id="bench", agent="default", rules=1))
        prefix = ev.ContextSet(
            system=ev.Body(inline=b"[]"), tools=ev.Body(inline=b"[]"), sha256=PREFIX
        )
        yield self._fold("sessions", prefix)

    def turn(self) -> Iterator[tuple[str, Any]]:
        """One turn: a message, a step with one tool call, a step that answers."""
        number = self.views.turn.number + 1
        content = json.dumps([{"type": "text", "text": f"question {number}, please look it up"}])
        message = ev.MessageReceived(
            message_id=f"m{number}",
            role="user",
            content=ev.Body(inline=content.encode()),
            tokens=12,
            channel="bench",
            when_busy="queue",
            by_user="bench",
        )
        yield self._fold("producer", message)
        yield from self._step(number, 1, calls=True)
        yield from self._call(number)
        yield from self._step(number, 2, calls=False)
        yield self._fold(
            "sessions",
            ev.TurnEnded(
                turn=number,
                reason=END_REASONS["end_turn"],
                basis=self.views.turn.basis,
                views_sha=self.views.turn.basis_sha,
            ),
        )

    def _step(self, turn: int, step: int, *, calls: bool) -> Iterator[tuple[str, Any]]:
        called = ev.LlmCalled(
            turn=turn,
            step=step,
            model="bench",
            params=b'{"max_tokens":1024}',
            strategy="full",
            budget=ev.Budget(soft_tokens=50_000, hard_tokens=180_000),
            includes=self.views.turn.owned,
            compacted_upto=-1,
            prompt_tokens=1_000,
            context_sha256=PREFIX,
            basis=self.views.turn.basis,
        )
        yield self._fold("sessions", called)
        place = {"turn": turn, "step": step, "attempt": 1}
        claim = ev.GenStart(
            **place,
            owner="w/1",
            epoch=0,
            deadline=60_000,
            called=digest(called),
            request_sha256="r" * 64,
            builder="bench",
        )
        yield self._fold("models", claim)
        for seq in range(CHUNKS // 2):
            text = f"{seq:02} and some more of words "
            chunk = ev.GenChunk(**place, seq=seq, block=0, kind="text", delta=text)
            yield self._fold("models", chunk)
        answer: list[dict] = [{"type": "text", "text": "an answer of some words " * 12}]
        proposed: tuple[ev.ProposedCall, ...] = ()
        if calls:
            answer.append({"type": "tool_use", "id": f"c{turn}", "name": "look", "input": {}})
            args = ev.Body(inline=b"{}")
            proposed = (
                ev.ProposedCall(
                    index=0, call_id=f"c{turn}", name="look", args=args, args_sha256="a" * 64
                ),
            )
        done = ev.GenComplete(
            **place,
            content=ev.Body(inline=json.dumps(answer).encode()),
            calls=proposed,
            stop_reason="tool_use" if calls else "end_turn",
            response_id=f"r{turn}.{step}",
            model="bench",
            usage=USAGE,
        )
        yield self._fold("models", done)

    def _call(self, turn: int) -> Iterator[tuple[str, Any]]:
        place = {"turn": turn, "step": 1, "index": 0}
        invoked = ev.ToolInvoked(
            **place,
            call_id=f"c{turn}",
            name="look",
            effect="pure",
            approval="none",
            basis=self.views.turn.basis,
        )
        yield self._fold("sessions", invoked)
        claim = {"attempt": 1, "owner": "w/1", "epoch": 0, "start_by": 5_000, "deadline": 9_000}
        yield self._fold("tools", ev.ToolStarted(**place, **claim))
        yield self._fold(
            "tools",
            ev.ToolResult(
                **place,
                attempt=1,
                outcome="ok",
                via="tool",
                content=ev.Body(inline=RESULT),
                bytes=len(RESULT),
                tokens=700,
                left_out=0,
            ),
        )

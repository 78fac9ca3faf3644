"""Generates, from a seed, the events of a realistic session for measurements. Each turn has one
tool call.

The events are those that a worker would write. No text repeats another, and sizes vary as they do
in real sessions: most texts are short, few are long. A turn has about 40 events; three quarters of
them are chunks. Each event is folded at once, to check that it is accepted: a bench over ignored
events would measure nothing.
"""

import math
import random
from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import chain, islice
from typing import Any

from foldlog.bench.job import words
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import SessionViews, initial
from foldlog.processors.wake.decide import END_REASONS
from foldlog.schemas import events as ev
from foldlog.schemas.canonical import compact
from foldlog.schemas.codec import Entry, digest

CHUNK_CHARS = 28  # 40 ms, the longest a chunk waits, of an answer that streams 700 characters a s
ANSWER_CHARS, SHORT_CHARS = 400, 100  # medians
PREFIX = "p" * 64


def interleaved(
    names: Iterable[str], spread: int, offsets: Iterator[int]
) -> Iterator[tuple[str, str, Any]]:
    """(session, writer, event) of sessions of one short turn, `spread` of them open at once.

    Each open session writes in turn what comes without a wait: its opening; a message with the
    decision and the claim; the answer and the end of the turn. Then the next session opens.
    """
    unopened = iter(names)
    waiting = deque(_bursts(name, offsets) for name in islice(unopened, spread))
    while waiting:
        bursts = waiting.popleft()
        burst = next(bursts, None)
        if burst is not None:
            yield from burst
            waiting.append(bursts)
        elif (name := next(unopened, None)) is not None:
            waiting.append(_bursts(name, offsets))


def _bursts(name: str, offsets: Iterator[int]) -> Iterator[list[tuple[str, str, Any]]]:
    session = Session(name, offsets)
    burst: list[tuple[str, str, Any]] = []
    for writer, event in chain(session.opened(), session.short_turn()):
        burst.append((name, writer, event))
        if isinstance(event, (ev.ContextSet, ev.GenStart, ev.TurnEnded)):
            yield burst
            burst = []


def size(chance: random.Random, median: int, most: int) -> int:
    """A random length in characters. It is log-normal: the mean is about 1.6 times the median."""
    return min(most, max(20, round(median * math.exp(chance.gauss(0, 1)))))


class Session:
    """A session that grows by whole turns. Each method yields (writer, event) in order.

    `offsets` counts the offsets of the session's partition, which decisions name as their basis.
    The name seeds the texts and sizes.
    """

    def __init__(
        self, name: str, offsets: Iterator[int], chunk_chars: int = CHUNK_CHARS
    ) -> None:
        self.views: SessionViews = initial(name)
        self._chunk_chars = chunk_chars
        self._offsets = offsets
        self._chance = random.Random(name)

    def _text(self, median: int, most: int) -> str:
        return words(self._chance, size(self._chance, median, most))

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
        yield self._message(number)
        yield from self._step(number, 1, calls=True)
        yield from self._call(number)
        yield from self._step(number, 2, calls=False)
        yield self._turn_ended(number)

    def short_turn(self) -> Iterator[tuple[str, Any]]:
        """One turn: a message, and a step that answers it in a few words."""
        number = self.views.turn.number + 1
        yield self._message(number)
        yield from self._step(number, 1, calls=False, answer_chars=SHORT_CHARS)
        yield self._turn_ended(number)

    def _message(self, number: int) -> tuple[str, Any]:
        content = compact([{"type": "text", "text": self._text(90, 4_000)}])
        message = ev.MessageReceived(
            message_id=f"m{number}",
            role="user",
            content=ev.Body(inline=content.encode()),
            tokens=len(content) // 3,
            channel="bench",
            when_busy="queue",
            by_user="bench",
        )
        return self._fold("producer", message)

    def _turn_ended(self, number: int) -> tuple[str, Any]:
        ended = ev.TurnEnded(
            turn=number,
            reason=END_REASONS["end_turn"],
            basis=self.views.turn.basis,
            views_sha=self.views.turn.basis_sha,
        )
        return self._fold("sessions", ended)

    def _step(
        self, turn: int, step: int, *, calls: bool, answer_chars: int = ANSWER_CHARS
    ) -> Iterator[tuple[str, Any]]:
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
        text = self._text(80 if calls else answer_chars, 8_000)
        streamed = [(0, "text", text)]
        answer: list[dict] = [{"type": "text", "text": text}]
        proposed: tuple[ev.ProposedCall, ...] = ()
        if calls:
            call_id = f"toolu_{self._chance.getrandbits(90):024x}"
            given = {"path": self._text(30, 90), "first": self._chance.randrange(400)}
            args = compact(given)
            streamed.append((1, "tool_input", args))
            answer.append({"type": "tool_use", "id": call_id, "name": "look", "input": given})
            proposed = (
                ev.ProposedCall(
                    index=0,
                    call_id=call_id,
                    name="look",
                    args=ev.Body(inline=args.encode()),
                    args_sha256=sha256(args.encode()).hexdigest(),
                ),
            )
        pieces = [
            (block, kind, part[at : at + self._chunk_chars])
            for block, kind, part in streamed
            for at in range(0, len(part), self._chunk_chars)
        ]
        for seq, (block, kind, delta) in enumerate(pieces):
            chunk = ev.GenChunk(**place, seq=seq, block=block, kind=kind, delta=delta)
            yield self._fold("models", chunk)
        done = ev.GenComplete(
            **place,
            content=ev.Body(inline=compact(answer).encode()),
            calls=proposed,
            stop_reason="tool_use" if calls else "end_turn",
            response_id=f"msg_{self._chance.getrandbits(90):024x}",
            model="bench",
            usage=self._usage(len(text)),
        )
        yield self._fold("models", done)

    def _usage(self, answer_chars: int) -> ev.Usage:
        given, out = self._chance.randrange(400, 9_000), answer_chars // 3
        return ev.Usage(
            input_tokens=given,
            cache_read_tokens=given // 2,
            cache_write_5m_tokens=0,
            cache_write_1h_tokens=0,
            output_tokens=out,
            raw=compact({"input_tokens": given, "output_tokens": out}).encode(),
        )

    def _call(self, turn: int) -> Iterator[tuple[str, Any]]:
        place = {"turn": turn, "step": 1, "index": 0}
        invoked = ev.ToolInvoked(
            **place,
            call_id=self.views.turn.calls[0].call_id,
            name="look",
            effect="pure",
            approval="none",
            basis=self.views.turn.basis,
        )
        yield self._fold("sessions", invoked)
        result = self._text(900, 20_000).encode()
        claim = {"attempt": 1, "owner": "w/1", "epoch": 0, "start_by": 5_000, "deadline": 9_000}
        yield self._fold("tools", ev.ToolStarted(**place, **claim))
        yield self._fold(
            "tools",
            ev.ToolResult(
                **place,
                attempt=1,
                outcome="ok",
                via="tool",
                content=ev.Body(inline=result),
                bytes=len(result),
                tokens=len(result) // 3,
                left_out=0,
            ),
        )

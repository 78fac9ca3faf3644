"""The effect of the models role: one attempt of a model call, from a claim to exactly one outcome.

It sends the request, streams the answer, detects a stall, stops at once on request, and reports the
outcome. It gets the request as bytes and is independent of log, fold and agent. The other files to
read are models/client.py (the socket), models/sse.py (its events), models/answer.py and
models/blocks.py (the content), models/chunks.py (the stream for viewers), models/errors.py (the
classes of failures) and slots.py.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....schemas.enums import ChunkKind
from ....schemas.events import Body, GenChunk, GenComplete, GenFailed, GenStopped, ProposedCall
from ....schemas.events.effects import ALIVE_SEQ
from ...limits import Limits
from ...request.continuation import Kept
from ...tools.blob_wait import when_stored
from ...tools.output_sink import Sink, Stop
from ..claim_time import claim_clock
from ..slots import Slots
from .answer import NO_USAGE, Answer
from .chunks import Chunks, read_gap_s, until_next
from .client import DETAIL_CHARS_MAX, make_client, open_stream
from .errors import POLICY, AttemptFailed, Trouble, advice_of, cause_of, class_of, wait_ms
from .json_bytes import Malformed, encodable
from .resumed import ResumedAnswer

__all__ = ["GenClaim", "StoreBody", "generate", "inline_body", "make_client"]

# After message_stop only the end of the HTTP body is missing. Reading it makes the connection
# reusable for the next step without a TLS handshake. If the server does not end the body, this wait
# is lost.
LINGER_S = 0.2
# How long an outcome waits for a socket to close.
CLOSE_S = 2.0
# A live stream writes a record before this share of the stall limit has passed, because the claim's
# deadline is one stall limit after the newest record. The rest is for a slow broker.
ALIVE_AFTER = 0.9
# Bodies up to this size are stored inline without a thread, because they never need the blob store.
INLINE_BYTES = 64 * 1024
JSON_MEDIA_TYPE = "application/json"

StoreBody = Callable[[bytes, str], Body]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenClaim:
    """The claim under which an attempt runs.

    claimed_at: the time when the claim was read, Unix ms.
    read_at: the same moment, monotonic seconds; None if the attempt begins at once.
    error_before: the class of the step's failure before this attempt, or ''.
    """

    session_id: str
    turn: int
    step: int
    attempt: int
    claimed_at: int
    read_at: float | None = None
    error_before: str = ""

    @property
    def label(self) -> str:
        """The name of this attempt for the provider:
        the value of the HTTP header x-foldlog-attempt."""
        return f"{self.session_id} {self.turn}.{self.step}.{self.attempt}"


def inline_body(data: bytes, media_type: str) -> Body:
    """A body with all data inline, for use without a blob store."""
    return Body(inline=data)


async def generate(
    claim: GenClaim,
    request: bytes,
    sink: Sink,
    stop: Stop,
    client: Any,
    *,
    limits: Limits,
    pace: Slots | None = None,
    store_body: StoreBody = inline_body,
    kept: Kept | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Make one model call and report its outcome; returns when the log has the outcome.

    request: the body without `stream`, sent byte for byte.
    pace: the slots of the API key, whose `back_off` is called when the whole key must wait (the
        caller takes and releases the slot itself).
    store_body(data, media_type): may write a blob, is called in a thread, and again while the blob
        store is away.
    kept: the partial answer that a resuming attempt continues.
    clock: monotonic seconds.

    Every call reports an outcome, unless this task is cancelled or the sink raises.
    """
    run = _Attempt(claim, sink, limits, store_body, clock, kept, pace)
    try:
        trouble = await run.receive(request, client, stop)
        outcome = await run.outcome(trouble, stop)
    except Exception as error:
        outcome = run.failed_inside(error)
    if pace is not None and isinstance(outcome, GenFailed) and POLICY[outcome.error].shared:
        pace.back_off(outcome.retry_at or 0)
    await sink.outcome(claim.session_id, outcome)


class _Attempt:
    def __init__(
        self,
        claim: GenClaim,
        sink: Sink,
        limits: Limits,
        store_body: StoreBody,
        clock: Callable[[], float],
        kept: Kept | None,
        slots: Slots | None,
    ) -> None:
        self._slots = slots
        self._claim = claim
        self._sink = sink
        self._stall_s = limits.stall_timeout_ms / 1000
        self._ping_s = max(limits.ping_timeout_ms, limits.stall_timeout_ms) / 1000
        self._store_body = store_body
        self._clock = clock
        self._now = claim_clock(claim.claimed_at, claim.read_at, clock)
        self._moved = self._heard = self._wrote = clock()  # newest content, bytes, record
        self._answer = Answer() if kept is None else ResumedAnswer(kept)
        first = 0 if kept is None else kept.prior_seq + 1
        self._loop = asyncio.get_running_loop()
        self._chunks = Chunks(self._emit, self._later, first)

    def _later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(until_next(self._loop.time(), seconds), call)

    async def receive(self, request: bytes, client: Any, stop: Stop) -> Trouble | None:
        """Receive until the answer ends, fails, stalls or is stopped.
        Returns None if it ended or was stopped.

        When this returns, the socket is closed and all chunks are sent.
        """
        if stop.requested:
            return None
        pump = asyncio.create_task(self._pump(request, client))
        stopped = asyncio.create_task(stop.wait())
        try:
            while not pump.done():
                why, left_s = self._watched()
                if why:
                    return Trouble(source="stalled", message=why)
                await asyncio.wait(
                    (pump, stopped), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                if stopped.done() and not pump.done():
                    return None
            return pump.result()
        finally:
            stopped.cancel()
            pump.cancel()
            await asyncio.wait((pump,), timeout=CLOSE_S)
            if pump.done() and not pump.cancelled():
                pump.exception()  # retrieved: raised above, or irrelevant after a stop or a stall
            self._chunks.flush()

    def _watched(self) -> tuple[str, float]:
        """Why the attempt counts as stalled, or '', and the seconds until the next check. If the
        stream is alive but has written no record for long, writes one."""
        now = self._clock()
        if now >= self._heard + self._stall_s:
            return f"no content arrived for {self._stall_s:g} s", 0
        if now >= self._moved + self._ping_s:
            return f"only signs of life arrived for {self._ping_s:g} s, and no content", 0
        ends = min(self._heard + self._stall_s, self._moved + self._ping_s)
        alive_at = self._wrote + self._stall_s * ALIVE_AFTER
        if now >= alive_at and self._heard > self._wrote:
            self._emit(ALIVE_SEQ, 0, ChunkKind.TEXT, "")
            alive_at = self._wrote + self._stall_s * ALIVE_AFTER
        return "", min(ends, alive_at if alive_at > now else ends) - now

    async def _pump(self, request: bytes, client: Any) -> Trouble | None:
        try:
            async with open_stream(
                client,
                _streaming(request),
                label=self._claim.label,
                stall_timeout_s=self._stall_s,
                before_read=self._before_read,
            ) as reads:
                async for events in reads:
                    self._heard = self._clock()
                    for event in events:
                        self._take(event.name, event.data)
                        if self._answer.ended:
                            await _read_to_end(reads)
                            return None
        except AttemptFailed as failure:
            return failure.trouble
        except Malformed as error:
            return Trouble(source="malformed", message=f"an event cannot be parsed: {error}")
        return None

    async def _before_read(self) -> None:
        """While many streams run, wait for the time at which all of them are read. Nothing waits
        before the first text, nor after the end of the answer."""
        gap_s = 0.0 if self._slots is None else read_gap_s(self._slots.taken)
        gap_s = min(gap_s, self._stall_s / 4)
        if gap_s and self._chunks.has_begun and not self._answer.ended:
            self._chunks.send()
            await asyncio.sleep(until_next(self._loop.time(), gap_s))

    def _take(self, name: str, data: str) -> None:
        if name == "ping" or not data:
            return  # a ping keeps the attempt alive, but does not prove that the model works
        before = self._answer.progress
        shown = self._answer.feed(name, data)
        if self._answer.progress > before:
            self._moved = self._heard = self._clock()
        for piece in shown:
            self._chunks.add(*piece)

    def _emit(self, seq: int, block: int, kind: ChunkKind, text: str) -> None:
        claim = self._claim
        chunk = GenChunk(
            turn=claim.turn,
            step=claim.step,
            attempt=claim.attempt,
            seq=seq,
            block=block,
            kind=kind,
            delta=text,
        )
        self._sink.chunk(claim.session_id, chunk)
        self._wrote = self._clock()

    async def outcome(
        self, trouble: Trouble | None, stop: Stop
    ) -> GenComplete | GenFailed | GenStopped:
        """The event that reports how the attempt ended.

        message_delta, which has the stop_reason, comes after the last block. So an answer with a
        stop_reason is complete, however the stream ended, and an answer without one is incomplete.
        """
        claim, answer = self._claim, self._answer
        if answer.stop_reason is not None:
            return await self._complete(answer.stop_reason)
        if trouble is None and not stop.requested:
            trouble = Trouble(source="truncated", message="the stream ended without a stop_reason")
        content = await self._body(answer.content_so_far())
        if trouble is not None:
            return self._failed(trouble, content)
        return GenStopped(
            turn=claim.turn,
            step=claim.step,
            attempt=claim.attempt,
            why=encodable(stop.why or ""),
            content=content,
            usage=answer.usage(),
        )

    async def _complete(self, stop_reason: str) -> GenComplete:
        claim, answer = self._claim, self._answer
        calls = [
            ProposedCall(
                index=call.index,
                call_id=call.call_id,
                name=call.name,
                args=await self._body(call.args),
                args_sha256=call.args_sha256,
                args_error=call.error,
            )
            for call in answer.calls()
        ]
        return GenComplete(
            turn=claim.turn,
            step=claim.step,
            attempt=claim.attempt,
            content=await self._body(answer.content()),
            calls=tuple(calls),
            stop_reason=stop_reason,
            response_id=answer.response_id,
            model=answer.model,
            usage=answer.usage() or NO_USAGE,
            refusal_category=answer.refusal.category,
            refusal_explanation=answer.refusal.explanation,
        )

    def _failed(self, trouble: Trouble, content: Body) -> GenFailed:
        claim = self._claim
        error = class_of(trouble, attempt=claim.attempt, before=claim.error_before)
        policy = POLICY[error]
        wait = wait_ms(
            policy,
            attempt=claim.attempt,
            identity=claim.label,
            retry_after_ms=trouble.retry_after_ms,
        )
        request_id = f" ({trouble.request_id})" if trouble.request_id else ""
        cause = cause_of(trouble)
        return GenFailed(
            turn=claim.turn,
            step=claim.step,
            attempt=claim.attempt,
            content=content,
            error=error,
            cause=cause,
            detail=encodable(f"{trouble.message}{request_id}; {advice_of(error, cause)}"),
            status=trouble.status,
            retry_at=self._now() + wait if policy.backoff else None,
            permanent=policy.backoff is None,
            usage=self._answer.usage(),
        )

    def failed_inside(self, error: Exception) -> GenFailed:
        """The outcome if foldlog's own code raised. The received content stays in the chunks."""
        message = f"{type(error).__name__}: {error}"[:DETAIL_CHARS_MAX]
        return self._failed(Trouble(source="internal", message=message), Body(inline=b"[]"))

    async def _body(self, data: bytes) -> Body:
        if len(data) <= INLINE_BYTES:
            return self._store_body(data, JSON_MEDIA_TYPE)
        return await when_stored(lambda: self._store_body(data, JSON_MEDIA_TYPE))


def _streaming(request: bytes) -> bytes:
    """The request with the field `stream` added. The hash in the claim is that of the request
    without this field, and all its other bytes stay unchanged.
    """
    if not (request.startswith(b"{") and request.endswith(b"}") and len(request) > 2):
        raise ValueError(f"the request is not a compact JSON object: {request[:60]!r}")
    return request[:-1] + b',"stream":true}'


async def _read_to_end(reads: Any) -> None:
    try:
        async with asyncio.timeout(LINGER_S):
            async for _ in reads:
                pass
    except TimeoutError:
        pass

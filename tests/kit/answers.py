"""The outcome events of effects: answers of a model, results of tools, background work, deliveries.

An answer's content and calls come from one list of blocks, as in the real effect. If the arguments
of a call are not a JSON object, its block has `input` {} and `calls` keeps the raw text.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from foldlog.schemas import events as ev
from foldlog.schemas.canonical import compact as dumps
from foldlog.tests.kit.blobs import MemoryBlobs


class Use(NamedTuple):
    """A tool_use block. `args`: the raw text of the arguments."""

    name: str
    args: str = "{}"
    id: str = ""
    error: str | None = None


def text(words: str) -> str:
    """A text block."""
    return dumps({"type": "text", "text": words})


def thinking(words: str, signature: str = "sig==") -> str:
    """A thinking block. A block without a signature was cut off."""
    return dumps({"type": "thinking", "thinking": words, "signature": signature})


def block_text(block: "str | Use") -> str:
    """The JSON text of a block, as the model writes it."""
    if isinstance(block, str):
        return block
    args = "{}" if block.error else block.args
    head = dumps({"type": "tool_use", "id": block.id, "name": block.name})
    return f'{head[:-1]},"input":{args}}}'


def content(blocks: "list[str | Use]") -> bytes:
    """The content of an answer."""
    return f"[{','.join(block_text(block) for block in blocks)}]".encode()


def calls(blocks: "Iterable[str | Use]", stop_reason: str) -> tuple[ev.ProposedCall, ...]:
    """The calls of an answer; none unless the stop reason is `tool_use`."""
    if stop_reason != "tool_use":
        return ()
    uses = [block for block in blocks if isinstance(block, Use)]
    return tuple(
        ev.ProposedCall(
            index=index,
            call_id=use.id[:128],
            name=use.name,
            args=ev.Body(inline=use.args.encode()),
            args_sha256=sha256(use.args.encode()).hexdigest(),
            args_error=use.error,
        )
        for index, use in enumerate(uses)
    )


def usage(
    read: int = 100,
    written: int = 10,
    cached: tuple[int, int, int] = (1, 2, 3),
    raw: bytes | None = None,
) -> ev.Usage:
    """The tokens of an attempt. `cached`: read from the cache, written for 5 minutes, written for 1
    hour."""
    return ev.Usage(
        input_tokens=read,
        cache_read_tokens=cached[0],
        cache_write_5m_tokens=cached[1],
        cache_write_1h_tokens=cached[2],
        output_tokens=written,
        raw=b'{"input_tokens":%d}' % read if raw is None else raw,
    )


def complete(
    place: tuple[int, int, int],
    blocks: "list[str | Use]",
    stop_reason: str,
    blobs: MemoryBlobs,
    read: int = 100,
    written: int = 10,
) -> ev.GenComplete:
    """The GEN_COMPLETE of an attempt. `place`: (turn, step, attempt)."""
    turn, step, attempt = place
    return ev.GenComplete(
        turn=turn,
        step=step,
        attempt=attempt,
        content=blobs.body(content(blocks)),
        calls=calls(blocks, stop_reason),
        stop_reason=stop_reason,
        response_id=f"msg_{turn}_{step}_{attempt}",
        model="claude-test",
        usage=usage(read, written),
    )


def failed(
    place: tuple[int, int, int],
    *,
    permanent: bool = False,
    retry_at: int | None = None,
    error: str = "overloaded_error",
) -> ev.GenFailed:
    """The GEN_FAILED of an attempt."""
    turn, step, attempt = place
    return ev.GenFailed(
        turn=turn,
        step=step,
        attempt=attempt,
        content=ev.Body(inline=b"[]"),
        error=error,
        detail="try later",
        status=529,
        retry_at=retry_at,
        permanent=permanent,
        usage=usage(7, 1),
    )


def stopped(
    place: tuple[int, int, int], blocks: "list[str | Use]", blobs: MemoryBlobs, why: str = "aborted"
) -> ev.GenStopped:
    """The GEN_STOPPED of an attempt, with its partial content."""
    turn, step, attempt = place
    partial = blobs.body(content(blocks))
    return ev.GenStopped(
        turn=turn, step=step, attempt=attempt, why=why, content=partial, usage=usage(5, 2)
    )


def result(
    call: tuple[int, int, int],
    attempt: int,
    text: str,
    outcome: str = "ok",
    *,
    via: str = "tool",
    triggers: tuple[ev.Trigger, ...] = (),
    reminders: tuple[str, ...] = (),
    whole: ev.BlobRef | None = None,
) -> ev.ToolResult:
    """The TOOL_RESULT of an attempt of a call. `whole`: the full result, of which `text` is a
    part."""
    turn, step, index = call
    return ev.ToolResult(
        turn=turn,
        step=step,
        index=index,
        attempt=attempt,
        outcome=outcome,
        via=via,
        content=ev.Body(inline=text.encode(), ref=whole),
        bytes=len(text.encode()),
        tokens=len(text) // 3,
        left_out=0,
        triggers=triggers,
        reminders=reminders,
    )


def uncertain(call: tuple[int, int, int], attempt: int) -> ev.ToolFailedUncertain:
    """The TOOL_FAILED_UNCERTAIN of an attempt of a call."""
    turn, step, index = call
    return ev.ToolFailedUncertain(
        turn=turn, step=step, index=index, attempt=attempt, reason="the connection was lost"
    )


def done(
    kind: str,
    upto: int,
    attempt: int,
    *,
    why: str = "",
    model: str = "cheap-test",
    earlier: tuple[ev.Try, ...] = (),
) -> ev.BackgroundDone:
    """The BACKGROUND_DONE of an attempt. `why`: the reason of a failure, or '' for a success."""
    return ev.BackgroundDone(
        kind=kind, upto=upto, attempt=attempt, ok=not why, usage=usage(20, 5), model=model, why=why,
        earlier=earlier,
    )


def tried(number: int) -> tuple[ev.Try, ...]:
    """The requests of background work that failed before the last one: at most two, some without
    known usage."""
    return tuple(
        ev.Try(model="cheap-test", usage=usage(30 + n, 7) if (number // 3 + n) % 4 else None)
        for n in range(number % 3)
    )


def undelivered(
    place: tuple[int, int, str, int], *, permanent: bool = False, retry_at: int | None = None
) -> ev.DeliveryFailed:
    """The event for a failed attempt of a delivery. `place`: (turn, step, channel, attempt)."""
    turn, step, channel, attempt = place
    return ev.DeliveryFailed(
        turn=turn,
        step=step,
        channel=channel,
        attempt=attempt,
        error="unreachable",
        detail="nobody is there",
        retry_at=retry_at,
        permanent=permanent,
    )

"""One run of a claimed tool call, from its arguments to exactly one outcome.

The rule of this file: the outcome claims no more than is known. A `once` call that has begun ends
in an ordinary outcome only if the tool itself returned or raised ToolFailed. If it was aborted,
passed its deadline or raised another exception, the call is in doubt. Pure and idempotent calls may
be repeated, so they end as `error` or `cancelled` in these cases. If the tool returns later, its
result still resolves the doubt (`run` returns a task that waits for the tool).
"""

import asyncio
from hashlib import sha256
from typing import Any

from ...log.blobs import BlobError, BlobsAway
from ...schemas.enums import Approval, Effect, Outcome, Via
from ...schemas.events import ToolFailedUncertain, ToolResult
from ...schemas.events.parts import Trigger
from ..limits import Limits
from .arguments import why_wrong
from .blob_wait import when_stored
from .isolated import NotBegun
from .outcomes import Doubt, ToolClaim, gave_up, not_run, result, short, uncertain
from .output_sink import Sink, Stop
from .results import Shaped, plain, shape
from .run import End, Run, ToolHost
from .tool import DidNotHappen, Happened, Tool, ToolCancelled, ToolFailed

__all__ = [
    "Doubt",
    "ToolClaim",
    "ToolHost",
    "run",
    "reconcile",
    "timeout_ms",
    "not_run",
    "gave_up",
    "uncertain",
]


def timeout_ms(tool: Tool | None, limits: Limits) -> int:
    """The time limit of a run of a tool; `tool` is None if the agent no longer has the tool."""
    return (tool and tool.timeout_ms) or limits.tool_timeout_ms


async def run(
    claim: ToolClaim, tool: Tool, args: bytes, sink: Sink, stop: Stop, host: ToolHost
) -> asyncio.Task[None] | None:
    """Run a claimed call and report exactly one outcome: ToolResult or ToolFailedUncertain.

    Returns None if the tool has ended, else a task that ends when the tool ends. For a call in
    doubt, that task reports the late result as another ToolResult. The caller must keep a reference
    to the task, because a tool's thread cannot be killed.
    """
    early = _why_not(claim, tool, args, stop)
    if early is not None:
        await _report(sink, claim, early)
        return None
    one = Run(claim, tool, host)
    if _is_idempotent(one):
        earlier = await when_stored(lambda: _recorded(one))
        if earlier is not None:
            await _report(sink, claim, earlier)
            return None
    key = one.cache_key(args)
    if key is not None:
        cached = await asyncio.to_thread(_cached, one, key)
        if cached is not None:
            await _report(sink, claim, cached)
            return None
    if tool.isolate:
        work = one.call_isolated(args)
    else:
        kwargs = tool.arguments.parse(args)
        work = one.call(tool.function, kwargs, context=tool.context is not None)
    end = await one.until_end(work, stop, cancel=tool.can_be_ended)
    event = await when_stored(lambda: _outcome(one, end))
    if key is not None:
        await asyncio.to_thread(_keep, one, key, event)
    await _report(sink, claim, event)
    if one.cancelled:
        raise asyncio.CancelledError
    return asyncio.create_task(_late(one, work, event, sink)) if end is None else None


async def reconcile(
    claim: ToolClaim,
    tool: Tool,
    args: bytes,
    sink: Sink,
    stop: Stop,
    host: ToolHost,
    *,
    early: bool = False,
) -> None:
    """Determine whether a dead worker's call had its effect, and report exactly one outcome.

    Called when row T6 or T8 of WAKE matches: the owner is certainly dead, or the claim's deadline
    and the margin have passed. This reads the side log first, then calls the tool's reconciler. If
    neither knows, the call is in doubt.

    early: the deadline and the margin have not passed, so the call may still happen. Nothing is
    reported then, unless the call is known to have happened: "it did not happen" could become
    untrue, and a doubt would end the waiting.
    """
    one = Run(claim, tool, host)
    if one.ctx.side_log.has_result:
        answer: Any = Happened(one.ctx.side_log.result())
    elif tool.reconciler is None:
        answer = "its worker died, and it is unknown whether the call happened"
    else:
        answer = await _ask(one, args, stop)
    match answer:
        case Happened(result=value):
            shaped = await when_stored(lambda: _shaped(one, value))
            event: Any = result(claim, Outcome.OK, shaped, via=Via.RECONCILER)
        case _ if early:
            event = None
        case DidNotHappen(why=why):
            text = f"the call did not happen{': ' if why else ''}{why}"
            event = result(claim, Outcome.NOT_RUN, short(text), via=Via.RECONCILER)
        case _:
            event = uncertain(claim, Doubt.WORKER_DIED, str(answer))
    if event is not None:
        await _report(sink, claim, event)
    if one.cancelled:
        raise asyncio.CancelledError


def _why_not(claim: ToolClaim, tool: Tool, args: bytes, stop: Stop) -> ToolResult | None:
    """The outcome of a call that must not run, or None if it may run."""
    if stop.requested:
        return not_run(claim, f"it was stopped before it began ({stop.why})")
    if claim.approval == Approval.DENY:
        return not_run(claim, "it is denied")
    if claim.name != tool.name:
        return not_run(claim, f"the call is of {claim.name}, the tool is {tool.name}")
    if sha256(args).hexdigest() != claim.args_sha256:
        return not_run(claim, "its arguments are not those that were decided on")
    wrong = why_wrong(tool.arguments.parse, args)
    return None if wrong is None else not_run(claim, f"its arguments are wrong: {wrong}")


def _is_idempotent(one: Run) -> bool:
    return not one.once and one.tool.effect == Effect.IDEMPOTENT


def _recorded(one: Run) -> ToolResult | None:
    """The result that an earlier attempt of an idempotent call left in the side log, or None."""
    log = one.ctx.side_log
    if not log.has_result:
        return None
    triggers = [Trigger(**trigger) for trigger in log.beside.get("triggers", [])]
    reminders = log.beside.get("reminders", [])
    shaped = _shaped(one, log.result())
    return result(one.claim, Outcome.OK, shaped, triggers=triggers, reminders=reminders)


def _record(one: Run, value: Any) -> None:
    """Record the result of a call in the side log, for an attempt or a reconciler after a crash."""
    triggers = [{"trigger": t.trigger, "project_id": t.project_id} for t in one.ctx.triggers]
    requests = {"triggers": triggers, "reminders": one.ctx.reminders}
    try:
        one.ctx.side_log.record(plain(value), beside=requests)
    except Exception:  # bytes, unusual objects, a full disk: a later attempt runs the call again
        return


def _cached(one: Run, key: bytes) -> ToolResult | None:
    """The cached result of an earlier call with the same key (result_cache.py). None if there is
    none, or if its content is no longer in the blob store.
    """
    assert one.host.cache is not None and one.tool.cache_ttl_ms is not None
    kept = one.host.cache.find(key, one.tool.cache_ttl_ms)
    if kept is None:
        return None
    try:
        one.host.blobs.resolve(kept.shaped.content)
    except BlobError:
        return None
    return result(one.claim, Outcome.OK, kept.shaped, cached_at=kept.at)


def _keep(one: Run, key: bytes, event: ToolResult | ToolFailedUncertain) -> None:
    """Cache the result of a successful call for the tool's TTL, unless the call also requested
    triggers or reminders."""
    if not isinstance(event, ToolResult) or event.outcome != Outcome.OK:
        return
    lost = event.left_out and event.content.ref is None  # the disk was full: do not cache this
    if not event.triggers and not event.reminders and not lost:
        shaped = Shaped(event.content, event.bytes, event.tokens, event.left_out)
        assert one.host.cache is not None and one.tool.cache_ttl_ms is not None
        one.host.cache.keep(key, shaped, one.began_at, one.tool.cache_ttl_ms)


def _outcome(one: Run, end: End | None) -> ToolResult | ToolFailedUncertain:
    """The outcome of a call whose function ended with `end`, or still runs (None)."""
    claim, ctx, error = one.claim, one.ctx, None if end is None else end.error
    if end is not None and error is None:
        if _is_idempotent(one):
            _record(one, end.value)
        try:
            shaped = _shaped(one, end.value)
        except BlobsAway:
            _record(one, end.value)  # if this worker dies now, its successor reports the result
            raise
        return result(
            claim, Outcome.OK, shaped, triggers=ctx.triggers, reminders=ctx.reminders
        )
    if isinstance(error, ToolFailed):
        outcome = Outcome.CANCELLED if isinstance(error, ToolCancelled) else Outcome.ERROR
        text = str(error) or "the tool failed without a reason"
        return result(claim, outcome, _shaped(one, text), reminders=ctx.reminders)
    why = one.why_ended(error)
    if isinstance(error, NotBegun):
        return not_run(claim, why)
    if one.once:
        return uncertain(
            claim, one.doubt(error), f"{why}; whether it had its effect is not known"
        )
    aborted = one.stop.requested and not one.timed_out
    return result(claim, Outcome.CANCELLED if aborted else Outcome.ERROR, short(why))


def _shaped(one: Run, value: Any) -> Shaped:
    """Turn a value into content. Raises nothing but BlobsAway: the tool has run, and this must be
    reported even if its result cannot be shown."""
    limit, host = one.ctx.result_tokens, one.host
    try:
        return shape(
            value,
            limit_tokens=limit,
            blobs=host.blobs,
            readable=host.results_readable,
            model=host.model,
        )
    except BlobsAway:
        raise
    except Exception as error:
        return short(f"it returned, but its result can't be shown: {type(error).__name__}: {error}")


async def _late(one: Run, work: asyncio.Task[End], event: Any, sink: Sink) -> None:
    """Wait for a tool that still ran when its outcome was reported, and, if the call is in doubt,
    report its result to resolve the doubt.
    """
    end = await work
    known = end.error is None or isinstance(end.error, ToolFailed)
    if isinstance(event, ToolFailedUncertain) and known:
        await _report(sink, one.claim, await when_stored(lambda: _outcome(one, end)))


async def _ask(one: Run, args: bytes, stop: Stop) -> Any:
    """The reconciler's answer, or a text with the reason why it gave none."""
    reconciler = one.tool.reconciler
    assert reconciler is not None
    try:
        kwargs = one.tool.arguments.parse(args)
    except ValueError as error:
        return f"its arguments can't be given to the reconciler: {error}"
    work = one.call(reconciler, kwargs, context=True)
    end = await one.until_end(work, stop, cancel=asyncio.iscoroutinefunction(reconciler))
    if end is None or end.error is not None:
        return f"the reconciler of {one.why_ended(end.error if end else None)}"
    if isinstance(end.value, Happened | DidNotHappen):
        return end.value
    return "the reconciler does not know whether it happened"


async def _report(sink: Sink, claim: ToolClaim, event: Any) -> None:
    """Report the outcome, even if this run is cancelled at the same time."""
    await asyncio.shield(asyncio.ensure_future(sink.outcome(claim.session_id, event)))

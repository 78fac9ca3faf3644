"""Background work, from its claim to its outcome: short forms, summaries and memory.

The same code calls the model for background work as for an answer, so these calls have the same
possible outcomes. No viewer waits for the output, so its chunks are dropped. BACKGROUND_DONE
records a failure, and the session continues without the result. The output of a cheap model is
validated before it is used.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ...log.blobs import BlobCorrupt, BlobMissing, BlobStore
from ...log.errors import FoldlogError
from ...schemas import events as ev
from ...schemas.enums import EndReason, Role
from ...schemas.events.parts import ReadBlob
from ...schemas.tokens import believed, estimate_size
from ..agent import Agent
from ..fold.projections.background import Work, WorkKind, find_work
from ..fold.projections.partition import Holder
from ..fold.projections.turn_view import Claim
from ..fold.views import SessionViews
from ..limits import Limits
from ..memory.extraction import Extraction, extract
from ..token_count import count
from ..tools.by_reference import reference_of
from ..tools.children import Children
from ..tools.isolated import Raised, call as call_isolated
from ..tools.isolated_child import Request
from ..tools.output_sink import Sink, Stop
from ..tools.run import READER, in_thread
from ..tools.tool import Tool
from ..wake.background_tasks import Task, is_made, task_of
from ..wake.facts import Obligation
from ..wake.table import Action
from ..wake.work_ends import WHY_CHARS_MAX, WorkEnd, in_words, without_result
from .claim_time import claim_clock
from .effect import Due, Means, Run
from .models import call as models
from .ports import BeginWork, EffectId, Effects
from .start_window import StartWindow

TRIES = 3  # model calls per work: work is not urgent, and later work covers what failed
WAIT_S_MAX = 60.0  # between two tries; if the provider asks for more, the work is given up
GRACE_S = 5.0  # time after the stop at the deadline, in which a request still reports its usage
PROVIDERS = "compaction"
CUT = "[The record ends here: it had become too long, and what should follow is not in it.]"

GetClient = Callable[[], Awaitable[Any]]
Remember = Callable[[str, list[Any]], int]

_log = logging.getLogger("foldlog.background")


class BackgroundWorks:
    """The background work of a worker."""

    role = Role.BACKGROUND
    claims = frozenset({Action.BACKGROUND_STARTED})
    slots = 4  # work may wait

    def __init__(self, effects: Effects, read_blob: ReadBlob) -> None:
        self._effects, self._read_blob = effects, read_blob

    def claim(self, due: Due, holder: Holder) -> ev.BackgroundStarted:
        """See `Kind`."""
        kind, upto = due.obligation.work
        work, limits = find_work(due.views.background, kind, upto), due.agent.limits
        return ev.BackgroundStarted(
            kind=kind,
            upto=upto,
            attempt=1 if work is None else work.attempt + 1,
            owner=holder.owner,
            epoch=holder.epoch,
            deadline=due.now + limits.background_timeout_ms + limits.grace_ms,
        )

    def claimed(self, views: SessionViews, obligation: Obligation) -> Claim:
        """See `Kind`."""
        return _claimed(views, obligation).claim

    def begin(self, due: Due) -> None:
        """See `Kind`. If content that the work needs is lost, the conversation continues without
        the result of the work."""
        work = _claimed(due.views, due.obligation)
        lost, task = "", None
        try:
            if not is_made(due.views, work):
                task = task_of(due.views, work, due.agent, self._read_blob)
        except (BlobMissing, BlobCorrupt) as error:
            lost = str(error)
        if task is None:
            self._effects.report(due.session_id, work_ended(due.views, work, lost))
            return
        place = (work.kind, work.upto, work.attempt)
        begin = BeginWork(*place, work.claim, task, due.agent, due.now)
        self._effects.begin(due.session_id, begin)

    def not_begun(self, views: SessionViews, obligation: Obligation, why: str) -> ev.BackgroundDone:
        """See `Kind`. Another attempt follows."""
        work = _claimed(views, obligation)
        return work_not_begun(work.kind, work.upto, work.attempt, why)

    def abort(self, due: Due) -> None:
        """See `Kind`."""
        event = work_ended(due.views, _claimed(due.views, due.obligation))
        self._effects.report(due.session_id, event)

    @staticmethod
    def is_wanted(views: SessionViews, claim_offset: int) -> bool:
        """See `Kind`."""
        works = views.background.works
        return any(work.claim.offset == claim_offset and not work.stop for work in works)

    def forget(self, session_id: str) -> None:
        """See `Kind`."""


def _claimed(views: SessionViews, obligation: Obligation) -> Work:
    work = find_work(views.background, *obligation.work)
    assert work is not None, f"{obligation} without its work"
    return work


def work_ended(views: SessionViews, work: Work, lost: str = "") -> ev.BackgroundDone:
    """The outcome of claimed work that need not or cannot begin. lost: the content that is lost, so
    that the work cannot begin; '' if it need not begin.
    """
    # A session without messages has nothing to extract, and nothing to retry.
    is_empty = work.kind == WorkKind.MEMORY and not work.stop
    made = not lost and (is_made(views, work) or is_empty)
    if made:
        return ev.BackgroundDone(kind=work.kind, upto=work.upto, attempt=work.attempt, ok=True)
    code = WorkEnd.CONTENT_LOST if lost else WorkEnd.NOTHING_LEFT
    return without_result(
        work.kind, work.upto, work.attempt, WorkEnd.ABORTED if work.stop else code, detail=lost
    )


def work_not_begun(kind: str, upto: int, attempt: int, why: str) -> ev.BackgroundDone:
    """The outcome of background work that was claimed but not begun. Another attempt follows."""
    done = without_result(kind, upto, attempt, WorkEnd.NOT_BEGUN, detail=why)
    return replace(done, released=True)


# -- the run -----------------------------------------------------------------------------------


def run(session_id: str, begin: BeginWork, means: Means) -> Run:
    """The run of claimed background work. Called when the claim was read."""
    place = (begin.kind, begin.upto, begin.attempt)
    claim = WorkClaim(session_id, *place, max(begin.now, begin.claim.at), time.monotonic())
    remember: Remember | None = None
    if means.memory is not None and begin.kind == WorkKind.MEMORY:
        remember = partial(means.memory.keep, at=begin.claim.at)

    def died(why: str) -> ev.BackgroundDone:
        return without_result(*place, WorkEnd.TASK_DIED, detail=why)

    return Run(
        Role.BACKGROUND,
        EffectId(session_id, begin.claim.offset),
        lambda sink, stop: work(
            claim,
            begin.task,
            begin.agent,
            sink,
            stop,
            lambda: means.get_client(stop),
            blobs=means.blobs,
            remember=remember,
        ),
        died,
        StartWindow.of(begin.agent, lambda why: work_not_begun(*place, why)),
    )


class WorkClaim(NamedTuple):
    """A claimed piece of work. `claimed_at`: the time when the claim was read (Unix ms), to which
    the retry times of its model calls are relative; `read_at`: the same moment, monotonic seconds,
    or None if the work begins at once."""

    session_id: str
    kind: str
    upto: int
    attempt: int
    claimed_at: int
    read_at: float | None = None


class OutcomeSink(NamedTuple):
    """A sink that keeps the one outcome of a model call and drops its chunks."""

    outcomes: list[Any]

    def chunk(self, session_id: str, event: ev.GenChunk) -> None:
        """Drop the chunk, because no viewer waits for it."""

    async def outcome(self, session_id: str, event: Any) -> None:
        """Keep the outcome."""
        self.outcomes.append(event)


class UnusableOutput(Exception):
    """The work has no result. `code`: why; the message is the reason in words."""

    def __init__(self, code: WorkEnd, **values: Any) -> None:
        super().__init__(in_words(code, **values))
        self.code = code


async def work(
    claim: WorkClaim,
    task: Task,
    agent: Agent,
    sink: Sink,
    stop: Stop,
    get_client: GetClient,
    *,
    blobs: BlobStore,
    remember: Remember | None = None,
) -> None:
    """Do the work and report its result, if it has one, then BACKGROUND_DONE.

    get_client: returns the model's client, or None if the work was stopped first; called only when
    a model is needed. remember: writes memory events, waits until the log has them, and returns how
    many entries were known already; needed for work of the kind `memory`.
    """
    tries: list[ev.Try] = []
    failed: UnusableOutput | None = None
    note, made, limit_ms = "", None, agent.limits.background_timeout_ms
    late, limit_s = UnusableOutput(WorkEnd.TOO_LATE, limit_ms=limit_ms), limit_ms / 1000
    is_late = False

    def expire() -> None:
        nonlocal is_late
        is_late = not stop.requested
        stop.request(str(late))

    ending = asyncio.get_running_loop().call_later(limit_s, expire)
    try:
        async with asyncio.timeout(limit_s + GRACE_S):  # else the work's slot might never be freed
            made = await _run(claim, task, agent, stop, get_client, blobs, tries)
            if isinstance(made, Extraction):
                note = await _write_memory(made, task.scope, remember)
    except UnusableOutput as error:
        failed = late if is_late else error
    except TimeoutError:
        failed = late
    finally:
        ending.cancel()
    if made is not None and not isinstance(made, Extraction):
        await sink.outcome(claim.session_id, made)
    *earlier, last = tries or [ev.Try(model="")]
    done = ev.BackgroundDone(
        kind=claim.kind,
        upto=claim.upto,
        attempt=claim.attempt,
        ok=failed is None,
        usage=last.usage,
        model=last.model,
        why=(note if failed is None else str(failed))[:WHY_CHARS_MAX],
        released=failed is not None and stop.leaves,
        earlier=tuple(earlier),
        code="" if failed is None else failed.code,
    )
    await sink.outcome(claim.session_id, done)


async def _run(
    claim: WorkClaim,
    task: Task,
    agent: Agent,
    stop: Stop,
    get_client: GetClient,
    blobs: BlobStore,
    tries: list[ev.Try],
) -> ev.ResultCompacted | ev.ContextCompacted | Extraction:
    """The event that the work produces, or the memory to write. Raises UnusableOutput if the work
    was stopped or the model gave nothing usable."""
    if stop.requested:
        raise UnusableOutput(WorkEnd.ABORTED)
    tool = agent.tool(task.tool) if task.tool else None
    if tool is not None and tool.compactor is not None:
        text = await _by_tool(tool, task.text, stop)
        return await asyncio.to_thread(_short, task, text, agent, blobs)
    client = await get_client()
    if stop.requested:  # perhaps before there was a client
        raise UnusableOutput(WorkEnd.ABORTED)
    is_own = task.model == agent.model
    answer = await _ask_model(claim, task, agent.limits, stop, client, tries, is_own=is_own)
    if answer.stop_reason == EndReason.REFUSAL:
        code = WorkEnd.OWN_MODEL_REFUSED if is_own else WorkEnd.MODEL_REFUSED
        raise UnusableOutput(code, model=task.model)
    blocks = json.loads(answer.content.inline or b"[]")
    if claim.kind == WorkKind.RESULT:
        return await asyncio.to_thread(_short, task, _text(blocks), agent, blobs)
    if claim.kind == WorkKind.MEMORY:
        found = extract(_text(blocks), claim.session_id, claim.upto, task.scope)
        if found.why and not found.events:
            raise UnusableOutput(WorkEnd.MEMORY_UNUSABLE, detail=found.why)
        return found
    return await asyncio.to_thread(_summary, claim, task, blocks, answer, agent, blobs)


async def _write_memory(found: Extraction, scope: str, remember: Remember | None) -> str:
    """Write extracted memory. Returns a note about entries that were known or left out, or ''. An
    entry written twice counts once, so work can be repeated after a kill."""
    if remember is None:
        raise UnusableOutput(WorkEnd.NO_MEMORY)
    if not found.events:
        return ""
    try:
        known = await asyncio.to_thread(remember, scope, found.events)
    except FoldlogError as error:
        raise UnusableOutput(WorkEnd.MEMORY_NOT_WRITTEN, detail=error) from error
    note = f"{known} of {len(found.events)} entries were already known" if known else ""
    return "; ".join(filter(None, (note, found.why)))


async def _by_tool(tool: Tool, text: str, stop: Stop) -> str:
    """The output of the tool's own compactor. A compactor that hangs is left running in its thread;
    that of an isolated tool is killed."""
    compactor = tool.compactor
    assert compactor is not None
    if tool.isolate:
        working: Awaitable[Any] = _isolated(compactor, tool.name, text, stop)
    else:
        working = in_thread(lambda: compactor(text), "compactor")
    running = asyncio.ensure_future(working)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return str(running.result())
    except Exception as error:
        kind = error.kind if isinstance(error, Raised) else type(error).__name__
        raise UnusableOutput(WorkEnd.COMPACTOR_FAILED, detail=f"{kind}: {error}") from error
    finally:
        running.cancel()
        stopping.cancel()
        await asyncio.wait({running})  # a process is killed
    raise UnusableOutput(WorkEnd.STOPPED)


async def _isolated(function: Callable[[str], str], name: str, text: str, stop: Stop) -> Any:
    """The output of an isolated tool's compactor. Its process ends before this does."""
    children = Children(stop)
    request = Request(reference=reference_of(function), name=name, text=text)
    try:
        return await call_isolated(request, children, _show)
    finally:
        await children.close()


def _show(output: str) -> None:
    _log.info("a compactor printed\n%s", output)


async def _ask_model(
    claim: WorkClaim,
    task: Task,
    limits: Limits,
    stop: Stop,
    client: Any,
    tries: list[ev.Try],
    clock: Callable[[], float] = time.monotonic,
    *,
    is_own: bool = False,
) -> ev.GenComplete:
    """The model's whole answer, retried after temporary failures. Raises UnusableOutput.

    tries: gets an entry for every request, because each is billed.
    """
    now, error = claim_clock(claim.claimed_at, claim.read_at, clock), ""
    for attempt in range(1, TRIES + 1):
        kept = OutcomeSink([])
        call = models.GenClaim(
            session_id=claim.session_id,
            turn=0,
            step=0,
            attempt=attempt,
            claimed_at=now(),  # the retry time counts from here
            error_before=error,
        )
        # No `pace`: answers must not wait because a cheap model is busy.
        await models.generate(call, task.request, kept, stop, client, limits=limits)
        outcome = kept.outcomes[0]
        model = getattr(outcome, "model", task.model)
        tries.append(ev.Try(model=model, usage=outcome.usage))
        if isinstance(outcome, ev.GenComplete):
            return outcome
        if isinstance(outcome, ev.GenStopped):
            break
        error, due_s = outcome.error, ((outcome.retry_at or 0) - now()) / 1000
        if outcome.permanent or attempt == TRIES or due_s > WAIT_S_MAX:
            code = WorkEnd.OWN_MODEL_FAILED if is_own else WorkEnd.MODEL_FAILED
            raise UnusableOutput(code, model=task.model, error=error, detail=outcome.detail)
        if await _wait_until_due(stop, outcome, now()):
            break
    raise UnusableOutput(WorkEnd.STOPPED)


async def _wait_until_due(stop: Stop, failed: ev.GenFailed, now: int) -> bool:
    """Wait until the next try is due. Returns whether the work was stopped in the meantime."""
    due_s = ((failed.retry_at or 0) - now) / 1000
    try:
        await asyncio.wait_for(stop.wait(), max(0.0, due_s))
    except TimeoutError:
        return False
    return True


def _text(blocks: list[dict[str, Any]]) -> str:
    return "\n".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text").strip()


def _short(task: Task, text: str, agent: Agent, blobs: BlobStore) -> ev.ResultCompacted:
    """The event with a short form, which ends with a reference to the whole result in the blob
    store. The reference names the tool read_result only if the agent has that tool."""
    if not text.strip():
        raise UnusableOutput(WorkEnd.SHORT_EMPTY)
    whole = task.whole or blobs.store(task.text.encode(), "text/plain")
    how = f'The whole: {READER}, ref "{whole.sha256}".'
    how = how if agent.tool(READER) is not None else "The whole is kept; ask for a part of it."
    short = f"{text.strip()}\n[Shortened from about {task.covers} tokens. {how}]"
    tokens = count(short, agent.model).tokens
    if tokens >= task.covers:
        raise UnusableOutput(WorkEnd.SHORT_TOO_LONG, tokens=tokens, covers=task.covers)
    body = ev.Body(inline=short.encode(), ref=whole)
    return ev.ResultCompacted(call=task.call, short=body, tokens=tokens)


def _summary(
    claim: WorkClaim,
    task: Task,
    blocks: list[dict[str, Any]],
    answer: ev.GenComplete,
    agent: Agent,
    blobs: BlobStore,
) -> ev.ContextCompacted:
    signed = [block for block in blocks if block.get("type") == PROVIDERS]
    if signed:
        if signed[0].get("content") is None:
            raise UnusableOutput(WorkEnd.NOT_SUMMARIZED)
        content = answer.content.inline or b"[]"
        tokens = believed(answer.usage.output_tokens, estimate_size(len(content)))
    else:
        text = _text(blocks)
        if not text:
            raise UnusableOutput(WorkEnd.SUMMARY_EMPTY)
        if answer.stop_reason == EndReason.MAX_TOKENS:
            text += f"\n{CUT}"
        content = json.dumps([{"type": "text", "text": text}], ensure_ascii=False).encode()
        tokens = count(text, agent.model).tokens
    if tokens >= task.covers:
        raise UnusableOutput(WorkEnd.SUMMARY_TOO_LONG, tokens=tokens, covers=task.covers)
    return ev.ContextCompacted(
        upto=claim.upto,
        kept_from=task.kept_from,
        summary=blobs.body(content, "application/json"),
        tokens=tokens,
        model=answer.model,
    )

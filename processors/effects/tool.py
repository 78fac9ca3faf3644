"""A tool call, from its claim to its outcome. The call itself is in `tools/call.py`.

If the owner of a claimed call is dead, the tool's reconciler is asked whether the call happened
(rows T6 and T8 of WAKE); without a reconciler, a call that must happen once is in doubt.
"""

from collections.abc import Awaitable
from contextlib import suppress

from ...log.blobs import BlobCorrupt, BlobMissing, BlobStore
from ...schemas import events as ev
from ...schemas.enums import Approval, Effect, Outcome, Role, Via
from ...schemas.events.parts import ReadBlob
from ...schemas.tokens import estimate
from .. import crash_points
from ..agent import Agent
from ..fold.projections.partition import Holder
from ..fold.projections.turn_view import Call, Claim, find_call
from ..fold.views import SessionViews
from ..tools import call as tools
from ..tools.context import Memory
from ..tools.output_sink import Sink, Stop
from ..tools.result_cache import ResultCache
from ..tools.run import READER
from ..tools.side_log import SideLogStore
from ..wake.facts import Obligation
from ..wake.table import Action
from .early_asks import EarlyAsks
from .effect import Begun, Due, Means, Run
from .ports import BeginTool, EffectId, Effects
from .start_window import StartWindow

RECONCILED = ("T6", "T8")  # the rows that ask a reconciler
MAY_HAVE_RUN = "T6r"  # the row of a call whose attempts are used up, and may have run


class ToolCalls:
    """The tool calls of a worker."""

    role = Role.TOOLS
    claims = frozenset({Action.TOOL_STARTED})

    def __init__(self, effects: Effects, read_blob: ReadBlob) -> None:
        self._effects, self._read_blob = effects, read_blob
        self.early_asks = EarlyAsks()

    def claim(self, due: Due, holder: Holder) -> ev.ToolStarted:
        """See `Kind`."""
        call, limits = _call(due.views, due.obligation), due.agent.limits
        with suppress(BlobMissing, BlobCorrupt):  # reported when the call begins
            self._args(call)
        timeout = tools.timeout_ms(due.agent.tool(call.name), limits)
        return ev.ToolStarted(
            turn=call.turn,
            step=call.step,
            index=call.index,
            attempt=call.attempt + 1,
            owner=holder.owner,
            epoch=holder.epoch,
            start_by=due.now + limits.start_window_ms,
            # The effect ends before the deadline, so the margin covers only the difference of
            # clocks. The call begins within one window here and one in the effects' loop, runs for
            # its time limit, and ends within the grace period.
            deadline=due.now + 2 * limits.start_window_ms + timeout + limits.grace_ms,
        )

    def claimed(self, views: SessionViews, obligation: Obligation) -> Claim:
        """See `Kind`."""
        return _claim(_call(views, obligation))

    def begin(self, due: Due) -> None:
        """See `Kind`."""
        begin = self._begin(due, _call(due.views, due.obligation))
        self._effects.begin(due.session_id, begin)

    def not_begun(self, views: SessionViews, obligation: Obligation, why: str) -> ev.ToolResult:
        """See `Kind`. The outcome is final."""
        return tool_not_begun(_call(views, obligation), why)

    def abort(self, due: Due) -> None:
        """See `Kind`."""
        event = tool_not_begun(_call(due.views, due.obligation), "the turn ended first")
        self._effects.report(due.session_id, event)

    def recover(self, due: Due, begun: Begun) -> int | None:
        """Determine the outcome of a call whose owner is dead, once per claim. A reconciler is
        asked early too, because it may know already that the call happened. Returns when to check
        the call again (Unix ms), or None."""
        call, row = _call(due.views, due.obligation), due.obligation.row
        offset, tool = _claim(call).offset, due.agent.tool(call.name)
        effect = EffectId(due.session_id, offset, recovers=True)
        if effect in begun:
            return None
        has_reconciler = tool is not None and tool.reconciler is not None
        ended_at = _claim(call).deadline + due.agent.limits.margin_ms
        if row in RECONCILED and has_reconciler and due.now < ended_at:
            return self._ask_early(due, call, begun, ended_at)
        if due.obligation.owed == Action.TOOL_RESULT:
            why, may_have_run = "its attempts are used up", row == MAY_HAVE_RUN
            event = tool_not_begun(call, why, may_have_run=may_have_run)
            begun.once(effect, lambda: self._effects.report(due.session_id, event))
        else:
            begun.once(
                effect,
                lambda: self._effects.begin(
                    due.session_id, self._begin(due, call)._replace(recovers=True)
                ),
            )
        return None

    def _ask_early(self, due: Due, call: Call, begun: Begun, ended_at: int) -> int:
        """Ask the reconciler of a call that may still happen until `ended_at`, unless it was asked
        just now. Returns when to check the call again."""
        effect = EffectId(due.session_id, _claim(call).offset, recovers=True, early=True)
        if self.early_asks.is_due(effect, due.now):
            begin = self._begin(due, call)  # raises BlobsAway before the question counts as asked
            self.early_asks.record(effect, due.now, ended_at)
            begun.add(effect)
            self._effects.begin(due.session_id, begin._replace(recovers=True, early=True))
        return self.early_asks.due_at(effect)

    @staticmethod
    def is_wanted(views: SessionViews, claim_offset: int) -> bool:
        """See `Kind`."""
        turn = views.turn
        own = (call for call in (*turn.calls, *turn.doubts) if call.turn == turn.number)
        is_live = turn.open and turn.closing is None
        return is_live and any(call.claim and call.claim.offset == claim_offset for call in own)

    def forget(self, session_id: str) -> None:
        """See `Kind`."""
        self.early_asks.forget(session_id)

    def _begin(self, due: Due, call: Call) -> BeginTool:
        refs = refs_in(due.views) if call.name == READER else frozenset()
        state, args = due.views.state, self._args(call)
        user_id, project_id = state.user_id or "", state.project_id
        return BeginTool(call, args, _claim(call), due.agent, user_id, project_id, refs)

    def _args(self, call: Call) -> bytes:
        args = call.args
        return self._read_blob(args.ref) if args.ref is not None else args.inline or b""


def _call(views: SessionViews, obligation: Obligation) -> Call:
    call = find_call(views.turn, *obligation.call)
    assert call is not None, f"{obligation} without its call"
    return call


def _claim(call: Call) -> Claim:
    assert call.claim is not None
    return call.claim


def refs_in(views: SessionViews) -> frozenset[str]:
    """References to the stored results that this session's model may read."""
    fragments, shorts = views.context.fragments, views.compaction.shorts
    bodies = [f.body for f in fragments if f.kind == "result"] + [s.body for s in shorts]
    # A late result of an earlier call is in the context as a reminder, which is only text.
    bodies += [line.body for line in views.transcript.lines if line.kind == "result"]
    return frozenset(body.ref.sha256 for body in bodies if body and body.ref is not None)


# -- the run -----------------------------------------------------------------------------------


def run(session_id: str, begin: BeginTool, means: Means) -> Run:
    """The run of a claimed tool call."""
    claim, tool = tool_claim_of(session_id, begin), begin.agent.tool(begin.call.name)

    async def work(sink: Sink, stop: Stop) -> Awaitable[None] | None:
        if tool is None:
            await sink.outcome(session_id, no_tool(begin))
            return None
        crash_points.reach("tools.run")
        host = _host(begin.agent, means)
        return await tools.run(claim, tool, begin.args, sink, stop, host)

    def died(why: str) -> ev.ToolResult | ev.ToolFailedUncertain:
        is_once = Effect.ONCE in (begin.call.effect, tool and tool.effect)
        text = f"its task died: {why}"
        if is_once:
            return tools.uncertain(claim, tools.Doubt.TASK_DIED, text)
        return tools.gave_up(claim, text)

    window = StartWindow.of(begin.agent, lambda why: tools.not_run(claim, why))
    return Run(Role.TOOLS, EffectId(session_id, begin.claim.offset), work, died, window)


def reconciliation(session_id: str, begin: BeginTool, means: Means) -> Run:
    """The run that asks a tool's reconciler whether the call of a dead owner had its effect."""
    claim, tool = tool_claim_of(session_id, begin), begin.agent.tool(begin.call.name)

    async def work(sink: Sink, stop: Stop) -> None:
        if tool is None:
            why = "its worker died, and the agent no longer has this tool"
            doubt = tools.uncertain(claim, tools.Doubt.WORKER_DIED, why)
            await sink.outcome(session_id, doubt)
            return
        host = _host(begin.agent, means)
        await tools.reconcile(claim, tool, begin.args, sink, stop, host, early=begin.early)

    def died(why: str) -> ev.ToolFailedUncertain:
        text = f"its worker died, and its reconciler failed: {why}"
        return tools.uncertain(claim, tools.Doubt.WORKER_DIED, text)

    effect = EffectId(session_id, begin.claim.offset, recovers=True, early=begin.early)
    return Run(Role.TOOLS, effect, work, None if begin.early else died)


def tool_claim_of(session_id: str, begin: BeginTool) -> tools.ToolClaim:
    """The claim of a tool call, as `tools.run` takes it."""
    call, agent = begin.call, begin.agent
    return tools.ToolClaim(
        session_id=session_id,
        turn=call.turn,
        step=call.step,
        index=call.index,
        attempt=call.attempt,
        name=call.name,
        effect=call.effect,
        approval=Approval.ASK if call.decision else Approval.NONE,
        args_sha256=call.args_sha256,
        timeout_ms=tools.timeout_ms(agent.tool(call.name), agent.limits),
        user_id=begin.user_id,
        project_id=begin.project_id,
        claim_offset=begin.claim.offset,
        refs=begin.refs,
    )


def _host(agent: Agent, means: Means) -> tools.ToolHost:
    return tool_host_of(
        agent, means.blobs, means.side_log, means.memory, means.results, means.tool_env
    )


def tool_host_of(
    agent: Agent,
    blobs: BlobStore,
    side_log: SideLogStore,
    memory: Memory | None = None,
    cache: ResultCache | None = None,
    tool_env: tuple[str, ...] = (),
) -> tools.ToolHost:
    """The host of an agent's tools."""
    return tools.ToolHost(
        limits=agent.limits,
        blobs=blobs,
        side_log=side_log,
        workdir=agent.workdir,
        results_readable=agent.tool(READER) is not None,
        memory=memory,
        agent=agent.name,
        model=agent.model,
        cache=cache,
        tool_env=tool_env,
    )


# -- outcomes ----------------------------------------------------------------------------------


def tool_not_begun(call: Call, why: str, *, may_have_run: bool = False) -> ev.ToolResult:
    """The outcome of a claimed tool call whose claimed attempt did not begin: `error` if this
    or an earlier attempt may have run, else `not_run`.
    """
    may_have_run |= call.attempt > 1 and call.effect != Effect.ONCE
    text = f"An earlier attempt may have run: {why}." if may_have_run else f"Not run: {why}."
    return _tool_result(call, Outcome.ERROR if may_have_run else Outcome.NOT_RUN, text)


def no_tool(begin: BeginTool) -> ev.ToolResult:
    """The outcome of a call whose tool the agent no longer has."""
    text = f"The agent {begin.agent.name} has no tool {begin.call.name} any more: it was not run."
    return _tool_result(begin.call, Outcome.ERROR, text)


def _tool_result(call: Call, outcome: Outcome, text: str) -> ev.ToolResult:
    return ev.ToolResult(
        turn=call.turn,
        step=call.step,
        index=call.index,
        attempt=call.attempt,
        outcome=outcome,
        via=Via.TOOL,
        content=ev.Body(inline=text.encode()),
        bytes=len(text),
        tokens=estimate(text),
        left_out=0,
    )

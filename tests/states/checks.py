"""The properties of the search. Each is checked in every state or at every action to which it
applies, and is named as the simulator's invariant of the same meaning where there is one.

A property of one record at one position is checked once, not once per state.
"""

from typing import Any

from foldlog.processors.fold.projections.turn_view import Claim, generation_deadline
from foldlog.processors.fold.sessions import fold_event
from foldlog.processors.request.rendered import Renderings
from foldlog.processors.wake.decide import Desk, decide, no_layers, rules_of
from foldlog.processors.wake.facts import wake
from foldlog.processors.worker.ports import BeginGeneration
from foldlog.schemas import events as ev
from foldlog.schemas.codec import decode
from foldlog.schemas.value import replace
from foldlog.tests.kit import step_rules
from foldlog.tests.kit.api_rules import findings
from foldlog.tests.kit.manual_worker import message
from foldlog.tests.simulation.invariant import Violation, calls_of, key_of
from foldlog.tests.states.effects import Task
from foldlog.tests.states.host import INLINE, Begun, Step
from foldlog.tests.states.records import Folded

STARTS = (ev.LlmCalled, ev.GenStart, ev.GenResumed, ev.ToolStarted)
CLAIMS = (ev.GenStart, ev.GenResumed, ev.ToolStarted)
ENDS = (ev.GenComplete, ev.GenFailed, ev.GenStopped)
RULES = (
    step_rules.phase_follows_transitions,
    step_rules.fields_have_their_writers,
    step_rules.state_is_small,
    step_rules.turn_is_bounded,
)


def demand(holds: Any, name: str, why: str) -> None:
    """Raise the violation of a property unless it holds."""
    if not holds:
        raise Violation(name, why)


class Checks:
    """The properties of one system."""

    def __init__(self, system: Any) -> None:
        self.system = system
        self._denials: dict[int, bool] = {}

    # -- one record at one position --------------------------------------------------------------

    def folded(self, step: Folded) -> None:
        """Check a record that was folded."""
        demand(step.views.frozen is None, "FoldNeverRaises", f"{step.views.frozen}")
        if step.ruling is None:
            return
        for rule in RULES:
            try:
                rule(step)
            except AssertionError as broken:
                raise Violation(rule.__name__, str(broken)) from broken
        self._decided_once(step)
        if step.ruling.accepted:
            self._accepted(step)

    def _decided_once(self, step: Folded) -> None:
        """I4: a call gets one outcome."""
        before = calls_of(step.before)
        for key, call in calls_of(step.views).items():
            was = before.get(key)
            if was is None or was is call or was.status != "done":
                continue
            contested = (was.human or was.denied) and call.status == "contradicted"
            demand(
                contested or (was.outcome == call.outcome and call.status == "done"),
                "DecidedOnce",
                f"{key} was {was.status} {was.outcome}, became {call.status} {call.outcome}",
            )
        ended = step.before.turn.open or step.views.context is not step.before.context
        if ended and not step.views.turn.open:
            self._next_request_is_legal(step)

    def _next_request_is_legal(self, step: Folded) -> None:
        """I13, P1: the request after the next message has each call with one result, and no result
        without its call."""
        views, offset = step.views, step.entry.offset
        rules = rules_of(self.system.agent)
        desk = Desk(INLINE.body, INLINE.read, no_layers)
        events = [(message("m2"), "producer")]
        while events:
            for event, writer in events:
                offset += 1
                entry = replace(step.entry, offset=offset, writer=writer, event=event)
                views = fold_event(views, entry).views
            owed = [o for o in wake(views, step.holders, step.entry.at, rules) if o.row == "N3"]
            decided = [decide(one, views, self.system.agent, desk) for one in owed]
            events = [(event, "sessions") for made in decided for event in made]
        request = Renderings().request(views, INLINE.read).request
        found = findings(request)
        demand(not found, "RequestsAreLegal", f"{found}: {request.decode()}")

    def _accepted(self, step: Folded) -> None:
        event, turn = step.entry.event, step.before.turn
        if isinstance(event, STARTS):
            going = turn.open and turn.closing is None
            demand(going, "NothingStartsWhileClosing", f"{event} is accepted in a turn that ends")
        if isinstance(event, ev.TurnEnded):
            one = turn.open and turn.number == event.turn
            demand(one, "TurnsEndOnce", f"{event} ends no open turn")
        if isinstance(event, ev.LlmCalled | ev.TurnEnded):
            fresh = event.basis == turn.basis
            demand(fresh, "DecisionsNameTheirBasis", f"{event} is accepted at basis {turn.basis}")
        newest = turn.generation.attempt if turn.generation else 0
        if isinstance(event, ev.GenStart | ev.GenResumed):
            most = self.system.agent.limits.model_attempts
            demand(event.attempt <= most, "AttemptsAreBounded", f"{event} of at most {most}")
            demand(event.attempt == newest + 1, "NewestAttemptCompletes", f"{event} after {newest}")
        if isinstance(event, ENDS):
            demand(event.attempt == newest, "NewestAttemptCompletes", f"{event} of {newest}")
        if isinstance(event, ev.ToolStarted):
            call = calls_of(step.before)[key_of(event)]
            open_ = call.status in ("allowed", "started")
            demand(open_, "NoRunInDoubt", f"{event} claims a call that is {call.status}")
            most = self.system.agent.limits.tool_attempts
            demand(event.attempt <= most, "AttemptsAreBounded", f"{event} of at most {most}")

    # -- one state -------------------------------------------------------------------------------

    def at(self, end: int, rest: Any) -> None:
        """Check the views at the end of the log against the ledger."""
        views = self.system.log.positions[end].views
        if not views.turn.calls and not views.turn.doubts:
            return
        for call in calls_of(views).values():
            denies = call.outcome == "not_run" and call.status == "done"
            if call.outcome == "cancelled" and call.effect == "once" and call.status == "done":
                denies = True
            demand(
                not denies or not rest.acts,
                "NotRunMeansNotRun",
                f"{call.key} is {call.outcome}, but it has run",
            )
            if call.effect == "once" and call.claim is not None and call.status == "started":
                mine = call.claim.offset
                earlier = [o for kind, o in rest.begun if kind == "run_tool" and o < mine]
                demand(not earlier, "OnceStartsOnce", f"claim {earlier} began, and {call.claim}")

    def acts(self, change: Any, task: Task) -> None:
        """Check an act on the world, before it is in the ledger."""
        views = self.system.log.positions[change.end].views
        claim = self.system.effects.claims[task.what]
        rest = change.rest
        demand(
            claim.effect != "once" or not rest.acts, "OnceRunsOnce", f"{claim.call_key} runs again"
        )
        allowed = not self.system.variant.decides or rest.decided == "allow"
        demand(allowed, "AskedCallsAreAllowed", f"{claim.call_key} runs, a person {rest.decided}")
        call = calls_of(views).get(claim.call_key)
        if call is not None and call.status == "done":
            denied = call.outcome == "not_run"
            denied |= call.outcome == "cancelled" and call.effect == "once"
            demand(not denied, "NotRunMeansNotRun", f"{call.key} runs, but is {call.outcome}")

    # -- a worker's step -------------------------------------------------------------------------

    def begun(self, change: Any, worker: int, step: Step, begun: Begun) -> None:
        """Check an effect that a worker begins."""
        system, begin = self.system, begun.begin
        process = change.processes[worker]
        owner = system.owner(worker, process)
        memory = system.memories[step.memory]
        views, holders = system.log.positions[memory.owned.position][1:]
        claim, now, limits = begin.claim, change.rest.now, system.agent.limits
        if begun.what == "reconcile":
            tool = system.agent.tool(begin.call.name)
            left = claim.deadline + limits.margin_ms - now
            late = tool.reconciler is None or begin.early or left <= 0
            demand(late, "ReconcilesLate", f"{begin.call.key} is reconciled {left} ms early")
            self._is_lawful(owner, holders.holder("tools"), claim, claim.deadline, now)
            return
        if begun.what == "recover_chunks":
            return
        is_model = isinstance(begin, BeginGeneration)
        role = "models" if is_model else "tools"
        holder = holders.holder(role)
        won = claim.owner == owner == holder.owner and claim.epoch in (
            *holder.earlier, holder.epoch
        )
        demand(won, "OnlyWonClaimsBegin", f"{owner} begins {claim}, {holder} holds {role}")
        again = (begun.what, claim.offset) in change.rest.begun
        demand(not again, "OnlyWonClaimsBegin", f"{owner} begins {claim} again")
        closing = views.turn.closing is not None
        demand(not closing, "NothingStartsWhileClosing", f"{owner} begins {claim} after a cancel")
        span = limits.stall_timeout_ms
        if not is_model:
            span = 2 * limits.start_window_ms + limits.tool_timeout_ms + limits.grace_ms
        waited = now - (claim.deadline - span)
        demand(
            waited <= limits.start_window_ms, "BeginsInTime",
            f"{role} {claim} begins {waited} ms after its claim",
        )

    def round_ended(self, system: Any, worker: int, process: Any, step: Step, rest: Any) -> None:
        """Check a round: its claims, and that the worker still serves the session."""
        memory = system.memories[step.memory]
        demand(not memory.owned.stuck, "WakeAndFoldAgree", memory.owned.stuck)
        owner = system.owner(worker, process)
        for draft in step.produced:
            event = decode(system.log.drafts[draft].value)
            if not isinstance(event, CLAIMS):
                continue
            views, holders = system.log.positions[memory.owned.position][1:]
            if isinstance(event, ev.ToolStarted):
                call = calls_of(views).get(key_of(event))
                if call is not None and call.status == "started":
                    deadline = call.claim.deadline
                    holder = holders.holder("tools")
                    self._is_lawful(owner, holder, call.claim, deadline, rest.now)
                continue
            running = views.turn.generation
            if running is not None and running.status == "running" and running.claim is not None:
                deadline = generation_deadline(running, views.stream)
                holder = holders.holder("models")
                self._is_lawful(owner, holder, running.claim, deadline, rest.now)

    def _is_lawful(self, owner: str, holder: Any, claim: Claim, deadline: int, now: int) -> None:
        """Law 6: a claim is taken over if it is void, if its owner is an older incarnation of the
        same worker, or if its deadline and the margin have passed."""
        name, _, incarnation = claim.owner.rpartition("/")
        mine, _, own = owner.rpartition("/")
        if (name == mine and incarnation != own) or claim.offset > holder.epoch > claim.epoch:
            return
        left = deadline + self.system.agent.limits.margin_ms - now
        demand(left <= 0, "TakeoversAreLawful", f"{owner} takes {claim} over {left} ms early")

    # -- the end of a fault-free continuation ----------------------------------------------------

    def settled(self, end: int, rest: Any) -> None:
        """Check a state in which nothing is possible any more without a fault or a person."""
        system = self.system
        views, holders = system.log.positions[end][1:]
        rules = rules_of(system.agent)
        owed = [o for o in wake(views, holders, rest.now, rules) if o.row != "T2w"]
        demand(not owed, "Liveness", f"the session still owes {owed}")
        if not views.turn.open:
            return
        waiting = [c.status for c in views.turn.calls if c.status in ("asks", "doubt")]
        demand(waiting, "Liveness", f"the session hangs: {views.turn}")


"""The properties of the search. Each is checked in every state or at every action to which it
applies, and is named as the simulator's invariant of the same meaning.

What both can state of the same facts is in tests/kit/invariants.py. The rest is here:
AskedCallsAreAllowed, NotRunMeansNotRun, OnceStartsOnce and RequestsAreLegal (and StoresAgree in
host.py and KeptOutcomesArrive in outboxes.py) compare a whole history in the simulator, but one
state of the search, which does not know how it came about.

A property of one record at one position is checked once, not once per state.
"""

from typing import Any

from foldlog.processors.effects.ports import BeginGeneration
from foldlog.processors.fold.sessions import fold_event
from foldlog.processors.request.rendered import Renderings
from foldlog.processors.wake.decide import Sources, decide, no_layers, rules_of
from foldlog.processors.wake.facts import wake
from foldlog.schemas.codec import decode
from foldlog.schemas.value import replace
from foldlog.tests.kit import invariants
from foldlog.tests.kit.api_rules import findings
from foldlog.tests.kit.invariants import Violation, calls_of, says_not_run
from foldlog.tests.kit.manual_worker import message
from foldlog.tests.states.effects import Task
from foldlog.tests.states.host import INLINE, Begun, Step
from foldlog.tests.states.records import Folded


def demand(holds: Any, name: str, why: str) -> None:
    """Raise the violation of a property unless it holds."""
    if not holds:
        raise Violation(name, why)


class Checks:
    """The properties of one system."""

    def __init__(self, system: Any) -> None:
        self.system = system
        self.limits = system.agent.limits

    # -- one record at one position --------------------------------------------------------------

    def folded(self, step: Folded) -> None:
        """Check a record that was folded."""
        if step.ruling is None:
            return
        for rule in invariants.AT_EACH_RECORD:
            rule.demand(step)
        turn = step.before.turn
        newest = turn.generation.attempt if turn.generation else 0
        invariants.attempts_and_steps_are_bounded.demand(step, self.limits)
        invariants.decisions_name_their_basis.demand(step, turn.basis)
        invariants.newest_attempt_completes.demand(step, newest)
        ended = turn.open or step.views.context is not step.before.context
        if ended and not step.views.turn.open:
            self._next_request_is_legal(step)

    def _next_request_is_legal(self, step: Folded) -> None:
        """I13, P1: the request after the next message has each call with one result, and no result
        without its call."""
        views, offset = step.views, step.entry.offset
        rules = rules_of(self.system.agent)
        sources = Sources(INLINE.body, INLINE.read, no_layers)
        events = [(message("m2"), "producer")]
        while events:
            for event, writer in events:
                offset += 1
                entry = replace(step.entry, offset=offset, writer=writer, event=event)
                views = fold_event(views, entry).views
            owed = [o for o in wake(views, step.holders, step.entry.at, rules) if o.row == "N3"]
            decided = [decide(one, views, self.system.agent, sources) for one in owed]
            events = [(event, "sessions") for made in decided for event in made]
        request = Renderings().request(views, INLINE.read).request
        found = findings(request)
        demand(not found, "RequestsAreLegal", f"{found}: {request.decode()}")

    # -- one state -------------------------------------------------------------------------------

    def at(self, end: int, rest: Any) -> None:
        """Check the views at the end of the log against the ledger."""
        views = self.system.log.positions[end].views
        if not views.turn.calls and not views.turn.doubts:
            return
        for call in calls_of(views).values():
            if rest.acts:
                self._is_not_denied(call)
            if call.effect == "once" and call.claim is not None and call.status == "started":
                mine = call.claim.offset
                earlier = [o for kind, o in rest.begun if kind == "run_tool" and o < mine]
                demand(not earlier, "OnceStartsOnce", f"claim {earlier} began, and {call.claim}")

    def _is_not_denied(self, call: Any) -> None:
        denied = call.status == "done" and says_not_run(call.effect, call.outcome)
        demand(not denied, "NotRunMeansNotRun", f"{call.key} has run, but is {call.outcome}")

    def acts(self, change: Any, task: Task) -> None:
        """Check an act on the world, before it is in the ledger."""
        views = self.system.log.positions[change.end].views
        claim = self.system.effects.claims[task.what]
        rest = change.rest
        invariants.once_runs_once.demand(claim.effect, claim.call_key, rest.acts)
        allowed = not self.system.variant.decides or rest.decided == "allow"
        demand(allowed, "AskedCallsAreAllowed", f"{claim.call_key} runs, a person {rest.decided}")
        call = calls_of(views).get(claim.call_key)
        if call is not None:
            self._is_not_denied(call)

    # -- a worker's step -------------------------------------------------------------------------

    def begun(self, change: Any, worker: int, step: Step, begun: Begun) -> None:
        """Check an effect that a worker begins."""
        system, begin = self.system, begun.begin
        owner = system.owner(worker, change.processes[worker])
        memory = system.memories[step.memory]
        views, holders = system.log.positions[memory.owned.position][1:]
        claim, now, limits = begin.claim, change.rest.now, self.limits
        if begun.what == "reconcile":
            invariants.reconciles_late.demand(begin, now)
            self._is_lawful(owner, holders.holder("tools"), claim, claim.deadline, now)
            return
        if begun.what == "recover_chunks":
            return
        is_model = isinstance(begin, BeginGeneration)
        holder = holders.holder("models" if is_model else "tools")
        in_force = claim.epoch in (*holder.earlier, holder.epoch)
        won_under = (claim.epoch, holder.owner) if in_force else None
        times = change.rest.begun.count((begun.what, claim.offset)) + 1
        invariants.only_won_claims_begin.demand(owner, claim, won_under, holder.owner, times)
        closing = views.turn.closing is not None
        demand(not closing, "NothingStartsWhileClosing", f"{owner} begins {claim} after a cancel")
        span = limits.stall_timeout_ms
        if not is_model:
            span = 2 * limits.start_window_ms + limits.tool_timeout_ms + limits.grace_ms
        invariants.begins_in_time.demand(claim, now - (claim.deadline - span), limits)

    def round_ended(self, system: Any, worker: int, process: Any, step: Step, rest: Any) -> None:
        """Check a round: its claims, and that the worker still serves the session."""
        memory = system.memories[step.memory]
        owner = system.owner(worker, process)
        invariants.nobody_is_stuck.demand(owner, memory.owned.stuck)
        views, holders = system.log.positions[memory.owned.position][1:]
        for draft in step.produced:
            found = invariants.taken_over(decode(system.log.drafts[draft].value), views)
            if found is not None:
                role, claim, deadline = found
                self._is_lawful(owner, holders.holder(role), claim, deadline, rest.now)

    def _is_lawful(self, owner: str, holder: Any, claim: Any, deadline: int, now: int) -> None:
        is_void = claim.offset > holder.epoch > claim.epoch
        left_ms = deadline + self.limits.margin_ms - now
        invariants.takeovers_are_lawful.demand(owner, claim, left_ms, is_void, holder)

    # -- the end of a fault-free continuation ----------------------------------------------------

    def settled(self, end: int, rest: Any) -> None:
        """Check a state in which nothing is possible any more without a fault or a person."""
        views, holders = self.system.log.positions[end][1:]
        invariants.has_ended.demand(views, holders, rest.now, rules_of(self.system.agent))

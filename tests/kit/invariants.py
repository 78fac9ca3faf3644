"""Invariants that the simulator, the state search and the laws share, each with its name.

Each is a pure function: over one folded record, or over one claim, takeover or effect with the
facts that it needs. A harness determines these facts in its own way. A folded record (a step) is
its entry and its ruling, with the views before and after it: `Step` of a history, `Seen` of the
simulator, `Folded` of the state search.
"""

from collections.abc import Callable
from typing import Any

from foldlog.processors.fold.field_writers import WRITERS
from foldlog.processors.fold.projections import turn_view
from foldlog.processors.fold.projections.background import find_work
from foldlog.processors.fold.projections.delivery import find_owed
from foldlog.processors.fold.projections.partition import Holder, PartitionView
from foldlog.processors.fold.projections.session_state import as_json
from foldlog.processors.fold.projections.turn_view import Claim, generation_deadline
from foldlog.processors.fold.transitions import TRANSITIONS
from foldlog.processors.limits import Limits
from foldlog.processors.wake.budget import Rules
from foldlog.processors.wake.facts import Obligation, wake
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Unreadable
from foldlog.schemas.ids import call_key
from foldlog.schemas.value import replace

STATE_BYTES_MAX = 1024  # S0.1
DECISIONS = (ev.LlmCalled, ev.ToolInvoked, ev.TurnEnded)
STARTS = (ev.LlmCalled, ev.GenStart, ev.GenResumed, ev.ToolStarted)
ATTEMPTS = (ev.GenStart, ev.GenResumed)
GENERATION_ENDS = (ev.GenComplete, ev.GenFailed, ev.GenStopped)
FOR_A_PERSON = ("asks", "doubt")  # statuses of calls that wait for a person


class Violation(BaseException):
    """An invariant does not hold. This is a BaseException, so that no worker catches it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why = name, why


class Rule:
    """A named invariant. A call raises AssertionError unless it holds, as the laws want it;
    `demand` raises Violation, which has the name."""

    def __init__(self, name: str, check: Callable[..., None]) -> None:
        self.name, self.check = name, check
        self.__doc__ = check.__doc__

    def __call__(self, *facts: Any) -> None:
        self.check(*facts)

    def demand(self, *facts: Any) -> None:
        """Check the invariant for a harness."""
        try:
            self.check(*facts)
        except AssertionError as broken:
            raise Violation(self.name, str(broken)) from broken


def rule(name: str) -> Callable[[Callable[..., None]], Rule]:
    """Make a check the invariant of this name."""
    return lambda check: Rule(name, check)


def key_of(call: Any) -> str:
    """The key of the call that an event, or a fragment of the context, names."""
    return call_key(call.turn, call.step, call.index)


def calls_of(views: Any) -> dict[str, Any]:
    """Every call of the turn view, by key."""
    return {call.key: call for call in (*views.turn.doubts, *views.turn.calls)}


def is_refold(event: Any) -> bool:
    """Whether an event folds a history again: it opens a fork, or skips a record. The views after
    it are not one event away from those before it."""
    return isinstance(event, ev.RecordSkipped) or (
        isinstance(event, ev.SessionOpened) and event.seed_ref is not None
    )


# -- one folded record -----------------------------------------------------------------------------


@rule("FoldNeverRaises")
def fold_never_raises(step: Any) -> None:
    """Law 13: only a record that cannot be read freezes a session."""
    if step.views.frozen is not None and step.before.frozen is None:
        event = step.entry.event
        unread = isinstance(event, Unreadable) and event.must_understand
        assert unread, f"{step.entry.session_id} froze: {step.views.frozen}"


@rule("OnlyTransitions")
def only_transitions(step: Any) -> None:
    """I10, S0.4: the phase moves only along TRANSITIONS, one trigger at a time."""
    phase, after = step.before.state.phase, step.views.state.phase
    if phase == after:
        return
    assert after in TRANSITIONS
    if is_refold(step.entry.event):
        return
    match step.entry.event:
        case ev.PhaseTriggered(trigger=trigger):
            triggers = [trigger]
        case ev.CancelRequested(mode="now"):
            triggers = ["cancel"]
        case ev.ToolResult(triggers=wanted):
            triggers = [each.trigger for each in wanted if each.trigger]
        case _:
            triggers = []
    for trigger in triggers:
        phase = TRANSITIONS[phase].get(trigger, phase)
    assert phase == after, f"{step.before.state.phase} became {after} by {step.entry}"


@rule("OneWriterPerField")
def one_writer_per_field(step: Any) -> None:
    """I9, S0.2: only the events that WRITERS names change a field of session_state."""
    before, after = step.before.state, step.views.state
    if before is after:
        return
    row = ev.BY_CLASS.get(type(step.entry.event))
    name = row.name if row else ""
    for field in before.__struct_fields__:
        if getattr(before, field) != getattr(after, field):
            assert name in WRITERS[field], f"{name} changed {field}"


@rule("StateIsSmall")
def state_is_small(step: Any) -> None:
    """S0.1: session_state stays below 1 KB, however long the ids are."""
    if step.before.state is not step.views.state:
        size = len(as_json(step.views.state))
        assert size < STATE_BYTES_MAX, f"{size} bytes"


@rule("TurnIsBounded")
def turn_is_bounded(step: Any) -> None:
    """The lists of a turn (queued messages, grants, reminders, refusals, ids that were seen) stay
    within their limits."""
    turn = step.views.turn
    if turn is step.before.turn:
        return
    bounds = (
        (turn.refusals, turn_view.REFUSALS_MAX),
        ((*turn.queue, *turn.owned), turn_view.QUEUE_MAX),
        (turn.cancel_ids, turn_view.SEEN_MAX),
        (turn.command_ids, turn_view.SEEN_MAX),
        (turn.grants, turn_view.GRANTS_MAX),
        (turn.reminders, turn_view.REMINDERS_MAX),
        ([c for c in turn.doubts if c.status == "done"], turn_view.RESOLVED_MAX),
    )
    for rows, most in bounds:
        assert len(rows) <= most, f"{len(rows)} of at most {most}: {rows[:3]}"


@rule("TurnsEndOnce")
def turns_end_once(step: Any) -> None:
    """Turns open one after the other. An accepted TURN_ENDED ends the open turn, and may open the
    next turn; nothing else ends a turn."""
    event, before, after = step.entry.event, step.before.turn, step.views.turn
    ends = isinstance(event, ev.TurnEnded) and step.ruling.accepted
    if ends:
        assert before.open and event.turn == before.number, f"{event} ends no open turn"
    elif after is before or is_refold(event):
        return
    continues = before.open and not ends
    opened = after.number - before.number
    most = 0 if continues else 1
    assert 0 <= opened <= most, f"turn {after.number} after {before.number} by {step.entry}"
    assert after.open == (continues or opened == 1), f"turn {after.number}: {step.entry}"


@rule("NothingStartsWhileClosing")
def nothing_starts_while_closing(step: Any) -> None:
    """After a cancel, an interrupt, a termination or TURN_ENDED, no call and no claim is
    accepted."""
    event, turn = step.entry.event, step.before.turn
    if isinstance(event, STARTS) and step.ruling.accepted:
        going = turn.open and turn.closing is None
        assert going, f"{event} is accepted in a turn that ends"


@rule("DecidedOnce")
def decided_once(step: Any) -> None:
    """I4: an outcome is not replaced. A later result may contradict only a person's answer or a
    reconciler's denial."""
    if step.views.turn is step.before.turn or is_refold(step.entry.event):
        return
    before = calls_of(step.before)
    for key, call in calls_of(step.views).items():
        was = before.get(key)
        if was is None or was is call or was.status != "done":
            continue
        contested = (was.human or was.denied) and call.status == "contradicted"
        assert contested, f"{step.entry.session_id} {key} was {was.outcome}, became {call}"


@rule("NoRunInDoubt")
def no_run_in_doubt(step: Any) -> None:
    """S2.7: no attempt of a call is claimed while the call is in doubt or after it has an
    outcome."""
    event = step.entry.event
    if isinstance(event, ev.ToolStarted) and step.ruling.accepted:
        call = calls_of(step.before)[key_of(event)]
        assert call.status in ("allowed", "started"), f"{call} was claimed by {event}"


AT_EACH_RECORD = (
    fold_never_raises,
    only_transitions,
    one_writer_per_field,
    state_is_small,
    turn_is_bounded,
    turns_end_once,
    nothing_starts_while_closing,
    decided_once,
    no_run_in_doubt,
)


# -- one folded record, and a fact that the harness determines -------------------------------------


@rule("AttemptsAndStepsAreBounded")
def attempts_and_steps_are_bounded(step: Any, limits: Limits) -> None:
    """S1.F: a session has no more attempts, steps or tokens than its agent's limits allow."""
    if not step.ruling.accepted:
        return
    event = step.entry.event
    match event:
        case ev.GenStart() | ev.GenResumed():
            assert event.attempt <= limits.model_attempts, f"{event.attempt} model tries"
        case ev.ToolStarted():
            assert event.attempt <= limits.tool_attempts, f"{event.attempt} tool tries"
        case ev.LlmCalled():
            assert event.step <= limits.steps, f"step {event.step} of {limits.steps}"
            tokens, most = event.prompt_tokens, limits.hard_tokens
            assert tokens <= most, f"{tokens} of {most} tokens"


@rule("DecisionsNameTheirBasis")
def decisions_name_their_basis(step: Any, newest: int | None) -> None:
    """Law 8: an accepted decision was made on the newest input, whose offset is `newest`."""
    event = step.entry.event
    if isinstance(event, DECISIONS) and step.ruling.accepted:
        assert event.basis == newest, f"{event} is accepted, the newest input is {newest}"


@rule("NewestAttemptCompletes")
def newest_attempt_completes(step: Any, newest: int) -> None:
    """An accepted outcome of a model call belongs to its newest attempt, and attempts are counted
    without a gap. `newest`: the newest attempt of the call before this record, or 0."""
    event = step.entry.event
    if not step.ruling.accepted:
        return
    if isinstance(event, ATTEMPTS):
        assert event.attempt == newest + 1, f"attempt {event.attempt} follows {newest}"
    elif isinstance(event, GENERATION_ENDS):
        assert event.attempt == newest, f"{event} is accepted, but the newest attempt is {newest}"


@rule("WorkDelaysNoStep")
def work_delays_no_step(step: Any, rules: Rules, now: int) -> None:
    """S1.H: background work delays only a step whose request would not fit without it (N2w)."""
    views = step.views
    if not views.background.works:
        return
    owed = {o.row for o in wake(views, step.holders, now, rules)}
    quiet = replace(views, background=replace(views.background, works=()))
    alone = {o.row for o in wake(quiet, step.holders, now, rules)}
    assert "N3" not in alone or "N3" in owed, f"{views.turn} waits for {views.background}"
    assert "N2w" not in owed or "N3" not in alone, f"{views.turn} waits in N2w and would fit"


# -- one effect ------------------------------------------------------------------------------------


@rule("OnlyWonClaimsBegin")
def only_won_claims_begin(
    owner: str, claim: Claim, won_under: tuple[int, str] | None, now: str, times: int
) -> None:
    """Laws 5 and 6, I15: an effect begins once per claim, after the claim was accepted under the
    epoch that was in force, at a worker that has not read of a newer owner. `won_under`: the
    (epoch, owner) that held the role then; `now`: the owner that the worker knows to hold it;
    `times`: how often the effect has begun, this time included."""
    won = claim.owner == owner and won_under == (claim.epoch, owner)
    assert won, f"{owner} begins {claim}, claimed under {won_under}"
    assert now == owner, f"{owner} begins {claim}, but has read that {now} holds the role"
    assert times == 1, f"{owner} begins {claim} again"


@rule("BeginsInTime")
def begins_in_time(claim: Claim, waited_ms: int, limits: Limits) -> None:
    """T4, S2, B2, D2: an effect begins within the start window after its claim was produced, or
    never. If it began later, another worker might already have taken it over, and a model call
    would be paid for twice."""
    assert waited_ms <= limits.start_window_ms, f"{claim} begins {waited_ms} ms after it was made"


@rule("OnceRunsOnce")
def once_runs_once(effect: str, call: Any, acts_before: int) -> None:
    """I3, S2.7: a call of a `once` tool acts on the world at most once, whatever dies."""
    assert effect != "once" or not acts_before, f"{call} runs again"


def says_not_run(effect: str, outcome: str) -> bool:
    """Whether an outcome says that the call did not act on the world and never will."""
    return outcome == "not_run" or (outcome == "cancelled" and effect == "once")


@rule("ReconcilesLate")
def reconciles_late(begin: Any, now: int) -> None:
    """T6: no answer of a reconciler is final before deadline + margin, because its "no" could
    become untrue."""
    tool = begin.agent.tool(begin.call.name)
    if tool is not None and tool.reconciler is not None and not begin.early:
        left = begin.claim.deadline + begin.agent.limits.margin_ms - now
        assert left <= 0, f"{begin.call.key} is reconciled {left} ms early"


# -- one takeover ----------------------------------------------------------------------------------


def taken_over(event: Any, views: Any) -> tuple[str, Claim, int] | None:
    """The (role, claim, deadline) of the running effect that a claim takes over, or None."""
    found: Any
    match event:
        case ev.ToolStarted():
            found = calls_of(views).get(key_of(event))
            if found is not None and found.status == "started":
                return "tools", found.claim, found.claim.deadline
        case ev.GenStart() | ev.GenResumed():
            found = views.turn.generation
            if found is not None and found.status == "running":
                return "models", found.claim, generation_deadline(found, views.stream)
        case ev.BackgroundStarted():
            found = find_work(views.background, event.kind, event.upto)
            if found is not None and not found.released:
                return "background", found.claim, found.claim.deadline
        case ev.DeliveryStarted():
            found = find_owed(views.delivery, event.turn, event.step, event.channel)
            if found is not None and found.status == "running":
                return "delivery", found.claim, found.claim.deadline
    return None


@rule("TakeoversAreLawful")
def takeovers_are_lawful(
    owner: str, claim: Claim, left_ms: int, is_void: bool, holder: Holder | None
) -> None:
    """Law 6: a claim is taken over in four cases only: it is void; its owner is an older
    incarnation of the same worker; the log says that its owner is dead (OWNER_GONE); or its
    deadline and the margin have passed, which `left_ms` remain until then."""
    name, _, incarnation = claim.owner.rpartition("/")
    mine, _, own = owner.rpartition("/")
    if is_void or (name == mine and incarnation != own):
        return
    if holder is not None and claim.owner in holder.gone:
        return  # OnlyTheDeadAreGone checks that
    assert left_ms <= 0, f"{owner} takes {claim} over {left_ms} ms early"


# -- a session at rest -----------------------------------------------------------------------------


@rule("NobodyIsStuck")
def nobody_is_stuck(owner: str, stuck: Any) -> None:
    """Law 9 at run time: no worker ever counts a session as stuck and stops serving it."""
    assert not stuck, f"{owner}: {stuck}"


def owed_without_a_person(
    views: Any, holders: PartitionView, now: int, rules: Rules | None
) -> list[Obligation]:
    """The obligations of a session that wait for no person: all but those of row T2w."""
    return [o for o in wake(views, holders, now, rules) if o.row != "T2w"]


@rule("Liveness")
def has_ended(views: Any, holders: PartitionView, now: int, rules: Rules | None) -> None:
    """I17: a session for which nothing more can happen without a fault is idle or waits for a
    person."""
    owed = owed_without_a_person(views, holders, now, rules)
    assert not owed, f"{views.session_id} is owed {owed}: {views.turn}"
    if views.turn.open and views.frozen is None and rules is not None:
        waits = any(call.status in FOR_A_PERSON for call in views.turn.calls)
        assert waits, f"{views.session_id} hangs: {views.turn}"

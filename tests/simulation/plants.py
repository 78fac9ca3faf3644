"""Planted faults: each makes one rule of the real code wrong, and the simulator, the state search,
or both must catch it.

test_plants.py of the simulator and of the state search run the plants that name them. Neither the
simulator nor the search imports anything from here.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from foldlog.processors.effects import tool
from foldlog.processors.effects.start_window import ClaimTimes
from foldlog.processors.effects.tool import ToolCalls
from foldlog.processors.fold import inherited, session
from foldlog.processors.fold.call_facts import FACTS
from foldlog.processors.fold.projections import (
    background,
    compaction,
    context,
    partition,
    session_state,
    transcript,
    turn,
)
from foldlog.processors.fold.ruling import ACCEPTED
from foldlog.processors.fold.rulings import (
    background as background_rulings,
    producers as producer_rulings,
    workers as worker_rulings,
)
from foldlog.processors.request import blocks
from foldlog.processors.request.rendered import Renderings
from foldlog.processors.store.partition_cache import PartitionCache
from foldlog.processors.store.store import Store
from foldlog.processors.wake import budget, decide, facts as wake
from foldlog.processors.wake.budget import Budget
from foldlog.processors.worker import worker
from foldlog.processors.worker.actions import Actions
from foldlog.processors.worker.fact_sender import FactSender
from foldlog.processors.worker.lost_effects import LostEffects
from foldlog.processors.worker.outbox import Outbox
from foldlog.schemas import events as ev
from foldlog.tests.simulation import wrong_rules as wrong
from foldlog.tests.simulation.node import Process


class Simulated(NamedTuple):
    """The invariant that must catch a plant in some schedule of a scenario. first: the first seed,
    for a plant that few schedules reveal."""

    caught_by: str
    scenario: str
    first: int = 0


class Searched(NamedTuple):
    """The property that a plant must violate in some state of a variant, and the bounds within
    which the search must find it."""

    caught_by: str
    variant: str
    faults: int = 0
    jumps: int = 0


class Plant(NamedTuple):
    """A wrong rule. `where[attribute]` or the attribute of `where`: the right rule; `wrong`: what
    replaces it, a function of the right rule and its arguments, or a number. `also`: further
    (where, attribute, wrong), for a rule that two places enforce."""

    name: str
    where: Any
    attribute: Any
    wrong: Any
    simulated: Simulated | None = None
    searched: Searched | None = None
    also: tuple[tuple[Any, Any, Callable[..., Any]], ...] = ()

    def put(self, patch: Any) -> None:
        """Make the rule wrong until the patch (pytest's monkeypatch) is undone."""
        for where, attribute, wrong_rule in ((self.where, self.attribute, self.wrong), *self.also):
            if isinstance(where, dict):
                patch.setitem(where, attribute, _instead_of(where[attribute], wrong_rule))
            else:
                patch.setattr(where, attribute, _instead_of(getattr(where, attribute), wrong_rule))


def _instead_of(right: Any, wrong_rule: Any) -> Any:
    if not callable(wrong_rule):
        return wrong_rule

    @wraps(right)
    def planted(*args: Any, **more: Any) -> Any:
        return wrong_rule(right, *args, **more)

    return planted


JUDGES, OF_PRODUCERS, FOLDS = worker_rulings.JUDGES, producer_rulings.JUDGES, turn.FOLDS
OF_RULINGS = (
    Plant("TURN_ENDED without its basis", JUDGES, ev.TurnEnded, wrong.no_basis,
          Simulated("DecisionsNameTheirBasis", "ends")),
    Plant("LLM_CALLED without its basis", JUDGES, ev.LlmCalled, wrong.no_basis,
          Simulated("DecisionsNameTheirBasis", "delivery")),
    Plant("a TURN_ENDED at any time", JUDGES, ev.TurnEnded, wrong.always(ACCEPTED),
          searched=Searched("TurnsEndOnce", "once", faults=1)),
    Plant("GEN_START in a turn that closes", JUDGES, ev.GenStart, wrong.not_closing,
          Simulated("NothingStartsWhileClosing", "ends"),
          Searched("NothingStartsWhileClosing", "once")),
    Plant("TOOL_STARTED in a turn that closes", FACTS, ev.ToolStarted, wrong.turn_runs,
          Simulated("NothingStartsWhileClosing", "overtaken", first=10),
          Searched("NothingStartsWhileClosing", "once", faults=1)),
    Plant("an outcome of any attempt", JUDGES, ev.GenComplete, wrong.accepts,
          Simulated("NewestAttemptCompletes", "takeovers", first=240),
          Searched("FoldNeverRaises", "once", faults=1, jumps=1)),
    Plant("an answer that stops after its turn", JUDGES, ev.GenStopped, wrong.not_late,
          Simulated("EndedTurnsAreClosed", "zombies")),
    Plant("a second outcome of a call", FACTS, ev.ToolResult, wrong.always_contradicts,
          Simulated("DecidedOnce", "delivery"),
          Searched("DecidedOnce", "once", faults=1)),
    Plant("messages without deduplication", OF_PRODUCERS, ev.MessageReceived, wrong.no_duplicates,
          Simulated("MessagesEndOnce", "delivery")),
    Plant("an approval for other arguments", FACTS, ev.ApprovalDecided, wrong.shown_arguments,
          Simulated("AskedCallsAreAllowed", "once")),
    Plant("a denial taken for an approval", FACTS, ev.ApprovalDecided, wrong.always_allowed,
          searched=Searched("AskedCallsAreAllowed", "approved")),
)
OF_FOLDS = (
    Plant("an answer that stays owed", FOLDS, ev.Refused, wrong.ignores(ev.Refused),
          Simulated("WakeAndFoldAgree", "conversation")),
    Plant("a fold that raises", FOLDS, ev.CancelRequested, wrong.raises,
          Simulated("FoldNeverRaises", "ends")),
    Plant("calls that a turn leaves open", context, "closed", wrong.forgets_to_close,
          Simulated("RequestsAreLegal", "delivery"),
          Searched("RequestsAreLegal", "once")),
    Plant("a context that is rewritten", context, "apply", wrong.drops_a_fragment,
          Simulated("RequestsExtend", "conversation")),
    Plant("a cancel that moves the phase anywhere", session_state, "apply",
          wrong.sets_after(ev.CancelRequested, phase="verifying"),
          Simulated("OnlyTransitions", "conversation")),
    Plant("a field with two writers", session_state, "apply",
          wrong.sets_after(ev.ToolResult, last_message_id="m0"),
          Simulated("OneWriterPerField", "conversation"),
          also=((session, "demand_writer", wrong.always(None)),)),
    Plant("a field with two writers, caught by the table", session_state, "apply",
          wrong.sets_after(ev.ToolResult, last_message_id="m0"),
          Simulated("FoldNeverRaises", "conversation")),
    Plant("a fork that sets a field of another writer", inherited, "state",
          wrong.sets_in_a_fork, Simulated("FoldNeverRaises", "forks")),
    Plant("arguments in the state", session_state, "apply", wrong.arguments_in_the_state,
          Simulated("StateIsSmall", "conversation")),
    Plant("a cancel token that stays", session_state, "apply", wrong.keeps_the_token,
          Simulated("StateIsTrue", "ends")),
    Plant("an attempt paid twice", session.ledger, "apply", wrong.counts_twice,
          Simulated("LedgerCountsOnce", "conversation")),
    Plant("an answer missing in the transcript", transcript, "apply", wrong.omits_later_answers,
          Simulated("TranscriptIsComplete", "conversation")),
)
OF_WAKE = (
    Plant("no row for a retry", wake, "match", wrong.without_rows("S1r"),
          Simulated("Liveness", "conversation"),
          Searched("Liveness", "once", faults=1)),
    Plant("no row for a takeover", wake, "match", wrong.without_rows("S3", "S4g"),
          searched=Searched("Liveness", "once", faults=1)),
    Plant("a once tool taken for repeatable", wake, "match", wrong.with_facts("T", repeatable=True),
          Simulated("OnceRunsOnce", "once"),
          Searched("OnceRunsOnce", "once", faults=1)),
    Plant("a claim before its approval", wake, "match", wrong.allowed_for_asks,
          searched=Searched("NobodyIsStuck", "approved")),
    Plant("one attempt more", wake, "match", wrong.with_facts("TS", left=True),
          Simulated("AttemptsAndStepsAreBounded", "takeovers")),
    Plant("a begun claim taken for void", wake, "claim_status",
          wrong.status_for(partition.GONE, partition.VOID),
          Simulated("OnceRunsOnce", "once"),
          Searched("OnceRunsOnce", "once", faults=1)),
    Plant("a claim that is void is not taken over", wake, "claim_status",
          wrong.status_for(partition.VOID, partition.OTHER),
          searched=Searched("Liveness", "once", faults=1)),
    Plant("a takeover before the deadline", wake, "claim_status", wrong.gone_at_once,
          Simulated("TakeoversAreLawful", "takeovers"),
          Searched("TakeoversAreLawful", "once", faults=1)),
    Plant("a claim of an earlier incarnation is mine", wake, "claim_status",
          wrong.any_epoch_is_mine,
          searched=Searched("OnlyWonClaimsBegin", "once", faults=1)),
    Plant("a step after should-stop", wake, "stop_reason", wrong.ignores_should_stop,
          Simulated("ShouldStopStops", "ends")),
    Plant("a message that is skipped", decide, "_llm_called", wrong.skips_a_message,
          Simulated("MessagesAreSentOnce", "conversation")),
    Plant("an end that names no state", decide, "_turn_ended", wrong.names_nothing,
          Simulated("TurnEndsNameTheState", "conversation")),
    Plant("another request than the claim's", Renderings, "request", wrong.another_request,
          Simulated("RequestsKeepTheirHash", "conversation")),
)
OF_STORES = (
    Plant("the cursor before the views", Store, "write", wrong.cursor_first,
          Simulated("StoresAgree", "kills")),
    Plant("views that change without the turn", PartitionCache, "record_change",
          wrong.only_the_turn_counts,
          Simulated("StoresAgree", "kills")),
    Plant("a take of an earlier assignment", PartitionCache, "__init__", wrong.any_take_will_do,
          Simulated("NothingBeforeItsTake", "overtaken")),
    Plant("an outbox that is not emitted", Process, "emit_pending", wrong.forgets_the_outbox,
          Simulated("KeptOutcomesArrive", "kills")),
    Plant("an outbox that loses an outcome", Outbox, "pending", wrong.loses_the_newest,
          searched=Searched("KeptOutcomesArrive", "once")),
    Plant("facts in another batch than their events", Store, "write", wrong.facts_later,
          Simulated("FactsAreTheLog", "kills")),
    Plant("a fact that failed is left out", FactSender, "_answered", wrong.never_fails,
          Simulated("FactsAreTheLog", "chaos")),
    Plant("no dead letters", worker.Worker, "_dead_letter", wrong.always(None),
          Simulated("DeadLettersAreKept", "conversation")),
)
OF_EFFECTS = (
    Plant("a claim begun twice", Actions, "_on_claim", wrong.begins_again,
          Simulated("OnlyWonClaimsBegin", "conversation"),
          Searched("OnceRunsOnce", "once", faults=1)),
    Plant("a tool begun at any time", ClaimTimes, "too_late", wrong.begins_at_any_time,
          Simulated("BeginsInTime", "takeovers"),
          Searched("BeginsInTime", "once", jumps=1)),
    Plant("a model call begun at any time", ClaimTimes, "too_late", wrong.model_calls_at_any_time,
          Simulated("BeginsInTime", "overtaken")),
    Plant("a deadline that has passed at once", ToolCalls, "claim", wrong.no_margin,
          searched=Searched("BeginsInTime", "once")),
    Plant("a take paired with another time", worker, "anchor_of", wrong.produced_when_read,
          searched=Searched("BeginsInTime", "once", jumps=1)),
    Plant("a newer owner is ignored", worker.Worker, "held", wrong.never_superseded,
          searched=Searched("NobodyIsStuck", "once", faults=1)),
    Plant("a lost record that stays in flight", Actions, "_lost", wrong.waits_for_ever,
          searched=Searched("Liveness", "once", faults=1)),
    Plant("a reconciler asked early", ToolCalls, "recover", wrong.asks_early,
          Simulated("ReconcilesLate", "once"),
          Searched("ReconcilesLate", "reconciled", faults=1)),
    Plant("a lost attempt called not run", tool, "tool_not_begun", wrong.never_gone_repeats,
          Simulated("NotRunMeansNotRun", "again")),
    Plant("takes without a pause", worker, "SESSION_TIMEOUT_MS", 500,
          Simulated("TakesAreBounded", "mutual")),
    Plant("a cancel that does not reach a lost partition", LostEffects, "partition_lost",
          wrong.always(None),
          Simulated("AbortsReachWhatRuns", "crowd")),
    Plant("a cancel that does not reach a worker that must take its partition again", LostEffects,
          "judge", wrong.always(None),
          Simulated("AbortsReachWhatRuns", "resumed")),
)
OF_BACKGROUND_WORK = (
    Plant("a step that waits for background work", wake, "_next", wrong.waits_for_work,
          Simulated("WorkDelaysNoStep", "compaction_alone")),
    Plant("an abort that stops no background work", background, "apply",
          wrong.ignores(ev.CancelRequested, ev.SessionTerminated),
          Simulated("AbortedWorkStops", "compaction_alone")),
    Plant("a summary made for ever", wake, "match", wrong.with_facts("B", left=True),
          Simulated("WorkEnds", "compaction")),
    Plant("work that never ends", background, "apply", wrong.ignores(ev.BackgroundDone),
          Simulated("WorkEnds", "compaction_alone")),
    Plant("a useless summary tried again", background, "_done", wrong.forgets_tried_work,
          Simulated("WorkEnds", "compaction_alone")),
    Plant("giving up while a summary is made", Budget, "may_still_come", wrong.always(False),
          Simulated("BudgetIsExceededOnlyAsLastResort", "compaction_alone")),
    Plant("a candidate that is never adopted", budget, "saving", wrong.always(0),
          Simulated("BudgetIsExceededOnlyAsLastResort", "compaction_alone")),
    Plant("a summary that is forgotten again", compaction, "apply", wrong.forgets_the_newer,
          Simulated("CandidatesAreAdoptedOnce", "compaction_alone")),
    Plant("a cut between a call and its result", budget, "cut_keeping", wrong.cuts_one_later,
          Simulated("RequestsAreLegal", "compaction_alone"),
          also=((background_rulings, "is_cut", wrong.always(True)),)),
    Plant("a short form that was not adopted", blocks, "in_force", wrong.shows_every_short_form,
          Simulated("RequestsExtend", "compaction_alone")),
    Plant("work taken over before its deadline", wake.Inputs, "claim_status",
          wrong.takes_work_over_at_once,
          Simulated("TakeoversAreLawful", "compaction")),
    Plant("more background work than there are slots", Actions, "_has_slot", wrong.always(True),
          Simulated("SlotsAreKept", "compaction_alone")),
)
PLANTS = (*OF_RULINGS, *OF_FOLDS, *OF_WAKE, *OF_STORES, *OF_EFFECTS, *OF_BACKGROUND_WORK)

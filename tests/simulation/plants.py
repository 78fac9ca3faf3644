"""Planted faults: each makes one rule of the real code wrong, and an invariant must catch this.

A plant consists of a patch of one name and the invariant that must catch it; test_plants.py runs
the plants. The simulator imports nothing from here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from foldlog.processors.fold import session
from foldlog.processors.fold.call_facts import FACTS
from foldlog.processors.fold.projections import context, session_state, transcript, turn
from foldlog.processors.fold.rulings import producers as producer_rulings, workers as worker_rulings
from foldlog.processors.request.rendered import Renderings
from foldlog.processors.store import partition_cache as owned
from foldlog.processors.store.store import Store
from foldlog.processors.wake import decide, facts as wake
from foldlog.processors.worker import actions, lost_effects, start_window, worker
from foldlog.schemas import events as ev
from foldlog.tests.simulation import node, wrong_rules as wrong


class Plant(NamedTuple):
    """A wrong rule. It is `wrong(right)`, and replaces the right rule, which is `where[attribute]`
    or the attribute of `where`. `also`: further (where, attribute, wrong), for a rule that two
    places enforce."""

    name: str
    caught_by: str
    scenario: str
    where: Any
    attribute: Any
    wrong: Callable[[Any], Any]
    also: tuple[tuple[Any, Any, Callable[[Any], Any]], ...] = ()


JUDGES, OF_PRODUCERS, FOLDS = worker_rulings.JUDGES, producer_rulings.JUDGES, turn.FOLDS
PLANTS = (
    Plant(
        "TURN_ENDED without its basis",
        "DecisionsNameTheirBasis",
        "ends",
        JUDGES,
        ev.TurnEnded,
        wrong.no_basis,
    ),
    Plant(
        "LLM_CALLED without its basis",
        "DecisionsNameTheirBasis",
        "delivery",
        JUDGES,
        ev.LlmCalled,
        wrong.no_basis,
    ),
    Plant(
        "GEN_START in a turn that closes",
        "NothingStartsWhileClosing",
        "ends",
        JUDGES,
        ev.GenStart,
        wrong.not_closing,
    ),
    Plant(
        "TOOL_STARTED in a turn that closes",
        "NothingStartsWhileClosing",
        "once",
        FACTS,
        ev.ToolStarted,
        wrong.turn_runs,
    ),
    Plant(
        "an outcome of any attempt",
        "NewestAttemptCompletes",
        "takeovers",
        JUDGES,
        ev.GenComplete,
        wrong.accepts,
    ),
    Plant(
        "an answer that stops after its turn",
        "EndedTurnsAreClosed",
        "zombies",
        JUDGES,
        ev.GenStopped,
        wrong.not_late,
    ),
    Plant(
        "a second outcome of a call",
        "DecidedOnce",
        "delivery",
        FACTS,
        ev.ToolResult,
        wrong.always_contradicts,
    ),
    Plant(
        "messages without deduplication",
        "MessagesEndOnce",
        "delivery",
        OF_PRODUCERS,
        ev.MessageReceived,
        wrong.no_duplicates,
    ),
    Plant(
        "an approval for other arguments",
        "AskedCallsAreAllowed",
        "once",
        FACTS,
        ev.ApprovalDecided,
        wrong.shown_arguments,
    ),
    Plant(
        "a once tool taken for repeatable",
        "OnceRunsOnce",
        "once",
        wake,
        "match",
        wrong.with_facts("T", repeatable=True),
    ),
    Plant(
        "a begun claim taken for void",
        "OnceRunsOnce",
        "once",
        wake,
        "claim_status",
        wrong.void_for_gone,
    ),
    Plant(
        "a takeover before the deadline",
        "TakeoversAreLawful",
        "takeovers",
        wake,
        "claim_status",
        wrong.gone_at_once,
    ),
    Plant("no row for a retry", "Liveness", "conversation", wake, "match", wrong.no_retries),
    Plant(
        "a message that is skipped",
        "MessagesAreSentOnce",
        "conversation",
        decide,
        "_llm_called",
        wrong.skips_a_message,
    ),
    Plant(
        "an answer that stays owed",
        "WakeAndFoldAgree",
        "conversation",
        FOLDS,
        ev.Refused,
        wrong.ignores(ev.Refused),
    ),
    Plant(
        "calls that a turn leaves open",
        "RequestsAreLegal",
        "delivery",
        context,
        "closed",
        wrong.forgets_to_close,
    ),
    Plant(
        "a cancel that moves the phase anywhere",
        "OnlyTransitions",
        "conversation",
        session_state,
        "apply",
        wrong.sets_after(ev.CancelRequested, phase="verifying"),
    ),
    Plant(
        "a field with two writers",
        "OneWriterPerField",
        "conversation",
        session_state,
        "apply",
        wrong.sets_after(ev.ToolResult, last_message_id="m0"),
        ((session, "demand_writer", wrong.always(None)),),
    ),
    Plant(
        "a field with two writers, caught by the table",
        "FoldNeverRaises",
        "conversation",
        session_state,
        "apply",
        wrong.sets_after(ev.ToolResult, last_message_id="m0"),
    ),
    Plant(
        "arguments in the state",
        "StateIsSmall",
        "conversation",
        session_state,
        "apply",
        wrong.arguments_in_the_state,
    ),
    Plant(
        "a context that is rewritten",
        "RequestsExtend",
        "conversation",
        context,
        "apply",
        wrong.drops_a_fragment,
    ),
    Plant(
        "another request than the claim's",
        "RequestsKeepTheirHash",
        "conversation",
        Renderings,
        "request",
        wrong.another_request,
    ),
    Plant(
        "the cursor before the views", "StoresAgree", "kills", Store, "write", wrong.cursor_first
    ),
    Plant(
        "views that change without the turn",
        "StoresAgree",
        "kills",
        owned.PartitionCache,
        "record_change",
        wrong.only_the_turn_counts,
    ),
    Plant(
        "a take of an earlier assignment",
        "NothingBeforeItsTake",
        "overtaken",
        owned.PartitionCache,
        "__init__",
        wrong.any_take_will_do,
    ),
    Plant(
        "a claim begun twice",
        "OnlyWonClaimsBegin",
        "conversation",
        actions.Actions,
        "_on_claim",
        wrong.begins_again,
    ),
    Plant(
        "a tool begun at any time",
        "BeginsInTime",
        "takeovers",
        start_window.ClaimTimes,
        "too_late",
        wrong.begins_at_any_time,
    ),
    Plant(
        "a model call begun at any time",
        "BeginsInTime",
        "overtaken",
        start_window.ClaimTimes,
        "too_late",
        wrong.model_calls_at_any_time,
    ),
    Plant(
        "a cancel that does not reach a lost partition",
        "AbortsReachWhatRuns",
        "crowd",
        lost_effects.LostEffects,
        "partition_lost",
        wrong.always(None),
    ),
    Plant(
        "a cancel that does not reach a worker that must take its partition again",
        "AbortsReachWhatRuns",
        "resumed",
        lost_effects.LostEffects,
        "judge",
        wrong.always(None),
    ),
    Plant(
        "a reconciler asked early",
        "ReconcilesLate",
        "once",
        actions.Actions,
        "_recover",
        wrong.asks_early,
    ),
    Plant(
        "a lost attempt called not run",
        "NotRunMeansNotRun",
        "again",
        actions,
        "tool_not_begun",
        wrong.never_gone_repeats,
    ),
    Plant(
        "takes without a pause",
        "TakesAreBounded",
        "mutual",
        worker,
        "SESSION_TIMEOUT_MS",
        lambda right: 500,
    ),
    Plant("a fold that raises", "FoldNeverRaises", "ends", FOLDS, ev.CancelRequested, wrong.raises),
    Plant(
        "an outbox that is not emitted",
        "KeptOutcomesArrive",
        "kills",
        node.Process,
        "emit_pending",
        wrong.forgets_the_outbox,
    ),
    Plant(
        "no dead letters",
        "DeadLettersAreKept",
        "conversation",
        worker.Worker,
        "_dead_letter",
        wrong.always(None),
    ),
    Plant(
        "an attempt paid twice",
        "LedgerCountsOnce",
        "conversation",
        session.ledger,
        "apply",
        wrong.counts_twice,
    ),
    Plant(
        "one attempt more",
        "AttemptsAndStepsAreBounded",
        "takeovers",
        wake,
        "match",
        wrong.with_facts("TS", left=True),
    ),
    Plant(
        "a step after should-stop",
        "ShouldStopStops",
        "ends",
        wake,
        "stop_reason",
        wrong.ignores_should_stop,
    ),
    Plant(
        "a cancel token that stays",
        "StateIsTrue",
        "ends",
        session_state,
        "apply",
        wrong.keeps_the_token,
    ),
    Plant(
        "an end that names no state",
        "TurnEndsNameTheState",
        "conversation",
        decide,
        "_turn_ended",
        wrong.names_nothing,
    ),
    Plant(
        "an answer missing in the transcript",
        "TranscriptIsComplete",
        "conversation",
        transcript,
        "apply",
        wrong.omits_later_answers,
    ),
)

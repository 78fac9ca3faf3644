"""Planted faults of background work, and the wrong rules that these use."""

from typing import Any

from foldlog.processors.fold.projections import background, compaction
from foldlog.processors.fold.rulings import background as background_rulings
from foldlog.processors.request import blocks
from foldlog.processors.wake import budget, facts as wake
from foldlog.processors.worker import actions
from foldlog.schemas import events as ev
from foldlog.schemas.value import replace
from foldlog.tests.simulation.plants import Plant
from foldlog.tests.simulation.wrong_rules import always, ignores, with_facts


def waits_for_work(right: Any) -> Any:
    def wrong(moment: Any) -> Any:
        return None if moment.views.background.works else right(moment)

    return wrong


def forgets_tried_work(right: Any) -> Any:
    def wrong(view: Any, *rest: Any) -> Any:
        return replace(right(view, *rest), tried_upto=-1, tried_tokens=0)

    return wrong


def cuts_one_later(right: Any) -> Any:
    def wrong(fragments: Any, *rest: Any) -> Any:
        cut = right(fragments, *rest)
        return None if cut is None or cut + 1 >= len(fragments) else cut + 1

    return wrong


def shows_every_short_form(right: Any) -> Any:
    return lambda view, call, compacted_upto: view.shorts.last(call)


def forgets_the_newer(right: Any) -> Any:
    """A wrong rule: the request that adopts a summary has the new summary, but the next request
    begins with the earlier summary again."""

    def wrong(view: Any, entry: Any, *rest: Any) -> Any:
        after = right(view, entry, *rest)
        moved = after.checkpoint_at != view.checkpoint_at and view.checkpoint_at is not None
        return replace(after, checkpoint_at=view.checkpoint_at) if moved else after

    return wrong


def takes_over_at_once(right: Any) -> Any:
    def wrong(moment: Any, claim: Any, role: str, deadline: int) -> str:
        status = right(moment, claim, role, deadline)
        return "gone" if role == "background" and status == "other" else status

    return wrong


BACKGROUND = (
    Plant(
        "a step that waits for background work",
        "WorkDelaysNoStep",
        "compaction_alone",
        wake,
        "_next",
        waits_for_work,
    ),
    Plant(
        "an abort that stops no background work",
        "AbortedWorkStops",
        "compaction_alone",
        background,
        "apply",
        ignores(ev.CancelRequested, ev.SessionTerminated),
    ),
    Plant(
        "a summary made for ever",
        "WorkEnds",
        "compaction",
        wake,
        "match",
        with_facts("B", left=True),
    ),
    Plant(
        "work that never ends",
        "WorkEnds",
        "compaction_alone",
        background,
        "apply",
        ignores(ev.BackgroundDone),
    ),
    Plant(
        "a useless summary tried again",
        "WorkEnds",
        "compaction_alone",
        background,
        "_done",
        forgets_tried_work,
    ),
    Plant(
        "giving up while a summary is made",
        "BudgetIsExceededOnlyAsLastResort",
        "compaction_alone",
        wake,
        "may_still_come",
        always(False),
    ),
    Plant(
        "a candidate that is never adopted",
        "BudgetIsExceededOnlyAsLastResort",
        "compaction_alone",
        budget,
        "saving",
        always(0),
    ),
    Plant(
        "a summary that is forgotten again",
        "CandidatesAreAdoptedOnce",
        "compaction_alone",
        compaction,
        "apply",
        forgets_the_newer,
    ),
    Plant(
        "a cut between a call and its result",
        "RequestsAreLegal",
        "compaction_alone",
        budget,
        "cut_keeping",
        cuts_one_later,
        ((background_rulings, "is_cut", always(True)),),
    ),
    Plant(
        "a short form that was not adopted",
        "RequestsExtend",
        "compaction_alone",
        blocks,
        "in_force",
        shows_every_short_form,
    ),
    Plant(
        "work taken over before its deadline",
        "TakeoversAreLawful",
        "compaction",
        wake.Moment,
        "claim_status",
        takes_over_at_once,
    ),
    Plant(
        "more background work than there are slots",
        "SlotsAreKept",
        "compaction_alone",
        actions.Actions,
        "_has_slot",
        always(True),
    ),
)
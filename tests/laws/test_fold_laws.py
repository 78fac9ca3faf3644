"""The laws of the fold, which hold for every history, whatever any writer appends.

Each test is one law, has a sentence as its name, and runs over the shared histories of law.py. A
failing history is printed whole, with its seed.
"""

from typing import Any

from hypothesis import given, strategies as st

from foldlog.processors.fold.field_writers import WRITERS
from foldlog.processors.fold.projections.partition import PartitionView
from foldlog.processors.fold.projections.session_state import SessionState
from foldlog.processors.fold.projections.turn_view import (
    Claim,
    call_of,
    find_call,
)
from foldlog.processors.fold.session import fold, judge
from foldlog.processors.fold.views import SessionViews, initial
from foldlog.processors.store import views_codec
from foldlog.processors.store.partition_cache import may_owe
from foldlog.processors.store.store import Cursor, DictBackend, Store
from foldlog.processors.store.views_codec import series_of
from foldlog.schemas import events as ev
from foldlog.schemas.codec import ChunkSeen, Entry, digest, entry_of
from foldlog.schemas.events import BY_CLASS
from foldlog.schemas.value import replace
from foldlog.tests.kit import invariants
from foldlog.tests.kit.ends import are_lawful
from foldlog.tests.kit.history import Step
from foldlog.tests.laws.law import LAW, histories, law
from foldlog.tests.laws.random_history import RandomHistory

PAID = (ev.GenComplete, ev.GenFailed, ev.GenStopped, ev.BackgroundDone)


def parts(views: SessionViews) -> dict[str, bytes]:
    """The encoded bytes of every view, by name."""
    return dict(views_codec.view_parts(views))


def entries(history: RandomHistory) -> list[Entry]:
    """The entries of the session."""
    return [step.entry for step in history.steps]


def folded(views: SessionViews, more: list[Entry]) -> SessionViews:
    for entry in more:
        views, _ = fold(views, entry)
    return views


def through_the_store(views: SessionViews) -> SessionViews:
    """The views as a store returns them after it has written them."""
    data: dict[bytes, bytes] = {}
    changed = {views.session_id: views}
    Store(DictBackend(data)).write(changed, {}, may_owe, PartitionView(), Cursor(1, 0))
    read = Store(DictBackend(data)).load(views.session_id)
    assert read is not None
    return read


@law(forged=True)
def test_beyond_4_replaying_twice_gives_the_same_bytes(history):
    again = [entry_of(r) for r in history.records if (r.key or b"").decode() == history.session_id]
    replayed = folded(initial(history.session_id), again)
    assert parts(replayed) == parts(history.views)
    assert replayed == history.views


@LAW
@given(histories(forged=True), st.integers(0, 10_000))
def test_folding_in_two_parts_through_the_store_equals_folding_at_once(history, cut):
    whole = entries(history)
    cut %= len(whole) + 1
    first = folded(initial(history.session_id), whole[:cut])
    kept = through_the_store(first)
    assert kept == first and parts(kept) == parts(first)
    assert parts(folded(kept, whole[cut:])) == parts(history.views)


@law(forged=True)
def test_only_an_unreadable_event_that_must_be_understood_freezes_a_session(history):
    frozen = history.views.frozen
    if frozen is not None:  # a fork with an unreadable seed is frozen at its first event
        (begun,) = [step for step in history.steps if step.entry.offset == frozen.offset]
        assert begun.entry.event.seed_ref is not None and not begun.before.turn.known


@law(forged=True)
def test_law_2_a_duplicate_event_changes_nothing_but_pending_refusals(history):
    for step in history.steps:
        if not step.ruling.accepted:
            continue
        later = replace(step.entry, offset=history.offset, at=history.at)
        for views in (step.views, history.views):
            after, ruling = fold(views, later)
            if not may_be_accepted_again(views, later):
                assert not ruling.accepted, (ruling, later)
                assert without_refusals(after) == without_refusals(views)


def without_refusals(views: SessionViews) -> SessionViews:
    return replace(views, turn=replace(views.turn, refusals=(), refusals_dropped=0))


def may_be_accepted_again(views: SessionViews, entry: Entry) -> bool:
    """Whether a copy of the entry may be accepted; events of three kinds have no id that identifies
    them."""
    event = entry.event
    if isinstance(event, ev.HumanResolved | ev.HumanNeeded):
        # After a contradiction a person is asked again, so the same answer is a new one.
        calls = (*views.turn.calls, *views.turn.doubts)
        return any(c.key == event.call and c.status == "contradicted" for c in calls)
    # A prefix comes into force again when an agent was edited and edited back. The store does not
    # decode chunks, so a second copy only proves once more that its attempt is alive.
    return isinstance(event, ev.ContextSet | ChunkSeen)


@law(forged=True)
def test_a_chunk_changes_only_the_stream_view(history):
    for step in history.steps:
        if isinstance(step.entry.event, ChunkSeen):
            assert step.views == replace(step.before, stream=step.views.stream)


@law(forged=True)
def test_law_2_an_event_that_is_not_accepted_changes_no_view_but_the_pending_refusal(history):
    for step in history.steps:
        before, after, ruling = step.before, step.views, step.ruling
        if ruling.verdict == "ignored" and type(step.entry.event) in PAID:
            after = replace(after, ledger=before.ledger)  # each attempt is paid for, whichever wins
        if after.frozen is not None and after.frozen.offset == step.entry.offset:
            after = replace(after, frozen=None)  # a separate law, above, checks `frozen`
        if ruling.verdict == "ignored":
            assert after == before, step.entry
        if ruling.verdict == "refused":
            refusal = after.turn.refusals[-1]
            assert (refusal.offset, refusal.code) == (step.entry.offset, ruling.code)
            assert len(refusal.detail) > 5
            turn = replace(
                after.turn,
                refusals=before.turn.refusals,
                refusals_dropped=before.turn.refusals_dropped,
            )
            assert replace(after, turn=turn) == before, step.entry
            assert step.entry.writer == "producer", "only a producer waits for an answer"


@law(forged=True)
def test_S0_5_S1_G_the_ledger_is_the_sum_of_the_paid_requests_each_once(history):
    paid: dict[tuple, ev.Usage] = {}
    for step in history.steps:
        event, code = step.entry.event, step.ruling.code or step.ruling.verdict
        if type(event) in PAID and code in ("accepted", "superseded", "late", "duplicate"):
            for place, usage in requests_in(event):
                paid.setdefault(place, usage)
        ledger = step.views.ledger
        assert len(ledger.spent) == len({row.key for row in ledger.spent}) == len(paid), step.entry
        for part in ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output"):
            name = f"{part}_tokens"
            total = getattr(ledger, name)
            assert total == sum(getattr(usage, name) for usage in paid.values()), step.entry
            assert total == sum(getattr(row, name) for row in ledger.spent), step.entry


def requests_in(event) -> list[tuple[tuple, ev.Usage]]:
    """The (identity, usage) of each physical request of an outcome, if its usage is known.

    A repeated outcome has the same requests, because the identity includes the number of the
    request.
    """
    if not isinstance(event, ev.BackgroundDone):
        found = [((event.turn, event.step, event.attempt), event.usage)]
    else:
        work = (event.kind, event.upto, event.attempt)
        usages = [*(one.usage for one in event.earlier), event.usage]
        found = [((*work, number), usage) for number, usage in enumerate(usages)]
    return [(place, usage) for place, usage in found if usage is not None]


@law(forged=True)
def test_S0_2_a_field_is_changed_only_by_the_events_of_its_WRITERS_row(history):
    for step in history.steps:
        invariants.one_writer_per_field(step)
        before, after = step.before.state, step.views.state
        if before != after:
            assert after.updated_at == step.entry.at
            assert replace(before, updated_at=0) != replace(after, updated_at=0)


@law(forged=True)
def test_S0_4_the_phase_moves_only_along_TRANSITIONS(history):
    for step in history.steps:
        invariants.only_transitions(step)


@law(forged=True)
def test_S0_3_a_project_is_never_replaced(history):
    for step in history.steps:
        before, after = step.before.state.project_id, step.views.state.project_id
        assert before is None or before == after


@law(forged=True)
def test_S0_1_the_state_is_its_fields_and_below_1_KB(history):
    for step in history.steps:
        invariants.state_is_small(step)
    assert set(SessionState.__struct_fields__) == set(WRITERS)


@law(forged=True)
def test_law_8_the_basis_is_the_offset_of_the_last_accepted_input(history):
    basis = -1
    for step in history.steps:
        invariants.decisions_name_their_basis(step, basis)
        row = BY_CLASS.get(type(step.entry.event))
        counts = (row is not None and row.is_input) or shortens_the_next_request(step)
        if step.ruling.accepted and counts:
            basis = step.entry.offset
        assert step.views.turn.basis == basis


def shortens_the_next_request(step: Step) -> bool:
    """Whether the step is a short form that came before its result was sent: the next request
    always contains such a short form."""
    shorts = step.views.compaction.shorts
    return isinstance(step.entry.event, ev.ResultCompacted) and len(shorts) and shorts[-1].early


@law()
def test_a_turn_end_names_the_state_at_its_basis(history):
    states = {step.entry.offset: step.views.state for step in history.steps}
    for step in history.steps:
        event = step.entry.event
        if isinstance(event, ev.TurnEnded) and step.ruling.accepted:
            assert event.views_sha == digest(states[event.basis])


@law(forged=True)
def test_everything_in_flight_is_bounded(history):
    for step in history.steps:
        invariants.turn_is_bounded(step)
        turn = step.views.turn
        if not turn.open:
            assert turn.generation is None and not turn.calls and not turn.owned
            assert turn.closing is None and not turn.queue


@law()
def test_S0_10_every_accepted_message_has_one_turn_and_gets_one_outcome(history):
    received = [row.message_id for row in history.views.messages.received]
    assert len(received) == len(set(received))
    rows = list(history.views.messages.progress)
    for message_id in received:
        mine = [row for row in rows if row.message_id == message_id]
        ends = [row for row in mine if row.reason]
        queued = any(w.message_id == message_id for w in history.turn.queue)
        assert len(ends) <= 1, mine
        assert {row.turn for row in mine} == {mine[-1].turn} if mine else queued, mine
        runs = history.turn.open and bool(mine) and mine[-1].turn == history.turn.number
        assert bool(ends) != (queued or runs)


@law()
def test_constraint_4_an_ended_turn_leaves_nothing_open(history):
    for step in history.steps:
        invariants.turns_end_once(step)
        if isinstance(step.entry.event, ev.TurnEnded) and step.ruling.accepted:
            turn = step.views.turn
            assert turn.open == bool(step.before.turn.queue and not turn.terminated)
            assert {c.status for c in turn.doubts} <= {"doubt", "contradicted", "done"}


@law(forged=True)
def test_constraint_3_nothing_starts_in_a_turn_that_closes(history):
    for step in history.steps:
        invariants.nothing_starts_while_closing(step)


@law(forged=True)
def test_beyond_2_rows_are_only_ever_added(history):
    for step in history.steps:
        pairs = zip(series_of(step.before), series_of(step.views), strict=True)
        for before, after in pairs:
            assert after.upto(len(before)) == before


@law()
def test_S2_9_an_answer_is_seen_once_and_only_if_it_counted(history):
    counted = [
        (step.entry.event.turn, step.entry.event.step)
        for step in history.steps
        if step.ruling.accepted and isinstance(step.entry.event, ev.GenComplete)
    ]
    lines = history.views.transcript.lines
    seen = [(line.turn, line.step) for line in lines if line.kind == "answer"]
    assert seen == counted and len(set(seen)) == len(seen)


def takeovers(views: SessionViews, newer: int) -> list[tuple[Any, str]]:
    """A (takeover, writer) for every running claim. Each takeover is correct except for its epoch,
    which is higher by `newer` than the claim's epoch."""
    turn, found = views.turn, []
    late = {"owner": "forger/1", "deadline": 2**40}

    def forge(cls: type, writer: str, claim: Claim, attempt: int, **place: Any) -> None:
        again = {**late, **place, "attempt": attempt + 1, "epoch": claim.epoch + newer}
        found.append((cls(**again), writer))

    if turn.closing is None and not turn.terminated:
        if turn.generation is not None and turn.generation.status == "running":
            generation = turn.generation
            request = {"called": generation.called, "request_sha256": "0" * 64, "builder": "b"}
            place = {"turn": turn.number, "step": turn.step, "strategy": "replace", "prior_seq": -1}
            claim = generation.claim
            forge(ev.GenResumed, "models", claim, generation.attempt, **place, **request)
        for call in turn.calls:
            if call.status == "started":
                place = {"turn": call.turn, "step": call.step, "index": call.index}
                forge(ev.ToolStarted, "tools", call.claim, call.attempt, **place, start_by=2**40)
        for work in views.background.works:
            if not work.released and not work.stop:
                place = {"kind": work.kind, "upto": work.upto}
                forge(ev.BackgroundStarted, "background", work.claim, work.attempt, **place)
    for owed in views.delivery.owed:
        if owed.status == "running":
            place = {"turn": owed.turn, "step": owed.step, "channel": owed.channel}
            forge(ev.DeliveryStarted, "delivery", owed.claim, owed.attempt, **place)
    return found


@law(forged=True)
def test_I4_a_call_has_one_end_or_is_contradicted_once_and_settled(history):
    ends: dict[str, list[Any]] = {}
    for step in history.steps:
        invariants.decided_once(step)
        event = step.entry.event
        if step.ruling.accepted and isinstance(event, ev.ToolResult | ev.HumanResolved):
            call = call_of(step.before.turn, event)
            ends.setdefault(call.key, []).append(event)
            assert are_lawful(ends[call.key], at_rest=False), ends[call.key]


@law(forged=True)
def test_law_6_a_running_claim_is_taken_over_only_under_a_newer_epoch(history):
    """A correct worker writes no other takeover: WAKE lets it take over only under its own, newer
    epoch."""
    for step in history.steps:
        views, at = step.views, step.entry
        if views.frozen is not None or views is step.before:
            continue
        for newer in (-1, 0, 1):
            for event, writer in takeovers(views, newer):
                entry = replace(at, offset=at.offset + 1, writer=writer, event=event)
                assert judge(views, entry).accepted == (newer > 0), event


@law()
def test_S2_8_a_once_call_is_claimed_again_only_if_no_claim_of_it_can_have_begun(history):
    for step in history.steps:
        invariants.no_run_in_doubt(step)
        event = step.entry.event
        if isinstance(event, ev.ToolStarted) and step.ruling.accepted:
            call = find_call(step.before.turn, event.turn, event.step, event.index)
            assert event.attempt == call.attempt + 1
            if call.status == "started":
                assert event.epoch > call.claim.epoch, "law 6: under a newer epoch"
                void = call.claim.offset > event.epoch
                assert void or call.effect != "once", event

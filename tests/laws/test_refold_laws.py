"""Laws of forks and skips: both fold a history again, under the same rules as any other event."""

from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.fold import inherited
from foldlog.processors.fold.projections.compaction import in_force
from foldlog.processors.fold.projections.context_view import fragment_tokens
from foldlog.processors.fold.rulings.producers import RULES
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import SessionViews, frozen_at, initial
from foldlog.processors.store.views_codec import view_hashes
from foldlog.processors.wake.phase_limits import phase_reminder
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry
from foldlog.schemas.ids import PARTITION_KEY, call_key
from foldlog.schemas.seed import MEDIA_TYPE, Seed, seal
from foldlog.schemas.value import replace
from foldlog.tests.kit import invariants
from foldlog.tests.kit.agents import variant
from foldlog.tests.kit.history import History, Step, opened
from foldlog.tests.kit.phases import in_phase
from foldlog.tests.laws.law import LAW, histories
from foldlog.tests.laws.random_history import RandomHistory
from foldlog.tests.processors.fold.test_rulings_background import long_session, short_of

INHERITED = ("user_id", "project_id", "phase", "last_message_id")


def seed_of(history: History, upto: int) -> tuple[Seed, ev.BlobRef]:
    """The seed with the session's records up to an offset, and the reference to it."""
    name = history.session_id.encode()
    records = [
        record for record in history.records
        if record.offset <= upto and record.key == name and name != PARTITION_KEY.encode()
    ]
    data = seal(history.session_id, records)
    ref = ev.BlobRef(sha256=sha256(data).hexdigest(), bytes=len(data), media_type=MEDIA_TYPE)
    return Seed((data,)), ref


def forked(history: History, step: Step) -> Step:
    """A fork of the session as of a step."""
    upto, parent = step.entry.offset, step.views
    seed, ref = seed_of(history, upto)
    event = ev.SessionOpened(
        user_id=parent.state.user_id, agent=parent.turn.agent, rules=RULES,
        parent_session=history.session_id, parent_offset=upto, seed_ref=ref,
    )
    before = initial("fork")
    entry = Entry("fork", 0, 1, history.at, "producer", event, seed=seed)
    views, ruling = fold(before, entry)
    return Step(entry, ruling, before, views, step.holders, history.at)


def skipped(history: History, step: Step) -> Step:
    """The skip of a record that froze the session after a step."""
    upto = step.entry.offset
    before = replace(step.views, frozen=frozen_at(upto + 1, "a test"))
    seed, ref = seed_of(history, upto)
    event = ev.RecordSkipped(
        offset=upto + 1, seed_ref=ref, reason="", by_user=before.state.user_id
    )
    entry = Entry(history.session_id, 0, upto + 2, history.at, "producer", event, seed=seed)
    views, ruling = fold(before, entry)
    return Step(entry, ruling, before, views, step.holders, history.at)


def check_state(step: Step) -> None:
    """The rules for the state that hold at every record."""
    assert step.ruling.accepted and step.views.frozen is None, step.views.frozen
    invariants.one_writer_per_field(step)
    invariants.state_is_small(step)


@LAW
@given(histories(), st.integers(0, 10_000))
def test_S0_2_a_fork_changes_only_the_fields_of_its_writer(history: RandomHistory, number: int):
    steps = [step for step in history.steps if step.views.turn.known and not step.views.frozen]
    if not steps:
        return
    at = steps[number % len(steps)]
    step = forked(history, at)
    check_state(step)
    parent, fork = at.views.state, step.views.state
    for field in INHERITED:
        assert getattr(fork, field) == getattr(parent, field), field
    assert (fork.session_id, fork.pending_tool, fork.cancel_token) == ("fork", None, None)


@LAW
@given(histories(), st.integers(0, 10_000))
def test_S0_2_a_skip_gives_the_state_of_the_other_records(history: RandomHistory, number: int):
    steps = [step for step in history.steps if step.views.turn.known and not step.views.frozen]
    if not steps:
        return
    at = steps[number % len(steps)]
    step = skipped(history, at)
    check_state(step)
    assert step.views.state == at.views.state


def unsent_results(views: SessionViews) -> list[int]:
    """The ordinals of the results that no request has contained."""
    request, rows = views.context.request, views.context.fragments
    begin = 0 if request is None else request.fragments
    return [place for place in range(begin, len(rows)) if rows[place].kind == "result"]


def edited(fork: Step, place: int) -> Step:
    """The result at this ordinal, replaced in a fork."""
    row = fork.views.context.fragments[place]
    event = ev.ResultReplaced(
        call=call_key(row.turn, row.step, row.index), outcome="ok", tokens=0,
        content=ev.Body(inline=b"edited " * 9), reason="", by_user=fork.views.state.user_id,
    )
    entry = replace(fork.entry, offset=2, event=event, seed=None)
    views, ruling = fold(fork.views, entry)
    return Step(entry, ruling, fork.views, views, fork.holders, fork.at)


def check_edited(step: Step, place: int) -> None:
    """Only this result changed, the tokens agree, and an answer is pending."""
    check_state(step)
    before, after = step.before.context, step.views.context
    rows = list(zip(before.fragments, after.fragments, strict=True))
    new = after.fragments[place]
    assert (new.body, new.text, new.error) == (ev.Body(inline=b"edited " * 9), "", False)
    for row, (old, now) in enumerate(rows):
        if row != place:
            assert now == replace(old, total=now.total)
            assert fragment_tokens(after.fragments, row) == fragment_tokens(before.fragments, row)
    turn = step.views.turn
    assert (turn.open, turn.step, turn.calls) == (True, 0, ()), "the first step is due"
    assert turn.number == step.before.turn.number + 1
    assert view_hashes(step.views) != view_hashes(step.before)


@LAW
@given(histories(), st.integers(0, 10_000))
def test_S2_12_an_edited_result_changes_nothing_else(history: RandomHistory, number: int):
    steps = [
        step for step in history.steps if unsent_results(step.views) and not step.views.frozen
    ]
    if not steps:
        return
    fork = forked(history, steps[number % len(steps)])
    places = unsent_results(fork.views)
    place = places[number % len(places)]
    check_edited(edited(fork, place), place)


def test_S2_12_an_edited_result_has_no_short_form():
    s = long_session()
    assert s.append(short_of(s), "background").accepted
    fork = forked(s, s.steps[-1])
    (place,) = unsent_results(fork.views)
    assert in_force(fork.views.compaction, "9.1.0", -1) is not None
    step = edited(fork, place)
    check_edited(step, place)
    assert in_force(step.views.compaction, "9.1.0", -1) is None
    own = fragment_tokens(step.views.context.fragments, place)
    assert step.views.context.tail_tokens == own, "nothing else follows the last response"


@pytest.mark.parametrize(
    ("field", "stolen"), [("cancel_token", "c1"), ("pending_tool", "none")]
)
def test_S0_2_a_fork_that_violates_the_table_of_writers_freezes(monkeypatch, field, stolen):
    """The defect: a fork's SESSION_OPENED went around the table."""
    s = opened()
    right = inherited.state
    monkeypatch.setattr(
        inherited, "state", lambda *args: replace(right(*args), **{field: stolen})
    )
    views = forked(s, s.steps[-1]).views
    assert views.frozen is not None
    assert f"SESSION_OPENED may not change {field}" in views.frozen.why


def test_S2_12_a_fork_has_the_phase_of_its_parent_and_is_not_told_again():
    agent = variant(phased=True)
    s = in_phase(opened(agent=agent), "building")
    s.say("go")
    s.answer("yes")
    fork = forked(s, s.steps[-1]).views
    assert fork.state.phase == "building"
    assert phase_reminder(s.views, agent, None) is phase_reminder(fork, agent, None) is None
    assert phase_reminder(initial("new"), agent, None) is not None


def test_S0_2_a_skip_of_another_sessions_history_changes_nothing():
    s, other = opened(), opened("s2")
    at, wrong = s.steps[-1], seed_of(other, other.offset)
    before = replace(at.views, frozen=frozen_at(9, "a test"))
    event = ev.RecordSkipped(offset=9, seed_ref=wrong[1], reason="", by_user="ana")
    views, _ = fold(before, Entry("s1", 0, 10, s.at, "producer", event, seed=wrong[0]))
    assert views.frozen is not None and views.state == before.state

"""Every row of WAKE on a handwritten history: when the row is owed, and that law 9 holds there.

Each test has a given (the history), a when (its last line) and a then (the row). The tests are in
the order of the table.
"""

from collections import Counter
from collections.abc import Callable

import pytest

from foldlog.processors.fold.views import Frozen
from foldlog.processors.wake.decide import rules_of
from foldlog.processors.wake.facts import wake
from foldlog.processors.wake.table import BY_ID, SEED_ROWS
from foldlog.schemas import events as ev
from foldlog.schemas.events.effects import ALIVE_SEQ
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.value import replace
from foldlog.tests.kit import answers
from foldlog.tests.kit.agents import LIMITS, MINUTE, variant
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, Step, opened, with_calls
from foldlog.tests.kit.law9 import check_law_9
from foldlog.tests.processors.fold.histories import code

# A claim's deadline gives a tool this time to begin and to end, in addition to its timeout.
BEGIN_AND_END_MS = 2 * LIMITS.start_window_ms + LIMITS.grace_ms

LOOK = Use("look", "{}", "a")
POST = Use("post", "{}", "b")
WIRE = Use("wire", '{"cents":1}', "w")
CHARGE = Use("charge", '{"cents":3}', "c")
COMPLETE = Use("complete", "{}", "d")
RESTARTED, ANOTHER = "w1/2", "w2/1"  # a newer incarnation of the holder; another worker


def streaming() -> History:
    """A session whose partition's holder has claimed a model call."""
    s = opened()
    s.say()
    return s.work()


def proposed(*uses: Use) -> History:
    """A session with an answer that proposes these calls; none of them is decided."""
    s = streaming()
    s.complete(*uses)
    return s


def allowed(use: Use) -> History:
    """A session with a call that is allowed but not claimed."""
    return proposed(use).work(before=("T3",))


def void(use: Use, times: int = 1) -> History:
    """A session with a call whose claims are all void: each of them (`times`) follows a takeover of
    the partition in the log."""
    s, row = allowed(use), "T3"
    for number in range(times):
        late = s.in_flight(row)
        s.take(f"w{number + 2}/1")
        assert s.land(late) == ["accepted"]
        row = "T5"
    return s


def failing(times: int, end: str = "fail") -> History:
    s = streaming()
    for _ in range(times):
        getattr(s, end)()
        if end == "fail":
            s.later(1)
        s.work(before=("S4u",))
    return s


def crashing(times: int) -> History:
    """A session whose worker died this many times during the model call."""
    s = streaming()
    for number in range(times):
        s.take(f"w1/{number + 2}")
        s.work(before=("S4g",))
    return s


def large_result() -> History:
    """A session with a result that is long enough for a short form."""
    return then(with_calls(LOOK), lambda s: s.result("1.1.0", "a row of it\n" * 1_000))


def shortening(*, times: int = 1) -> History:
    """A session whose short form is claimed for the `times`-th time; the workers of the earlier
    claims died."""
    s = large_result()
    s.discharge("B1")
    for number in range(2, times + 1):
        s.take(f"w1/{number}").discharge("B3")
    return s


def memory_failed() -> History:
    """A session whose memory extraction has just failed."""
    s = opened(agent=variant(memory=True))
    s.say()
    work = s.answer("hi").views.background.works[-1]
    s.append(answers.done(work.kind, work.upto, work.attempt, why="no words"), "background")
    return s


def pushed(times: int = 0) -> History:
    """A session whose answer is due on a push channel. This many workers died while they delivered
    the answer."""
    s = opened()
    s.say(channel="push:crm")
    s.answer("hi")
    s.later(1)
    return s if times == 0 else crashed_in(s, times)


def doubtful(owner: str) -> History:
    """A cancelled turn whose call began and may have had its effect, and a worker that took the
    partition since."""
    s = with_calls(POST)
    s.cancel()
    return s.take(owner)


def crashed_in(s: History, times: int) -> History:
    for number in range(2, times + 2):
        s.take(f"w1/{number}").work(before=("D4g",))
    return s


def answered_for_a_channel() -> History:
    """A session with a complete answer to a message that came by a push channel."""
    s = opened()
    s.say(channel="push:crm")
    s.work()
    s.complete("hi")
    return s


def over_the_cap() -> History:
    """A session with many messages, whose next step has a request over the hard cap."""
    s = opened()
    for _ in range(8):
        s.say("long " * 20)
        s.answer("well")
    s.say()
    s.answer(LOOK, read=LIMITS.hard_tokens + 1)
    return then(s, lambda s: s.result("9.1.0"))


def then(s: History, *acts: Callable[[History], object]) -> History:
    for act in acts:
        act(s)
    return s


GIVEN: dict[str, Callable[[], History]] = {
    "R": lambda: then(opened(), lambda s: s.say(by="bob")),
    "A1": lambda: then(streaming(), lambda s: s.cancel()),
    "A1t": lambda: then(with_calls(LOOK), lambda s: s.cancel()),
    "A2": lambda: then(
        streaming(), lambda s: s.chunk(), lambda s: s.take(RESTARTED), lambda s: s.cancel()
    ),
    "C1": lambda: then(streaming(), lambda s: s.cancel()),
    "C2": lambda: then(opened(), lambda s: s.say(), lambda s: s.cancel()),
    "T1": lambda: proposed(LOOK),
    "T2": lambda: with_calls(CHARGE).later(LIMITS.approval_expiry_ms),
    "T2w": lambda: with_calls(CHARGE),
    "T3": lambda: allowed(LOOK),
    "T4": lambda: with_calls(LOOK),
    "T4w": lambda: with_calls(LOOK).take(ANOTHER),
    "T5": lambda: void(POST),
    "T5r": lambda: with_calls(LOOK).take(RESTARTED),
    "T6v": lambda: void(POST, times=2),
    "T6r": lambda: with_calls(LOOK).take(RESTARTED).work().take("w1/3"),
    "T6": lambda: with_calls(POST).take(RESTARTED),
    "T7": lambda: then(with_calls(POST), lambda s: s.uncertain("1.1.0")),
    "T8": lambda: then(doubtful(RESTARTED), lambda s: s.work()),
    "T8w": lambda: then(doubtful(ANOTHER), lambda s: s.work()),
    "S1": lambda: then(opened(), lambda s: s.say(), lambda s: s.work(before=("S1",))),
    "S1r": lambda: then(streaming(), lambda s: s.fail()),
    "S1w": lambda: then(streaming(), lambda s: s.fail(retry_at=s.at + 5_000)),
    "S2": lambda: streaming(),
    "S2w": lambda: streaming().take(ANOTHER),
    "S3": lambda: streaming().take(RESTARTED),
    "S4": lambda: then(streaming(), lambda s: s.fail(permanent=True)),
    "S4u": lambda: failing(LIMITS.model_attempts),
    "S4g": lambda: crashing(LIMITS.model_attempts),
    "N1": lambda: then(streaming(), lambda s: s.complete("done")),
    "N1s": lambda: then(with_calls(COMPLETE), lambda s: s.result("1.1.0")),
    "N2": lambda: then(opened(), lambda s: s.say("long " * 4_000)),
    "N2w": lambda: over_the_cap(),
    "N3": lambda: then(opened(), lambda s: s.say()),
    "D1": lambda: answered_for_a_channel(),
    "D1r": lambda: then(pushed(), lambda s: s.undelivered("push:crm")).later(1),
    "D1w": lambda: then(pushed(), lambda s: s.undelivered("push:crm", retry_at=s.at + 9_000)),
    "D2": lambda: pushed(),
    "D2w": lambda: pushed().take(ANOTHER),
    "D3": lambda: pushed().take(RESTARTED),
    "D4": lambda: then(
        pushed(LIMITS.delivery_attempts - 1), lambda s: s.undelivered("push:crm")
    ).later(1),
    "D4g": lambda: pushed(LIMITS.delivery_attempts - 1).take("w1/9"),
    "B1": lambda: large_result(),
    "B1w": lambda: memory_failed(),
    "B1s": lambda: then(
        streaming(), lambda s: s.complete(LOOK, read=LIMITS.soft_tokens)
    ),
    "B2": lambda: shortening(),
    "B2a": lambda: then(shortening(), lambda s: s.cancel()),
    "B2w": lambda: shortening().take(ANOTHER),
    "B3": lambda: shortening().take(RESTARTED),
    "B3u": lambda: shortening(times=LIMITS.background_attempts).take("w1/9"),
    "B3a": lambda: then(shortening(), lambda s: s.cancel(), lambda s: s.take(RESTARTED)),
}


@pytest.mark.parametrize("row", BY_ID)
def test_S2_7_every_row_is_owed_in_its_history_and_law_9_holds(row):
    s = GIVEN[row]()
    assert row in s.rows()
    step = Step(s.steps[-1].entry, s.steps[-1].ruling, s.views, s.views, s.holders, s.at)
    rows: Counter = Counter()
    check_law_9(s, step, rows)
    assert rows[row]


def test_every_row_of_the_table_has_a_history():
    assert list(GIVEN) == list(BY_ID)


# -- the eight rows of the specification -----------------------------------------------------------


SEED = {
    "MESSAGE_RECEIVED": (lambda: GIVEN["N3"](), ["N3"]),
    "LLM_CALLED": (lambda: GIVEN["S1"](), ["S1"]),
    "TOOL_INVOKED": (lambda: allowed(LOOK), ["T3"]),
    "TOOL_RESULT": (lambda: then(with_calls(LOOK), lambda s: s.result("1.1.0")), ["N3"]),
    "GEN_START, GEN_CHUNK": (lambda: streaming().take(RESTARTED), ["S3"]),
    "GEN_COMPLETE": (lambda: GIVEN["N1"](), ["N1"]),
    "GEN_SENT": (
        lambda: then(
            streaming().answer("hi"),
            lambda s: s.append(ev.GenSent(turn=1, step=1, channel="sse"), "consumers"),
        ),
        [],
    ),
    "SESSION_TERMINATED": (
        lambda: then(opened(), lambda s: s.say(), lambda s: s.terminate()),
        ["C2"],
    ),
}


@pytest.mark.parametrize("last", SEED)
def test_S2_7_the_last_event_of_a_session_decides_its_rows(last):
    given, rows = SEED[last]
    s = given()
    assert s.rows() == rows
    s.work()
    assert "TERMINATED" not in last or s.rows() == []


def test_S2_7_every_row_of_the_specification_has_a_history():
    assert [row[0] for row in SEED_ROWS] == list(SEED)


# -- the end of a wait -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "after"),
    [
        ("T2w", "T2"), ("T4w", "T5r"), ("T8w", "T8"), ("S1w", "S1r"), ("S2w", "S3"), ("C1", "C2"),
        ("N2w", "N2"), ("B2w", "B3"), ("D1w", "D1r"), ("D2w", "D3"),
    ],
)
def test_a_wait_ends_at_its_due_time_and_not_a_millisecond_earlier(row, after):
    s = GIVEN[row]()
    (owed,) = (owed for owed in s.owed() if owed.row == row)
    rules = rules_of(s.agent)
    before = [o.row for o in wake(s.views, s.holders, owed.due - 1, rules)]
    due = [o.row for o in wake(s.views, s.holders, owed.due, rules)]
    assert row in before and after not in before
    assert row not in due and after in due


def test_a_chunk_extends_the_deadline_of_its_model_call_by_the_stall_timeout():
    s = streaming().take(ANOTHER)
    s.later(LIMITS.stall_timeout_ms - 10)
    s.chunk()
    s.later(LIMITS.margin_ms + 100)
    assert s.rows() == ["S2w"]
    s.later(LIMITS.stall_timeout_ms)
    assert s.rows() == ["S3"]


def test_S2w_a_stream_that_only_shows_that_it_is_alive_is_not_taken_over():
    s = streaming().take(ANOTHER)
    for _ in range(5):
        s.later(LIMITS.stall_timeout_ms)
        assert s.rows() == ["S2w"]
        assert s.chunk("", ALIVE_SEQ).accepted
    s.later(LIMITS.stall_timeout_ms + LIMITS.margin_ms)
    assert s.rows() == ["S3"]


# -- takeovers (law 6) -----------------------------------------------------------------------------


def test_law_6_another_worker_waits_for_the_deadline_and_the_margin():
    s = with_calls(LOOK).take(ANOTHER)
    assert s.rows() == ["T4w"]
    s.later(2 * MINUTE + BEGIN_AND_END_MS + LIMITS.margin_ms)
    assert s.rows() == ["T5r"]


def test_law_6_a_newer_incarnation_of_the_same_worker_does_not_wait():
    assert with_calls(LOOK).take(RESTARTED).rows() == ["T5r"]
    assert streaming().take(RESTARTED).rows() == ["S3"]


def test_law_6_a_claim_after_a_takeover_is_void_and_repeated_even_for_a_once_tool():
    s = void(POST)
    s.work()
    assert s.call("1.1.0").attempt == 2 and s.rows() == ["T4"]


def test_law_6_a_claim_of_a_worker_that_lost_the_partition_is_a_duplicate():
    s = allowed(POST)
    late = s.in_flight("T3")
    s.take(ANOTHER).work()
    assert s.land(late) == ["duplicate"]
    assert s.call("1.1.0").claim.owner == ANOTHER


def test_S2_8_a_started_once_tool_is_never_run_again():
    s = with_calls(POST)
    for number in range(2, 6):
        s.take(f"w1/{number}").later(5 * MINUTE).work()
        assert s.rows() == ["T6"] and s.call("1.1.0").attempt == 1
    discharged = s.discharge("T6")
    assert [what for what, _ in discharged.begun] == ["reconcile"]


def test_S2_8_a_reconciler_is_asked_at_once_and_its_answer_is_final_after_deadline_and_margin():
    s = with_calls(WIRE).take(RESTARTED)
    ((what, begin),) = s.discharge("T6").begun
    assert (what, begin.early) == ("reconcile", True), "a request may still be under way"
    s.later(2 * MINUTE + BEGIN_AND_END_MS + LIMITS.margin_ms)
    ((what, begin),) = s.discharge("T6").begun
    assert (what, begin.early) == ("reconcile", False)


@pytest.mark.parametrize("end", ["cancel", "terminate"])
def test_S2_8_a_doubt_of_an_ended_turn_is_settled_by_its_reconciler_once(end):
    """The defect: only a person could settle it."""
    s = with_calls(WIRE)
    getattr(s, end)()
    s.take(RESTARTED).work()
    assert not s.turn.open and s.rows() == ["T8"] and s.turn.doubts[0].told
    ((what, begin),) = s.discharge("T8").begun
    assert (what, begin.early) == ("reconcile", True)
    s.later(2 * MINUTE + BEGIN_AND_END_MS + LIMITS.margin_ms)
    ((what, begin),) = s.discharge("T8").begun
    assert (what, begin.early) == ("reconcile", False)
    assert s.uncertain("1.1.0").accepted and s.rows() == []
    assert code(s.uncertain("1.1.0")) == "duplicate"


def test_S2_8_a_frozen_session_asks_no_reconciler():
    s = doubtful(RESTARTED).work()
    assert s.rows() == ["T8"]
    frozen = replace(s.views, frozen=Frozen(offset=9, why="damaged"))
    assert wake(frozen, s.holders, s.at, rules_of(s.agent)) == ()


def test_S2_8_a_reconciler_is_not_asked_about_an_owner_that_may_be_paused():
    s = with_calls(WIRE).take(ANOTHER)
    assert s.rows() == ["T4w"]
    s.append(ev.OwnerGone(owner="w1/1"), "tools", PARTITION_KEY)
    assert s.rows() == ["T6"]


def test_S2_8_a_claim_that_never_started_needs_no_reconciler():
    s = void(WIRE, times=2)
    (reported,) = s.discharge("T6v").reported
    assert reported.outcome == "not_run"


@pytest.mark.parametrize(("row", "outcome"), [("T6r", "error"), ("T6v", "not_run")])
def test_a_call_without_attempts_left_is_an_error_if_one_may_have_run_else_not_run(row, outcome):
    s = GIVEN[row]()
    (reported,) = s.discharge(row).reported
    assert reported.outcome == outcome and s.call("1.1.0").status == "done"


def test_S2_9_a_takeover_of_a_model_call_is_in_the_log_with_the_last_chunk():
    s = streaming()
    s.chunk("a", 0)
    s.chunk("b", 1)
    s.take(RESTARTED).work()
    resumed = s.steps[-1].entry.event
    assert isinstance(resumed, ev.GenResumed)
    assert (resumed.strategy, resumed.attempt, resumed.prior_seq) == ("replace", 2, 1)


def test_S2_9_a_takeover_without_chunks_does_not_use_those_of_the_step_before():
    s = streaming()
    s.chunk("a", 0)
    s.chunk("b", 1)
    s.complete(LOOK)
    s.work()
    s.result("1.1.0")
    s.work()
    s.take(RESTARTED).work()
    assert s.steps[-1].entry.event.prior_seq == -1


def test_law_3_attempts_count_crashes_and_failures_alike():
    s = streaming()
    s.fail()
    s.work()
    s.take(RESTARTED).work()
    assert s.place == (1, 1, 3)
    s.fail()
    assert s.rows() == ["S4u"]
    s.work()
    assert s.end_reason() == "failed"

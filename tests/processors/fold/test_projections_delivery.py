"""Pending deliveries to push channels: which answers, in which order, under which claim, and for
how long."""

from foldlog.processors.fold.projections import delivery
from foldlog.processors.fold.projections.delivery import OWED_MAX, text_of
from foldlog.schemas import events as ev
from foldlog.tests.kit.answers import Use, undelivered
from foldlog.tests.kit.history import History, opened

CRM, OTHER = "push:crm", "push:other"
CALL = Use("look", "{}", "a")


def pending(s: History) -> list[tuple[int, int, str, str]]:
    return [(o.turn, o.step, o.channel, o.status) for o in s.views.delivery.owed]


def answered(*channels: str, words: str = "hi") -> History:
    """A session with an answered turn, whose messages came by these channels. No delivery is
    claimed."""
    s = opened()
    for channel in channels:
        s.say(channel=channel)
    s.work()
    s.complete(words)
    return s


def test_an_answer_is_pending_once_for_each_push_channel_of_its_turn():
    assert pending(answered(CRM, "cli", OTHER, CRM)) == [(1, 1, CRM, "owed"), (1, 1, OTHER, "owed")]


def test_an_answer_is_not_delivered_to_streaming_viewers():
    for channel in ("cli", "python", "chat", "push", "push:", "pushed:crm", "Push:crm", "push:ü"):
        assert pending(answered(channel)) == []


def test_every_step_with_text_is_delivered_and_one_with_only_calls_is_not():
    s = opened()
    s.say(channel=CRM)
    s.answer("let me see", CALL)
    s.result("1.1.0")
    s.answer(CALL)
    s.result("1.2.0")
    s.answer("so it is")
    assert [(turn, step) for turn, step, _, _ in pending(s)] == [(1, 1), (1, 3)]


def test_a_message_queued_behind_the_turn_is_answered_by_the_next_one():
    s = opened()
    s.say()
    s.work()
    s.say(channel=CRM)
    s.complete("to the first")
    assert pending(s) == []
    s.work()
    s.complete("to the second")
    assert pending(s) == [(2, 1, CRM, "owed")]
    s.work()
    assert s.views.delivery.asked == ()


def test_later_steps_are_delivered_to_the_channel_of_a_steer():
    s = opened()
    s.say()
    s.answer(CALL)
    s.say(channel=CRM, when_busy="steer")
    s.result("1.1.0")
    s.answer("steered")
    assert [(turn, step) for turn, step, _, _ in pending(s)] == [(1, 2)]


def test_each_channel_gets_its_answers_in_order_one_at_a_time():
    s = answered(CRM, OTHER)
    s.work()
    s.say(channel=CRM)
    s.answer("again")
    assert s.rows().count("D2") == 2 and "D1" not in s.rows()
    s.delivered(1, 1, CRM)
    assert s.rows().count("D1") == 1
    s.work()
    assert [(o.turn, o.channel) for o in s.views.delivery.owed if o.status == "running"] == [
        (1, OTHER), (2, CRM)
    ]


def test_S2_4_GEN_SENT_ends_a_delivery_and_counts_once():
    s = answered(CRM).work()
    assert s.delivered(1, 1, CRM).accepted and pending(s) == []
    assert s.delivered(1, 1, CRM).code == "duplicate"
    assert s.append(undelivered((1, 1, CRM, 1)), "delivery").code == "late"


def test_only_the_newest_attempt_may_fail_and_only_the_next_may_be_claimed():
    s = answered(CRM).work()
    first = s.views.delivery.owed[0].claim
    assert s.undelivered(CRM, attempt=7).code == "superseded"
    assert s.undelivered(CRM, retry_at=s.at + 5_000).accepted
    assert s.undelivered(CRM).code == "duplicate"
    assert s.rows() == ["D1w"]
    s.later(5_000).work()
    assert s.views.delivery.owed[0].attempt == 2
    claim = ev.DeliveryStarted(
        turn=1, step=1, channel=CRM, attempt=3, owner="w1/1", epoch=first.epoch, deadline=s.at
    )
    assert s.append(claim, "delivery").code == "superseded", "it is running, in the same epoch"


def test_an_abandoned_delivery_is_shown_and_the_next_one_begins():
    s = answered(CRM).work()
    s.say(channel=CRM)
    s.answer("again")
    s.undelivered(CRM, permanent=True)
    view = s.views.delivery
    assert view.given_up == 1 and view.undelivered[0].error == "unreachable: nobody is there"
    assert s.rows() == ["D1"]
    s.delivered(1, 1, CRM)
    assert s.views.delivery.given_up == 0, "it was delivered late"


def test_pending_deliveries_are_bounded_and_the_oldest_is_dropped():
    s = opened()
    for _ in range(OWED_MAX + 2):
        s.say(channel=CRM)
        s.answer("hi")
    view = s.views.delivery
    assert (len(view.owed), view.given_up) == (OWED_MAX, 2)
    assert [each.turn for each in view.undelivered] == [1, 2]
    assert view.undelivered[0].error.startswith("dropped")


def test_a_delivery_outlives_its_turn_and_does_not_delay_the_next():
    s = answered(CRM).work()
    assert not s.turn.open and s.rows() == ["D2"]
    s.say("next")
    assert "N3" in s.rows()


def test_a_terminated_session_has_no_pending_delivery():
    s = answered(CRM).work()
    s.terminate()
    assert s.rows() == []
    assert s.delivered(1, 1, CRM).accepted, "the result of a running delivery is recorded"


def test_the_text_of_an_answer_is_its_text_blocks_and_never_raises():
    assert text_of(b'[{"type":"text","text":"a"},{"type":"x"},{"type":"text","text":"b"}]') == "ab"
    blank = (b'[{"type":"text","text":7}]', b'[{"type":"text"}]', b'[{"type":"text","text":" "}]')
    for content in (b"", b"[1]", b"{}", b"\xff", b"[" * 100_000, *blank):
        assert text_of(content) == ""
    assert delivery.INITIAL.owed == ()

"""`regenerate` answers a message again in a fork, so both answers are kept."""

import pytest

from foldlog.client.branching import CanNotFork
from foldlog.client.session import Session
from foldlog.schemas import events as ev
from foldlog.tests.client.branching.branched import answers_of, lines_of, played_on, talk, views_of


def test_the_last_message_is_sent_again_to_a_fork_and_both_answers_are_kept(client):
    talk(client, "s1", "one", "two")
    forked = client.branching().regenerate("s1", name="f1")
    fork = views_of(client, "f1")
    assert fork.turn.open and fork.turn.number == 2 and forked.message_id == "m-two"
    assert lines_of(fork)[-1] == ("message", 2, "say two")
    played_on(client, "f1").answer("two, in other words")
    assert answers_of(views_of(client, "f1")) == ["here is one", "two, in other words"]
    assert answers_of(views_of(client, "s1")) == ["here is one", "here is two"]
    first, again = (
        views_of(client, name).messages.received.last("m-two") for name in ("s1", "f1")
    )
    assert (first.content, first.sha256) == (again.content, again.sha256)


def test_an_earlier_turn_is_regenerated_without_the_turns_after_it(client):
    talk(client, "s1", "one", "two", "three")
    client.branching().regenerate("s1", 2, name="f1")
    assert [text for _, _, text in lines_of(views_of(client, "f1"))][-1] == "say two"
    assert answers_of(views_of(client, "f1")) == ["here is one"]


def test_repeated_regeneration_always_forks_the_first_session(client):
    talk(client, "s1", "one", "two")
    client.branching().regenerate("s1", name="f1")
    played_on(client, "f1").answer("second try")
    assert client.branching().regenerate("f1", name="f2").parent == "s1"
    played_on(client, "f2").answer("third try")
    # A turn that the fork inherited is regenerated in a fork of its parent.
    assert client.branching().regenerate("f2", 1, name="f3").parent == "s1"
    assert answers_of(views_of(client, "f2")) == ["here is one", "third try"]
    assert answers_of(views_of(client, "f3")) == []


def test_regenerating_twice_into_one_fork_sends_the_message_once(client):
    talk(client, "s1", "one")
    client.branching().regenerate("s1", name="f1")
    assert client.branching().regenerate("s1", name="f1").decision.verdict == "duplicate"
    assert [kind for kind, _, _ in lines_of(views_of(client, "f1"))] == ["message"]


def test_the_messages_of_a_turn_are_sent_again_in_order(client):
    talk(client, "s1", "one")
    played = played_on(client, "s1")
    Session(client, "s1").say("begin", message_id="a")
    played.take()
    played.call()
    Session(client, "s1").say("this", message_id="b")
    Session(client, "s1").say("and that", message_id="c")
    played.start()
    played.complete("begun")
    played.end()
    played.answer("both")
    client.branching().regenerate("s1", name="f1")
    fork = views_of(client, "f1")
    assert fork.turn.owned == ("b.again", "c.again") and fork.turn.number == 3
    assert answers_of(fork) == ["here is one", "begun"]


def test_a_running_turn_can_be_regenerated_and_continues(client):
    Session(client, "s1").say("tell", message_id="m1")
    played = played_on(client, "s1")
    played.take()
    played.call()
    played.start()
    played.chunk("once")
    client.branching().regenerate("s1", name="f1")
    assert lines_of(views_of(client, "f1")) == [("message", 1, "tell")]
    played.complete("once and for all")
    assert answers_of(views_of(client, "s1")) == ["once and for all"]


@pytest.mark.parametrize("turn", [None, 1, 7])
def test_an_unknown_turn_cannot_be_regenerated(client, turn):
    Session(client, "s1").open()
    with pytest.raises(CanNotFork) as refused:
        client.branching().regenerate("s1", turn)
    assert refused.value.code == "unknown_turn"


def test_content_in_the_blob_store_is_sent_again_by_reference(client):
    Session(client, "s1").say("x" * 200_000, message_id="m1")
    client.branching().regenerate("s1", name="f1")
    with client.fold("f1") as folded:
        events = [s.entry.event for s in folded.upto(folded.end())]
    (message,) = [event for event in events if isinstance(event, ev.MessageReceived)]
    assert message.content.ref is not None

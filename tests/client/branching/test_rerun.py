"""`rerun` edits a message or a result and answers again in a fork, so both answers are kept."""

import json

import pytest

from foldlog.client.branching import CanNotFork
from foldlog.client.outcomes import CommandRefused
from foldlog.client.session import Session
from foldlog.processors.fold.projections.context import estimated_tokens
from foldlog.processors.fold.projections.partition import INITIAL
from foldlog.processors.request.build import request_bytes
from foldlog.processors.store.partition_cache import may_owe
from foldlog.processors.store.store import Cursor, DictBackend, Store
from foldlog.producers.checks import Invalid
from foldlog.producers.fork import replace_result
from foldlog.reports.replay import Replay
from foldlog.tests.client.branching.branched import answers_of, lines_of, played_on, talk, views_of
from foldlog.tests.schemas.test_attachments import png


@pytest.fixture
def looked(client):
    """A session whose turn 2 called two tools at once, and answered."""
    talk(client, "s1", "one")
    Session(client, "s1").say("look", message_id="m-look")
    played = played_on(client, "s1").take()
    played.propose("I look", ("north", {}), ("south", {}))
    for index in range(2):
        played.invoke(index)
        played.tool_start(index)
    played.tool_result("it is cold", 0)
    played.tool_result("it is warm", 1)
    played.answer("take a coat")
    return played


def results_of(views):
    rows = [row for row in views.context.fragments if row.kind == "result"]
    return [((row.body.inline or b"").decode() + row.text, row.error) for row in rows]


def test_the_last_message_is_edited_and_both_answers_are_kept(client):
    talk(client, "s1", "one", "two")
    fork, reply = Session(client, "s1").rerun("say three", session_id="f1")
    assert lines_of(fork.views())[-1] == ("message", 2, "say three")
    played_on(client, "f1").answer("here is three")
    assert reply.answer(timeout_s=5).text == "here is three"
    assert answers_of(views_of(client, "s1")) == ["here is one", "here is two"]
    again = client.branching().rerun("s1", "say three", name="f1")
    assert again.decision.verdict == "duplicate"
    with pytest.raises(CommandRefused, match="other content"):
        client.branching().rerun("s1", "say four", name="f1")


def test_a_message_is_named_by_an_instant_or_by_its_id(client):
    talk(client, "s1", "one", "two")
    first = next(line for line in views_of(client, "s1").transcript.lines if line.kind == "ended")
    for how in ({"at": first.offset}, {"message_id": "m-one"}):
        forked = client.branching().rerun("s1", "say uno", **how)
        assert lines_of(views_of(client, forked.session_id)) == [("message", 1, "say uno")]
    for how, code in (({"message_id": "m9"}, "unknown_message"), ({"at": 0}, "no_message")):
        with pytest.raises(CanNotFork) as refused:
            client.branching().rerun("s1", "say uno", name="f9", **how)
        assert refused.value.code in (code, "before_the_beginning")


def test_an_edited_message_keeps_its_attachments(client, tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    Session(client, "s1").say("what is it?", message_id="m1", attach=[tmp_path / "a.png"])
    played_on(client, "s1").answer("a dog")
    client.branching().rerun("s1", "which colour?", name="f1")
    content = views_of(client, "f1").messages.received[-1].content
    assert [part["type"] for part in json.loads(content.inline)] == ["image", "text"]


def test_a_result_is_replaced_and_only_the_model_runs_again(client, looked):
    parent = views_of(client, "s1")
    fork, reply = Session(client, "s1").rerun("it is hot", call="2.1.0", reason="what if")
    views = fork.views()
    assert results_of(views) == [("it is hot", False), ("it is warm", False)]
    assert (views.turn.number, views.turn.open, views.turn.calls) == (3, True, ())
    line = views.transcript.lines[-1]
    assert (line.kind, line.turn, line.call, line.name) == ("result", 2, "2.1.0", "north")
    assert (line.cause, line.text) == ("replaced", "ok; replaced by a person; what if")
    played = played_on(client, fork.id)
    played.call()
    sent = json.loads(request_bytes(played.views, client.read_blob))["messages"][-1]["content"]
    assert [block["content"] for block in sent] == ["it is hot", "it is warm"]
    played.start()
    played.complete("take a hat")
    played.end()
    assert reply.answer(timeout_s=5)[2:5] == (3, "end_turn", "take a hat")
    assert views_of(client, "s1") == parent and results_of(parent)[0] == ("it is cold", False)
    with pytest.raises(CanNotFork, match="began with a replaced result"):
        client.branching().regenerate(fork.id)


def test_a_replaced_result_counts_once_and_only_before_the_model_gets_it(client, looked):
    name = client.branching().rerun("s1", "it is hot", call="2.1.0", error=True).session_id
    assert results_of(views_of(client, name))[0] == ("it is hot", True)

    def ruling_on(session_id, call, text, **more):
        receipt = replace_result(client.writer, session_id, call, text, user="ana", **more)
        views = views_of(client, session_id)
        refusals = {refusal.offset: refusal.code for refusal in views.turn.refusals}
        return refusals.get(receipt.offset, "")

    assert ruling_on(name, "2.1.1", "it is cool") == "", "the others of the step can be, too"
    assert results_of(views_of(client, name))[1] == ("it is cool", False)
    assert ruling_on(name, "2.1.0", "it is hot", error=True) == ""
    assert ruling_on(name, "2.1.0", "it is hot") == "already_replaced"
    assert ruling_on(name, "2.2.0", "none") == "unknown_call"
    other = client.branching().fork("s1", name="f2").session_id
    assert ruling_on(other, "2.1.0", "late") == "already_sent"
    assert ruling_on("s1", "2.1.0", "none") == "not_a_fork"
    assert views_of(client, name).turn.number == 3, "one turn answers all of them"


def test_tokens_of_a_replaced_result_count_in_the_next_request(client, looked):
    name = client.branching().rerun("s1", "long " * 400, call="2.1.0").session_id
    after = views_of(client, name)
    before = views_of(client, name, after.origin.opened)
    assert estimated_tokens(after.context) - estimated_tokens(before.context) > 300


def test_what_cannot_be_edited_is_refused_before_a_fork_is_opened(client, looked):
    known = set(client.everything().sessions)
    for text, call, error in (
        ("hot", "2.1.7", CanNotFork), ("x" * 70_000, "2.1.0", Invalid),
        (" ", None, Invalid), ([{"type": "text", "text": "hot"}], "2.1.0", Invalid),
    ):
        with pytest.raises(error):
            client.branching().rerun("s1", text, call=call)
    assert set(client.everything().sessions) == known


def test_a_fork_of_the_fork_inherits_the_replaced_result(client, looked):
    name = client.branching().rerun("s1", "it is hot", call="2.1.0").session_id
    client.branching().fork(name, name="f2")
    assert results_of(views_of(client, "f2"))[0] == ("it is hot", False)
    # A result that the fork inherited is replaced in a fork of its parent.
    assert client.branching().rerun(name, "it is icy", call="2.1.0").parent == "s1"


def test_every_reader_and_a_store_have_the_replaced_result(client, log, looked):
    name = client.branching().rerun("s1", "it is hot", call="2.1.0").session_id
    views, store = views_of(client, name), Store(DictBackend())
    assert Replay(log, None, None, client.read_blob).run().sessions[name].views == views
    opened = views_of(client, name, views.origin.opened)
    for place, each in enumerate((opened, views, views), 1):
        store.write({name: each}, {}, may_owe, INITIAL, Cursor(place))
        assert store.load(name) == each

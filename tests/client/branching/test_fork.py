"""A fork begins in the state of its parent; nothing runs again, and both sessions continue."""

import json
from hashlib import sha256

import pytest

from foldlog.client.branching import CanNotFork
from foldlog.client.calls import UnknownCall
from foldlog.client.log_client import LogClient
from foldlog.client.outcomes import CommandRefused
from foldlog.client.session import Session
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.request.build import context_of, request_bytes
from foldlog.processors.wake.budget import Rules
from foldlog.processors.wake.facts import wake
from foldlog.producers.fork import open_fork
from foldlog.reports.replay import Replay
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, entry_of, headers_for
from foldlog.schemas.record import Record
from foldlog.schemas.seed import Seed, seal
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.schemas.value import replace
from foldlog.tests.client.branching.branched import answers_of, lines_of, played_on, talk, views_of
from foldlog.tests.kit.played import settings_in


def newest(log, session_id, partition):
    records = log.records(SESSION_EVENTS, partition)
    return [r.offset for r in records if r.key == session_id.encode()][-1]


def blobs_of(client):
    return sorted(p.name for p in client.settings.blobs_dir.glob("??/*"))


def test_a_fork_begins_as_its_parent_was_and_both_continue(client):
    parent = talk(client, "s1", "one", "two")
    here = views_of(client, "s1")
    forked = client.branching().fork("s1", name="f1")
    fork = views_of(client, "f1")
    assert forked.session_id == "f1" and forked.decision.verdict == "accepted"
    assert lines_of(fork) == lines_of(here) and fork.turn.number == 2 and not fork.turn.open
    assert fork.state.session_id == "f1" and fork.state.user_id == "ana"
    assert (fork.origin.session_id, fork.origin.offset) == ("s1", forked.offset)
    talk(client, "f1", "three")
    talk(client, "s1", "drei", played=parent)
    assert ("answer", 3, "here is three") in lines_of(views_of(client, "f1"))
    assert ("answer", 3, "here is drei") in lines_of(views_of(client, "s1"))
    assert ("answer", 3, "here is drei") not in lines_of(views_of(client, "f1"))


def test_a_fork_at_an_offset_has_nothing_of_what_came_after_it(client):
    talk(client, "s1", "one", "two")
    ended = next(line for line in views_of(client, "s1").transcript.lines if line.kind == "ended")
    client.branching().fork("s1", ended.offset, name="f1")
    assert lines_of(views_of(client, "f1")) == lines_of(views_of(client, "s1", ended.offset))


def test_a_request_of_a_fork_extends_its_parents_byte_for_byte(client):
    talk(client, "s1", "one", "two")
    here = views_of(client, "s1")
    client.branching().fork("s1", name="f1")
    fork = played_on(client, "f1")
    Session(client, "f1").say("say three", message_id="m3")
    fork.call()
    shown = [context_of(v.context, v.compaction, v.context.request, client.read_blob)
             for v in (here, fork.views)]
    before, after = (s.messages for s in shown)
    assert shown[0].system == shown[1].system and shown[0].tools == shown[1].tools
    assert after[: len(before)] == before and len(after) == len(before) + 2
    sent = request_bytes(fork.views, client.read_blob)
    assert sent.startswith(request_bytes(here, client.read_blob).split(b',"cache_control"')[0])


@pytest.fixture
def in_the_middle(client):
    """A session whose turn 2 has three calls (one proposed, one running, one in doubt) and a queued
    message."""
    talk(client, "s1", "one")
    Session(client, "s1").say("do it", message_id="m2")
    played = played_on(client, "s1")
    played.take()
    played.propose("I do", *(("charge", {"n": n}) for n in range(3)))
    for index in (1, 2):
        played.invoke(index)
        played.tool_start(index)
    played.uncertain(2)
    Session(client, "s1").say("and then?", message_id="m3")
    return played


def test_S1_2_a_fork_runs_nothing_again_and_asks_for_no_approval(client, in_the_middle):
    at = newest(client.log, "s1", in_the_middle.fold.partition)
    client.branching().fork("s1", at, name="f1")
    fork = views_of(client, "f1")
    assert not fork.turn.open and not fork.turn.calls and not fork.turn.doubts
    assert fork.state.pending_tool is None and fork.turn.queue == ()
    assert wake(fork, in_the_middle.fold.holders, 2**50, Rules()) == ()
    assert wake(views_of(client, "s1"), in_the_middle.fold.holders, 2**50, Rules()) != ()
    texts = [f.text for f in fork.context.fragments if f.kind == "result"]
    assert texts[0] == "Not run: the turn ended." and len(texts) == 3
    assert all(text.startswith("Outcome unknown") for text in texts[1:])
    ends = [line.name for line in fork.transcript.lines if line.kind == "ended"]
    assert ends == ["end_turn", "forked"]
    assert fork.messages.progress.last("m3").reason == "forked"
    with pytest.raises(UnknownCall, match="no call 2.1.2"):
        Session(client, "f1").resolve("2.1.2", happened="it was")


def test_a_fork_inherits_no_cost_from_its_parent(client):
    talk(client, "s1", "one")
    client.branching().fork("s1", name="f1")
    assert views_of(client, "s1").ledger.output_tokens > 0
    assert views_of(client, "f1").ledger.output_tokens == 0


def test_a_fork_keeps_a_message_that_was_not_answered(client):
    talk(client, "s1", "one")
    Session(client, "s1").say("wait", message_id="m2")
    client.branching().fork("s1", name="f1")
    fork = played_on(client, "f1")
    Session(client, "f1").say("go", message_id="m3")
    fork.call()
    request = json.loads(request_bytes(fork.views, client.read_blob))
    assert [b["text"] for b in request["messages"][-1]["content"]] == ["wait", "go"]


def test_a_fork_in_the_middle_of_an_answer_keeps_its_text_so_far(client):
    talk(client, "s1", "one")
    Session(client, "s1").say("tell", message_id="m2")
    played = played_on(client, "s1")
    played.take()
    played.call()
    played.start()
    played.chunk("once upon ")
    played.chunk("a time")
    client.branching().fork("s1", name="f1")
    assert lines_of(views_of(client, "f1"))[-2:] == [
        ("partial", 2, "once upon a time"), ("ended", 2, "")
    ]
    played.complete("once upon a time there was")
    assert lines_of(views_of(client, "f1"))[-2][2] == "once upon a time"


def test_forks_at_one_offset_share_a_seed_and_forks_of_forks_continue(client):
    talk(client, "s1", "one")
    client.branching().fork("s1", name="f1")
    before = blobs_of(client)
    client.branching().fork("s1", name="f2")
    assert blobs_of(client) == before, "forks at one offset share one blob"
    talk(client, "f1", "two")
    client.branching().fork("f1", name="g1")
    talk(client, "g1", "three")
    assert answers_of(views_of(client, "g1")) == ["here is one", "here is two", "here is three"]
    assert views_of(client, "g1").origin.session_id == "f1"
    name = "g1"
    for n in range(40):  # regenerated again and again: no recursion, no limit
        client.branching().fork(name, name=f"h{n}")
        talk(client, f"h{n}", f"more{n}")
        name = f"h{n}"
    assert views_of(client, name).frozen is None and views_of(client, name).turn.number == 43


def test_a_fork_at_the_beginning_of_a_fork_has_the_same_parent(client):
    talk(client, "s1", "one")
    first = client.branching().fork("s1", name="f1")
    again = client.branching().fork("f1", first.decision.offset, name="f2")
    assert again.parent == "s1"
    assert views_of(client, "f2").origin.seed == views_of(client, "f1").origin.seed


def test_repeating_a_fork_is_harmless_and_a_different_fork_of_that_name_is_refused(client):
    talk(client, "s1", "one")
    client.branching().fork("s1", name="f1")
    talk(client, "f1", "two")
    at = views_of(client, "f1").origin.offset
    assert client.branching().fork("s1", at, name="f1").decision.verdict == "duplicate"
    with pytest.raises(CommandRefused, match="already open"):
        client.branching().fork("s1", at - 1, name="f1")
    with pytest.raises(CommandRefused, match="already open"):
        client.branching().fork("f1", name="s1")
    assert views_of(client, "f1").turn.number == 2, "the fork did not change"


def test_every_reader_folds_a_fork_to_the_same_views(client, log, tmp_path):
    talk(client, "s1", "one")
    client.branching().fork("s1", name="f1")
    talk(client, "f1", "two")
    replay = Replay(log, None, None, client.read_blob).run()
    assert replay.sessions["f1"].views == views_of(client, "f1")
    assert client.everything().sessions["f1"] == views_of(client, "f1")


def test_a_fork_of_a_terminated_session_is_not_terminated(client):
    talk(client, "s1", "one")
    Session(client, "s1").terminate()
    client.branching().fork("s1", name="f1")
    talk(client, "f1", "two")
    assert not views_of(client, "f1").turn.terminated


@pytest.mark.parametrize(
    ("session", "at", "code"),
    [
        ("s1", 10_000, "beyond_the_end"),
        ("nobody", None, "unknown_session"),
        ("s1", -1, "before_the_beginning"),
    ],
)
def test_a_fork_without_a_parent_is_refused_with_a_code(client, session, at, code):
    talk(client, "s1", "one")
    ends = client.log.end_offsets(SESSION_EVENTS)
    with pytest.raises(CanNotFork) as refused:
        client.branching().fork(session, at, name="f1")
    assert refused.value.code == code and "Nothing was written" in refused.value.detail
    assert client.log.end_offsets(SESSION_EVENTS) == ends


def test_a_foreign_session_cannot_be_forked_even_by_writing_the_event(client, log, tmp_path):
    talk(client, "s1", "one")
    client.branching().fork("s1", name="f1")
    eve = LogClient(settings_in(tmp_path, user="eve"), log)
    with pytest.raises(CanNotFork) as refused:
        eve.branching().fork("s1", name="f2")
    assert refused.value.code == "not_your_session"
    opened = next(
        seen.entry.event for seen in client.fold("f1").upto(100)
        if isinstance(seen.entry.event, ev.SessionOpened)
    )
    open_fork(eve.writer, "f2", "s1", opened.parent_offset, opened.seed_ref, agent="default")
    with eve.fold("f2") as folded:
        (seen,) = folded.upto(folded.end())
    assert seen.ruling.code == "not_your_session" and not len(seen.views.transcript.lines)


def test_law_13_a_lost_seed_freezes_only_the_fork(client):
    talk(client, "s1", "one")
    client.branching().fork("s1", name="f1")
    opened = views_of(client, "f1")
    (blob,) = client.settings.blobs_dir.glob("??/*")
    kept = blob.read_bytes()
    blob.unlink()
    with client.fold("f1") as folded:
        views = folded.to_end()
    assert views.frozen is not None and "BlobMissing" in views.frozen.why
    assert lines_of(views_of(client, "s1"))[-1][0] == "ended"
    with pytest.raises(CommandRefused, match="frozen"):
        Session(client, "f1").say("hello?")
    with pytest.raises(CanNotFork) as refused:
        client.branching().fork("f1", name="g1")
    assert refused.value.code == "frozen"
    blob.write_bytes(kept)
    assert views_of(client, "f1", opened.origin.opened) == opened


def test_an_invalid_seed_freezes_the_fork(client):
    talk(client, "s1", "one")
    wrong = client._blob_store().store(b"no seed", "text/plain")
    open_fork(client.writer, "f1", "s1", 3, wrong, agent="default")
    with client.fold("f1") as folded:
        assert "no seed" in folded.to_end().frozen.why


def test_a_fork_of_many_generations_folds_without_recursion():
    """Each regenerated answer is a fork. The defect: a chain of forks deeper than Python's stack
    froze the next fork."""
    seeds: list[bytes] = []
    origin: dict = {}
    for number in range(1_001):
        opens = ev.SessionOpened(user_id="ana", agent="a", rules=1, **origin)
        headers = tuple(headers_for(opens, "producer"))
        name = f"f{number}"
        record = Record(SESSION_EVENTS, 0, number, 0, name.encode(), encode(opens), headers)
        entry = replace(entry_of(record), seed=Seed(tuple(seeds)) if seeds else None)
        seeds.append(seal(name, [record], origin.get("seed_ref")))
        ref = ev.BlobRef(sha256=sha256(seeds[-1]).hexdigest(), bytes=1, media_type="x/x")
        origin = {"parent_session": name, "parent_offset": number, "seed_ref": ref}
    views, ruling = fold(initial(name), entry)
    assert (ruling.verdict, views.frozen) == ("accepted", None)

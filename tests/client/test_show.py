"""The JSON of views and events, owed rows, past requests, and the list of sessions."""

import json

import pytest

from foldlog.client.printable import blocks_of, event_json, plain, text_of
from foldlog.client.session_fold import SessionFold
from foldlog.client.show import (
    VIEWS,
    UnknownSession,
    UnknownStep,
    fold_everything,
    known,
    owed_json,
    request_of,
    summaries,
    view_json,
)
from foldlog.processors.fold.projections.background import BackgroundView
from foldlog.processors.fold.projections.partition import PartitionView
from foldlog.processors.fold.views import initial
from foldlog.processors.request.build import request_bytes
from foldlog.processors.wake.budget import Rules
from foldlog.producers import BlobMissing, BlobStore, Sessions
from foldlog.schemas import events as ev
from foldlog.schemas.codec import ChunkSeen, Entry, Unreadable
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.schemas.value import replace
from foldlog.tests.kit.played import Played, opened, settings_in


@pytest.fixture
def talk(log, tmp_path):
    sessions, played = opened(log, settings_in(tmp_path))
    sessions.say("s1", "hi", message_id="m1")
    return sessions, played


def folded(log, session_id="s1"):
    fold = SessionFold(log, session_id)
    known(fold)
    return fold


def no_blob(ref):
    raise AssertionError("nothing here is in a blob")


def test_every_view_is_json(log, talk):
    talk[1].call()
    talk[1].start()
    talk[1].complete("look", [("read", {"path": "ä"})])
    fold = folded(log)
    for view in VIEWS:
        text = json.dumps(view_json(fold, view))
        assert json.loads(text) == view_json(fold, view)
    assert view_json(fold, "state")["phase"] == "chatting"
    turn = view_json(fold, "turn")
    assert turn["calls"][0]["args"] == {"inline": '{"path": "\\u00e4"}'}
    assert turn["stream"]["chunks"] == 0 and turn["frozen"] is None
    assert len(turn["basis_sha"]) == 16, "8 bytes as hex"


def test_S0_1_the_state_view_has_exactly_the_fields_of_the_state(log, talk):
    names = "session_id user_id project_id phase pending_tool cancel_token last_message_id"
    assert list(view_json(folded(log), "state")) == [*names.split(), "updated_at"]


def test_S2_7_the_wake_view_has_each_row_with_its_reason(log, talk):
    (owed,) = view_json(folded(log), "wake")
    assert (owed["row"], owed["owed"], owed["role"], owed["subject"]) == (
        "N3",
        "LLM_CALLED",
        "sessions",
        "1",
    )
    assert "next step" in owed["why"]


def test_S2_7_background_work_is_shown_by_the_number_of_its_kind_and_its_offset():
    views = replace(initial("s1"), background=BackgroundView(idle_at=7))
    (owed,) = owed_json(views, PartitionView(), 0, Rules(memory=True))
    assert (owed["row"], owed["subject"]) == ("B1", "3.7")


def test_beyond_2_a_past_request_is_rebuilt_and_has_the_hash_of_its_claim(log, talk):
    sessions, played = talk
    played.call()
    first = request_bytes(played.views, no_blob)
    played.start()
    played.resume()
    played.complete("look", [("read", {})])
    played.run_tool("seen")
    played.answer("done")
    sessions.say("s1", "more")
    played.answer("and done")
    found = request_of(SessionFold(log, "s1"), 1, 1, no_blob)
    assert found.body == first and found.agrees
    assert [attempt for attempt, _, _ in found.claims] == [1, 2]
    assert json.loads(found.body)["messages"][0]["content"][0]["text"] == "hi"
    later = request_of(SessionFold(log, "s1"), 2, 1, no_blob)
    assert len(json.loads(later.body)["messages"]) == 5 and later.agrees


def test_a_request_that_differs_from_its_claim_is_detected(log, talk, monkeypatch):
    _, played = talk
    played.call()
    monkeypatch.setattr("foldlog.tests.kit.played.request_sha256", lambda body: "0" * 64)
    played.start()
    assert not request_of(SessionFold(log, "s1"), 1, 1, no_blob).agrees


def test_unknown_steps_and_sessions_are_errors(log, talk):
    with pytest.raises(UnknownStep, match=r"no step 1\.1"):
        request_of(SessionFold(log, "s1"), 1, 1, no_blob)
    with pytest.raises(UnknownSession, match="foldlog sessions"):
        known(SessionFold(log, "nobody"))
    with pytest.raises(UnknownSession, match="at offset"):
        known(SessionFold(log, "nobody"), at=0)


def test_the_list_has_every_session_most_recently_changed_first(tmp_path):
    from foldlog.log import Clock, MemoryLog
    from foldlog.schemas.topics import topics

    clock = Clock()
    log = MemoryLog(topics(4), clock_ms=clock)
    sessions = Sessions(log, settings_in(tmp_path))
    for number in range(12):
        clock.advance(1000)
        sessions.open(f"s{number}", agent="shop", user="ana" if number % 2 else "bob")
    sessions.say("nobody", "hi")
    everything = fold_everything(log)
    assert [row["session_id"] for row in summaries(everything)] == [
        f"s{number}" for number in reversed(range(12))
    ]
    bobs = list(summaries(everything, lambda views: views.state.user_id == "bob"))
    assert len(bobs) == 6 and {row["status"] for row in bobs} == {"idle"}
    assert everything.sessions["nobody"].turn.refusals


def test_folding_all_sessions_equals_folding_each_alone(log, talk, tmp_path):
    sessions, _ = talk
    for name in ("a", "b", "c"):
        sessions.open(name, agent="shop")
        sessions.say(name, "hi")
        Played(log, name).answer(f"hello {name}")
    everything = fold_everything(log)
    for name, views in everything.sessions.items():
        assert views == folded(log, name).views
        assert everything.places[name] == folded(log, name).partition


def test_the_json_of_an_event_has_its_place_and_its_fields(log, talk):
    from foldlog.client.follow import Follow

    entries = Follow(log, ["s1"]).poll(0)
    opened_event, message_event = (event_json(entry) for entry in entries)
    assert list(opened_event)[:6] == [
        "partition",
        "offset",
        "at",
        "type",
        "writer",
        "session_id",
    ]
    assert opened_event["type"] == "SESSION_OPENED" and opened_event["user_id"] == "ana"
    assert message_event["content"] == {"inline": '[{"type":"text","text":"hi"}]'}
    json.dumps(message_event)


def test_a_field_named_like_the_place_gets_a_prefix():
    entry = Entry("s1", 3, 9, 5, "sessions", ev.Refused(offset=7, code="c", detail="d"))
    event = event_json(entry)
    assert (event["offset"], event["refused_offset"]) == (9, 7)


def test_unreadable_events_and_chunks_have_json_too():
    for event in (Unreadable("NEW", True, "why"), ChunkSeen(1, 1, 1)):
        shown = event_json(Entry("s1", 0, 0, 0, "models", event))
        assert shown["type"] in ("NEW", "GEN_CHUNK")
        json.dumps(shown)


def test_S2_3_references_are_resolved_on_request_only(tmp_path):
    blobs = BlobStore(tmp_path)
    body = ev.Body(inline=b"pre", ref=blobs.store(b"whole", "text/plain"))

    def read(ref):
        return blobs.get(ref.sha256)

    assert plain(body)["inline"] == "pre" and plain(body)["ref"]["bytes"] == 5
    assert plain(body, read)["inline"] == "whole"
    missing = ev.Body(ref=ev.BlobRef(sha256="0" * 64, bytes=1, media_type="text/plain"))
    with pytest.raises(BlobMissing):
        plain(missing, read)


def test_bytes_that_are_not_utf8_become_base64():
    assert plain(ev.Body(inline=b"\xff\xfe")) == {"inline": {"base64": "//4="}}


@pytest.mark.parametrize("content", [b"", b"[{", b"{}", b"[1]", b"null", b'[{"type":"text"}]'])
def test_malformed_content_has_no_text(content):
    assert text_of(content) == ""
    assert isinstance(blocks_of(content), list)


def test_an_undecodable_record_stops_no_fold(log, talk):
    talk[1].producer.append(SESSION_EVENTS, "s1", b"\xc3\x01junk", [("t", b"GEN_SENT")])
    talk[1].producer.append(SESSION_EVENTS, b"\xff\xff", None, [])
    assert folded(log).views.turn.open
    assert "s1" in fold_everything(log).sessions

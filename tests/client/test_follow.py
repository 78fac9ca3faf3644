"""`follow` reads some sessions or all of them, beginning at a cursor, and decodes chunks for
viewers only."""

import pytest

from foldlog.client.follow import Follow
from foldlog.client.session_fold import SessionFold
from foldlog.log import LogUnreachable, OffsetGone
from foldlog.log.partition import partition_for
from foldlog.producers import Sessions
from foldlog.schemas import events as ev
from foldlog.schemas.codec import ChunkSeen
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.played import PARTITIONS, Played, opened, settings_in


@pytest.fixture
def answered(log, tmp_path):
    """The session s1 with one answered message, and s2, which was only opened."""
    sessions, played = opened(log, settings_in(tmp_path))
    sessions.say("s1", "hi", message_id="m1")
    played.answer("hello you")
    sessions.open("s2", agent="shop")
    return played


def everything(follow):
    return [entry for batch in follow.to(follow.ends()) for entry in batch]


def test_one_session_is_read_from_its_partition_only(log, answered):
    with Follow(log, ["s1"]) as follow:
        entries = everything(follow)
        assert {entry.session_id for entry in entries} == {"s1"}
        assert list(follow.cursor) == [partition_for("s1", PARTITIONS)]
        assert entries[-1].event.reason == "end_turn"


def test_following_all_sessions_includes_the_holders_of_partitions(log, answered):
    with Follow(log) as follow:
        assert {entry.session_id for entry in everything(follow)} == {"s1", "s2", "#partition"}
        assert sorted(follow.cursor) == list(range(PARTITIONS))


def test_P5_a_cursor_resumes_right_after_the_last_returned_entry(log, answered):
    whole = everything(Follow(log, ["s1"]))
    partition = whole[0].partition
    for cut in range(whole[-1].offset + 1):
        rest = everything(Follow(log, ["s1"], {partition: cut}))
        assert [entry for entry in whole if entry.offset >= cut] == rest


def test_chunks_are_decoded_for_viewers_and_not_for_folds(log, answered):
    kinds = {type(entry.event) for entry in everything(Follow(log, ["s1"]))}
    assert ev.GenChunk in kinds and ChunkSeen not in kinds
    kinds = {type(entry.event) for entry in everything(Follow(log, ["s1"], chunks=False))}
    assert ev.GenChunk not in kinds and ChunkSeen in kinds


def test_later_entries_are_returned(log, answered, tmp_path):
    with Follow(log, ["s1"]) as follow:
        everything(follow)
        assert follow.poll(0) == []
        Sessions(log, settings_in(tmp_path)).say("s1", "more", message_id="m2")
        (entry,) = follow.poll(0)
        assert entry.event.message_id == "m2"


def test_a_cursor_outside_the_log_is_an_error(log, answered):
    partition = partition_for("s1", PARTITIONS)
    with pytest.raises(OffsetGone, match="Nothing was skipped"):
        Follow(log, ["s1"], {partition: 10_000}).poll(0)


def test_a_log_that_stops_responding_is_an_error(log, answered, monkeypatch):
    monkeypatch.setattr("foldlog.client.follow.STALL_S", 0)
    follow = Follow(log, ["s1"])
    partition = partition_for("s1", PARTITIONS)
    beyond = {partition: log.end_offsets(SESSION_EVENTS)[partition] + 1}
    with pytest.raises(LogUnreachable, match="stopped responding"):
        list(follow.to(beyond))


def test_a_session_is_folded_as_its_worker_folds_it(log, answered):
    with SessionFold(log, "s1") as folded:
        assert folded.to_end() == answered.views
        assert folded.holders.holder("models").owner == "w1/1"
        assert folded.cursor == log.end_offsets(SESSION_EVENTS)[folded.partition]


def test_beyond_4_decoded_and_undecoded_chunks_fold_alike(log, answered):
    with SessionFold(log, "s1", chunks=True) as folded:
        assert folded.to_end() == answered.views


def test_a_fold_stopped_anywhere_continues_after_the_last_event_taken(log, answered):
    whole = list(SessionFold(log, "s1").upto(answered.fold.cursor))
    for taken in range(1, len(whole)):
        folded = SessionFold(log, "s1")
        events = folded.poll(0)
        seen = [next(events) for _ in range(taken)]
        events.close()
        assert folded.views == whole[taken - 1].views
        seen += folded.upto(answered.fold.cursor)
        assert [s.entry for s in seen] == [s.entry for s in whole]


def test_upto_folds_every_event_before_its_end_and_no_other(log, answered):
    end = answered.fold.cursor
    for stop in range(end + 1):
        folded = SessionFold(log, "s1")
        seen = list(folded.upto(stop))
        assert all(s.entry.offset < stop for s in seen)
        seen += folded.upto(end)
        assert folded.views == answered.views


def test_sessions_that_share_a_partition_do_not_mix(log, tmp_path):
    settings = settings_in(tmp_path)
    mates = [f"x{n}" for n in range(40) if partition_for(f"x{n}", PARTITIONS) == 0][:2]
    for session_id in mates:
        sessions, played = opened(log, settings, session_id)
        sessions.say(session_id, f"I am {session_id}", message_id="m")
        played.answer(f"hello {session_id}")
    for session_id in mates:
        views = Played(log, session_id).views
        assert views.session_id == session_id == views.state.session_id
        assert views.turn.number == 1 and not views.turn.open

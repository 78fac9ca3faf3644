"""Replay: the same log results in the same hashes, and a store that differs is detected."""

import pytest

from foldlog.log.partition import partition_for
from foldlog.processors.store.partition_cache import may_owe
from foldlog.processors.store.store import (
    Belongs,
    Cursor,
    RocksBackend,
    Store,
    fold_version,
    new_store,
)
from foldlog.processors.store.views_codec import VIEW_NAMES
from foldlog.reports.replay import Replay, first_difference, store_directory, verify
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.played import PARTITIONS, Played, opened


@pytest.fixture
def played(log, settings):
    sessions, played = opened(log, settings)
    sessions.say("s1", "hi", message_id="m1")
    played.answer("hello")
    sessions.lock("s1", "p1")
    sessions.lock("s1", "p2")
    return played


def stored(log, settings, session_id="s1", *, spoil=None, belongs=None, beyond=0):
    """Write the store of the session's partition as a worker would. `spoil` changes the views
    first."""
    partition = partition_for(session_id, PARTITIONS)
    end = log.end_offsets(SESSION_EVENTS)[partition]
    replay = Replay(log, None, {p: end if p == partition else 0 for p in range(PARTITIONS)}).run()
    mine = belongs or Belongs(log.identity(), log.topic_id(SESSION_EVENTS), fold_version())
    store: Store = new_store(store_directory(settings, partition), mine, end)
    sessions = {name: folded.views for name, folded in replay.sessions.items()}
    if spoil is not None:
        sessions = spoil(sessions)
    holders = replay.holders[partition]
    store.write(sessions, {}, may_owe, holders, Cursor(end + beyond, 0))
    store.close()


def test_S2_11_every_replay_gives_the_same_hashes(log, played):
    first, second = Replay(log).run(), Replay(log, "s1").run()
    assert first.sessions["s1"].hashes == second.sessions["s1"].hashes
    assert first.sessions["s1"].views == played.views
    assert tuple(first.sessions["s1"].hashes) == VIEW_NAMES


def test_S2_10_a_replay_up_to_an_offset_is_the_session_as_it_was(log, played):
    partition = played.fold.partition
    hashes = []
    for end in range(played.fold.end() + 1):
        replay = Replay(log, "s1", {partition: end}).run()
        with_fold = Played(log, "s1").fold
        list(with_fold.upto(end))
        if end:
            assert replay.sessions["s1"].views == with_fold.views
            hashes.append(replay.sessions["s1"].hashes["session_state"])
    assert len(set(hashes)) > 2


def test_each_event_is_listed_with_its_ruling(log, played):
    replay = Replay(log, "s1")
    verdicts = [step.ruling.verdict for step in replay.steps()]
    assert verdicts.count("refused") == 1
    folded = replay.sessions["s1"]
    assert folded.rulings == {"accepted": len(verdicts) - 1, "refused": 1}
    assert (folded.first, folded.next) == (0, played.fold.end())


def test_a_store_that_agrees_with_the_log_has_no_differences(log, played, settings):
    stored(log, settings)
    (verified,) = verify(log, settings)
    assert verified.sessions == 1 and not verified.differences and not verified.problem


def test_a_store_behind_the_log_is_compared_at_its_cursor(log, played, settings):
    stored(log, settings)
    opened(log, settings)
    (verified,) = verify(log, settings)
    assert not verified.differences and verified.cursor < played.fold.end()


def test_a_view_that_differs_is_named_with_both_hashes_and_the_first_difference(
    log, played, settings
):
    from foldlog.schemas.value import replace

    def spoil(sessions):
        views = sessions["s1"]
        wrong = replace(views.state, phase="building")
        return {"s1": replace(views, state=wrong)}

    stored(log, settings, spoil=spoil)
    (verified,) = verify(log, settings)
    (difference,) = verified.differences
    assert (difference.session_id, difference.view) == ("s1", "session_state")
    assert difference.log_sha256 != difference.store_sha256
    assert difference.where == ".phase: the log has 'chatting', the store 'building'"


def test_a_session_missing_from_a_store_is_reported(log, played, settings):
    stored(log, settings, spoil=lambda sessions: {})
    (verified,) = verify(log, settings)
    assert {d.session_id for d in verified.differences} == {"s1"}


def test_a_store_of_another_log_or_version_is_not_compared(log, played, settings):
    stored(log, settings, belongs=Belongs("other", "topic", fold_version()))
    (verified,) = verify(log, settings)
    assert "another log or version" in verified.problem


def test_a_store_beyond_the_end_of_the_log_is_not_compared(log, played, settings):
    stored(log, settings, beyond=5)
    (verified,) = verify(log, settings)
    assert "beyond the log's end" in verified.problem


def test_a_store_that_cannot_be_opened_is_reported(log, played, settings):
    directory = store_directory(settings, 0)
    directory.mkdir(parents=True)
    (directory / "CURRENT").write_text("rubbish")
    (verified,) = verify(log, settings)
    assert "cannot be opened" in verified.problem


def test_a_store_with_unreadable_rows_is_reported(log, played, settings):
    """The defect: the comparison raised an error, and the other partitions were not compared."""
    stored(log, settings)
    directory = store_directory(settings, partition_for("s1", PARTITIONS))
    backend = RocksBackend(directory)
    backend.write([(b"h\0s1", b"\xc1")], [])
    backend.close()
    (verified,) = verify(log, settings)
    assert "it is damaged (session s1" in verified.problem


def test_a_log_without_its_first_records_cannot_be_compared(log, played, settings):
    stored(log, settings)
    log.trim(SESSION_EVENTS, partition_for("s1", PARTITIONS), 1)
    (verified,) = verify(log, settings)
    assert "the log begins at offset 1" in verified.problem


def test_without_stores_there_is_nothing_to_compare(log, played, settings):
    assert list(verify(log, settings)) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "where"),
    [
        ({"a": 1}, {"a": 2}, ".a: the log has 1, the store 2"),
        ([1, 2], [1, 3], "[1]: the log has 2, the store 3"),
        ([1], [1, 2], ".: the log has 1 rows, the store 2"),
        ({"a": [{"b": None}]}, {"a": [{"b": 1}]}, ".a[0].b: the log has None, the store 1"),
        ({"a": 1}, {"b": 1}, ".: the log has {'a': 1}, the store {'b': 1}"),
        ("x" * 500, "y", ".: the log has '" + "x" * 116 + "..., the store 'y'"),
    ],
)
def test_the_first_difference_is_named(ours, theirs, where):
    assert first_difference(ours, theirs) == where

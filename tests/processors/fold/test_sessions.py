"""Folding many sessions of several partitions, each session separately."""

from foldlog.processors.fold.sessions import FoldedSessions, fold_event
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry, Unreadable, entry_of
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.tests.kit.history import History


def conversation(name: str, partition: int, user: str) -> list[Entry]:
    """The entries of a partition with one session. The first entry names the holder of the
    partition."""
    history = History(name)
    history.append(ev.PartitionTaken(role="models", owner=f"{name}/1"), "models", PARTITION_KEY)
    history.append(ev.SessionOpened(user_id=user, agent=history.agent.name, rules=1), "producer")
    history.append(ev.SessionOpened(user_id="other", agent="x", rules=1), "producer")
    return [entry_of(record._replace(partition=partition)) for record in history.records]


def mixed() -> list[Entry]:
    one, other = conversation("s1", 0, "ana"), conversation("s2", 1, "ben")
    return [entry for pair in zip(one, other, strict=True) for entry in pair]


def test_interleaved_sessions_fold_as_each_does_alone():
    folded = FoldedSessions()
    events = [folded.feed(entry) for entry in mixed()]
    assert {name: session.views.state.user_id for name, session in folded.sessions.items()} == {
        "s1": "ana",
        "s2": "ben",
    }
    for name, partition, user in (("s1", 0, "ana"), ("s2", 1, "ben")):
        alone = None
        for entry in conversation(name, partition, user)[1:]:
            alone = fold_event(alone, entry).views
        assert folded.views_of(name) == alone and alone.turn.known
    assert [event.entry.session_id for event in events if event] == ["s1", "s2", "s1", "s2"]


def test_the_holders_of_a_partition_are_not_sessions():
    folded = FoldedSessions()
    assert [folded.feed(entry) for entry in mixed()[:2]] == [None, None]
    assert folded.sessions == {}
    assert folded.holders_of(0).holder("models").owner == "s1/1"
    assert folded.holders_of(1).holder("models").owner == "s2/1"
    assert folded.holders_of(2).holder("models") is None


def test_a_session_has_its_partition_its_offsets_and_its_rulings():
    folded = FoldedSessions()
    entries = mixed()
    for entry in entries:
        folded.feed(entry)
    session = folded.sessions["s2"]
    assert (session.partition, session.first, session.next) == (1, 1, 3)
    assert session.last_at == folded.newest_ms == max(entry.at for entry in entries)
    assert session.rulings == {"accepted": 1, "refused": 1}


def test_a_frozen_session_does_not_freeze_others():
    folded = FoldedSessions()
    for entry in mixed():
        folded.feed(entry)
    broken = Entry("s1", 0, 3, 9, "producer", Unreadable("MESSAGE_RECEIVED", True, "cut off"))
    folded.feed(broken)
    assert folded.views_of("s1").frozen.offset == 3
    assert folded.views_of("s2").frozen is None

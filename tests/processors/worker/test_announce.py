"""S0.7: a worker announces each change of a session to the user's tabs, also after a crash."""

import json

import pytest

from foldlog.log.partition import partition_for
from foldlog.producers.sessions import Sessions
from foldlog.schemas.tabs import Tab, names_in, tab_in
from foldlog.schemas.topics import SESSION_EVENTS, USER_SESSIONS
from foldlog.tests.kit.played import settings_in
from foldlog.tests.processors.worker.announcing import Announcing
from foldlog.web.gateway.tabs import Change, Tabs


@pytest.fixture
def sessions(log, tmp_path):
    writer = Sessions(log, settings_in(tmp_path))
    yield writer
    writer.close()


def announced(log) -> list[tuple[str, dict | None]]:
    """Every record of the topic, in the log order of each user."""
    return [
        (record.key.decode(), json.loads(record.value) if record.value else None)
        for p in range(log.partitions(USER_SESSIONS))
        for record in log.records(USER_SESSIONS, p)
    ]


def tabs_of(log, user: str = "ana") -> list[str]:
    tabs = Tabs(log)
    tabs.look()
    tabs.close()
    return [tab.session_id for tab in tabs.open_sessions(user)]


def test_S0_7_only_open_phase_project_and_end_are_announced(log, sessions):
    worker = Announcing(log)
    sessions.open("a", agent="helper")
    worker.run()
    sessions.say("a", "hello")
    sessions.trigger("a", "start_build")
    worker.run()
    sessions.lock("a", "p1")
    worker.run()
    sessions.trigger("a", "nonsense")
    worker.run()
    sessions.terminate("a")
    worker.run()
    found = announced(log)
    assert {key for key, _ in found} == {"ana/a"}
    assert [value and (value["phase"], value["project_id"]) for _, value in found] == [
        ("chatting", None), ("building", None), ("building", "p1"), None
    ]
    assert len({value["opened_at"] for _, value in found if value}) == 1


def test_the_sessions_of_a_user_share_a_partition(log, sessions):
    for number in range(9):
        sessions.open(f"s{number}", agent="helper")
    Announcing(log).run()
    place = partition_for("ana", log.partitions(USER_SESSIONS))
    assert len(log.records(USER_SESSIONS, place)) == 9


def test_a_session_folded_but_not_announced_is_announced_after_a_restart(log, sessions):
    worker = Announcing(log).run().restart(loses=True).run()
    sessions.open("open", agent="helper")
    sessions.open("ended", agent="helper")
    sessions.terminate("ended")
    worker.run()
    assert announced(log) == []
    worker.restart().run()
    assert sorted(key for key, _ in announced(log)) == ["ana/ended", "ana/open"]
    assert tabs_of(log) == ["open"]


def test_a_refused_announcement_is_retried_when_another_session_changes(log, sessions):
    worker = Announcing(log).run().restart(refusals=2).run()
    sessions.open("first", agent="helper")
    sessions.open("second", agent="helper")
    worker.run()
    sessions.open("third", agent="helper")
    worker.run()
    assert sorted(tabs_of(log)) == ["first", "second", "third"]


def test_a_session_that_another_worker_announced_is_announced_again(log, sessions):
    """The partition moves to a worker that announces another state and dies. Then the partition
    returns, with the session in its first state."""
    mine, numbers = Announcing(log), range(log.partitions(SESSION_EVENTS))
    sessions.open("a", agent="helper")
    mine.run()
    mine.worker.revoked(numbers)
    other = Announcing(log)
    sessions.trigger("a", "start_build")
    other.run().restart(loses=True)
    sessions.cancel("a", seen_phase="building")
    other.run()
    mine.reader = log.reader(SESSION_EVENTS, {})
    mine.reader.add(mine.worker.assigned(numbers))
    mine.run()
    assert [value["phase"] for _, value in announced(log)] == ["chatting", "building", "chatting"]


def test_an_announced_session_is_not_checked_after_a_restart(log, sessions):
    worker = Announcing(log).run()
    for number in range(5):
        sessions.open(f"s{number}", agent="helper")
    sessions.terminate("s4")
    worker.run()
    before = announced(log)
    worker.restart().run()
    assert announced(log) == before
    assert [p for p in worker.worker.owned.values() if p.store.busy()] == []


def test_a_rebuilt_store_does_not_announce_every_past_state(log, sessions):
    worker = Announcing(log).run()
    for number in range(30):
        sessions.open(f"s{number}", agent="helper")
    worker.run()
    before = len(announced(log))
    worker.restart(new_disk=True)
    for owned in worker.worker.owned.values():
        owned.store.is_new = True
    worker.run(batch=1)
    at_most = before + log.partitions(SESSION_EVENTS)
    assert len(announced(log)) <= at_most, "only the last state of each is announced"


def test_tabs_report_opens_changes_and_closes_to_the_user_alone(log, sessions):
    worker, tabs, changes = Announcing(log), Tabs(log), []
    sessions.open("a", agent="helper")
    worker.run()
    tabs.look()
    assert [tab.session_id for tab in tabs.listen("ana", changes.append)] == ["a"]
    assert tabs.listen("bob", lambda change: pytest.fail("not bob's")) == []
    sessions.open("b", agent="helper")
    worker.run()
    sessions.trigger("b", "start_build")
    worker.run()
    sessions.terminate("a")
    worker.run()
    tabs.look()
    assert [(change.kind, change.tab.session_id) for change in changes] == [
        ("session_open", "b"), ("phase", "b"), ("session_close", "a")
    ]
    tabs.leave("ana", changes.append)
    tabs.close()


def test_foreign_records_open_no_session(log):
    tabs, producer = Tabs(log), log.producer()
    for key, value in ((b"bench", b"x" * 9), (b"ana/", b"{}"), (b"ana/s", b"{"), (b"ana/s", b"[]"),
                       (b"ana/s", b'{"phase":1}'), (None, b"1"), (b"\xff/s", None)):
        producer.append(USER_SESSIONS, key, value, partition=0)
    tabs.look()
    assert tabs.open_sessions("ana") == [] and tabs.open_sessions("") == []
    tabs.close()
    assert names_in(b"u/s/t") == names_in(b"u/..") == ("", "") and tab_in("s", None) is None
    assert Change("phase", Tab("s", "chatting", None, 1)).kind == "phase"

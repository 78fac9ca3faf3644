"""S0.7: what a worker tells a user's tabs: each change once it is folded, after any crash."""

import json

import pytest

from foldlog.consumers.tabs import Change, Tabs
from foldlog.log.partition import partition_for
from foldlog.producers.sessions import Sessions
from foldlog.schemas.tabs import Tab, names_in, tab_in
from foldlog.schemas.topics import SESSION_EVENTS, USER_SESSIONS
from foldlog.tests.consumers.played import settings_in
from foldlog.tests.processors.worker.announcing import Announcing


@pytest.fixture
def say(log, tmp_path):
    sessions = Sessions(log, settings_in(tmp_path))
    yield sessions
    sessions.close()


def told(log) -> list[tuple[str, dict | None]]:
    """Every record of the topic, in log order of each user."""
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


def test_S0_7_open_phase_project_and_end_are_told_and_nothing_else(log, say):
    worker = Announcing(log)
    say.open("a", agent="helper")
    worker.run()
    say.say("a", "hello")
    say.trigger("a", "start_build")
    worker.run()
    say.lock("a", "p1")
    worker.run()
    say.trigger("a", "nonsense")
    worker.run()
    say.terminate("a")
    worker.run()
    found = told(log)
    assert {key for key, _ in found} == {"ana/a"}
    assert [value and (value["phase"], value["project_id"]) for _, value in found] == [
        ("chatting", None), ("building", None), ("building", "p1"), None
    ]
    assert len({value["opened_at"] for _, value in found if value}) == 1


def test_a_users_sessions_lie_in_one_partition(log, say):
    for number in range(9):
        say.open(f"s{number}", agent="helper")
    Announcing(log).run()
    place = partition_for("ana", log.partitions(USER_SESSIONS))
    assert len(log.records(USER_SESSIONS, place)) == 9


def test_what_was_folded_and_not_told_is_told_by_the_next_process(log, say):
    worker = Announcing(log).run().restart(deaf=True).run()
    say.open("kept", agent="helper")
    say.open("ended", agent="helper")
    say.terminate("ended")
    worker.run()
    assert told(log) == []
    worker.restart().run()
    assert sorted(key for key, _ in told(log)) == ["ana/ended", "ana/kept"]
    assert tabs_of(log) == ["kept"]


def test_what_found_no_room_is_told_when_another_session_moves(log, say):
    worker = Announcing(log).run().restart(full=2).run()
    say.open("first", agent="helper")
    say.open("second", agent="helper")
    worker.run()
    say.open("third", agent="helper")
    worker.run()
    assert sorted(tabs_of(log)) == ["first", "second", "third"]


def test_what_another_worker_told_meanwhile_is_told_anew(log, say):
    """The partition goes, is told otherwise by another that dies, and comes back as it went."""
    mine, numbers = Announcing(log), range(log.partitions(SESSION_EVENTS))
    say.open("a", agent="helper")
    mine.run()
    mine.worker.revoked(numbers)
    other = Announcing(log)
    say.trigger("a", "start_build")
    other.run().restart(deaf=True)
    say.cancel("a", seen_phase="building")
    other.run()
    mine.reader = log.reader(SESSION_EVENTS, {})
    mine.reader.add(mine.worker.assigned(numbers))
    mine.run()
    assert [value["phase"] for _, value in told(log)] == ["chatting", "building", "chatting"]


def test_what_was_told_is_not_looked_at_by_the_next_process(log, say):
    worker = Announcing(log).run()
    for number in range(5):
        say.open(f"s{number}", agent="helper")
    say.terminate("s4")
    worker.run()
    before = told(log)
    worker.restart().run()
    assert told(log) == before
    assert [p for p in worker.worker.owned.values() if p.store.busy()] == []


def test_a_store_made_anew_does_not_tell_all_of_the_past(log, say):
    worker = Announcing(log).run()
    for number in range(30):
        say.open(f"s{number}", agent="helper")
    worker.run()
    before = len(told(log))
    worker.restart(new_disk=True)
    for owned in worker.worker.owned.values():
        owned.store.is_new = True
    worker.run(batch=1)
    assert len(told(log)) <= before + log.partitions(SESSION_EVENTS), "the last of each, at most"


def test_tabs_tell_what_opens_changes_and_closes_to_the_user_alone(log, say):
    worker, tabs, heard = Announcing(log), Tabs(log), []
    say.open("a", agent="helper")
    worker.run()
    tabs.look()
    assert [tab.session_id for tab in tabs.listen("ana", heard.append)] == ["a"]
    assert tabs.listen("bob", lambda change: pytest.fail("not bob's")) == []
    say.open("b", agent="helper")
    worker.run()
    say.trigger("b", "start_build")
    worker.run()
    say.terminate("a")
    worker.run()
    tabs.look()
    assert [(change.kind, change.tab.session_id) for change in heard] == [
        ("session_open", "b"), ("phase", "b"), ("session_close", "a")
    ]
    tabs.leave("ana", heard.append)
    tabs.close()


def test_records_that_nobody_of_ours_wrote_open_nothing(log):
    tabs, producer = Tabs(log), log.producer()
    for key, value in ((b"bench", b"x" * 9), (b"ana/", b"{}"), (b"ana/s", b"{"), (b"ana/s", b"[]"),
                       (b"ana/s", b'{"phase":1}'), (None, b"1"), (b"\xff/s", None)):
        producer.append(USER_SESSIONS, key, value, partition=0)
    tabs.look()
    assert tabs.open_sessions("ana") == [] and tabs.open_sessions("") == []
    tabs.close()
    assert names_in(b"u/s/t") == ("u", "s/t") and tab_in("s", None) is None
    assert Change("phase", Tab("s", "chatting", None, 1)).kind == "phase"

"""S4.1: the OpenAI Agents SDK's Session on the log keeps what the SDK's runner relies on."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import pytest

from foldlog.adapters import session_cache
from foldlog.adapters.items import OtherAgent
from foldlog.adapters.openai_agents import AGENT, FoldlogSessions
from foldlog.client.log_client import LogClient
from foldlog.client.outcomes import CommandRefused
from foldlog.client.session_fold import SessionFold
from foldlog.log import DUPLICATE, LOST, LOST_ACK, NORMAL, Faults, MemoryLog
from foldlog.producers import Sessions
from foldlog.producers.checks import Invalid
from foldlog.producers.sessions import Unacknowledged
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit.played import PARTITIONS, memory_log, settings_in
from foldlog.tests.kit.waiting import PATIENCE_S, joined, until_async


@pytest.fixture
def log():
    return memory_log(threaded=True)


@pytest.fixture
def sessions(log, tmp_path):
    with FoldlogSessions(settings_in(tmp_path), log) as sessions:
        yield sessions


def item(n: int) -> dict:
    return {"role": "user", "content": f"item {n}"}


def run(coroutine):
    return asyncio.run(coroutine)


async def fill(session, *numbers: int) -> None:
    await session.add_items([item(n) for n in numbers])


def events_of(log, session_id: str) -> list[type]:
    with SessionFold(log, session_id) as folded:
        return [type(seen.entry.event) for seen in folded.upto(folded.end())]


# -- the four methods ------------------------------------------------------------------------------


def test_S4_1_the_latest_items_come_oldest_first(sessions):
    session = sessions.session("s1")

    async def play():
        assert await session.get_items() == []
        await fill(session, 1, 2)
        await fill(session, 3)
        assert await session.get_items() == [item(1), item(2), item(3)]
        assert await session.get_items(limit=2) == [item(2), item(3)]
        assert await session.get_items(limit=9) == [item(1), item(2), item(3)]
        assert await session.get_items(limit=0) == await session.get_items(limit=-1) == []

    run(play())


def test_S4_1_a_given_limit_overrides_that_of_the_settings(sessions):
    session = sessions.session("s1", session_settings=SimpleNamespace(limit=1))

    async def play():
        await fill(session, 1, 2, 3)
        assert await session.get_items() == [item(3)]
        assert await session.get_items(limit=2) == [item(2), item(3)]

    run(play())


def test_S4_1_removals_are_events_and_removed_items_stay_in_the_log(sessions, log):
    session = sessions.session("s1")

    async def play():
        assert await session.pop_item() is None
        await session.clear_session()
        await fill(session, 1, 2)
        await fill(session, 3)
        assert [await session.pop_item() for _ in "ab"] == [item(3), item(2)]
        await fill(session, 4)
        assert await session.get_items() == [item(1), item(4)]
        await session.clear_session()
        assert await session.get_items() == [] and await session.pop_item() is None
        await fill(session, 5)
        assert await session.get_items() == [item(5)]

    run(play())
    added, taken = ev.ItemAdded, ev.ItemRetracted
    assert events_of(log, "s1") == [
        ev.SessionOpened, added, added, taken, taken, added, taken, added
    ]


ODD = [
    {"type": "what_comes_next_year", "z": 1, "a": [None, True, 1.5, 10**30, {"": ""}]},
    {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA+/==", "summary": []},
    {"role": "user", "content": "half of a character \ud83d, \u0000, \u2028 and 👍"},
    {"role": "user", "content": 'a "quoted" \\u0041 text'},
]


def test_S4_1_any_item_is_returned_unchanged_with_its_keys_in_order(sessions):
    session = sessions.session("s1")
    run(session.add_items(ODD))
    read = run(session.get_items())
    assert read == ODD
    assert [list(item) for item in read] == [list(item) for item in ODD]
    read[0]["z"] = 2
    assert run(session.get_items()) == ODD, "callers get their own copies"


def test_S4_1_a_large_batch_is_stored_as_a_blob(sessions, log):
    session = sessions.session("s1")
    large = [{"role": "user", "content": "x" * 300_000}, item(2)]
    run(session.add_items(large))
    assert run(session.get_items()) == large
    records = [r for p in range(PARTITIONS) for r in log.records(SESSION_EVENTS, p)]
    assert max(len(record.value) for record in records) < 999


def test_bad_input_items_that_are_not_json_are_refused_and_change_nothing(sessions, log):
    session = sessions.session("s1")
    run(fill(session, 1))
    for bad in ({"a": object()}, {"a": float("nan")}):
        with pytest.raises(Invalid, match="cannot be JSON"):
            run(session.add_items([item(2), bad]))
    assert run(session.get_items()) == [item(1)]


def test_bad_input_an_invalid_session_id_is_refused(sessions):
    with pytest.raises(ValueError, match="session_id"):
        sessions.session("with spaces")


# -- concurrency -----------------------------------------------------------------------------------


def test_S4_1_one_process_reads_what_another_one_wrote(log, tmp_path, sessions):
    with FoldlogSessions(settings_in(tmp_path), log) as elsewhere:
        one, other = sessions.session("s1"), elsewhere.session("s1")

        async def play():
            for n in range(20):
                await fill(one, n)
                assert (await other.get_items())[-1] == item(n)
                await fill(other, -n)
                assert (await one.get_items())[-1] == item(-n)

        run(play())


def test_S4_1_many_threads_and_event_loops_pop_each_item_once(sessions, log, tmp_path):
    """Two adapters, which stand for two processes, race for the same last item."""
    threads, each = 8, 12
    with FoldlogSessions(settings_in(tmp_path), log) as elsewhere:

        def work(n: int) -> list[dict]:
            session = (sessions if n % 2 else elsewhere).session("s1")

            async def play():
                for k in range(each):
                    await fill(session, 1000 * n + k, 1000 * n + k + 500)
                return [await session.pop_item() for _ in range(each)]

            return run(play())

        with ThreadPoolExecutor(threads) as pool:
            popped = [item for taken in pool.map(work, range(threads)) for item in taken]
        left = run(sessions.session("s1").get_items())
    assert None not in popped and len(left) == threads * each
    numbers = [item["content"] for item in (*popped, *left)]
    assert len(numbers) == len(set(numbers)) == 2 * threads * each


def test_S4_1_a_concurrent_reader_sees_whole_batches_only(sessions):
    session, counts, finished = sessions.session("s1"), [], threading.Event()
    end = monotonic() + PATIENCE_S

    def read():
        while not finished.is_set() and monotonic() < end:
            counts.append(len(run(session.get_items())))

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(15):
        run(fill(session, *range(3 * n, 3 * n + 3)))
    finished.set()
    joined(reader)
    assert counts and all(count % 3 == 0 for count in counts)
    assert [i["content"] for i in run(session.get_items())] == [f"item {n}" for n in range(45)]


def test_sessions_dropped_from_the_cache_are_folded_again(sessions, monkeypatch):
    monkeypatch.setattr(session_cache, "SESSIONS_MAX", 2)

    async def play():
        for round in range(2):
            for n in range(6):
                await fill(sessions.session(f"s{n}"), n)
                assert await sessions.session(f"s{n}").get_items() == [item(n)] * (round + 1)

    run(play())


# -- faults and bad input --------------------------------------------------------------------------


class FirstItem(Faults):
    """Applies a fault to the first event of one type, and to no other event."""

    def __init__(self, kind: bytes, fate) -> None:
        self.kind, self.left = ("t", kind), [fate]

    def fate(self, producer, topic, partition, headers):
        return self.left.pop() if self.kind in headers and self.left else NORMAL


@pytest.mark.parametrize("fate", [LOST, LOST_ACK, DUPLICATE], ids=["lost", "lost ack", "twice"])
@pytest.mark.parametrize("kind", [b"ITEM_ADDED", b"ITEM_RETRACTED"], ids=["add", "pop"])
def test_S4_1_a_retried_write_takes_effect_once(fate, kind, tmp_path):
    log = MemoryLog(topics(PARTITIONS), threaded=True, faults=FirstItem(kind, fate))
    with FoldlogSessions(settings_in(tmp_path), log) as sessions:
        session = sessions.session("s1")

        async def play():
            await fill(session, 1, 2, 3)
            assert await session.pop_item() == item(3)
            assert await session.get_items() == [item(1), item(2)]

        run(play())


class Never(Faults):
    """A fault that loses every ITEM_ADDED."""

    def fate(self, producer, topic, partition, headers):
        return LOST if ("t", b"ITEM_ADDED") in headers else NORMAL


def test_S4_1_an_unacknowledged_batch_raises_and_adds_nothing(tmp_path):
    log = MemoryLog(topics(PARTITIONS), threaded=True, faults=Never())
    with FoldlogSessions(settings_in(tmp_path), log) as sessions:
        with pytest.raises(Unacknowledged):
            run(fill(sessions.session("s1"), 1))
        assert run(sessions.session("s1").get_items()) == []


@pytest.mark.parametrize("what", ["add", "pop", "clear"])
def test_S4_1_a_change_completes_before_its_cancelled_caller_continues(
    what, sessions, monkeypatch
):
    session = sessions.session("s1")
    run(fill(session, 1, 2))
    started, may_continue = threading.Event(), threading.Event()
    append = Sessions.append

    def blocked_append(self, *arguments):
        started.set()
        assert may_continue.wait(10)
        return append(self, *arguments)

    monkeypatch.setattr(Sessions, "append", blocked_append)

    async def play():
        change = {"add": lambda: fill(session, 3), "pop": session.pop_item,
                  "clear": session.clear_session}[what]
        task = asyncio.create_task(change())
        await until_async("the change is being written", started.is_set)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        may_continue.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(await session.get_items())

    assert run(play()) == {"add": 3, "pop": 1, "clear": 0}[what]


def test_a_session_of_another_agent_is_refused(sessions, log, tmp_path):
    mine = Sessions(log, settings_in(tmp_path))
    mine.open("s1", agent="shop")
    for call in (fill(sessions.session("s1"), 1), sessions.session("s1").get_items()):
        with pytest.raises(OtherAgent, match="agent shop"):
            run(call)


def test_bad_input_changes_to_a_foreign_or_terminated_session_are_refused(sessions, log, tmp_path):
    session = sessions.session("s1", user="ana")
    run(fill(session, 1))
    with pytest.raises(CommandRefused, match="another user"):
        run(fill(sessions.session("s1", user="bob"), 2))
    Sessions(log, settings_in(tmp_path)).terminate("s1")
    with pytest.raises(CommandRefused, match="terminated"):
        run(fill(session, 3))
    assert run(session.get_items()) == [item(1)]


def test_a_closed_adapter_refuses_every_call_even_an_empty_batch(log, tmp_path):
    with FoldlogSessions(settings_in(tmp_path), log) as sessions:
        session = sessions.session("s1")
        run(fill(session, 1))
    for call in (session.add_items([]), session.get_items(), session.pop_item()):
        with pytest.raises(RuntimeError):
            run(call)


def test_an_error_of_the_reader_is_raised_and_the_next_call_reads_again(sessions, log, monkeypatch):
    session = sessions.session("s1")
    run(fill(session, 1))

    def broken(*arguments):
        raise OSError("no more memory")

    with monkeypatch.context() as patch:
        patch.setattr(session_cache, "foldable_entry", broken)
        with pytest.raises(OSError, match="no more memory"):
            run(fill(session, 2))
    assert run(session.get_items())[0] == item(1)


def test_a_session_of_the_sdk_has_its_own_agent_and_opens_no_turn(log, sessions):
    run(fill(sessions.session("s1"), 1))
    with SessionFold(log, "s1") as folded:
        assert folded.to_end().turn.agent == AGENT
        assert not folded.views.turn.open, "items open no turn"


def test_S2_11_a_fork_continues_from_the_items_of_its_parent(sessions, log, tmp_path):
    session = sessions.session("s1")
    run(fill(session, 1, 2))
    with LogClient(settings_in(tmp_path), log) as client:
        end = client.fold("s1").end()
        run(fill(session, 3))
        client.branching().fork("s1", end - 1, name="s2")
    other = sessions.session("s2")
    assert run(other.get_items()) == [item(1), item(2)]
    run(fill(other, 4))
    assert run(other.pop_item()) == item(4) and run(other.pop_item()) == item(2)
    assert run(session.get_items()) == [item(1), item(2), item(3)]


def test_every_excluded_test_of_the_sdk_has_a_reason():
    excluded = json.loads((Path(__file__).parent / "sdk_excluded.json").read_text("utf-8"))
    for tests in excluded.values():
        assert all(reason.strip() for reason in tests.values()) and len(tests) == 18

"""S4.1: the SDK's own runner, with a scripted model and foldlog's sessions, in memory and on a
broker."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from foldlog.adapters.openai_agents import FoldlogSessions
from foldlog.log import open_log
from foldlog.schemas.topics import topics
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.played import PARTITIONS, memory_log, settings_in


@pytest.fixture
def agents():
    """The SDK, sending no traces. Imported at the top, it would cost every process that collects
    the tests a second."""
    sdk = pytest.importorskip("agents", reason="the extra openai-agents is not installed")
    sdk.set_tracing_disabled(True)
    yield sdk
    sdk.set_tracing_disabled(False)


def weather_agent(agents, *steps):
    from agents.testing import ScriptedModel

    @agents.function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    model = ScriptedModel(list(steps))
    return agents.Agent(name="helper", model=model, tools=[weather]), model


def test_S4_1_a_run_with_a_tool_call_is_stored_and_the_next_run_continues_from_it(
    tmp_path, agents
):
    from agents.testing import ModelStep, assistant_message, function_call

    agent, model = weather_agent(
        agents,
        ModelStep([function_call("weather", {"city": "Oslo"}, call_id="c1")]),
        ModelStep([assistant_message("It rains.")]),
        ModelStep([assistant_message("As I said: rain.")]),
    )
    with FoldlogSessions(settings_in(tmp_path), memory_log(threaded=True)) as sessions:
        session = sessions.session("talk")
        assert isinstance(session, agents.Session)

        async def play():
            first = await agents.Runner.run(agent, "How is Oslo?", session=session)
            again = await agents.Runner.run(agent, "Again?", session=session)
            return first.final_output, again.final_output, await session.get_items()

        first, again, items = asyncio.run(play())
    assert (first, again) == ("It rains.", "As I said: rain.")
    kinds = [item.get("type", item.get("role")) for item in items]
    assert kinds == [
        "user", "function_call", "function_call_output", "message", "user", "message"
    ]
    assert [i.get("content") for i in model.calls[-1].input if i.get("role") == "user"] == [
        "How is Oslo?", "Again?"
    ]
    model.assert_complete()


@pytest.mark.broker
def test_S4_1_on_a_broker_two_processes_share_a_session_and_a_third_reads_it(
    broker, tmp_path
):
    settings = settings_in(
        tmp_path, bootstrap_servers=broker.bootstrap_servers, topic_prefix=unique_name()
    )
    log = open_log(settings)
    log.apply_topics(topics(PARTITIONS))
    log.close()
    each, both_added = 10, Barrier(2, timeout=60)

    def work(sessions: FoldlogSessions) -> list:
        session = sessions.session("shared")

        async def play():
            for n in range(each):
                await session.add_items([{"by": id(sessions), "n": n}, {"by": 0, "n": n}])
                mine = [i for i in await session.get_items() if i["by"] == id(sessions)]
                assert [i["n"] for i in mine][-1] == n, "a process reads its own writes"
            await asyncio.to_thread(both_added.wait)  # so that each runner pops items of the other
            return [await session.pop_item() for _ in range(each // 2)]

        return asyncio.run(play())

    with FoldlogSessions(settings) as one, FoldlogSessions(settings) as other:
        with ThreadPoolExecutor(2) as pool:
            popped = [item for taken in pool.map(work, (one, other)) for item in taken]
        here = asyncio.run(one.session("shared").get_items())
    with FoldlogSessions(settings) as late:
        there = asyncio.run(late.session("shared").get_items())
        asyncio.run(late.session("shared").clear_session())
        assert asyncio.run(late.session("shared").get_items()) == []
    assert here == there and len(here) == 2 * 2 * each - each
    assert None not in popped and len(popped) == each

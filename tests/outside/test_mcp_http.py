"""An MCP server over streamable HTTP: away, back again, killed in a call, saying too much."""

import asyncio

import pytest

from foldlog.processors.outside import McpServer
from foldlog.schemas.events import ToolFailedUncertain


def text(event):
    return event.content.inline.decode()


def test_a_server_over_http_that_goes_and_comes_back(world, web):
    process = web()
    agent = world.begin(McpServer(name="web", url=web.url, headers={"x-key": "hush-hush"}))
    assert sorted(t.name for t in agent.tools) == ["web__charge", "web__huge", "web__slow"]
    assert text(world.call(agent, "web__charge", cents=5)) == "charged 5"
    process.kill()
    process.wait()
    (world.directory / "charged").unlink()
    # Nothing could be sent, and that is known: no doubt, although it must not run twice.
    event = world.call(agent, "web__charge", cents=6)
    assert event.outcome == "error" and "was not run" in text(event), event
    assert not (world.directory / "charged").exists()
    web()
    for _ in range(2):  # the first may still speak of a session that the new process does not know
        event = world.call(agent, "web__charge", cents=7)
        if event.outcome == "ok":
            break
    assert text(event) == "charged 7"
    assert not any("hush" in line for line in world.said)


@pytest.mark.parametrize("effect", ["once", "idempotent"])
def test_a_server_killed_in_a_call_leaves_doubt_only_where_it_matters(world, web, effect):
    process = web()
    agent = world.begin(McpServer(name="web", url=web.url, effects={"slow": effect}))

    async def main():
        calling = asyncio.ensure_future(world.calling(agent, "web__slow", seconds=60))
        while not (world.directory / "slow").exists():
            await asyncio.sleep(0.01)
        process.kill()
        return await asyncio.wait_for(calling, 20)

    event = asyncio.run(main())
    if effect == "once":
        assert isinstance(event, ToolFailedUncertain), event
    else:
        assert event.outcome == "error"


def test_an_answer_that_is_too_long_is_not_read(world, web):
    web()
    agent = world.begin(McpServer(name="web", url=web.url, effects={"huge": "pure"}))
    assert world.call(agent, "web__huge", megabytes=1).outcome == "ok"
    event = world.call(agent, "web__huge", megabytes=20)
    assert event.outcome == "error"
    assert text(world.call(agent, "web__charge", cents=1)) == "charged 1"

"""A worker and a gateway are killed with SIGKILL while 50 viewers watch: all viewers see the
same."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from foldlog.client.log_client import LogClient
from foldlog.client.session import Session
from foldlog.local.messages_api import Reply, Rule, Script, ScriptedServer, text
from foldlog.log import Settings, open_log
from foldlog.schemas import events as ev
from foldlog.schemas.topics import topics
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.programs import end, line_of
from foldlog.tests.kit.slowness import allowed
from foldlog.tests.web.gateway.screen import Screen

pytestmark = [pytest.mark.broker, pytest.mark.crash]

VIEWERS = 50
STORY = " ".join(f"word{n:03}" for n in range(120))
PACE_S = 0.015
# Each attempt waits at a gate in its middle, so that the kill hits it there on any machine: the
# first one forever, the second one until there is a new gateway.
# Chunks merge on a busy machine, so a kill waits for characters, not for a number of chunks.
MIDDLE, SEEN = 60, 80  # deltas sent before the gate; characters seen before the kill
PATIENCE_S = allowed(60.0)  # for each event; it comes within 2 s on an idle machine


@contextmanager
def process(settings, base_url, *arguments, **more):
    env = {
        **os.environ,
        "FOLDLOG_HOME": str(settings.home),
        "FOLDLOG_TOPIC_PREFIX": settings.topic_prefix,
        "FOLDLOG_PARTITIONS": str(settings.partitions),
        "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": "test",
        "FOLDLOG_USER": "ana",
    }
    command = [sys.executable, "-m", "foldlog.cli", *arguments]
    running = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL, **more)
    try:
        yield running
    finally:
        end(running)
        if running.stdout is not None:
            running.stdout.close()


def gateway(settings, base_url, port=0):
    arguments = ("gateway", "--port", str(port))
    return process(settings, base_url, *arguments, stdout=subprocess.PIPE, text=True)


def url_of(running):
    line = line_of(running.stdout, "the address of the gateway")
    assert "serves http://" in line, line
    return line.split()[-1].rstrip("/")


@pytest.fixture
def settings(broker, tmp_path):
    home = {"FOLDLOG_HOME": str(tmp_path), "HOME": str(tmp_path), "FOLDLOG_USER": "ana"}
    where = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "FOLDLOG_PARTITIONS": "2"}
    return Settings.load({**home, **where, "FOLDLOG_TOPIC_PREFIX": unique_name()}, None, {})


def story_for(attempt, gate):
    reply = Reply([text(STORY)], chunk="word", pace_s=PACE_S, gate=gate, gate_after=MIDDLE)
    return Rule(reply=reply, attempt=attempt)


def until(folded, what, wanted):
    """Read the session until `wanted(event)` holds for an event; fails after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for seen in folded.poll():
            if wanted(seen.entry.event):
                return
    raise AssertionError(f"not within {PATIENCE_S:g} s: {what}")


def streams(attempt, characters):
    """A condition for `until`: an attempt has produced this much text."""
    texts = []

    def wanted(event):
        if isinstance(event, ev.GenChunk) and event.attempt == attempt:
            texts.append(event.delta)
        return sum(map(len, texts)) >= characters

    return wanted


def test_beyond_1_viewers_see_one_conversation_when_worker_and_gateway_are_killed(settings):
    log = open_log(settings)
    log.apply_topics(topics(settings.partitions))
    script = Script([story_for(1, "never"), story_for(2, "go on")])
    with ScriptedServer(script=script) as server, LogClient(settings, log) as client:
        with process(settings, server.base_url, "worker", "--supervise"):
            with client.fold("story", chunks=True) as folded:
                Session(client, "story").say("tell me")
                screens = asyncio.run(_killed(settings, server, folded))
                client_views = Session(client, "story").views()
    log.close()
    first = screens[0].lines
    assert [screen.lines for screen in screens if screen.lines != first] == []
    assert [text for _, text in first if text not in ("message", "attempt", "ended")] == [STORY]
    assert [line.kind for line in client_views.transcript.lines].count("answer") == 1
    assert all(screen.cuts for screen in screens), "some viewer was never cut off"


async def _killed(settings, server, folded):
    """The screens of 50 viewers. The worker and the gateway are killed in the middle of the
    answer."""
    with gateway(settings, server.base_url) as first:
        url = url_of(first)
        screens = [Screen("story") for _ in range(VIEWERS)]
        gateways = [first]
        watching = asyncio.gather(*(screen.watch(url, gateways) for screen in screens))
        await asyncio.to_thread(until, folded, "the first attempt streams", streams(1, SEEN))
        worker = json.loads((settings.state_dir / "worker.json").read_text())["pid"]
        os.kill(worker, signal.SIGKILL)
        await asyncio.to_thread(until, folded, "the second attempt streams", streams(2, SEEN))
        first.kill()
        first.wait(10)
        with gateway(settings, server.base_url, int(url.rpartition(":")[2])) as second:
            assert url_of(second) == url
            gateways.append(second)
            # A viewer that connects after the answer is shown it whole, not as tokens.
            async with asyncio.timeout(90):
                while any(second.pid not in screen.connected_to for screen in screens):
                    await asyncio.sleep(0.01)
            server.open("go on")
            return await asyncio.wait_for(watching, 90)

"""A worker is killed with SIGKILL during an answer, and the answer is resumed: no viewer loses
text."""

import asyncio
import json

import pytest

from foldlog.client.log_client import LogClient
from foldlog.client.session import Session
from foldlog.client.session_fold import SessionFold
from foldlog.local.messages_api import Reply, Rule, Script, ScriptedServer, text
from foldlog.log import open_log
from foldlog.schemas import events as ev
from foldlog.schemas.topics import topics
from foldlog.tests.web.gateway.screen import Screen
from foldlog.tests.web.gateway.test_kills import (
    gateway,
    process,
    settings,
    streams,
    until,
    url_of,
)

pytestmark = [pytest.mark.broker, pytest.mark.crash]
__all__ = ["settings"]

STORY = " ".join(f"word{n:03}" for n in range(90))
PACE_S = 0.02
MIDDLE, SEEN = 60, 64  # deltas before the first answer hangs; characters seen before the kill
TELLER = """
from foldlog import Agent

agent = Agent(name="teller", model="claude-opus-5-5", recovery="resume")
"""


def tell(request):
    """The reply of the model: the story, or the rest of it for a resumed request."""
    if len(request.messages) <= 2:
        content = [text(STORY)]
        return Reply(content, chunk="word", pace_s=PACE_S, gate="never", gate_after=MIDDLE)
    before = request.messages[-2]["content"][0]["text"]
    assert STORY.startswith(before)
    gate = {"gate": "all are here", "gate_after": 8}
    return Reply([text(STORY[len(before) :])], chunk="word", pace_s=PACE_S, **gate)


class Viewer(Screen):
    """A screen whose text must never be dropped. `leaves`: the number of characters after which the
    viewer disconnects."""

    def __init__(self, leaves=None):
        super().__init__("story")
        self.leaves, self.has_text = leaves, asyncio.Event()

    def draw(self, event):
        assert event["type"] != "dropped", event
        ended = super().draw(event)
        if self.streams:
            self.has_text.set()
        if self.leaves is not None and len(self.streams) >= self.leaves and event["cursor"]:
            self.leaves = None
            return True
        return ended


def test_S2_9_a_killed_workers_answer_is_resumed_and_every_viewer_sees_it_whole(settings, tmp_path):
    (tmp_path / "resuming_teller.py").write_text(TELLER)
    log = open_log(settings)
    log.apply_topics(topics(settings.partitions))
    with ScriptedServer(script=Script([Rule(reply=tell)])) as server:
        with LogClient(settings, log) as client, client.fold("story", chunks=True) as folded:
            Session(client, "story", "teller").say("tell me")
            viewers = asyncio.run(_killed(settings, server, folded, tmp_path))
        calls = server.calls()
    (resumed,) = [seen.entry.event for seen in _all(log) if _is(seen, ev.GenResumed)]
    (complete,) = [seen.entry.event for seen in _all(log) if _is(seen, ev.GenComplete)]
    log.close()
    assert resumed.strategy == "resume" and resumed.prior_seq >= 0
    assert json.loads(complete.content.inline)[0]["text"] == STORY
    for viewer in viewers:
        assert viewer.lines == viewers[0].lines
        assert STORY in [text for _, text in viewer.lines]
    assert calls == 2, "each of the two workers calls the model once"


def _all(log):
    with SessionFold(log, "story") as folded:
        return list(folded.upto(folded.end()))


def _resumes(event):
    return isinstance(event, ev.GenResumed)


def _is(seen, kind):
    return isinstance(seen.entry.event, kind) and seen.ruling.accepted


async def _killed(settings, server, folded, directory):
    """The screens of three viewers: one stays; one connects between the kill and the resumption;
    one left before the kill, and returns when the answer continues."""
    worker = ("worker", "--agent", "resuming_teller:agent")
    base_url = server.base_url

    with gateway(settings, base_url) as serving:
        with process(settings, base_url, *worker, cwd=directory) as first:
            url = url_of(serving)
            stays, late, back = Viewer(), Viewer(), Viewer(leaves=40)
            staying = asyncio.create_task(stays.watch(url))
            await asyncio.wait_for(back.watch(url), 30)
            assert back.attempt == (1, 1, 1) and back.cursor
            await asyncio.to_thread(until, folded, "the first attempt streams", streams(1, SEEN))
            first.kill()
            first.wait(10)
        connecting = asyncio.create_task(late.watch(url))
        await asyncio.wait_for(late.has_text.wait(), 20)
        with process(settings, base_url, *worker, cwd=directory):
            await asyncio.to_thread(until, folded, "the answer is resumed", _resumes)
            await asyncio.to_thread(until, folded, "the second attempt streams", streams(2, 1))
            returning = asyncio.create_task(back.watch(url))
            server.open("all are here")
            await asyncio.wait_for(asyncio.gather(staying, connecting, returning), 30)
    return stays, late, back

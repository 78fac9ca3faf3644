"""A stream that sends pings but no content is alive: it is not ended at the stall limit, and its
records keep other workers from taking the attempt over."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from foldlog.processors.effects.models.call import _Attempt, generate, inline_body
from foldlog.processors.fold.partial_answer import said_so_far
from foldlog.processors.limits import Limits
from foldlog.processors.tools.output_sink import Stop
from foldlog.schemas.events import GenComplete, GenFailed
from foldlog.schemas.events.effects import ALIVE_SEQ
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.processors.effects.models.attempts import CLAIM, Collected

PAUSE_S = 0.01


def sse(name, **data):
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


START = sse("message_start", message={"id": "m", "model": "x", "usage": {"input_tokens": 9}})
BLOCK = sse("content_block_start", index=0, content_block={"type": "text", "text": ""})
END = sse("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})
PING, COMMENT = sse("ping"), b": the model is thinking\n\n"


def delta(text):
    return sse("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


class Api:
    """A client of an API that sends signs of life until the sink has `count` records of it. `at`:
    whether they come before or within the text."""

    base_url = ""

    def __init__(self, sink, count, sign=PING, at="before"):
        self.sink, self.count, self.sign, self.at = sink, count, sign, at

    async def post(self, *_, **more):
        headers = {"content-type": "text/event-stream"}
        return SimpleNamespace(headers=headers, aiter_bytes=self.reads, aclose=self.close)

    async def reads(self):
        yield START + BLOCK
        if self.at == "within":
            yield delta("do")
        async with asyncio.timeout(PATIENCE_S):
            while len(alive(self.sink)) < self.count:
                yield self.sign
                await asyncio.sleep(PAUSE_S)
        yield delta("ne" if self.at == "within" else "done")
        yield sse("content_block_stop", index=0) + END + sse("message_stop")

    async def close(self):
        """Closes nothing."""


def alive(sink):
    return [chunk for chunk in sink.chunks if chunk.seq == ALIVE_SEQ]


def generated(sink, api, limits):
    asyncio.run(generate(CLAIM, b'{"model":"m"}', sink, Stop(), api, limits=limits))
    return sink.only


@pytest.mark.parametrize("sign", [PING, COMMENT], ids=["ping", "comment"])
@pytest.mark.parametrize("at", ["before", "within"])
def test_S2_9_pings_for_longer_than_the_stall_limit_are_no_stall(sign, at):
    sink = Collected()
    done = generated(sink, Api(sink, 2, sign, at), Limits(stall_timeout_ms=600))
    assert isinstance(done, GenComplete), done
    assert json.loads(done.content.inline) == [{"type": "text", "text": "done"}]
    texts = [chunk for chunk in sink.chunks if chunk.seq != ALIVE_SEQ]
    assert [chunk.seq for chunk in texts] == list(range(len(texts)))
    assert {chunk.delta for chunk in alive(sink)} == {""}, "viewers see no new token"
    assert said_so_far(sink.chunks) == done.content.inline


UNNAMED = b'data: {"type": "ping"}\n\n'


@pytest.mark.parametrize("sign", [PING, COMMENT, UNNAMED, sse("news"), delta("")], ids=str)
def test_S2_9_pings_without_end_are_a_stall_in_the_end(sign):
    sink = Collected()
    limits = Limits(stall_timeout_ms=600, ping_timeout_ms=900)
    failed = generated(sink, Api(sink, 10_000, sign), limits)
    assert isinstance(failed, GenFailed) and failed.error == "stalled" and not failed.permanent
    assert "only signs of life arrived for 0.9 s" in failed.detail


def watched(limits, seconds, heard_every_s):
    """Checks an attempt once a second on a virtual clock. Returns when it wrote that it is alive,
    and when it counted as stalled, or None."""

    async def go():
        at, sink = [0.0], Collected()
        args = (CLAIM, sink, limits, inline_body, lambda: at[0], None, None)
        run, wrote = _Attempt(*args), []
        for second in range(1, seconds + 1):
            at[0] = float(second)
            if second % heard_every_s == 0:
                run._heard = at[0]
            before = len(sink.chunks)
            why, left_s = run._watched()
            if why:
                return wrote, second
            assert 0 < left_s <= limits.stall_timeout_ms / 1000
            wrote += [second] * (len(sink.chunks) - before)
        return wrote, None

    return asyncio.run(go())


def test_a_silent_minute_costs_one_record_and_ten_silent_minutes_end_the_attempt():
    limits = Limits()
    wrote, ended = watched(limits, 700, heard_every_s=15)
    assert ended == 600 and 9 <= len(wrote) <= 11
    margin_s = limits.margin_ms / 1000
    gaps = [b - a for a, b in zip([0, *wrote], [*wrote, ended], strict=True)]
    assert max(gaps) <= 60 < 60 + margin_s, "another worker would take the attempt over"


def test_silence_without_pings_is_a_stall_without_a_record():
    assert watched(Limits(), 700, heard_every_s=10_000) == ([], 60)


def test_a_ping_limit_below_the_stall_limit_is_the_stall_limit():
    limits = Limits(stall_timeout_ms=60_000, ping_timeout_ms=1)
    assert watched(limits, 700, heard_every_s=5)[1] == 60

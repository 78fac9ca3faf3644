"""Attempts against the scripted Messages API: a request, a sink that checks, and one way to run."""

import asyncio
import json
import time

from foldlog.local.messages_api import redacted_thinking, text, thinking, tool_use
from foldlog.processors.effects.models.call import GenClaim, generate, make_client
from foldlog.processors.limits import Limits
from foldlog.processors.tools.output_sink import Stop
from foldlog.schemas import codec

MODEL = "claude-opus-5-5"
CLAIM = GenClaim(session_id="s1", turn=1, step=2, attempt=1, claimed_at=1_700_000_000_000)
TOOLS = [{"name": "read", "input_schema": {"type": "object"}}]
# A stall is what some tests wait for, so it is short there; see `stalling`.
STALLING = Limits(stall_timeout_ms=250)
ANSWER = [
    thinking("Let me sée…"),
    redacted_thinking(),
    text("Grüße, 日本語 and 😀, in pieces that are cut anywhere."),
    tool_use("read", '{ "path": "ä/😀.txt",  "n": 1.0 }'),
]


def request(*messages, **params):
    messages = messages or ({"role": "user", "content": "hi"},)
    body = {
        "model": MODEL,
        "max_tokens": 512,
        "thinking": {"type": "adaptive", "display": "summarized"},
        "tools": TOOLS,
        "messages": list(messages),
        **params,
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class Collected:
    """A sink that keeps what comes, in order, and proves that the log could hold it."""

    def __init__(self):
        self.chunks, self.outcomes = [], []

    def chunk(self, session_id, event):
        assert not self.outcomes, "a chunk after the outcome"
        assert session_id == "s1" and codec.decode(codec.encode(event)) == event
        self.chunks.append(event)

    async def outcome(self, session_id, event):
        assert session_id == "s1" and codec.decode(codec.encode(event)) == event
        self.outcomes.append(event)

    @property
    def only(self):
        (outcome,) = self.outcomes
        return outcome

    def said(self, kind):
        return "".join(chunk.delta for chunk in self.chunks if chunk.kind == kind)


async def attempt(server, *, claim=CLAIM, body=None, stop=None, stall_after=None, **more):
    """Run one attempt with a client of its own; gives the sink.

    stall_after: the limit for a stall is short, on a clock that stands still until a chunk of this
    kind was seen ("" for any, "-" for none), so that a busy machine is not taken for a stall.
    """
    sink = Collected()
    limits = Limits() if stall_after is None else STALLING
    if stall_after not in (None, "-"):

        def clock():
            seen = any(stall_after in chunk.kind for chunk in sink.chunks)
            return time.monotonic() if seen else 0.0

        more["clock"] = clock
    async with make_client("test-key", server.base_url) as client:
        await generate(
            claim,
            body or request(),
            sink,
            stop or Stop(),
            client,
            limits=limits,
            **more,
        )
    return sink


def run(server, **more):
    return asyncio.run(attempt(server, **more))

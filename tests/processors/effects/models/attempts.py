"""Runs attempts against the scripted Messages API: a request, and a sink that checks the events."""

import asyncio
import json
import time

from foldlog.local.messages_api import redacted_thinking, text, thinking, tool_use
from foldlog.processors.effects.models.call import GenClaim, generate, make_client
from foldlog.processors.effects.slots import Slots
from foldlog.processors.limits import DEFAULT_LIMITS, Limits
from foldlog.processors.tools.output_sink import Stop
from foldlog.schemas import codec

MODEL = "claude-opus-5-5"
CLAIM = GenClaim(session_id="s1", turn=1, step=2, attempt=1, claimed_at=1_700_000_000_000)
TOOLS = [{"name": "read", "input_schema": {"type": "object"}}]
# Some tests wait for a stall, so its limit is short there.
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


def running(streams):
    """The slots of an API key in a process that runs this number of model calls."""
    slots = Slots(1_000)
    for _ in range(streams):
        assert slots.take(0)
    return slots


class Collected:
    """A sink that records events in order, and checks that each can be encoded."""

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

    def text_of(self, kind):
        """The joined text of all chunks of this kind."""
        return "".join(chunk.delta for chunk in self.chunks if chunk.kind == kind)


async def attempt(
    server, *, claim=CLAIM, body=None, stop=None, stall_after=None, stalling=STALLING, **more
):
    """Run one attempt with its own client, and return the sink.

    stall_after: if given, the limits are `stalling`, with a short limit for a stall. A busy machine
    must not count as a stall, so the clock starts only with the first chunk of this kind ("" for
    any kind; "-" for a clock that starts at once).
    """
    sink = Collected()
    limits = DEFAULT_LIMITS if stall_after is None else stalling
    if stall_after not in (None, "-"):

        def clock():
            started = any(stall_after in chunk.kind for chunk in sink.chunks)
            return time.monotonic() if started else 0.0

        more["clock"] = clock
    async with make_client("test-key", server.base_url) as client:
        await generate_with(client, sink, stop, claim=claim, body=body, limits=limits, **more)
    return sink


async def generate_with(
    client, sink, stop=None, *, claim=CLAIM, body=None, limits=DEFAULT_LIMITS, **more
):
    await generate(claim, body or request(), sink, stop or Stop(), client, limits=limits, **more)


def run(server, **more):
    return asyncio.run(attempt(server, **more))

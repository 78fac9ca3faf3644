"""Helpers for the tests of tools: a sink that records outcomes, and functions that run a tool."""

import asyncio
import json
from hashlib import sha256

from foldlog.log.blobs import BlobStore
from foldlog.processors.default_agent import default_agent
from foldlog.processors.effects.tool import tool_host_of
from foldlog.processors.limits import Limits
from foldlog.processors.tools.call import ToolClaim, ToolHost, run
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.side_log import SideLogStore
from foldlog.processors.tools.tool import tool
from foldlog.schemas import codec

EFFECTS = ["pure", "idempotent", "once"]
# A short grace: a run that cannot be stopped is abandoned after 0.3 + 0.3 of it.
LIMITS = Limits(grace_ms=600)


class RecordingSink:
    """A sink that records outcomes, encoded and decoded as in production."""

    def __init__(self):
        self.events = []
        self.changed = asyncio.Event()

    async def outcome(self, session_id, event):
        assert session_id == "s1"
        self.events.append(codec.decode(codec.encode(event)))
        self.changed.set()

    @property
    def only(self):
        assert len(self.events) == 1, self.events
        return self.events[0]

    @property
    def text(self):
        return self.only.content.inline.decode()


def make_host(directory):
    """A tool host with stores below a directory and a short grace period."""
    return ToolHost(
        limits=LIMITS,
        blobs=BlobStore(directory / "blobs"),
        side_log=SideLogStore(directory / "side_log"),
    )


def claim_of(a_tool, args=b"{}", **changes):
    fields = {
        "session_id": "s1",
        "turn": 2,
        "step": 1,
        "index": 0,
        "attempt": 1,
        "name": a_tool.name,
        "effect": a_tool.effect,
        "approval": a_tool.approval,
        "args_sha256": sha256(args).hexdigest(),
        "timeout_ms": a_tool.timeout_ms or 60_000,
    }
    return ToolClaim(**{**fields, **changes})


def run_once(a_tool, host, args=b"{}", stop=None, **changes):
    """Run a tool to the end, wait for a late result, and return the sink."""

    async def main():
        sink = RecordingSink()
        claim = claim_of(a_tool, args, **changes)
        late = await run(claim, a_tool, args, sink, stop or Stop(), host)
        if late is not None:
            await late
        return sink

    return asyncio.run(main())


def make(effect, function, **options):
    function.__doc__ = function.__doc__ or "Doc."
    return tool(effect=effect, name="t", **options)(function)


class Bench:
    """A working directory, and the tools that work in it."""

    def __init__(self, directory, state):
        self.directory = directory
        self.agent = default_agent(directory)
        self.blobs = BlobStore(state / "blobs")
        self.host = tool_host_of(self.agent, self.blobs, SideLogStore(state / "side_log"))
        self.calls = 0

    async def begin(self, name, sink, stop, attempt=1, **arguments):
        if attempt == 1:
            self.calls += 1
        args = json.dumps(arguments).encode()
        a_tool = self.agent.tool(name)
        refs = frozenset([arguments["ref"]] if "ref" in arguments else [])
        claim = claim_of(
            a_tool, args, index=self.calls, attempt=attempt, approval="none", refs=refs
        )
        await run(claim, a_tool, args, sink, stop, self.host)

    def event(self, name, **arguments):
        sink = RecordingSink()
        asyncio.run(self.begin(name, sink, Stop(), **arguments))
        return sink.only

    def ok(self, name, **arguments):
        event = self.event(name, **arguments)
        assert event.outcome == "ok", event
        return event.content.inline.decode()

    def failed(self, name, **arguments):
        event = self.event(name, **arguments)
        assert event.outcome == "error", event
        return event.content.inline.decode()

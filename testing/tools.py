"""Checks whether a tool has the effect that it declares, by running it as a worker would after a
crash.
"""

import json
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..log.blobs import BlobStore
from ..log.errors import Refused
from ..processors.limits import DEFAULT_LIMITS
from ..processors.tools import call as calls
from ..processors.tools.by_reference import demand_importable
from ..processors.tools.output_sink import Stop
from ..processors.tools.run import ToolHost
from ..processors.tools.side_log import SideLogStore
from ..processors.tools.tool import Tool, check_args
from ..schemas import events as ev
from ..schemas.enums import Effect
from .forgotten import awaited


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChecked:
    """The result of a check. `runs`: how often the tool ran, 0 for a `once` tool. `outcome` and
    `text`: the result, which was the same in each run; None and "" without a run.
    """

    effect: Effect
    runs: int
    outcome: str | None
    text: str


@awaited
async def check_tool(
    tool: Tool, arguments: dict[str, Any] | None = None, *, workdir: Path | None = None
) -> ToolChecked:
    """Run a pure or idempotent tool twice with one idempotency key, and check that the results are
    equal.

    A worker does the same with a call whose first run was lost in a crash. A `once` tool is not
    run: only its arguments are checked. Raises AssertionError with both results if the results
    differ, and Refused if the arguments do not fit the tool's schema.
    """
    if not isinstance(tool, Tool):
        raise Refused(f"check_tool needs a function with @tool, not {tool!r}")
    if tool.isolate:
        demand_importable(tool)
    raw = json.dumps(arguments or {}).encode()
    wrong = check_args(tool, raw)
    if wrong is not None:
        raise Refused(f"the arguments do not fit tool {tool.name}: {wrong}")
    if tool.effect is Effect.ONCE:
        return ToolChecked(effect=tool.effect, runs=0, outcome=None, text="")
    first, second = [await _run(tool, raw, attempt, workdir) for attempt in (1, 2)]
    if first != second:
        raise AssertionError(
            f"tool {tool.name} declares effect={tool.effect.value!r}, but its second run with the "
            f"same idempotency key gave {second[0]}: {second[1]!r} after {first[0]}: {first[1]!r}. "
            "After a crash a worker may run it twice. Make it return what the first run returned, "
            'or declare effect="once".'
        )
    return ToolChecked(effect=tool.effect, runs=2, outcome=first[0], text=first[1])


async def _run(tool: Tool, raw: bytes, attempt: int, workdir: Path | None) -> tuple[str, str]:
    """Run the tool once, independent of earlier runs, and return (outcome, text)."""
    sink = _Sink()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        host = ToolHost(
            limits=DEFAULT_LIMITS,
            blobs=BlobStore(directory / "blobs"),
            side_log=SideLogStore(directory / "side"),
            workdir=workdir,
        )
        claim = calls.ToolClaim(
            session_id="check",
            turn=1,
            step=1,
            index=0,
            attempt=attempt,
            name=tool.name,
            effect=tool.effect.value,
            approval="none",
            args_sha256=sha256(raw).hexdigest(),
            timeout_ms=tool.timeout_ms or DEFAULT_LIMITS.tool_timeout_ms,
        )
        await calls.run(claim, tool, raw, sink, Stop(), host)
        (event,) = sink.events
        content = event.content
        if content.ref is not None:
            return event.outcome, host.blobs.get(content.ref.sha256).decode("utf-8", "replace")
        return event.outcome, (content.inline or b"").decode("utf-8", "replace")


class _Sink:
    """A sink that keeps what a run reports."""

    def __init__(self) -> None:
        self.events: list[ev.ToolResult] = []

    def chunk(self, session_id: str, event: ev.GenChunk) -> None:
        raise AssertionError("a tool streams no chunks")

    async def outcome(self, session_id: str, event: Any) -> None:
        assert isinstance(event, ev.ToolResult), event
        self.events.append(event)

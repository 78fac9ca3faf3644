"""The agents of the crash tests: one tool of each kind, whose runs are recorded outside foldlog.

Every physical run of a tool is one line of the ledger. The line is fsynced before the tool
continues, so the run is known even if the worker dies. A test may order a tool to kill its own
worker. Worker processes load this file.
"""

import contextlib
import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.limits import Limits
from foldlog.processors.tools.context import ToolContext
from foldlog.processors.tools.tool import DidNotHappen, Happened, tool

MODEL = "claude-strictest"  # the scripted server gives an unknown name its strictest rules
CHEAP = "claude-cheapest"  # another unknown name; the model that makes summaries and short forms
HELPER, HASTY, KEEPER, BRIM, SIGNED = "helper", "hasty", "keeper", "brim", "signed"
# Crashes count as attempts, and a test kills many times: no call may run out of attempts.
CALM = Limits(model_attempts=50, tool_attempts=50)
# For sessions that compact. A step of two pages is over a tenth of soft_tokens; what a summary
# covers must be worth 2,000 tokens more (budget.SUMMARY_TOKENS), and the newest 12 messages stay.
SMALL = replace(
    CALM,
    background_attempts=50,
    soft_tokens=10_000,
    resume_tokens=5_000,
    short_tokens=800,
    hard_tokens=40_000,
)
TINY = replace(SMALL, soft_tokens=8_000, hard_tokens=9_000)
# For takeovers between workers, which wait for a deadline and the margin.
SHORT = replace(
    SMALL,
    start_window_ms=3_000,
    stall_timeout_ms=4_000,
    tool_timeout_ms=3_000,
    background_timeout_ms=3_000,
    margin_ms=1_000,
)
POLL_S = 0.01  # between two checks for a file that a test creates
BIG_BYTES = 150_000  # over the inline limit, so the result goes to the blob store
FILLER, FILLER_TOKENS = "word 12 ", 3  # fills pages and messages


class Ledger:
    """The record of the physical runs: one JSON line per run, in a file that any process may append
    to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "ledger"

    def note(self, name: str, ctx: ToolContext, **facts: Any) -> None:
        """Record that a tool runs now. The record is on disk when this returns."""
        run = {"session": ctx.session_id, "call": ctx.call_key, "attempt": ctx.attempt}
        line = json.dumps({"tool": name, **run, "pid": os.getpid(), **facts}) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line.encode())
            os.fsync(fd)
        finally:
            os.close(fd)

    def lines(self, name: str | None = None, **equal: Any) -> list[dict[str, Any]]:
        """The runs of a tool, oldest first, whose facts have these values."""
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            return []
        found = [json.loads(line) for line in text.splitlines()]
        return [
            run
            for run in found
            if (name is None or run["tool"] == name)
            and all(run[key] == value for key, value in equal.items())
        ]

    # -- orders of a test to the tools ------------------------------------------------------------

    def order_kill(self, place: str) -> None:
        """Order the next tool that reaches this place to kill its worker. `place`: `TOOL before` or
        `TOOL after`, that is, before or after the effect of the tool."""
        (self.directory / "die.new").write_text(place)
        os.replace(self.directory / "die.new", self.directory / "die")

    def cancel_kill(self) -> None:
        """Withdraw the order to kill."""
        (self.directory / "die").unlink(missing_ok=True)

    def kill_if_ordered(self, place: str) -> None:
        """Kill this process if a test ordered it for this place. Tools call this before and after
        their effect."""
        order = self.directory / "die"
        with contextlib.suppress(FileNotFoundError):
            if order.read_text() == place:
                order.unlink()  # if two calls run at once, only one of them kills
                os.kill(os.getpid(), signal.SIGKILL)

    def release(self, session_id: str) -> None:
        """Let the tools of a session that wait in `hold` or `slow_charge` continue."""
        (self.directory / f"go-{session_id}").touch()

    def is_released(self, session_id: str) -> bool:
        """Whether a test has released the tools of a session."""
        return (self.directory / f"go-{session_id}").exists()


def filled(head: str, tokens: int) -> str:
    """A text that begins with `head` and has about `tokens` tokens, whichever model counts them."""
    return f"{head} " + FILLER * (tokens // FILLER_TOKENS)


def agents(directory: Path) -> list[Agent]:
    """The agents of a worker whose tools record their runs in the ledger of this directory."""
    tools = _tools(Ledger(directory))
    limits = {HELPER: CALM, HASTY: SHORT, KEEPER: SMALL, BRIM: TINY, SIGNED: SMALL}
    common = {"model": MODEL, "system": "You are tested.", "tools": tools}
    return [
        Agent(
            name=name,
            limits=allowed,
            compaction=Compaction(model=CHEAP, provider=name == SIGNED),
            **common,
        )
        for name, allowed in limits.items()
    ]


def _tools(ledger: Ledger) -> tuple:
    def run(name: str, ctx: ToolContext, **facts: Any) -> None:
        ledger.kill_if_ordered(f"{name} before")
        ledger.note(name, ctx, **facts)
        ledger.kill_if_ordered(f"{name} after")

    def in_ledger(ctx: ToolContext, cents: int) -> Happened | DidNotHappen:
        found = ledger.lines("wire", session=ctx.session_id, call=ctx.call_key)
        return Happened({"wired": cents}) if found else DidNotHappen("no line in the ledger")

    @tool(effect="pure")
    async def look(ctx, where: str) -> str:
        """Looks somewhere."""
        run("look", ctx)
        return f"{where} is as it was"

    @tool(effect="pure")
    async def big(ctx) -> str:
        """Returns more than fits into an event."""
        run("big", ctx)
        return "many words " * (BIG_BYTES // len("many words "))

    @tool(effect="pure")
    async def read(ctx, tokens: int) -> str:
        """Reads a page of about that many tokens."""
        run("read", ctx)
        return filled(f"session:{ctx.session_id} read {ctx.call_key}", tokens)

    @tool(effect="idempotent")
    def put(ctx, text: str) -> str:
        """Puts a text in its place: the same place however often it runs."""
        run("put", ctx, key=ctx.idempotency_key)
        return f"put {text}"

    @tool(effect="once")
    def charge(ctx, cents: int) -> dict:
        """Takes money."""
        run("charge", ctx, cents=cents)
        return {"charged": cents}

    @tool(effect="once", approval="ask")
    async def pay(ctx, cents: int) -> dict:
        """Takes money, after a person has allowed it."""
        run("pay", ctx, cents=cents)
        return {"paid": cents}

    @tool(effect="once", timeout_s=1, reconciler=in_ledger)
    async def wire(ctx, cents: int) -> dict:
        """Moves money through a bank that can be asked what happened."""
        run("wire", ctx, cents=cents)
        return {"wired": cents}

    @tool(effect="pure")
    def hold(ctx) -> str:
        """Waits until the test releases it."""
        ledger.note("hold", ctx)
        _wait(ledger, ctx)
        return "held"

    @tool(effect="once")
    def slow_charge(ctx, cents: int) -> dict:
        """Takes money, then waits until the test releases it."""
        run("slow_charge", ctx, cents=cents)
        _wait(ledger, ctx)
        return {"charged": cents}

    return look, big, read, put, charge, pay, wire, hold, slow_charge


def _wait(ledger: Ledger, ctx: ToolContext) -> None:
    pause = threading.Event()
    began = time.monotonic()
    while not ledger.is_released(ctx.session_id) and not ctx.aborted:
        assert time.monotonic() - began < 600, "the test did not release the tool"
        pause.wait(POLL_S)

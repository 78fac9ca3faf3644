"""The agents of the crash tests: one tool of each kind, each with a witness beside foldlog.

Every physical run of a tool is one line of the ledger, fsynced before the tool goes on, so that
what happened is known whatever becomes of the worker. A tool may be told to kill its own worker.
This file is loaded by worker processes; it must not know how tests judge what it writes.
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
CHEAP = "claude-cheapest"  # another of those; it makes what grew too long shorter
HELPER, HASTY, KEEPER, BRIM, SIGNED = "helper", "hasty", "keeper", "brim", "signed"
# Crashes count as attempts, and a test kills many times: nothing may end for being used up.
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
LOOK_S = 0.01  # between two looks at a file that a test makes
BIG_BYTES = 150_000  # beyond the inline limit: the result goes through the blob store
FILLER, FILLER_TOKENS = "word 12 ", 3  # what fills a page or a message, and what it weighs


class Ledger:
    """Physical runs, one JSON line each, in a file that any process may append to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "ledger"

    def note(self, name: str, ctx: ToolContext, **facts: Any) -> None:
        """Say that a tool runs now; on disk when this returns."""
        run = {"session": ctx.session_id, "call": ctx.call_key, "attempt": ctx.attempt}
        line = json.dumps({"tool": name, **run, "pid": os.getpid(), **facts}) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line.encode())
            os.fsync(fd)
        finally:
            os.close(fd)

    def lines(self, name: str | None = None, **equal: Any) -> list[dict[str, Any]]:
        """The runs of a tool whose facts have the given values, oldest first."""
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

    # -- what a test tells the tools -------------------------------------------------------------

    def tell_to_die(self, place: str) -> None:
        """Have the next tool that comes to `TOOL before` or `TOOL after` kill its worker."""
        (self.directory / "die.new").write_text(place)
        os.replace(self.directory / "die.new", self.directory / "die")

    def let_live(self) -> None:
        """Take that back."""
        (self.directory / "die").unlink(missing_ok=True)

    def die_if_told(self, place: str) -> None:
        """Called by tools around their effect."""
        told = self.directory / "die"
        with contextlib.suppress(FileNotFoundError):
            if told.read_text() == place:
                told.unlink()  # two calls may run at once: only one kills
                os.kill(os.getpid(), signal.SIGKILL)

    def let_go(self, session_id: str) -> None:
        """Let the tools of a session that wait go on."""
        (self.directory / f"go-{session_id}").touch()

    def may_go(self, session_id: str) -> bool:
        """Whether a test has let go."""
        return (self.directory / f"go-{session_id}").exists()


def filled(head: str, tokens: int) -> str:
    """A text that begins with `head` and has about so many tokens, whoever estimates them."""
    return f"{head} " + FILLER * (tokens // FILLER_TOKENS)


def agents(directory: Path) -> list[Agent]:
    """The agents of a worker whose ledger lies in a directory."""
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
    def happens(name: str, ctx: ToolContext, **facts: Any) -> None:
        ledger.die_if_told(f"{name} before")
        ledger.note(name, ctx, **facts)
        ledger.die_if_told(f"{name} after")

    def in_ledger(ctx: ToolContext, cents: int) -> Happened | DidNotHappen:
        found = ledger.lines("wire", session=ctx.session_id, call=ctx.call_key)
        return Happened({"wired": cents}) if found else DidNotHappen("no line in the ledger")

    @tool(effect="pure")
    async def look(ctx, where: str) -> str:
        """Looks somewhere."""
        happens("look", ctx)
        return f"{where} is as it was"

    @tool(effect="pure")
    async def big(ctx) -> str:
        """Returns more than fits into an event."""
        happens("big", ctx)
        return "many words " * (BIG_BYTES // len("many words "))

    @tool(effect="pure")
    async def read(ctx, tokens: int) -> str:
        """Reads a page of about so many tokens."""
        happens("read", ctx)
        return filled(f"session:{ctx.session_id} read {ctx.call_key}", tokens)

    @tool(effect="idempotent")
    def put(ctx, text: str) -> str:
        """Puts a text in its place: the same place however often it runs."""
        happens("put", ctx, key=ctx.idempotency_key)
        return f"put {text}"

    @tool(effect="once")
    def charge(ctx, cents: int) -> dict:
        """Takes money."""
        happens("charge", ctx, cents=cents)
        return {"charged": cents}

    @tool(effect="once", approval="ask")
    async def pay(ctx, cents: int) -> dict:
        """Takes money, after a person has allowed it."""
        happens("pay", ctx, cents=cents)
        return {"paid": cents}

    @tool(effect="once", timeout_s=1, reconciler=in_ledger)
    async def wire(ctx, cents: int) -> dict:
        """Moves money through a bank that can be asked what happened."""
        happens("wire", ctx, cents=cents)
        return {"wired": cents}

    @tool(effect="pure")
    def hold(ctx) -> str:
        """Waits until the test lets go."""
        ledger.note("hold", ctx)
        _wait(ledger, ctx)
        return "held"

    @tool(effect="once")
    def slow_charge(ctx, cents: int) -> dict:
        """Takes money, then waits until the test lets go."""
        happens("slow_charge", ctx, cents=cents)
        _wait(ledger, ctx)
        return {"charged": cents}

    return look, big, read, put, charge, pay, wire, hold, slow_charge


def _wait(ledger: Ledger, ctx: ToolContext) -> None:
    pause = threading.Event()
    began = time.monotonic()
    while not ledger.may_go(ctx.session_id) and not ctx.aborted:
        assert time.monotonic() - began < 600, "nobody let go"
        pause.wait(LOOK_S)

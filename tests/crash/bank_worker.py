"""A worker with one `once` tool, whose bank can be asked what happened. The tool has an hour, so a
claim's deadline never passes within a test.

python bank_worker.py SETTINGS_JSON DIR
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

from foldlog.log import Settings
from foldlog.log.errors import FoldlogError
from foldlog.processors.agent import Agent
from foldlog.processors.tools.context import ToolContext
from foldlog.processors.tools.tool import DidNotHappen, Happened, tool
from foldlog.processors.worker import host
from foldlog.tests.crash.agents import MODEL, Ledger
from foldlog.tests.kit.programs import end
from foldlog.tests.kit.waiting import PATIENCE_S

BANK, HOUR_S, POLL_S = "bank", 3_600, 0.01


def agent_of(directory: Path) -> Agent:
    """The agent. Its tool pays at once, and then waits until its session is released."""
    ledger = Ledger(directory)

    def what_happened(ctx: ToolContext, cents: int) -> Happened | DidNotHappen:
        paid = ledger.lines("wire", session=ctx.session_id)
        seen = (directory / "seen").exists()
        ledger.note("asked", ctx, seen=seen)
        return Happened({"wired": cents}) if paid and seen else DidNotHappen("not yet")

    @tool(effect="once", timeout_s=HOUR_S, reconciler=what_happened)
    def wire(ctx: ToolContext, cents: int) -> dict:
        """Pays."""
        ledger.note("wire", ctx, cents=cents)
        until = time.monotonic() + PATIENCE_S
        while not ledger.is_released(ctx.session_id) and time.monotonic() < until:
            Event().wait(POLL_S)
        return {"wired": cents}

    return Agent(name=BANK, model=MODEL, tools=(wire,))


class BankWorker:
    """The worker as a process, with a state directory of its own in the stage's directory."""

    def __init__(self, stage, name: str) -> None:
        flags = stage.flags | {"state_dir": str(stage.directory / name)}
        self.command = [sys.executable, __file__, json.dumps(flags), str(stage.directory)]
        self.log = stage.directory / f"{name}.log"
        self.start()

    def start(self) -> None:
        """Start the process, in place of the one before."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self.process.kill()
        self.process.wait(PATIENCE_S)


@contextlib.contextmanager
def bank_workers(stage, *names: str) -> Iterator[dict[int, BankWorker]]:
    """Run a worker for each name. Yields them by the id of their process."""
    workers = [BankWorker(stage, name) for name in names]
    try:
        yield {worker.process.pid: worker for worker in workers}
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                end(worker.process)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s: %(message)s")
    settings = Settings.load({}, None, json.loads(sys.argv[1]))
    try:
        return host.run(settings, [agent_of(Path(sys.argv[2]))])
    except FoldlogError as error:
        print(f"{os.getpid()} {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())

"""demo: runs a real agent and broker, and kills the worker twice without losing anything.

It prints what the log contained at each kill, and what the next worker did and why. At the end it
refolds every view from offset 0 and compares the result with the worker's stores. The agent works
in a temporary directory, which the demo deletes.
"""

import json
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...client.log_client import LogClient
from ...client.session import Session
from ...client.transcript_stream import INITIAL, Dropped, Settled, Token, Viewer, see
from ...local.kafka import Broker
from ...local.messages_api import spawn
from ...log import Settings, environment
from ...processors.effects.models.client import host_of
from ...processors.fold.projections.turn_view import find_call
from ...processors.fold.sessions import FoldedEvent
from ...processors.wake.budget import Rules
from ...processors.wake.facts import wake
from ...processors.wake.table import BY_ID
from ...reports.replay import verify
from ...schemas import events as ev
from ...schemas.topics import topics

SESSION = "demo"
PATIENCE_S = 120.0  # without any event; a real model may think for a while
CHUNKS_BEFORE_KILL = 8  # enough to see that an answer was under way
PACE_S = 0.04  # between two words of the scripted model, so that a kill lands mid-answer
HELD_S = 30  # the command sleeps after its side effect, so that a kill lands inside it


class DemoFailed(Exception):
    """The demo did not run as scripted. The message states where it diverged."""


def main(base: Settings, directory: Path, print_line: Callable[[str], None] = print) -> int:
    """Run the demo on a directory and return its exit code. Raises the errors of `foldlog up`."""
    with tempfile.TemporaryDirectory(prefix="foldlog-demo-") as scratch:
        home = Path(scratch)
        print_line("foldlog demo: an agent works on " + str(directory))
        broker = Broker(
            dir=home / "kafka",
            cache_dir=base.cache_dir,
            preferred_port=None,
            env=environment.for_children(environment.JAVA),
        )
        print_line("\n1. A real Kafka, from pinned jars, for this demo alone")
        broker.up(lambda line: print_line("   " + line))
        try:
            return _with_model(base, home, directory, broker.bootstrap_servers, print_line)
        except DemoFailed as failure:
            print_line(f"\nThe demo failed: {failure}. The end of the worker's log:")
            print_line((home / "worker.log").read_text("utf-8", "replace")[-2_000:])
            return 1
        finally:
            broker.down()


def _with_model(base: Settings, home: Path, directory: Path, servers: str, print_line) -> int:
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("FOLDLOG_", "KAFKA_"))},
        "FOLDLOG_HOME": str(home),
        "FOLDLOG_CACHE_DIR": str(base.cache_dir),
        "KAFKA_BOOTSTRAP_SERVERS": servers,
    }
    if base.api_key:
        print_line(f"   ANTHROPIC_API_KEY is set: the model answers at {host_of(base.base_url)}")
        return _run_scenes(env, home, directory, None, print_line)
    journal = home / "requests.jsonl"
    server_env = environment.for_children()
    with spawn("demo", journal=journal, pace_s=PACE_S, env=server_env) as server:
        print_line(f"   no ANTHROPIC_API_KEY: a scripted model answers at {server.base_url}")
        env |= {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "scripted"}
        return _run_scenes(env, home, directory, journal, print_line)


def _run_scenes(
    env: dict[str, str], home: Path, directory: Path, journal: Path | None, print_line
) -> int:
    settings = Settings.load(env, None, {})
    with LogClient(settings, channel="demo") as client, open(home / "worker.log", "wb") as errors:
        client.log.apply_topics(topics(settings.partitions, settings.replication))
        worker = environment.start_process(
            [sys.executable, "-m", "foldlog.cli", "worker", "--supervise"],
            env=env,
            cwd=directory,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
        try:
            narrator = Narrator(client, settings, print_line)
            ledger = home / "ledger.txt"
            _kill_inside_a_tool(narrator, ledger)
            _kill_inside_an_answer(narrator)
            _sum_up(narrator, ledger, journal)
        finally:
            worker.terminate()
            worker.wait()
        return _compare(client, settings, print_line)


class Narrator:
    """Follows the session and prints its events."""

    def __init__(self, client: LogClient, settings: Settings, print_line) -> None:
        self.client, self.session = client, Session(client, SESSION, chunks=False)
        self.settings = settings
        self.print_line = print_line
        self.viewer: Viewer = INITIAL
        self.text_parts: list[str] = []
        self.answer = ""
        self.folded = client.fold(SESSION, chunks=True)

    def until(self, wanted: Callable[[FoldedEvent], bool]) -> FoldedEvent:
        """Print events up to the wanted event and return that event.

        Raises DemoFailed after PATIENCE_S without an event.
        """
        for step in self._steps():
            self._print(step)
            if step.ruling.accepted and wanted(step):
                return step
        raise DemoFailed(f"no event of the session arrived for {PATIENCE_S:.0f} s")

    def _steps(self) -> Iterator[FoldedEvent]:
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < PATIENCE_S:
            for step in self.folded.poll():
                quiet_since = time.monotonic()
                yield step

    def _print(self, step: FoldedEvent) -> None:
        self.viewer, things = see(self.viewer, step, self.client.read_blob)
        for thing in things:
            match thing:
                case Token(kind="text"):
                    self.text_parts.append(thing.text)
                case Dropped():
                    self.text_parts.clear()
                case Settled():
                    self.answer, self.text_parts = "".join(self.text_parts), []
        line = _line(step)
        if line:
            self.print_line(f"   {step.entry.offset:>4}  {line}")

    def worker_pid(self) -> int:
        """The pid of the process that has locked the state directory."""
        note = json.loads((self.settings.state_dir / "worker.json").read_text("utf-8"))
        return note["pid"]

    def kill(self) -> None:
        """Kill the worker with SIGKILL."""
        pid = self.worker_pid()
        os.kill(pid, signal.SIGKILL)
        self.print_line(f"\n   >>> kill -9 {pid}: the worker is dead, and its memory is lost\n")

    def explain(self, step: FoldedEvent) -> None:
        """Print the rows of WAKE for which the new worker wrote this event."""
        later = max(self.folded.newest_ms, time.time_ns() // 1_000_000)
        for owed in wake(step.before, self.folded.holders, later, Rules()):
            why = BY_ID[owed.row].why
            self.print_line(f"         why: WAKE row {owed.row} owed {owed.owed}: {why}")


def _line(step: FoldedEvent) -> str:
    """One event as a line of text; empty for unimportant events."""
    event = step.entry.event
    name = {True: "", False: f" [{step.ruling.code}: changes nothing]"}[step.ruling.accepted]
    match event:
        case ev.MessageReceived():
            return "MESSAGE_RECEIVED" + name
        case ev.LlmCalled():
            return f"LLM_CALLED turn {event.turn}, step {event.step}{name}"
        case ev.GenStart():
            return f"GEN_START attempt {event.attempt} by {event.owner}{name}"
        case ev.GenResumed():
            return f"GEN_RESUMED attempt {event.attempt} by {event.owner}: {event.strategy}{name}"
        case ev.GenComplete():
            return f"GEN_COMPLETE {event.stop_reason}, {len(event.calls)} calls{name}"
        case ev.ToolInvoked():
            return f"TOOL_INVOKED {event.name} ({event.effect}, approval {event.approval}){name}"
        case ev.ApprovalDecided():
            return f"APPROVAL_DECIDED {event.decision}{name}"
        case ev.ToolStarted():
            return f"TOOL_STARTED attempt {event.attempt} by {event.owner}{name}"
        case ev.ToolResult():
            return f"TOOL_RESULT {event.outcome}, {event.bytes} bytes{name}"
        case ev.ToolFailedUncertain():
            return f"TOOL_FAILED_UNCERTAIN: {event.reason}{name}"
        case ev.HumanNeeded():
            return f"HUMAN_NEEDED: {event.why}{name}"
        case ev.HumanResolved():
            return f"HUMAN_RESOLVED {event.outcome}{name}"
        case ev.TurnEnded():
            return f"TURN_ENDED {event.reason}{name}"
    return ""


def _kill_inside_a_tool(narrator: Narrator, ledger: Path) -> None:
    narrator.print_line("\n2. A question. The agent may run one command, and only once")
    command = f"echo visited >> {shlex.quote(str(ledger))} && sleep {HELD_S}"
    narrator.session.say(
        "Look around this project: list the directory, read what describes it, search for TODO. "
        f"Then run `{command}` exactly once, and tell me in some detail what this project is.",
    )
    invoked = narrator.until(_is(ev.ToolInvoked, approval="ask")).entry.event
    call = f"{invoked.turn}.{invoked.step}.{invoked.index}"
    row = find_call(narrator.folded.views.turn, invoked.turn, invoked.step, invoked.index)
    assert row is not None
    narrator.print_line(f"         it asks to run: {(row.args.inline or b'').decode()}")
    narrator.session.approve(call)
    started = narrator.until(_is(ev.ToolStarted, index=invoked.index, step=invoked.step))
    _await(lambda: ledger.exists() and ledger.read_text() == "visited\n", "the side effect")
    narrator.print_line(f"         the side effect has happened: {ledger.name} has 1 line")
    narrator.kill()
    pending = started.views.state.pending_tool
    narrator.print_line(f"         the log knew: pending_tool = {pending}")
    narrator.explain(narrator.until(_is(ev.ToolFailedUncertain)))
    needed = narrator.until(_is(ev.HumanNeeded))
    doubt = needed.entry.event.call
    narrator.print_line(f"         it did not run the command again; call {doubt} is in doubt")
    lines = ledger.read_text().count("\n")
    narrator.print_line(f"         a person checks: the ledger has {lines} line, so it happened")
    narrator.session.resolve(call, happened=f"the ledger has {lines} line")


def _kill_inside_an_answer(narrator: Narrator) -> None:
    narrator.print_line("\n3. The answer streams, and its worker is killed in the middle")
    chunk_counts: dict[tuple[int, int], int] = {}

    def is_mid_answer(step: FoldedEvent) -> bool:
        event = step.entry.event
        if not isinstance(event, ev.GenChunk) or event.kind != "text":
            return False
        place = (event.step, event.attempt)
        chunk_counts[place] = chunk_counts.get(place, 0) + 1
        return chunk_counts[place] >= CHUNKS_BEFORE_KILL

    chunk = narrator.until(is_mid_answer)
    partial = "".join(narrator.text_parts)
    narrator.kill()
    narrator.print_line(f"         a viewer had received {len(partial)} characters of attempt 1")
    narrator.explain(narrator.until(_is(ev.GenResumed)))
    narrator.print_line(
        "         the partial answer is dropped; the new worker starts it again, by `replace`"
    )
    ended = narrator.until(_is(ev.TurnEnded))
    if ended.entry.event.reason != "end_turn":
        raise DemoFailed(f"the turn ended with {ended.entry.event.reason}, not end_turn")
    assert chunk.entry.offset < ended.entry.offset


def _sum_up(narrator: Narrator, ledger: Path, journal: Path | None) -> None:
    narrator.print_line("\n4. The result")
    transcript = narrator.folded.views.transcript.lines
    answers = [line for line in transcript if line.kind == "answer"]
    blocks = json.loads((answers[-1].body and answers[-1].body.inline) or b"[]")
    text = "".join(block.get("text", "") for block in blocks)
    if narrator.answer != text:
        raise DemoFailed("the viewer's text differs from the answer in the log")
    lines = ledger.read_text().count("\n")
    if lines != 1:
        raise DemoFailed(f"the command ran {lines} times")
    narrator.print_line("\n" + "\n".join("   | " + line for line in text.splitlines()) + "\n")
    narrator.print_line(
        f"   the answer arrived whole: {len(text)} characters, exactly what the viewer got\n"
        "   the side effect happened once, although the worker was killed in the middle of it"
    )
    usage = narrator.folded.views.ledger
    read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    cached = f"{read} ({usage.cache_read_tokens} of them from the cache)"
    tokens = f"tokens in {cached}, out {usage.output_tokens}"
    narrator.print_line(f"   {tokens}, in {len(usage.spent)} attempts that reported their usage")
    if journal is not None:
        facts = [json.loads(line) for line in journal.read_text("utf-8").splitlines()]
        calls = sum(1 for fact in facts if fact["kind"] == "accepted")
        narrator.print_line(f"   the model server's own journal counts {calls} requests")


def _compare(client: LogClient, settings: Settings, print_line) -> int:
    print_line("\n5. Every view, refolded from offset 0, against the stores the workers left")
    differences: list[Any] = []
    for found in verify(client.log, settings):
        if found.problem:
            differences.append(found.problem)
        if found.sessions:
            place = f"partition {found.partition}, up to offset {found.cursor}"
            print_line(f"   {place}: {found.sessions} session")
        differences += found.differences
    if differences:
        print_line(f"   DIFFERENT: {differences}")
        return 1
    print_line("   equal, byte for byte")
    print_line(
        "\nTry next: foldlog dev, then foldlog chat in a second terminal; README.md has the rest."
    )
    return 0


def _is(kind: type, **fields: Any) -> Callable[[FoldedEvent], bool]:
    def wanted(step: FoldedEvent) -> bool:
        event = step.entry.event
        return isinstance(event, kind) and all(getattr(event, k) == v for k, v in fields.items())

    return wanted


def _await(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            raise DemoFailed(f"{what} did not happen within {PATIENCE_S:.0f} s")
        time.sleep(0.02)

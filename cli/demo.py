"""The demo: a real agent on a real directory and broker, its worker killed twice, nothing lost.

It tells what the log knew at each kill, what the next worker did and why, and ends by comparing
every view with one folded anew from offset 0. It lives in a directory of its own and cleans up.
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

from ..consumers.client import Client
from ..consumers.replay import verify
from ..consumers.transcript_stream import INITIAL, Dropped, Settled, Token, Viewer, see
from ..local.kafka import Broker
from ..local.messages_api import spawn
from ..log import Settings, environment
from ..processors.effects.models.client import host_of
from ..processors.fold.projections.turn_view import find_call
from ..processors.fold.sessions import FoldedEvent
from ..processors.wake.facts import Rules, wake
from ..processors.wake.table import BY_ID
from ..schemas import events as ev
from ..schemas.topics import topics

SESSION = "demo"
PATIENCE_S = 120.0  # for one part of the story; a real model may think for a while
CHUNKS_BEFORE_KILL = 8  # enough to see that an answer was under way
PACE_S = 0.04  # between two words of the scripted model, so that a kill lands in the middle
HELD_S = 30  # the command sleeps after its side effect, so that a kill lands inside it


class DemoFailed(Exception):
    """The story took another course; the message says where."""


def main(base: Settings, directory: Path, say: Callable[[str], None] = print) -> int:
    """Run the demo on a directory; 0 if everything held. Raises what `foldlog up` raises."""
    with tempfile.TemporaryDirectory(prefix="foldlog-demo-") as scratch:
        home = Path(scratch)
        say("foldlog demo: an agent works on " + str(directory))
        broker = Broker(
            dir=home / "kafka",
            cache_dir=base.cache_dir,
            preferred_port=None,
            env=environment.for_children(environment.JAVA),
        )
        say("\n1. A real Kafka, from pinned jars, for this demo alone")
        broker.up(lambda line: say("   " + line))
        try:
            return _with_model(base, home, directory, broker.bootstrap_servers, say)
        except DemoFailed as failure:
            say(f"\nThe demo did not go as it should: {failure}")
            say((home / "worker.log").read_text("utf-8", "replace")[-2_000:])
            return 1
        finally:
            broker.down()


def _with_model(base: Settings, home: Path, directory: Path, servers: str, say) -> int:
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("FOLDLOG_", "KAFKA_"))},
        "FOLDLOG_HOME": str(home),
        "FOLDLOG_CACHE_DIR": str(base.cache_dir),
        "KAFKA_BOOTSTRAP_SERVERS": servers,
    }
    if base.api_key:
        say(f"   ANTHROPIC_API_KEY is set: the model answers at {host_of(base.base_url)}")
        return _story(env, home, directory, None, say)
    journal = home / "requests.jsonl"
    shown = environment.for_children()
    with spawn("demo", journal=journal, pace_s=PACE_S, env=shown) as server:
        say(f"   no ANTHROPIC_API_KEY: a scripted model answers, from {server.base_url}")
        env |= {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "scripted"}
        return _story(env, home, directory, journal, say)


def _story(env: dict[str, str], home: Path, directory: Path, journal: Path | None, say) -> int:
    settings = Settings.load(env, None, {})
    with Client(settings, channel="demo") as client, open(home / "worker.log", "wb") as errors:
        client.log.apply_topics(topics(settings.partitions))
        worker = environment.start_process(
            [sys.executable, "-m", "foldlog.cli", "worker", "--supervise"],
            env=env,
            cwd=directory,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
        try:
            teller = Teller(client, settings, say)
            ledger = home / "ledger.txt"
            _kill_inside_a_tool(teller, ledger)
            _kill_inside_an_answer(teller)
            _sum_up(teller, ledger, journal)
        finally:
            worker.terminate()
            worker.wait()
        return _compare(client, settings, say)


class Teller:
    """Follows the session and says what happens."""

    def __init__(self, client: Client, settings: Settings, say) -> None:
        self.client = client
        self.settings = settings
        self.say = say
        self.viewer: Viewer = INITIAL
        self.shown: list[str] = []
        self.answer = ""
        self.folded = client.fold(SESSION, chunks=True)

    def until(self, wanted: Callable[[FoldedEvent], bool]) -> FoldedEvent:
        """Tell what comes until an event is the wanted one. Raises DemoFailed when it does not."""
        for seen in self._seen():
            self._tell(seen)
            if seen.ruling.accepted and wanted(seen):
                return seen
        raise DemoFailed(f"nothing more came for {PATIENCE_S:.0f} s")

    def _seen(self) -> Iterator[FoldedEvent]:
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < PATIENCE_S:
            for seen in self.folded.poll():
                quiet_since = time.monotonic()
                yield seen

    def _tell(self, seen: FoldedEvent) -> None:
        self.viewer, things = see(self.viewer, seen, self.client.read_blob)
        for thing in things:
            match thing:
                case Token(kind="text"):
                    self.shown.append(thing.text)
                case Dropped():
                    self.shown.clear()
                case Settled():
                    self.answer, self.shown = "".join(self.shown), []
        line = _line(seen)
        if line:
            self.say(f"   {seen.entry.offset:>4}  {line}")

    def worker_pid(self) -> int:
        """The process that holds the state directory."""
        note = json.loads((self.settings.state_dir / "worker.json").read_text("utf-8"))
        return note["pid"]

    def kill(self) -> None:
        """SIGKILL the worker, then say what the log knows and what WAKE will make of it."""
        pid = self.worker_pid()
        os.kill(pid, signal.SIGKILL)
        self.say(f"\n   >>> kill -9 {pid}: the worker is gone, and all that it knew with it\n")

    def explain(self, seen: FoldedEvent) -> None:
        """Say which row of WAKE the new worker read, that made it write this event."""
        later = max(self.folded.newest_ms, time.time_ns() // 1_000_000)
        for owed in wake(seen.before, self.folded.holders, later, Rules()):
            why = BY_ID[owed.row].why
            self.say(f"         why: WAKE row {owed.row} owed {owed.owed}: {why}")


def _line(seen: FoldedEvent) -> str:
    """One event in words; empty for those that would only be noise."""
    event = seen.entry.event
    name = {True: "", False: f" [{seen.ruling.code}: changes nothing]"}[seen.ruling.accepted]
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


def _kill_inside_a_tool(teller: Teller, ledger: Path) -> None:
    teller.say("\n2. A question. The agent may run one command, and that only once")
    command = f"echo visited >> {shlex.quote(str(ledger))} && sleep {HELD_S}"
    teller.client.say(
        SESSION,
        "Look around this project: list the directory, read what describes it, search for TODO. "
        f"Then run `{command}` exactly once, and tell me in some detail what this project is.",
    )
    asked = teller.until(_is(ev.ToolInvoked, approval="ask")).entry.event
    call = f"{asked.turn}.{asked.step}.{asked.index}"
    shown = find_call(teller.folded.views.turn, asked.turn, asked.step, asked.index)
    assert shown is not None
    teller.say(f"         it asks to run: {(shown.args.inline or b'').decode()}")
    teller.client.decide(SESSION, call, "allow")
    started = teller.until(_is(ev.ToolStarted, index=asked.index, step=asked.step))
    _await(lambda: ledger.exists() and ledger.read_text() == "visited\n", "the side effect")
    teller.say(f"         the side effect has happened: {ledger.name} has 1 line")
    teller.kill()
    pending = started.views.state.pending_tool
    teller.say(f"         the log knew: pending_tool = {pending}")
    teller.explain(teller.until(_is(ev.ToolFailedUncertain)))
    needed = teller.until(_is(ev.HumanNeeded))
    doubt = needed.entry.event.call
    teller.say(f"         it did not run the command again; call {doubt} is in doubt")
    lines = ledger.read_text().count("\n")
    teller.say(f"         a person looks: the ledger has {lines} line, so it happened")
    teller.client.resolve(SESSION, call, "happened", report=f"the ledger has {lines} line")


def _kill_inside_an_answer(teller: Teller) -> None:
    teller.say("\n3. The answer streams, and its worker is killed in the middle")
    counted: dict[tuple[int, int], int] = {}

    def under_way(seen: FoldedEvent) -> bool:
        event = seen.entry.event
        if not isinstance(event, ev.GenChunk) or event.kind != "text":
            return False
        place = (event.step, event.attempt)
        counted[place] = counted.get(place, 0) + 1
        return counted[place] >= CHUNKS_BEFORE_KILL

    seen = teller.until(under_way)
    partial = "".join(teller.shown)
    teller.kill()
    teller.say(f"         a viewer had seen {len(partial)} characters of attempt 1")
    teller.explain(teller.until(_is(ev.GenResumed)))
    teller.say("         the half answer is put away; the new worker begins it anew, by `replace`")
    ended = teller.until(_is(ev.TurnEnded))
    if ended.entry.event.reason != "end_turn":
        raise DemoFailed(f"the turn ended: {ended.entry.event.reason}")
    assert seen.entry.offset < ended.entry.offset


def _sum_up(teller: Teller, ledger: Path, journal: Path | None) -> None:
    teller.say("\n4. What came of it")
    kept = teller.folded.views.transcript.lines
    answers = [line for line in kept if line.kind == "answer"]
    whole = json.loads((answers[-1].body and answers[-1].body.inline) or b"[]")
    text = "".join(block.get("text", "") for block in whole)
    if teller.answer != text:
        raise DemoFailed("what the viewer saw is not what the log kept")
    lines = ledger.read_text().count("\n")
    if lines != 1:
        raise DemoFailed(f"the command ran {lines} times")
    teller.say("\n" + "\n".join("   | " + line for line in text.splitlines()) + "\n")
    teller.say(f"   the answer arrived whole: {len(text)} characters, the viewer saw just these")
    teller.say("   the side effect happened once, although its worker was killed inside it")
    spent = teller.folded.views.ledger
    read = spent.input_tokens + spent.cache_read_tokens + spent.cache_write_tokens
    cached = f"{read} ({spent.cache_read_tokens} of them from the cache)"
    tokens = f"tokens in {cached}, out {spent.output_tokens}"
    teller.say(f"   {tokens}, in {len(spent.spent)} attempts that reported their usage")
    if journal is not None:
        facts = [json.loads(line) for line in journal.read_text("utf-8").splitlines()]
        calls = sum(1 for fact in facts if fact["kind"] == "accepted")
        teller.say(f"   the model server's own journal counts {calls} requests")


def _compare(client: Client, settings: Settings, say) -> int:
    say("\n5. Every view, folded anew from offset 0, against the stores the workers left")
    differences: list[Any] = []
    for found in verify(client.log, settings):
        if found.problem:
            differences.append(found.problem)
        if found.sessions:
            place = f"partition {found.partition}, up to offset {found.cursor}"
            say(f"   {place}: {found.sessions} session")
        differences += found.differences
    if differences:
        say(f"   DIFFERENT: {differences}")
        return 1
    say("   equal, byte for byte")
    say("\nTry next: foldlog dev, then foldlog chat in a second terminal; README.md has the rest.")
    return 0


def _is(kind: type, **fields: Any) -> Callable[[FoldedEvent], bool]:
    def wanted(seen: FoldedEvent) -> bool:
        event = seen.entry.event
        return isinstance(event, kind) and all(getattr(event, k) == v for k, v in fields.items())

    return wanted


def _await(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            raise DemoFailed(f"{what} did not come within {PATIENCE_S:.0f} s")
        time.sleep(0.02)

"""Histories that together read and write every item of the matrix at every point."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from foldlog.local.messages_api import Reply, Request, ScriptedServer
from foldlog.processors.agent import Agent
from foldlog.tests.kit import history as histories
from foldlog.tests.processors.memory.memory_log import new_log, serving
from foldlog.tests.processors.wake.matrix.outside import (
    layers_for,
    remember_for,
    todos_for,
    tools_used,
    written_by,
)
from foldlog.tests.processors.wake.matrix.recording import RecordingHistory, Touched
from foldlog.tests.symptoms.by_background import (
    AGENT,
    LIMITS,
    cheap_model,
    claimed_kinds,
    long_result,
    run_work,
    talk,
    use,
)


def opened(agent: Agent = AGENT) -> RecordingHistory:
    """A session whose reads and writes are recorded."""
    return histories.opened(agent=agent, kind=RecordingHistory)


def with_tools() -> RecordingHistory:
    """A session with approved and unapproved calls, reminders, a cancel, and a doubt that a person
    resolves."""
    history = opened()
    history.say("go")
    history.answer(use("look"), use("charge", "b"), use("post", "c"))
    history.allow("1.1.1", remember=True)
    history.work()
    history.result("1.1.0", "seen", reminders=("look twice",))
    history.result("1.1.1", "paid")
    history.uncertain("1.1.2")
    history.work()
    history.resolve("1.1.2", "happened", "it was sent")
    history.answer(use("look", "d"))
    history.say("stop", when_busy="steer")
    history.cancel()
    history.result("1.2.0", "seen", "cancelled", reminders=("for the next turn",))
    history.work()
    history.answer("ok")
    return history


def run_all_work(history: RecordingHistory, server: ScriptedServer, directory: Path) -> None:
    """Run background work until no work is claimed."""
    while claimed_kinds(history):
        run_work(history, server, directory)
        history.work()


def shortened(server: ScriptedServer, directory: Path) -> RecordingHistory:
    """A session with a short form that is too late for its first request, and is adopted after a
    pause."""
    history = opened()
    history.say("look")
    history.answer(use())
    long_result(history)
    history.work()
    run_all_work(history, server, directory)
    history.answer("there", read=7_000)
    history.later(3_600_000)
    history.say("I am back")
    history.answer("hello")
    return history


def compacted(server: ScriptedServer, directory: Path) -> RecordingHistory:
    """A session with a summary that is made during a turn and adopted at the turn's next step."""
    history = opened()
    talk(history, 8, tokens=900)
    history.say("look again")
    history.answer(use(), read=LIMITS.soft_tokens + 1)
    assert claimed_kinds(history) == ["context"]
    run_work(history, server, directory)
    history.result("9.1.0", "seen")
    history.answer("done", read=3_000)
    return history


def resumed(server: ScriptedServer, directory: Path) -> RecordingHistory:
    """A session with a summary that is made while the session is idle; the next message adopts the
    summary."""
    history = opened()
    talk(history, 10)
    assert claimed_kinds(history) == ["resume"]
    run_all_work(history, server, directory)
    history.later(3_600_000)
    history.say("I am back")
    history.answer(use())
    history.result("11.1.0", "seen")
    history.work()
    return history


def failing() -> RecordingHistory:
    """A session with a failed attempt, a stopped attempt, and a request over the hard cap."""
    history = opened()
    history.say("go")
    history.work()
    history.chunk()
    history.fail()
    history.later(60_000)
    history.work()
    history.stopped("half")
    history.answer(use())
    history.result("1.1.0", "seen " * LIMITS.hard_tokens)
    history.later(100_000)
    history.work()
    assert history.end_reason() == "budget_exceeded"
    return history


def rememberer(request: Request) -> Reply:
    """A model that extracts one memory."""
    return Reply(['[{"kind":"core","text":"Ana likes tea."}]'])


def remembering(directory: Path) -> RecordingHistory:
    """A session with instruction files and memory in the prompt; tools and background work use
    memory and todos."""
    (directory / "FOLDLOG.md").write_text("Run the tests.")
    log = new_log()
    with serving(log, directory / "state") as memory, ScriptedServer(rememberer) as server:
        history = opened(replace(AGENT, memory=True, workdir=directory))
        history.read_layers = layers_for(memory, lambda field: history.reads.add(("A", field)))
        history.read_todos = todos_for(memory, lambda field: history.reads.add(("A", field)))
        tools_used(memory, directory, lambda field: history.reads.add(("D", field)))
        history.writes |= {("D", field) for field in written_by(log, "tools")}
        history.say("I like tea")
        history.answer(use())
        history.result("1.1.0", "seen")
        history.answer("Good.")
        assert claimed_kinds(history) == ["memory"]

        remember = remember_for(memory, lambda field: history.reads.add(("H", field)))
        run_work(history, server, directory, remember)
        history.writes |= {("H", field) for field in written_by(log, "background")}
    return history


class Recorded(NamedTuple):
    """The reads and writes of all histories. built: the fields that the request builder read."""

    reads: Touched
    writes: Touched
    built: set[str]


def everything(directory: Path) -> Recorded:
    """Play all histories, and return what they read and wrote."""
    with ScriptedServer(cheap_model) as server:
        played = [play(server, directory) for play in (shortened, compacted, resumed)]
    played += [with_tools(), failing(), remembering(directory)]
    names = Recorded._fields
    return Recorded(*(set().union(*(getattr(h, name) for h in played)) for name in names))

"""Extraction does not write what memory says already, also when it runs again after a kill."""

import asyncio
import json
from functools import partial

import pytest

from foldlog.log.blobs import BlobStore
from foldlog.processors.agent import Agent
from foldlog.processors.effects import background as effect
from foldlog.processors.memory.extraction import extract, extracted_events, new_entries
from foldlog.processors.memory.fold import text_of
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.wake.background_tasks import Task
from foldlog.tests.laws import answers
from foldlog.tests.laws.blobs import MemoryBlobs
from foldlog.tests.processors.memory.desk import (
    ANA,
    NOON,
    folded,
    new_log,
    retired,
    serving,
    writer_of,
    wrote,
)

METRIC = {"kind": "core", "text": "Ana prefers metric units."}
SEA = {"kind": "core", "text": "Ana lives by the sea."}
AT = 1_000_000  # the log in memory has its own clock: day one of 1970


@pytest.fixture
def memory(tmp_path):
    with serving(new_log(), tmp_path / "state") as service:
        yield service


@pytest.fixture
def work(memory, monkeypatch, tmp_path):
    """The extraction of a turn that ended at an offset, by a model that answers with a list."""

    def run(offset, *items, keep=None, attempt=1):
        async def generate(call, request, sink, stop, client, **more):
            block = json.dumps({"type": "text", "text": json.dumps(items)})
            await sink.outcome("s", answers.complete((0, 0, 1), [block], "end_turn", MemoryBlobs()))

        async def client():
            """No model is asked."""

        monkeypatch.setattr(effect.models, "generate", generate)
        claim, sink = effect.WorkClaim("s", "memory", offset, attempt, AT), effect.OutcomeSink([])
        asyncio.run(effect.work(
            claim, Task(b"{}", "cheap", 0, scope=ANA), Agent(name="a", model="m"), sink, Stop(),
            client, blobs=BlobStore(tmp_path), remember=keep or partial(memory.keep, at=AT),
        ))
        (done,) = sink.outcomes
        return done

    return run


def core(memory):
    assert memory.caught_up(10)
    return text_of(memory.reader.view(ANA), "core.md")


def test_S1_H_a_fact_that_every_turn_brings_again_is_remembered_once(memory, work):
    first, *later = [work(offset, METRIC) for offset in (10, 20, 30, 40)]
    assert core(memory) == "Ana prefers metric units.\n"
    assert (first.ok, first.why) == (True, "")
    assert {(done.ok, done.why) for done in later} == {
        (True, "1 of 1 entries were already known")
    }
    done = work(50, {"kind": "x", "text": "x"}, METRIC, SEA)
    assert core(memory).endswith("by the sea.\n")
    assert done.ok and done.why.startswith("1 of 2 entries were already known; entry 0: its kind")


def test_law_3_an_extraction_that_was_killed_before_it_was_reported_knows_its_own(memory, work):
    class Killed(Exception):
        """The worker dies."""

    def dies(scope, events):
        memory.keep(scope, events[:1], AT)
        raise Killed

    with pytest.raises(Killed):
        work(10, METRIC, SEA, keep=dies)
    done = work(10, METRIC, SEA, attempt=2)
    assert (done.ok, done.why) == (True, "")
    assert core(memory) == "Ana prefers metric units.\nAna lives by the sea.\n"
    assert work(10, SEA, METRIC, attempt=3).ok
    assert core(memory) == "Ana prefers metric units.\nAna lives by the sea.\n"


def test_S1_H_where_nothing_was_found_memory_is_not_asked(work):
    done = work(10, keep=lambda scope, events: 1 / 0)
    assert (done.ok, done.why) == (True, "")


def test_S1_H_what_a_person_wrote_is_not_written_beside_it(memory, work):
    writer_of(memory._log).remember(ANA, "core.md", "Ana\n  ANA prefers   metric units\nOslo")
    assert work(10, METRIC).why == "1 of 1 entries were already known"


@pytest.mark.parametrize("text", ["ana prefers  Metric units", "Ana prefers metric units!"])
def test_case_spaces_and_the_last_mark_make_no_other_fact(text):
    view = folded([wrote("a", "Ana prefers metric units.")])
    assert new_entries(of({"kind": "core", "text": text}), view, NOON) == []
    assert len(extract(json.dumps([METRIC, METRIC | {"text": text}]), "s", 1, ANA).events) == 1


def of(*items):
    return extracted_events(json.dumps(items), "s", 1, ANA)


def test_only_what_the_same_file_says_now_is_known():
    told = "Uses C++."
    note, decision = {"kind": "note", "text": told}, {"kind": "decision", "text": told}
    held = [wrote("a", told, "daily"), wrote("b", "Uses C.", "core.md")]
    assert new_entries(of(note), folded(held), NOON) == []
    assert len(new_entries(of(note), folded(held), NOON + 86_400_000)) == 1, "another day"
    assert len(new_entries(of(decision), folded(held), NOON)) == 1, "another file"
    assert len(new_entries(of({"kind": "core", "text": told}), folded(held), NOON)) == 1
    gone = folded([*held, retired("a")])
    assert len(new_entries(of(note), gone, NOON)) == 1

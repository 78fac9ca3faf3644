"""Extraction does not write what memory already contains, not even when the extraction is
retried."""

import asyncio
import json
from functools import partial

import pytest

from foldlog.log.blobs import BlobStore
from foldlog.processors.agent import Agent
from foldlog.processors.effects import background as effect
from foldlog.processors.memory.extraction import extract, new_entries
from foldlog.processors.memory.fold import text_of
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.wake.background_tasks import Task
from foldlog.tests.kit import answers
from foldlog.tests.kit.blobs import MemoryBlobs
from foldlog.tests.processors.memory.memory_log import (
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
AT = 1_000_000  # by the clock of the in-memory log: the first day of 1970


@pytest.fixture
def memory(tmp_path):
    with serving(new_log(), tmp_path / "state") as service:
        yield service


@pytest.fixture
def extract_turn(memory, monkeypatch, tmp_path):
    """Run the extraction of a turn that ended at an offset. `items`: the model's answer."""

    def run(offset, *items, keep=None, attempt=1):
        async def generate(call, request, sink, stop, client, **more):
            block = json.dumps({"type": "text", "text": json.dumps(items)})
            await sink.outcome("s", answers.complete((0, 0, 1), [block], "end_turn", MemoryBlobs()))

        async def client():
            """A client that must not be needed: no model is called."""

        monkeypatch.setattr(effect.models, "generate", generate)
        claim, sink = effect.WorkClaim("s", "memory", offset, attempt, AT), effect.OutcomeSink([])
        asyncio.run(effect.work(
            claim, Task(b"{}", "cheap", 0, scope=ANA), Agent(name="a", model="m"), sink, Stop(),
            client, blobs=BlobStore(tmp_path), remember=keep or partial(memory.keep, at=AT),
        ))
        (outcome,) = sink.outcomes
        return outcome

    return run


def core(memory):
    assert memory.await_caught_up(10)
    return text_of(memory.reader.view(ANA), "core.md")


def test_S1_H_a_fact_extracted_from_every_turn_is_written_once(memory, extract_turn):
    first, *later = [extract_turn(offset, METRIC) for offset in (10, 20, 30, 40)]
    assert core(memory) == "Ana prefers metric units.\n"
    assert (first.ok, first.why) == (True, "")
    assert {(outcome.ok, outcome.why) for outcome in later} == {
        (True, "1 of 1 entries were already known")
    }
    outcome = extract_turn(50, {"kind": "x", "text": "x"}, METRIC, SEA)
    assert core(memory).endswith("by the sea.\n")
    why = "1 of 2 entries were already known; entry 0: its kind"
    assert outcome.ok and outcome.why.startswith(why)


def test_law_3_a_retried_extraction_recognizes_its_own_entries(memory, extract_turn):
    class Killed(Exception):
        """Stands for the death of the worker."""

    def write_one_and_die(scope, events):
        memory.keep(scope, events[:1], AT)
        raise Killed

    with pytest.raises(Killed):
        extract_turn(10, METRIC, SEA, keep=write_one_and_die)
    outcome = extract_turn(10, METRIC, SEA, attempt=2)
    assert (outcome.ok, outcome.why) == (True, "")
    assert core(memory) == "Ana prefers metric units.\nAna lives by the sea.\n"
    assert extract_turn(10, SEA, METRIC, attempt=3).ok
    assert core(memory) == "Ana prefers metric units.\nAna lives by the sea.\n"


def test_S1_H_without_entries_memory_is_not_read(extract_turn):
    outcome = extract_turn(10, keep=lambda scope, events: 1 / 0)
    assert (outcome.ok, outcome.why) == (True, "")


def test_S1_H_a_fact_that_a_person_wrote_is_not_written_again(memory, extract_turn):
    writer_of(memory._log).remember(ANA, "core.md", "Ana\n  ANA prefers   metric units\nOslo")
    assert extract_turn(10, METRIC).why == "1 of 1 entries were already known"


@pytest.mark.parametrize("text", ["ana prefers  Metric units", "Ana prefers metric units!"])
def test_case_spaces_and_final_punctuation_are_ignored(text):
    view = folded([wrote("a", "Ana prefers metric units.")])
    assert new_entries(events_of({"kind": "core", "text": text}), view, NOON) == []
    assert len(extract(json.dumps([METRIC, METRIC | {"text": text}]), "s", 1, ANA).events) == 1


def events_of(*items):
    return extract(json.dumps(items), "s", 1, ANA).events


def test_only_current_entries_of_the_same_file_are_known():
    text = "Uses C++."
    note, decision = {"kind": "note", "text": text}, {"kind": "decision", "text": text}
    entries = [wrote("a", text, "daily"), wrote("b", "Uses C.", "core.md")]
    assert new_entries(events_of(note), folded(entries), NOON) == []
    assert len(new_entries(events_of(note), folded(entries), NOON + 86_400_000)) == 1, "another day"
    assert len(new_entries(events_of(decision), folded(entries), NOON)) == 1, "another file"
    assert len(new_entries(events_of({"kind": "core", "text": text}), folded(entries), NOON)) == 1
    without = folded([*entries, retired("a")])
    assert len(new_entries(events_of(note), without, NOON)) == 1

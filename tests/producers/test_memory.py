"""The write side of memory: each call is validated, writes one event, and takes effect once."""

import pytest

from foldlog.log import LOST_ACK, Faults
from foldlog.log.errors import LogUnreachable
from foldlog.processors.memory.fold import open_todos, text_of
from foldlog.producers import Invalid
from foldlog.producers.memory import MemoryWriter, NotWritten
from foldlog.schemas.codec import decode
from foldlog.schemas.topics import MEMORY_EVENTS
from foldlog.tests.processors.memory.memory_log import ANA, SHOP, new_log
from foldlog.upkeep.memory import read_memory


class LostAcknowledgements(Faults):
    """A fault: the broker stores every record but acknowledges none."""

    def fate(self, *_):
        return LOST_ACK


@pytest.fixture
def log():
    return new_log()


@pytest.fixture
def writer(log):
    return MemoryWriter(log.producer(), "ana")


def test_S0_8_each_call_writes_its_event_with_its_scope_as_the_key(log, writer):
    calls = {
        "MemoryWritten": writer.remember(ANA, "daily", "met Bo", source=("s-1", 7)),
        "MemoryRetired": writer.retire(ANA, "e1", "wrong"),
        "PreferenceSet": writer.set_preference("ana", "tone", "dry"),
        "TodoAdded": writer.add_todo("shop", "paint it"),
        "TodoMarked": writer.done_todo("shop", "t1"),
    }
    for name, written in calls.items():
        record = log.records(MEMORY_EVENTS, written.partition)[written.offset]
        assert type(decode(record.value)).__name__ == name
        assert record.key == written.scope.encode() and record.header("w") == b"producer"
        assert record.header("m") is None


def test_law_3_repeated_calls_without_acknowledgement_take_effect_once(log, writer):
    writer._ack_s = 0.05
    log.faults = LostAcknowledgements()
    for _ in range(2):
        with pytest.raises(NotWritten, match="It may or may not be in the log. Repeat the command"):
            writer.remember(ANA, "core.md", "likes tea")
        with pytest.raises(LogUnreachable):
            writer.add_todo("shop", "paint it")
    assert text_of(read_memory(log, ANA).now, "core.md") == "likes tea\n"
    assert [todo.text for todo in open_todos(read_memory(log, SHOP).now)] == ["paint it"]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda w: w.remember("ana", "core.md", "x"), "a scope is user:ID or project:ID"),
        (lambda w: w.remember("team:a", "core.md", "x"), "a scope is user:ID or project:ID"),
        (lambda w: w.remember(ANA, "../core.md", "x"), "memory lies in core.md"),
        (lambda w: w.remember(ANA, "core.md", "x" * 8_193), "at most 8192"),
        (lambda w: w.remember(ANA, "core.md", "half \ud800"), "not valid UTF-8"),
        (lambda w: w.remember(ANA, "core.md", "x", entry_id="a b"), "entry_id must be"),
        (lambda w: w.remember(ANA, "core.md", "x", source=("s 1", 1)), "source session must be"),
        (lambda w: w.retire(ANA, "", "x"), "entry_id must be"),
        (lambda w: w.set_preference("ana", "tone", "x" * 501), "at most 500"),
        (lambda w: w.add_todo("shop", "  "), "an empty todo"),
        (lambda w: w.add_todo("shop/x", "y"), "project_id must be"),
        (lambda w: w.mark_todo("shop", "t1", "finished"), "one of open, done, dropped"),
    ],
)
def test_invalid_input_is_refused_before_anything_is_produced(log, writer, call, why):
    with pytest.raises(Invalid, match=why):
        call(writer)
    assert all(not log.records(MEMORY_EVENTS, p) for p in range(2))


def test_the_fold_accepts_all_that_the_producer_accepts(log, writer):
    """The producer and the fold validate. If only the fold refused an event, the caller would
    believe that it was accepted."""
    for text in ("", "\n", " ", "a\tb", "\u05e9\u05dc\u05dd", "x" * 8_192, "\u2028", "\u0085"):
        writer.remember(ANA, "archive/a.md", text)
    writer.set_preference("ana", "n" * 128, "x" * 500)
    writer.add_todo("shop", "x" * 1_000)
    assert read_memory(log, ANA).now.refused == read_memory(log, SHOP).now.refused == 0
    assert len(read_memory(log, ANA).now.entries) == 8

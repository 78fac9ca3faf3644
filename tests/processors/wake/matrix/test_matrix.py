"""S1: the read/write matrix equals the reads and writes of the code, and has the specified cells.

The histories record their reads and writes field by field; the tests fail on a missing cell and on
a superfluous one.
"""

import pytest

from foldlog.processors.fold.projections.background import KINDS
from foldlog.processors.fold.views import initial
from foldlog.processors.wake.matrix import (
    ABORT_FACTS,
    ABORT_LANES,
    BUCKETS,
    BY_KIND,
    DECIDED_AT,
    ITEMS,
    POINTS,
    WRITTEN_AT,
    Item,
)
from foldlog.processors.wake.table import WAKE
from foldlog.schemas.events import BY_NAME
from foldlog.tests.processors.wake.matrix.recording import VIEWS, Recorder, Touched
from foldlog.tests.processors.wake.matrix.scenes import Recorded, everything

LETTERS = "".join(point.letter for point in POINTS)

# The specified cells. An item of the matrix that lacks one says why.
SPECIFIED = {
    "messages": {"A": "R", "G": "W", "H": "R"},
    "compaction checkpoint": {"A": "R", "G": "W"},
    "cumulative usage": {"G": "W"},
    "last step tokens": {"A": "W", "B": "R", "G": "R"},
    "abort signal": {"A": "W", "B": "R", "D": "R", "E": "R", "H": "R"},
    "compaction cache": {"A": "W", "B": "R", "E": "W"},
    "reminders": {"A": "R", "B": "RW", "D": "W"},
    "todos": {"A": "R", "B": "R", "D": "RW", "F": "R"},
    "resume summary": {"A": "R", "H": "W"},
    "auto memory": {"A": "R", "H": "W"},
    "instruction files": {"A": "R"},
}
STARTS = ("LLM_CALLED", "GEN_START", "GEN_RESUMED", "TOOL_STARTED", "BACKGROUND_STARTED", "begin")


@pytest.fixture(scope="module")
def touched(tmp_path_factory) -> Recorded:
    """The reads and writes of all histories."""
    return everything(tmp_path_factory.mktemp("matrix"))


def cells(item: Item, reads: Touched, writes: Touched) -> dict[str, str]:
    """The recorded cells of an item, in the form of the matrix."""
    recorded = {}
    for letter in LETTERS:
        read = any((letter, field) in reads for field in item.kept_in)
        wrote = any((letter, field) in writes for field in item.kept_in)
        if read or wrote:
            recorded[letter] = "R" * read + "W" * wrote
    return recorded


def aborts() -> Touched:
    """The points at which WAKE reads the abort signal. A lane counts if every row that starts work
    in it depends on the signal."""
    found = set()
    for lane, letters in ABORT_LANES.items():
        rows = [row for row in WAKE if row.lane == lane and row.owed in STARTS]
        assert rows
        if all((False,) in (row.when.get(fact) for fact in ABORT_FACTS) for row in rows):
            found |= {(letter, "turn.closing") for letter in letters}
    return found


@pytest.mark.parametrize("item", ITEMS, ids=[item.name for item in ITEMS])
def test_S1_the_matrix_equals_the_reads_and_writes_of_the_code(item, touched):
    reads, writes, _ = touched
    assert cells(item, reads | aborts(), writes) == item.cells


def test_law_11_a_request_is_built_from_the_context_and_compaction_views_only(touched):
    """Each field that the builder reads must be written at a point other than the builder's own."""
    assert {field.split(".")[0] for field in touched.built} == {"context", "compaction"}
    producers = {"context.fragments": "DG", "context.prefixes": "A", "compaction.shorts": "E"}
    for field, letters in producers.items():
        assert field in touched.built
        assert {(letter, field) for letter in letters} <= touched.writes


@pytest.mark.parametrize("name", SPECIFIED)
def test_S1_the_matrix_has_every_specified_cell_or_says_why_not(name):
    (item,) = [item for item in ITEMS if item.name == name]
    missing = {
        point
        for point, marks in SPECIFIED[name].items()
        if not set(marks) <= set(item.cells.get(point, ""))
    }
    assert missing == item.why_not.keys() and all(item.why_not.values())


@pytest.mark.parametrize("item", ITEMS, ids=[item.name for item in ITEMS])
def test_S1_every_item_has_a_bucket_a_writer_and_a_reader(item):
    marks = "".join(item.cells.values())
    assert item.bucket in BUCKETS
    assert "R" in marks or "read by" in item.others
    assert "W" in marks or "written by" in item.others


def test_S1_every_bucket_is_used_and_item_names_are_unique():
    assert {item.bucket for item in ITEMS} == set(BUCKETS)
    assert len({item.name for item in ITEMS}) == len(ITEMS)


def test_S1_every_event_and_every_kind_of_work_has_a_point():
    assert set(WRITTEN_AT) == set(BY_NAME) and set(BY_KIND) == set(KINDS)
    used = [where if isinstance(where, str) else "" for where in WRITTEN_AT.values()]
    assert set("".join([*used, *DECIDED_AT.values(), *BY_KIND.values()])) <= set(LETTERS)


def test_S1_the_fields_that_a_property_reads_are_recorded():
    reads = set()
    assert Recorder(initial("s1"), reads.add).compaction.candidate is None
    assert reads == {"compaction.candidate_at", "compaction.summaries"}


def test_S1_every_field_of_the_matrix_exists():
    views = initial("s1")
    fields = {f"{view}.{field}" for view in VIEWS
              for field in getattr(getattr(views, view), "__struct_fields__", ())}
    outside = {"memory.entries", "memory.todos", "files"}
    assert {field for item in ITEMS for field in item.kept_in} <= fields | outside


@pytest.mark.parametrize(
    ("name", "touch"),
    [
        ("reminders", ("C", "turn.reminders")),
        ("last step tokens", ("E", "context.tail_tokens")),
        ("auto memory", ("B", "memory.entries")),
    ],
)
def test_S1_a_read_or_write_outside_the_matrix_is_found(touched, name, touch):
    reads, writes, _ = touched
    (item,) = [item for item in ITEMS if item.name == name]
    assert cells(item, reads | {touch}, writes) != item.cells
    assert cells(item, reads, writes | {touch}) != item.cells


@pytest.mark.parametrize("item", [i for i in ITEMS if i.name != "abort signal"],
                         ids=[i.name for i in ITEMS if i.name != "abort signal"])
def test_S1_a_cell_without_reads_and_writes_is_found(touched, item):
    reads, writes, _ = touched
    for letter in item.cells:
        fewer = {pair for pair in reads | writes if pair[0] == letter and pair[1] in item.kept_in}
        assert cells(item, reads - fewer, writes - fewer) != item.cells

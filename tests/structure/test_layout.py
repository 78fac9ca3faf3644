"""A changed fold needs a new LAYOUT; otherwise, a worker would continue from views of the old
fold."""

from collections.abc import Iterable
from hashlib import sha256

import pytest

from foldlog.processors.store.store import FOLDS, LAYOUT
from foldlog.tests.structure.tree import Source, room_sources, shape

FOLD = "processors/fold/"


def folds_of(sources: Iterable[Source]) -> str:
    """16 hex digits that identify the code below processors/fold/."""
    parts = sorted((s.path, shape(s.tree)) for s in sources if s.path.startswith(FOLD))
    return sha256(repr(parts).encode()).hexdigest()[:16]


def test_a_changed_fold_gets_a_new_layout():
    found = folds_of(room_sources())
    assert found == FOLDS, (
        f"{FOLD} is not the code of LAYOUT {LAYOUT}. Can a log fold to other views now, or be "
        f"stored differently? Then set LAYOUT = {LAYOUT + 1} in processors/store/store.py: workers "
        "refold instead of continuing from views of the old fold. If not (a rename, an order of "
        f'definitions), leave LAYOUT as it is. In both cases set FOLDS = "{found}" beside it.'
    )


BEFORE = '''
"""A fold."""
from .rows import Rows

class View(Value):
    """A view."""
    lines: int = 0

def apply(view: View, entry):
    return replace(view, lines=view.lines + 1)
'''


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ('"""A fold."""', '"""A fold of lines."""', True),
        ("from .rows import Rows", "from ..rows import Rows\nimport json", True),
        ("entry):", "entry: Entry) -> View:  # pure", True),
        ("lines + 1", "lines + 2", False),
        ("lines: int", "lines: float", False),
        ("    return", "    if entry.late:\n        return view\n    return", False),
    ],
)
def test_only_a_change_of_the_code_changes_the_hash_of_the_folds(old, new, is_same):
    assert old in BEFORE
    before, after = (folds_of([Source(f"{FOLD}x.py", text)]) for text in (
        BEFORE, BEFORE.replace(old, new)
    ))
    assert (before == after) is is_same


def test_a_file_elsewhere_is_not_part_of_the_folds():
    assert folds_of([Source("processors/wake/x.py", BEFORE)]) == folds_of([])

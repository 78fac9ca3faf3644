"""The events that a fork inherits get offsets below its SESSION_OPENED; no field is missed."""

from typing import get_args, get_type_hints

import pytest

from foldlog.processors.fold import inherited
from foldlog.processors.fold.views import SessionViews
from foldlog.schemas.value import Value

RESET = {  # views that begin empty in a fork
    "TurnView", "Stream", "LedgerView", "BackgroundView", "DeliveryView", "Frozen", "Origin",
    "Sent", "SessionState",
}
MOVED = {
    ("ContextView", "request"), ("Request", "offset"), ("Request", "checkpoint"),
    ("Request", "compacted_upto"), ("Fragment", "offset"), ("Prefix", "offset"),
    ("Line", "offset"), ("Received", "offset"), ("Progress", "offset"),
    ("Batch", "offset"), ("Retraction", "offset"),
    ("Short", "offset"), ("Summary", "offset"), ("Summary", "upto"),
    ("CompactionView", "candidate_at"), ("CompactionView", "checkpoint_at"),
    ("CompactionView", "compacted_upto"),
}
PLACES = ("offset", "upto", "checkpoint", "candidate_at", "checkpoint_at", "basis", "epoch")
NO_PLACE = {("ContextView", "answered_at")}


def values_in(kind, found):
    """Every Value class in the fields of a type."""
    for part in (kind, *get_args(kind)):
        if isinstance(part, type) and issubclass(part, Value) and part not in found:
            found.add(part)
            for hint in get_type_hints(part).values():
                values_in(hint, found)
        elif part is not kind:
            values_in(part, found)
    return found


def test_every_field_with_an_offset_is_moved_or_reset_in_a_fork():
    kinds = values_in(SessionViews, set())
    assert {kind.__name__ for kind in kinds} >= {"Fragment", "Short", "Batch", "Line"}
    inherited_kinds = [kind for kind in kinds if kind.__name__ not in RESET]
    found = {
        (kind.__name__, name)
        for kind in inherited_kinds
        for name in kind.__struct_fields__
        if any(place in name for place in PLACES)
    }
    reset = [kind for kind in kinds if kind.__name__ in RESET]
    inside_reset = {inner.__name__ for kind in reset for inner in values_in(kind, set())}
    found = {place for place in found if place[0] not in inside_reset}
    assert found - MOVED - NO_PLACE == set(), "say in fold/inherited.py what a fork makes of it"


@pytest.mark.parametrize("offset", [-1, 0, 41, 42])
def test_inherited_offsets_keep_their_order_below_minus_one(offset):
    below = inherited.below(offset, last=42)
    assert below < -1
    assert (below < inherited.below(42, 42)) == (offset < 42)

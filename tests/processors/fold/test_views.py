"""The table of views is complete, and a replay and `foldlog show` use every view in the table."""

import importlib
import pkgutil

import pytest

from foldlog.client import show
from foldlog.processors.fold import projections
from foldlog.processors.fold.rows import Rows
from foldlog.processors.fold.views import VIEWS, SessionViews, initial
from foldlog.processors.store.views_codec import VIEW_NAMES, view_hashes
from foldlog.schemas.value import replace

OTHER_FIELDS = {"session_id", "stream", "frozen", "origin", "skipped", "replaced"}
"""The fields of SessionViews that are stored with the turn view."""

FIELDS = [(view, name) for view in VIEWS for name in type(view.initial()).__struct_fields__]


def test_every_field_of_the_views_is_in_the_table_or_stored_with_the_turn():
    assert [view.field for view in VIEWS] == [
        name for name in SessionViews.__struct_fields__ if name not in OTHER_FIELDS
    ]


def test_every_projection_that_reads_events_is_in_the_table():
    names = [module.name for module in pkgutil.iter_modules(projections.__path__)]
    modules = [importlib.import_module(f"{projections.__name__}.{name}") for name in names]
    reads = {module.READS for module in modules if hasattr(module, "READS")}
    assert reads == {view.reads for view in VIEWS if view.reads}


@pytest.mark.parametrize(("view", "field"), FIELDS, ids=lambda v: getattr(v, "name", v))
def test_a_replay_compares_every_field_of_every_view(view, field):
    views = initial("s1")
    value = getattr(views, view.field)
    other = Rows(["other"]) if isinstance(getattr(value, field), Rows) else "other"
    changed = replace(views, **{view.field: replace(value, **{field: other})})
    before, after = view_hashes(views), view_hashes(changed)
    assert [name for name in VIEW_NAMES if before[name] != after[name]] == [view.name]


def test_show_prints_every_view():
    assert set(show.VIEWS) == {*(view.field for view in VIEWS), "wake"}

"""Crash points have no effect until one is armed, and the code reaches exactly the listed
points."""

import ast
from pathlib import Path

import pytest

from foldlog.processors import crash_points
from foldlog.processors.worker.loop import WROTE
from foldlog.tests.conftest import ROOT

ROLES_OF_OUTCOMES = ("models", "tools", "background", "delivery")


@pytest.fixture
def killed():
    """The kills that an armed point would have executed. Disarms every point after the test."""
    kills: list[str] = []
    yield kills
    crash_points.disarm()


def test_an_unarmed_point_does_nothing():
    for name in crash_points.POINTS:
        crash_points.reach(name)


def test_a_point_kills_once_at_the_nth_time(killed):
    crash_points.arm("models.chunk:3", lambda: killed.append("now"))
    for times in range(1, 6):
        crash_points.reach("models.chunk")
        crash_points.reach("tools.kept")
        assert killed == (["now"] if times >= 3 else [])


def test_arming_replaces_the_armed_point(killed):
    crash_points.arm("fold.done:1", lambda: killed.append("first"))
    crash_points.arm("store.written", lambda: killed.append("second"))
    crash_points.reach("fold.done")
    crash_points.reach("store.written")
    assert killed == ["second"]


@pytest.mark.parametrize("at", ["nowhere:1", "fold.done:0", "fold.done:x", "fold.done:-1", ""])
def test_an_invalid_point_is_rejected(at, killed):
    with pytest.raises(ValueError):
        crash_points.arm(at)


def _reached(path: Path) -> set[str]:
    """The point names that a file passes to `reach`; an f-string with a role gives one name per
    role."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "reach":
            continue
        for part in ast.walk(node.args[0]):
            match part:
                case ast.JoinedStr(values=[ast.FormattedValue(), ast.Constant(value=str(end))]):
                    names |= {role + end for role in ROLES_OF_OUTCOMES}
                case ast.Constant(value=str(name)) if "." in name.strip("."):
                    names.add(name)
    return names


def test_the_code_reaches_exactly_the_listed_points():
    found = set(WROTE.values())
    for path in (ROOT / "processors").rglob("*.py"):
        found |= _reached(path)
    assert found == set(crash_points.POINTS)

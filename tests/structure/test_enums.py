"""A role, an action or a status is compared with a member of its enum, never with a string, so that
mypy finds every reader of a renamed member."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "adapters", "cli", "client", "log", "processors", "producers", "reports", "testing", "upkeep",
    "web",
)
HOLD_A_MEMBER = {
    "approval", "decision", "effect", "outcome", "owed", "recovery", "resolution", "role", "status",
    "verdict", "via", "when_busy",
}
"""Attributes of events and views that hold a member of an enum."""

SPEAKERS = {"user", "assistant"}
"""The roles of a message are words of the model's API, and no enum."""

OWN_WORDS = {
    "cli/commands/memory.py": "the status of a todo is the model's own word",
    "reports/exports/audit.py": "an attempt without an outcome has ''",
    "reports/exports/vercel.py": "an approval that expired is shown as a decision",
    "web/inspector/cards.py": "a row of the ledger has the outcome of any paid attempt",
    "web/gateway/routes/ai_sdk.py": "the states of a tool part are words of the AI SDK's stream",
    "web/protocols/ai_sdk/stream.py": "the states of a tool part are words of the AI SDK's stream",
}
"""Files that compare other words, with the reason."""


def literals(node: ast.expr) -> list[str]:
    each = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    values = [part.value for part in each if isinstance(part, ast.Constant)]
    return [word for word in values if isinstance(word, str) and word and word not in SPEAKERS]


def compared_with_strings(source: str) -> list[str]:
    """The comparisons, and the subjects of `match`, that test a member with a string."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            holds = any(isinstance(s, ast.Attribute) and s.attr in HOLD_A_MEMBER for s in sides)
            if holds and any(text for side in sides for text in literals(side)):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.Match) and isinstance(node.subject, ast.Attribute):
            values = [m for case in node.cases for m in ast.walk(case.pattern)]
            tested = [m for m in values if isinstance(m, ast.MatchValue) and literals(m.value)]
            if node.subject.attr in HOLD_A_MEMBER and tested:
                found.append(f"{node.lineno}: match {ast.unparse(node.subject)}")
    return found


def test_no_role_action_or_status_is_compared_with_a_string():
    found = []
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name not in OWN_WORDS:
            found += [f"{name}:{each}" for each in compared_with_strings(path.read_text())]
    assert found == []


@pytest.mark.parametrize("name", OWN_WORDS)
def test_each_exception_is_needed(name):
    assert compared_with_strings((ROOT / name).read_text())


@pytest.mark.parametrize(
    "source",
    [
        "call.status == 'asks'",
        "'begin' != owed.owed",
        "call.status in ('doubt', 'done')",
        "match owed.role:\n    case 'tools':\n        pass",
    ],
)
def test_a_string_is_found(source):
    assert len(compared_with_strings(source)) == 1

"""A role, an action or a status is compared with a member of its enum, never with a string, so that
mypy finds every reader of a renamed member."""

import ast

import pytest

from foldlog.tests.structure.tree import Source, python_sources

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


def compared_with_strings(source: Source) -> list[str]:
    """The comparisons, and the subjects of `match`, that test a member with a string."""
    found = []
    for node in ast.walk(source.tree):
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
    for source in python_sources():
        if source.room in ROOMS and source.path not in OWN_WORDS:
            found += [f"{source.path}:{each}" for each in compared_with_strings(source)]
    assert found == []


def test_each_exception_is_needed():
    needed = [one.path for one in python_sources() if one.path in OWN_WORDS
              and compared_with_strings(one)]  # fmt: skip
    assert needed == sorted(OWN_WORDS)


@pytest.mark.parametrize(
    "text",
    [
        "call.status == 'asks'",
        "'begin' != owed.owed",
        "call.status in ('doubt', 'done')",
        "match owed.role:\n    case 'tools':\n        pass",
    ],
)
def test_a_string_is_found(text):
    assert len(compared_with_strings(Source("log/x.py", text))) == 1

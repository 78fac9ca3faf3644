"""Finds waits without an end in tests, by syntax: pure functions from a source to findings."""

import ast
from collections.abc import Iterator

from foldlog.tests.structure.tree import Source

HELPERS = ("tests/kit/waiting.py", "tests/kit/programs.py", "tests/limits.py")

ENDLESS = {"wait", "join", "communicate"}
RUNS = {"run", "call", "check_call", "check_output"}
POLLS = {"sleep", "poll", "wait", "is_alive", "is_set", "readline", "recv", "select"}
LIMITS = {"wait_for", "timeout", "timeout_at", "until", "until_async", "within"}
CLOCKS = {"monotonic", "time", "perf_counter"}


def wait_findings(source: Source) -> Iterator[str]:
    """Finds `wait()`, `join()` and `communicate()` without a limit, programs run without
    `timeout=`, pipes read without a limit, and loops that sleep or poll without a deadline."""
    yield from _within(source.path, source.tree, limited=False)


def _within(path: str, node: ast.AST, limited: bool) -> Iterator[str]:
    if isinstance(node, (ast.With, ast.AsyncWith)):
        limited = limited or any(_name(item.context_expr) in LIMITS for item in node.items)
    elif isinstance(node, ast.Call):
        limited = limited or _name(node) in LIMITS
        if not limited and (what := _endless(node)):
            yield f"{path}:{node.lineno}: {what}"
    elif isinstance(node, ast.While) and not limited and _polls(node) and not _has_clock(node):
        yield f"{path}:{node.lineno}: a loop that polls without a deadline"
    for child in ast.iter_child_nodes(node):
        yield from _within(path, child, limited)


def _endless(call: ast.Call) -> str | None:
    if not isinstance(call.func, ast.Attribute):
        return None
    name, given = call.func.attr, {keyword.arg for keyword in call.keywords}
    if name in ENDLESS and not call.args and not given:
        return f"{name}() without a limit"
    on = ast.unparse(call.func.value)
    if on == "subprocess" and name in RUNS and "timeout" not in given:
        return f"subprocess.{name} without timeout="
    if name in ("readline", "read") and on.endswith(("stdout", "stderr")):
        return f"{on}.{name}() without a limit"
    return None


def _polls(loop: ast.While) -> bool:
    return any(
        isinstance(node, ast.Call) and _name(node) in POLLS for node in ast.walk(loop)
    )


def _has_clock(loop: ast.While) -> bool:
    """Whether the loop reads a clock itself, to end at a deadline."""
    return any(
        isinstance(node, ast.Call) and _name(node) in CLOCKS for node in ast.walk(loop)
    )


def _name(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")

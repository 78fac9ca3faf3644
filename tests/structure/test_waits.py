"""No test waits without an end."""

import pytest

from foldlog.tests.structure.tree import Source, demand_none, python_sources
from foldlog.tests.structure.waits import HELPERS, wait_findings

# File -> the reason why its waits need no deadline of their own.
EXCEPTIONS: dict[str, str] = {
    "tests/kit/forked.py": "it starts programs until its stdin closes, as its parent ends",
    "tests/crash/zygote.py": "it reads orders until its stdin closes, as its parent ends",
}


def test_no_test_waits_without_an_end():
    demand_none(
        finding
        for source in python_sources()
        if source.path.startswith("tests/")
        and source.path not in HELPERS and source.path not in EXCEPTIONS
        for finding in wait_findings(source)
    )


def test_every_exception_is_needed():
    sources = {source.path: source for source in python_sources()}
    assert [path for path in EXCEPTIONS if not list(wait_findings(sources[path]))] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("process.wait()", 1),
        ("thread.join()", 1),
        ("thread.join(5)", 0),
        ("', '.join(words)", 0),
        ("process.communicate(timeout=5)", 0),
        ("subprocess.run(['true'])", 1),
        ("subprocess.run(['true'], timeout=5)", 0),
        ("line = process.stdout.readline()", 1),
        ("while not path.exists():\n    time.sleep(0.1)", 1),
        ("while time.monotonic() < end:\n    time.sleep(0.1)", 0),
        ("while True:\n    if reader.poll(1.0): break", 1),
        ("async def f():\n    await event.wait()", 1),
        ("async def f():\n    await asyncio.wait_for(event.wait(), 5)", 0),
        ("async def f():\n    async with asyncio.timeout(5):\n        await event.wait()", 0),
    ],
)
def test_planted_waits_are_found(line, expected):
    assert len(list(wait_findings(Source("tests/x.py", line + "\n")))) == expected

"""`tail` prints one readable line per event, for any content and on any terminal."""

import re
from dataclasses import MISSING, fields
from typing import Any

import pytest
from hypothesis import given, strategies as st

from foldlog.cli.terminal import event_lines
from foldlog.cli.terminal.event_lines import event_line, words
from foldlog.schemas import events as ev
from foldlog.schemas.codec import ChunkSeen, Entry, Unreadable
from foldlog.schemas.enums import ChunkKind
from foldlog.schemas.events import EVENT_TYPES
from foldlog.schemas.events.effects import ALIVE_SEQ
from foldlog.schemas.events.parts import BlobRef
from foldlog.schemas.value import field_names
from foldlog.tests.cli.harness import UNSAFE

CODES = re.compile("\x1b\\[[0-9]{1,2}m")


def entry(event: Any, **changes: Any) -> Entry:
    place = {"session_id": "s1", "partition": 1, "offset": 2, "at": 0, "writer": "tools"}
    return Entry(**{**place, **changes}, event=event)


def result(text: str, **changes: Any) -> ev.ToolResult:
    given = {
        "turn": 1, "step": 2, "index": 0, "attempt": 1, "outcome": "ok", "via": "tool",
        "content": ev.Body(inline=text.encode("utf-8", "replace")), "bytes": 1, "tokens": 1,
        "left_out": 0,
    }
    return ev.ToolResult(**{**given, **changes})


def plain_line(event: Any, **changes: Any) -> str:
    return event_line(entry(event, **changes), None, session=True, colours=False, width=None)


def test_a_sign_of_life_is_no_empty_text():
    alive = ev.GenChunk(
        turn=1, step=2, attempt=3, seq=ALIVE_SEQ, block=0, kind=ChunkKind.TEXT, delta=""
    )
    assert words(alive).endswith("is alive, no content yet")


def test_a_line_says_where_when_whose_what():
    line = plain_line(result("paid"))
    assert re.fullmatch(
        r'1:2    \S+ \d\d:\d\d:\d\d\.000 s1 TOOL_RESULT       1\.2\.0 attempt 1 ok: "paid"', line
    ), line


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (ev.SessionOpened(user_id="ana", agent="shop", rules=1), "agent shop, user ana"),
        (ev.TurnEnded(turn=3, reason="max_steps", limit=50, used=50, basis=1, views_sha=b""),
         "turn 3 max_steps, limit 50"),
        (ev.ApprovalDecided(call="1.1.0", args_sha256="x", decision="allow", remember=True,
                            by_user="ana"), "1.1.0 allow by ana, remembered"),
        (ev.ToolInvoked(turn=1, step=1, index=0, call_id="t", name="charge", effect="once",
                        approval="ask", basis=1), "1.1.0 charge (once, asks for approval)"),
        (ev.HumanNeeded(call="1.1.0", why="the worker died"), "1.1.0: the worker died"),
        (result("", outcome="error", via="reconciler"), '1.2.0 attempt 1 error via reconciler: ""'),
        (Unreadable(type="NEW", must_understand=True, why="unknown schema"), "unknown schema"),
        (ChunkSeen(turn=1, step=2, attempt=3), "1.2 attempt 3"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_an_event_says(event, text):
    assert words(event) == text


def test_content_in_a_blob_is_named_by_its_size_or_resolved():
    ref = BlobRef(sha256="0" * 64, bytes=70_000, media_type="text/plain")
    event = result("", content=ev.Body(inline=b"the start", ref=ref))
    assert words(event).endswith('"the start" (70,000 bytes)')
    assert words(event, lambda _: b"all of it").endswith('"all of it"')


def sample(cls: type) -> Any:
    """An event of this class with a value in each field."""
    values: dict[str, Any] = {}
    for name in field_names_without_default(cls):
        kind = str(cls.__annotations__[name])
        values[name] = (
            ev.Body(inline=b"text") if "Body" in kind
            else b"x" if "bytes" in kind
            else () if "tuple" in kind
            else ev.Budget(soft_tokens=1, hard_tokens=2) if "Budget" in kind
            else None if "Usage" in kind
            else "x" if "str" in kind
            else 1
        )
    return cls(**values)


def field_names_without_default(cls: type) -> list[str]:
    try:
        return [f.name for f in fields(cls) if f.default is MISSING]
    except TypeError:
        return list(field_names(cls))


@pytest.mark.parametrize("row", EVENT_TYPES, ids=lambda row: row.name)
def test_every_type_of_event_has_a_line(row):
    line = plain_line(sample(row.cls))
    assert f" {row.name}" in line and "\n" not in line


@given(text=st.text(), width=st.integers(10, 300))
def test_no_content_leaves_its_line_or_controls_the_terminal(text, width):
    for event in (result(text), ev.HumanNeeded(call=text, why=text)):
        for colours in (True, False):
            line = event_line(entry(event, session_id=text or "s"), None, session=True,
                              colours=colours, width=width)
            assert not UNSAFE.search(CODES.sub("", line) if colours else line)
            assert "\n" not in line


def test_a_line_fits_the_terminal():
    event = result("long " * 500)
    line = event_line(entry(event), None, session=False, colours=True, width=100)
    assert len(CODES.sub("", line)) == 100 and line.endswith("...")
    assert event_lines.RED in event_line(
        entry(result("x", outcome="error")), None, session=False, colours=True, width=100
    )

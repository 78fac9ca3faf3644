"""Turns the answer to an extraction (request/extraction.py) into events of memory. Pure.

The answer must be a JSON list of {"kind", "text"}; any other answer gives no events, but a reason.
The ids of the events are derived from the offset up to which the conversation was read, so it is
harmless to write the events of an answer twice.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from ...schemas.ids import is_id, is_logged_id
from ...schemas.memory import MemoryWritten
from ...schemas.memory_paths import CORE, DECISIONS, TODAY, parse_scope, why_not_text
from .fold import MemoryView, day_path

ENTRIES_MAX = 20  # of one answer: more would be a transcript, not memory
TEXT_CHARS_MAX = 500  # of one entry: two or three sentences
ANSWER_CHARS_MAX = 100_000

# The kinds of entries that a model may return, and the file for each kind.
FILES = {"core": CORE, "decision": DECISIONS, "note": TODAY}


class Extraction(NamedTuple):
    """The events to write for an answer. `why`: why parts of the answer were left out, or None."""

    events: list[MemoryWritten]
    why: str | None


def extract(
    answer: str, session_id: str, offset: int, scope: str, *, user: str | None = None
) -> Extraction:
    """Extracts the events for the memory of `scope` from an answer. Never raises for an answer.

    session_id, offset: the place in the log up to which the conversation was read. Every entry has
        this place as its source. The id of an entry consists of this place and the entry's number
        in the answer.
    user: the owner; by default the user in the scope.
    """
    found = parse_scope(scope)
    if found is None or not is_logged_id(session_id):
        return Extraction([], f"{scope[:140]!r} is no scope, or {session_id[:140]!r} no session")
    given = _list_in(answer)
    if isinstance(given, str):
        return Extraction([], given)
    events: list[MemoryWritten] = []
    wrong: list[str] = []
    gists: set[str] = set()
    for number, item in enumerate(given[:ENTRIES_MAX]):
        kind, text, why = _entry(item)
        if why is not None:
            wrong.append(f"entry {number}: {why}")
        elif gist(text) not in gists:
            gists.add(gist(text))
            events.append(
                MemoryWritten(
                    # The id is independent of the text, because a retry may word the same memory
                    # differently.
                    entry_id=_entry_id(session_id, offset, number),
                    path=FILES[kind],
                    text=text,
                    source_session=session_id,
                    source_offset=offset,
                    by_user=user or found[1],
                )
            )
    if len(given) > ENTRIES_MAX:
        wrong.append(f"{len(given) - ENTRIES_MAX} entries beyond {ENTRIES_MAX} are left out")
    return Extraction(events, "; ".join(wrong)[:1_000] or None)


def gist(text: str) -> str:
    """A text normalized for comparison: case, spaces and final punctuation do not matter."""
    return " ".join(text.split()).casefold().rstrip(".,;:!?\u2026\u3002 ")


def new_entries(events: Sequence[MemoryWritten], view: MemoryView, at: int) -> list[MemoryWritten]:
    """The events with a new text, that is, a text that no other entry of the same file has. `at`
    (Unix ms) determines which file is today's daily file.

    If a killed attempt wrote an entry for the same event, that entry has the same id and does not
    count.
    """
    known: dict[tuple[str, str], set[str]] = {}
    for kept in view.entries:
        for text in {kept.text, *kept.text.split("\n")}:  # a person's entry may be a list
            known.setdefault((kept.path, gist(text)), set()).add(kept.entry_id)

    def is_known(event: MemoryWritten) -> bool:
        path = day_path(at) if event.path == TODAY else event.path
        return bool(known.get((path, gist(event.text)), set()) - {event.entry_id})

    return [event for event in events if not is_known(event)]


def _entry_id(session_id: str, offset: int, number: int) -> str:
    """The id of an entry. It contains the session id, or the hash of a session id that is too long.
    Truncated session ids could be equal, and then the later memory would be refused."""
    whole = f"x:{offset}:{number}:{session_id}"
    if is_id(whole):
        return whole
    return f"x:{offset}:{number}:{sha256(session_id.encode()).hexdigest()}"


def _list_in(answer: str) -> list[Any] | str:
    """The list in an answer, which may be in a code fence, or the reason why there is no list."""
    if len(answer) > ANSWER_CHARS_MAX:
        return f"the answer has {len(answer)} characters, at most {ANSWER_CHARS_MAX} are read"
    text = answer.strip()
    if text.startswith("```") and text.endswith("```") and len(text) > 6:
        text = text[3:-3].removeprefix("json").strip()
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"the answer is no JSON list: {type(error).__name__}: {str(error)[:200]}"
    if not isinstance(given, list):
        return f"the answer is no JSON list but {type(given).__name__}"
    return given


def _entry(item: Any) -> tuple[str, str, str | None]:
    """(kind, text, error) of one item of the list."""
    if not isinstance(item, dict) or not isinstance(item.get("text"), str):
        return "", "", 'it is no {"kind", "text"}'
    kind = item.get("kind")
    if not isinstance(kind, str) or kind not in FILES:
        return "", "", f"its kind is {str(kind)[:40]!r}, none of {', '.join(FILES)}"
    text = " ".join(item["text"].split())
    if not text:
        return "", "", "its text is empty"
    if len(text) > TEXT_CHARS_MAX:
        return "", "", f"its text has {len(text)} characters, at most {TEXT_CHARS_MAX} are kept"
    return kind, text, why_not_text(text)

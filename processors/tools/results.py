"""Shapes a tool's result for the model: a text of limited size, and a reference to the whole
result.

Nothing is lost by cutting: if something is left out, the blob store has the whole result, and the
text states how much is missing and how to get it. The functions are pure except for the blob store.
"""

import json
import re
from collections.abc import ItemsView, KeysView, ValuesView
from typing import Any, NamedTuple

from ...log.blobs import INLINE_BYTES_MAX, BlobError, BlobsAway, BlobStore
from ...schemas.canonical import compact_strict_sorted
from ...schemas.events.parts import Body
from ...schemas.tokens import estimate, family_of, prefix
from ..token_count import count
from .log_text import LOG_LINES_MAX, last_lines, looks_like_log
from .tool import Shortened

PREVIEW_CHARS = 1_000  # how much of a binary result is shown
ROWS_MAX = 100  # rows of a list that are shown, before "N more"
LISTS_DEEP = 3  # depth to which nested objects are searched for lists, but not within rows
NAME_CHARS_MAX = 60  # limit of a list's path, whose names come from the tool
NOTICES_MAX = 10  # notices of shortened lists; an object may have a thousand of them
KEPT_BYTES_MAX = 32 * 1024 * 1024  # of a stored result: a tool in a loop must not fill the disk
WEIGHED_BYTES = 1024 * 1024  # bytes whose tokens are estimated (15 ms); the rest is in proportion
LOG_TAIL = f"[a log: its last {LOG_LINES_MAX} lines]\n"
_BINARY, _TEXT = "application/octet-stream", "text/plain; charset=utf-8"


class Shaped(NamedTuple):
    """A tool's result in the form in which its event contains it. bytes: the size of the whole
    result; left_out: how many of these bytes the content lacks.
    """

    content: Body
    bytes: int
    tokens: int
    left_out: int


class _Rendering(NamedTuple):
    """The whole result as bytes. `shown`: the part that the model sees; None if the model sees the
    whole result."""

    whole: bytes
    media_type: str
    shown: str | None = None
    shown_bytes: int = 0  # how many bytes of the whole are in `shown`
    read_at: int = 0  # the character of the whole at which reading should continue


def shape(
    value: Any, *, limit_tokens: int, blobs: BlobStore, readable: bool, model: str = ""
) -> Shaped:
    """Turn what a tool returned into an event's content.

    A string stays as it is, any other value becomes compact JSON. readable: whether the model has
    the tool `read_result`. model: the model that reads the result. It determines how tokens are
    counted; '' means the newest family of models. No value makes this raise: the tool has run, and
    this must be reported. Raises BlobsAway if the result needs a blob and the store is away.
    """
    shaped = _fitted(_rendering_of(value), limit_tokens, blobs, readable, family_of(model))
    text = (shaped.content.inline or b"").decode()
    return shaped._replace(tokens=count(text, model).tokens)


def _fitted(
    rendering: _Rendering, limit_tokens: int, blobs: BlobStore, readable: bool, family: str
) -> Shaped:
    """Cut the result to a limit of estimated tokens. The estimate is the same on every worker."""
    total = len(rendering.whole)
    if rendering.shown is None and total > INLINE_BYTES_MAX:
        preview = rendering.whole[: PREVIEW_CHARS * 4].decode("utf-8", "ignore")[:PREVIEW_CHARS]
        rendering = rendering._replace(
            shown=preview, shown_bytes=len(preview.encode()), read_at=len(preview)
        )
    text = rendering.whole.decode() if rendering.shown is None else rendering.shown
    if rendering.shown is None and estimate(text, family) <= limit_tokens:
        return Shaped(Body(inline=rendering.whole), total, 0, 0)
    try:
        ref = blobs.store(_kept(rendering), rendering.media_type)
        how = _how_to_read_on(ref.sha256, readable and rendering.media_type == _TEXT)
    except BlobsAway:
        raise  # the caller waits for the store
    except BlobError as error:  # a full disk must not put the call in doubt, since the tool has run
        ref, how = None, f"The rest is lost, it could not be kept: {error.__cause__ or error}."
    left_out = max(0, total - rendering.shown_bytes)
    noticed = f"{text}\n{_notice(left_out, rendering, how, rendering.read_at, family)}"
    inline = rendering.shown is not None and len(noticed.encode("utf-8", "replace"))
    if inline and inline <= INLINE_BYTES_MAX and estimate(noticed, family) <= limit_tokens:
        text = noticed
    else:
        text, left_out = _cut(text, limit_tokens, rendering, how, family)
    data = text.encode("utf-8", "replace")
    return Shaped(Body(inline=data, ref=ref), total, 0, left_out)


def plain(value: Any) -> Any:
    """Convert a value to plain JSON data. Raises TypeError or ValueError if that is impossible."""
    try:
        json.dumps(value, allow_nan=False, sort_keys=True)
        return value
    except (TypeError, ValueError, RecursionError):
        from pydantic_core import to_json  # supports datetimes, dataclasses, models, NaN

        value = _with_lists(value)
        return json.loads(to_json(value, inf_nan_mode="strings", bytes_mode="base64"))


def _with_lists(value: Any) -> Any:
    """The value with lists in place of dict views and sets. Sets are sorted, because their order
    differs by process."""
    match value:
        case dict():
            return {name: _with_lists(item) for name, item in value.items()}
        case list() | tuple() | KeysView() | ValuesView() | ItemsView():
            return [_with_lists(item) for item in value]
        case set() | frozenset():
            rows = [_with_lists(item) for item in value]
            try:
                return sorted(rows)
            except TypeError:  # values that cannot be compared, such as numbers and strings
                return sorted(rows, key=as_json)
    return value


def _rendering_of(value: Any) -> _Rendering:
    match value:
        case Shortened(shown=shown, whole=whole):
            kept, media_type = _encoded(whole)
            return _Rendering(kept, media_type, str(shown), min(len(kept), len(shown.encode())), 0)
        case str():
            end = last_lines(value)
            if len(end) == len(value) or not looks_like_log(end):
                return _Rendering(*_encoded(value))
            shown = f"{LOG_TAIL}{end}"
            return _Rendering(*_encoded(value), shown, len(end.encode("utf-8", "replace")), 0)
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            if not data:  # an empty result has nothing to leave out
                return _Rendering(b"", _TEXT)
            return _Rendering(data, _BINARY, f"[{len(data)} bytes of binary data, not shown.]")
    try:
        data = plain(value)
    except Exception:  # a value's own methods may raise anything: as_json reports it
        return _Rendering(as_json(value).encode(), _TEXT)
    whole = as_json(data)
    notes: list[Any] = []
    rows = as_json(_first_rows(data, (), notes))
    if not notes:
        return _Rendering(whole.encode(), _TEXT)
    if len(notes) > NOTICES_MAX:
        notes[NOTICES_MAX:] = [f"{len(notes) - NOTICES_MAX} more lists are shortened."]
    shown, same = "\n".join([rows, *notes]), _common_length(rows, whole)
    return _Rendering(whole.encode(), _TEXT, shown, len(rows.encode()), same)


def _first_rows(value: Any, path: tuple[str, ...], notes: list[str]) -> Any:
    """The value with only 100 rows of each long list.
    `notes` gets how many rows are missing, and where."""
    if isinstance(value, list | tuple) and len(value) > ROWS_MAX:
        where = " ".join(".".join(path).split())[:NAME_CHARS_MAX]
        more = f"{len(value) - ROWS_MAX} more rows, of {len(value)}."
        notes.append(f"{where}: {more}" if where else more)
        return value[:ROWS_MAX]
    if isinstance(value, dict) and len(path) < LISTS_DEEP:
        names = sorted(value, key=str)
        return {name: _first_rows(value[name], (*path, str(name)), notes) for name in names}
    return value


def _common_length(one: str, other: str) -> int:
    """The first position at which the two texts differ, or the next one if `other` has a comma
    there. If a reader has read `one`, which is the cut form of `other`, reading continues at this
    position of `other`."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if other.startswith(one[:middle]) else (low, middle - 1)
    return low + other.startswith(",", low)


def _encoded(whole: str | bytes) -> tuple[bytes, str]:
    if isinstance(whole, bytes):
        return whole, _BINARY
    return whole.encode("utf-8", "replace"), _TEXT  # a lone surrogate must not fail the call


def as_json(value: Any) -> str:
    """The value as stable compact JSON; if JSON cannot represent the value, its repr."""
    try:
        text = compact_strict_sorted(plain(value))
    except Exception as error:  # a value's own methods may raise anything
        shown = _safe_repr(value)
        return f"[{type(value).__name__} that is not JSON ({type(error).__name__}): {shown}]"
    return text.encode("utf-8", "replace").decode()


def _safe_repr(value: Any) -> str:
    try:
        return repr(value).encode("utf-8", "replace").decode()
    except Exception:
        return object.__repr__(value)


def _kept(rendering: _Rendering) -> bytes:
    """The part of the whole result that is stored: all of it, or its first KEPT_BYTES_MAX bytes. A
    text is never cut within a character."""
    data = rendering.whole[:KEPT_BYTES_MAX]
    if rendering.media_type == _TEXT and len(rendering.whole) > KEPT_BYTES_MAX:
        data = data.decode("utf-8", "ignore").encode()
    return data


def _how_to_read_on(sha256: str, readable: bool) -> str:
    if readable:
        return f'Ask for less (filter, range) or read on: read_result, ref "{sha256}".'
    return f"The whole is kept as {sha256}. Ask for less: a filter, a range, a later part."


def _notice(left_out: int, rendering: _Rendering, how: str, read_at: int, family: str) -> str:
    total = len(rendering.whole)
    if "read_result" in how and read_at:
        how = f"{how[:-1]}, offset {read_at}."
    if total > KEPT_BYTES_MAX:
        how += f" Only its first {KEPT_BYTES_MAX} bytes are kept."
    weighed = rendering.whole[:WEIGHED_BYTES]
    tokens = estimate(weighed, family) * left_out // max(1, len(weighed))
    about = f", about {tokens} tokens," if rendering.media_type == _TEXT else ""
    return f"[{left_out} of {total} bytes{about} are left out here. {how}]"


# A tool may return the same text with any number: one with more digits is not taken as a size.
_NOTICE = re.compile(r"^\[(\d{1,15}) of (\d{1,15}) bytes\b.* left out here", re.M)


class LeftOut(NamedTuple):
    """What a notice states, in bytes."""

    missing: int
    whole: int


def left_out_in(text: str) -> LeftOut | None:
    """What the notice in a result's text states; None if nothing was left out."""
    found = _NOTICE.search(text)
    return None if found is None else LeftOut(*map(int, found.groups()))


def is_log_tail(text: str) -> bool:
    """Whether a result's text is the end of a longer log."""
    return text.startswith(LOG_TAIL)


def _within(text: str, tokens: int, bytes_max: int, family: str) -> str:
    """The longest part from the beginning of a text that exceeds neither limit."""
    data = prefix(text, tokens, family).encode("utf-8", "replace")
    return data[:bytes_max].decode("utf-8", "ignore")


def _cut(
    text: str, limit_tokens: int, rendering: _Rendering, how: str, family: str
) -> tuple[str, int]:
    """Head and tail of a text with a notice between them, and the number of bytes left out."""
    longest = _notice(len(rendering.whole), rendering, how, len(text), family)
    room = max(0, limit_tokens - estimate(f"\n{longest}\n", family))
    space = INLINE_BYTES_MAX - len(longest.encode()) - 2  # a text of spaces has few tokens
    # Two parts head, one part tail, because a text may end in the error.
    head = _within(text, room * 2 // 3, space * 2 // 3, family)
    rest = text[len(head) :][::-1]
    tail = _within(rest, room - room * 2 // 3, space // 3, family)[::-1]
    shown = len(head.encode("utf-8", "replace")) + len(tail.encode("utf-8", "replace"))
    left_out = max(0, len(rendering.whole) - shown)
    read_at = len(head) if rendering.shown is None else min(rendering.read_at, len(head))
    notice = _notice(left_out, rendering, how, read_at, family)
    return f"{head}\n{notice}\n{tail}", left_out

"""Validates ids, texts, content blocks and their sizes before anything is produced.

The fold validates again, because other programs may produce too. But an immediate error is better
than a refused record that stays in the log forever.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from ..log.blobs import INLINE_BYTES_MAX
from ..log.errors import Refused
from ..schemas.attachments import reference_of
from ..schemas.canonical import compact_strict
from ..schemas.grant import pattern_text, why_wrong
from ..schemas.ids import is_id, parse_call_key, why_not_an_id
from ..schemas.message_content import texts_of

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
"""The largest message: about three million tokens, more than any model's context window. Larger
content belongs in a file that a tool can read."""

REASON_CHARS_MAX = 1000
"""The longest reason, which is a sentence for people and stored inline in the event."""

REPORT_BYTES_MAX = 16 * 1024
"""The largest report of a person about a call, which becomes an inline reminder for the model."""

Blocks = Sequence[Mapping[str, Any]]
W = TypeVar("W", bound=StrEnum)


class Invalid(Refused):
    """The input is invalid, and nothing was produced. `code` is for machines."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


def an_id(what: str, text: str) -> str:
    """Return the text if it is a valid id, else raise Invalid."""
    if not isinstance(text, str) or not is_id(text):
        raise Invalid("invalid_id", why_not_an_id(what, str(text)))
    return text


def a_call(text: str) -> str:
    """Return the text if it is a call's TURN.STEP.INDEX, else raise Invalid."""
    if parse_call_key(text) is None:
        raise Invalid("invalid_call", f"a call is TURN.STEP.INDEX, as in 1.2.0, not {text[:40]!r}")
    return text


def a_word(what: str, text: str, words: type[W]) -> W:
    """Return the member of the enum `words` with this value. Raises Invalid."""
    try:
        return words(text)
    except ValueError:
        known = ", ".join(words)
        raise Invalid("invalid_word", f"{what} must be one of {known}, not {text!r}") from None


def a_grant(globs: Mapping[str, str]) -> str:
    """The grant of an approval, from its globs by argument name. Raises Invalid."""
    text = pattern_text(globs)
    wrong = why_wrong(text)
    if wrong is not None:
        raise Invalid("invalid_grant", f"the grant for later calls is invalid: {wrong}")
    return text


def a_reason(text: str) -> str:
    """Return the text if it is valid as a reason, else raise Invalid."""
    encoded("the reason", text)
    if len(text) > REASON_CHARS_MAX:
        raise Invalid(
            "too_large",
            f"the reason has {len(text)} characters, the maximum is {REASON_CHARS_MAX}",
        )
    return text


def encoded(what: str, text: str) -> bytes:
    """The text as UTF-8. Raises Invalid if the text has a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(
            "invalid_text", f"{what} is not valid UTF-8 text, at character {error.start}"
        ) from None


def a_report(text: str) -> bytes:
    """A person's report as UTF-8. Raises Invalid."""
    return _limited("the report", text, REPORT_BYTES_MAX)


def a_result(text: str) -> bytes:
    """A new result of a call as UTF-8. Raises Invalid."""
    return _limited("the result", text, INLINE_BYTES_MAX)


def _limited(what: str, text: str, maximum: int) -> bytes:
    data = encoded(what, text)
    if len(data) > maximum:
        raise Invalid("too_large", f"{what} has {len(data)} bytes, the maximum is {maximum}")
    return data


def blocks_of(content: str | Blocks) -> Any:
    """The content as blocks: a text becomes one text block; anything else is returned unchanged."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def content_json(content: str | Blocks) -> bytes:
    """A message's content as a compact JSON array of blocks. Raises Invalid.

    A text becomes one text block. Anything else must be a list of blocks, each with its `type`.
    """
    blocks = blocks_of(content)
    if not isinstance(blocks, list | tuple):
        raise Invalid("invalid_content", "the content must be a string or a list of content blocks")
    for block in blocks:
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            raise Invalid("invalid_content", "each content block must be a mapping with a `type`")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise Invalid("invalid_content", "the `text` of a text block must be a string")
        if block["type"] == "text":
            encoded("the message", block["text"])  # for an error with the position in the text
        try:
            reference_of(block)
        except ValueError as error:
            raise Invalid("invalid_content", f"an attachment can't be sent: {error}") from None
    if not blocks or any(b["type"] == "text" and not b["text"].strip() for b in blocks):
        raise Invalid("empty_message", "the message is empty: write something")
    try:
        text = compact_strict(blocks)
    except (TypeError, ValueError) as error:
        raise Invalid("invalid_content", f"the content cannot be JSON: {error}") from None
    data = encoded("the message", text)
    if len(data) > MESSAGE_BYTES_MAX:
        raise Invalid(
            "too_large",
            f"the message has {len(data)} bytes, the maximum is {MESSAGE_BYTES_MAX}. Put the "
            "content in a file that a tool can read, and name the file in the message.",
        )
    try:
        texts_of(data)  # the fold does this too, but only for inline content
    except ValueError as error:
        why = f"only text blocks and attachments without extra fields can be sent: {error}"
        raise Invalid("invalid_content", why) from None
    return data

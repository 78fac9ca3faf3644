"""Validation before anything is produced: ids, texts, content blocks and their sizes.

The fold validates again, because other producers exist. An immediate error is better than a refused
record that stays in the log forever.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from ..log.errors import Refused
from ..schemas.attachments import reference_of
from ..schemas.canonical import compact_strict
from ..schemas.grant import pattern_text, why_wrong
from ..schemas.ids import is_id, parse_call_key, why_not_an_id
from ..schemas.message_content import texts_of

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
"""Of one message: about three million tokens, more than any model's window. A file belongs into a
tool's reach, not into a message."""

REASON_CHARS_MAX = 1000
"""A reason is a sentence for people; it stays inline in every copy of the log."""

REPORT_BYTES_MAX = 16 * 1024
"""What a person reports of a call: it becomes a reminder that the model is told inline."""

Blocks = Sequence[Mapping[str, Any]]
W = TypeVar("W", bound=StrEnum)


class Invalid(Refused):
    """What was asked can not be an event; nothing was produced. `code` is for machines."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


def an_id(what: str, text: str) -> str:
    """The text, if it may be an id. Raises Invalid."""
    if not isinstance(text, str) or not is_id(text):
        raise Invalid("invalid_id", why_not_an_id(what, str(text)))
    return text


def a_call(text: str) -> str:
    """The text, if it names a call as TURN.STEP.INDEX. Raises Invalid."""
    if parse_call_key(text) is None:
        raise Invalid("invalid_call", f"a call is TURN.STEP.INDEX, as in 1.2.0, not {text[:40]!r}")
    return text


def a_word(what: str, text: str, words: type[W]) -> W:
    """The word, if it is one of its set. Raises Invalid."""
    try:
        return words(text)
    except ValueError:
        known = ", ".join(words)
        raise Invalid("invalid_word", f"{what} must be one of {known}, not {text!r}") from None


def a_grant(globs: Mapping[str, str]) -> str:
    """Globs by argument as an approval has them. Raises Invalid."""
    text = pattern_text(globs)
    wrong = why_wrong(text)
    if wrong is not None:
        raise Invalid("invalid_grant", f"what is to be allowed later is not understood: {wrong}")
    return text


def a_reason(text: str) -> str:
    """The text, if it is a sentence for people. Raises Invalid."""
    encoded("the reason", text)
    if len(text) > REASON_CHARS_MAX:
        raise Invalid(
            "too_large",
            f"the reason has {len(text)} characters, at most {REASON_CHARS_MAX} are kept",
        )
    return text


def encoded(what: str, text: str) -> bytes:
    """The text as UTF-8. Raises Invalid for what is no text, such as half of a character."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(
            "invalid_text", f"{what} is not valid UTF-8 text, at character {error.start}"
        ) from None


def a_report(text: str) -> bytes:
    """What a person reports, as UTF-8. Raises Invalid."""
    data = encoded("the report", text)
    if len(data) > REPORT_BYTES_MAX:
        raise Invalid(
            "too_large", f"the report has {len(data)} bytes, at most {REPORT_BYTES_MAX} are kept"
        )
    return data


def blocks_of(content: str | Blocks) -> Any:
    """The content as blocks: a text is one text block; what is neither is given back."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def content_json(content: str | Blocks) -> bytes:
    """A message's content as a compact JSON array of blocks. Raises Invalid.

    A text is one text block. Anything else must be a list of blocks, each with its `type`.
    """
    blocks = blocks_of(content)
    if not isinstance(blocks, list | tuple):
        raise Invalid("invalid_content", "the content must be a text or a list of content blocks")
    for block in blocks:
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            raise Invalid("invalid_content", "each content block must be a mapping with a `type`")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise Invalid("invalid_content", "a text block must hold its text as a string")
        if block["type"] == "text":
            encoded("the message", block["text"])  # here, where a place in it is one in the text
        try:
            reference_of(block)
        except ValueError as error:
            raise Invalid("invalid_content", f"an attachment can't be sent: {error}") from None
    if not blocks or any(b["type"] == "text" and not b["text"].strip() for b in blocks):
        raise Invalid("empty_message", "an empty message: say something")
    try:
        text = compact_strict(blocks)
    except (TypeError, ValueError) as error:
        raise Invalid("invalid_content", f"the content is no JSON: {error}") from None
    data = encoded("the message", text)
    if len(data) > MESSAGE_BYTES_MAX:
        raise Invalid(
            "too_large",
            f"the message has {len(data)} bytes, at most {MESSAGE_BYTES_MAX} are taken: put a file "
            "where a tool can read it, and say where it is",
        )
    try:
        texts_of(data)  # as the fold does, which does not look into what lies in the blob store
    except ValueError as error:
        why = f"text blocks and attachments can be sent, and nothing else in them: {error}"
        raise Invalid("invalid_content", why) from None
    return data

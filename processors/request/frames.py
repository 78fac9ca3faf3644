"""The only way to put third-party text into a prompt: inside a frame that the text cannot close.

A frame is a pair of foldlog's tags around the text. Anything in the text that looks like one of
these tags is escaped, so a file cannot pose as another file or as text outside the frame.
"""

import re
from typing import NamedTuple

FRAMES = ("instruction_file", "memory_core", "memory_index", "summary", "call_result")
# No two quantifiers over spaces may be adjacent: backtracking through 16 KiB of spaces would take
# 15 s.
_TAG = re.compile(rf"<(?=\s*(?:/\s*)?(?:{'|'.join(FRAMES)})\b)", re.IGNORECASE)
_FRAMED = re.compile(
    rf'<(?P<tag>{"|".join(FRAMES)})(?P<more>(?: [a-z]+="[^"<>\n]*")*)>\n(?P<text>.*)\n</(?P=tag)>',
    re.DOTALL,
)
_MORE = re.compile(r' ([a-z]+)="([^"<>\n]*)"')


class Framed(NamedTuple):
    """The parts of a frame: its tag, the attributes of its opening tag, and the text."""

    tag: str
    more: dict[str, str]
    text: str


def framed(tag: str, text: str, **more: str) -> str:
    """Puts a text into a frame. `more`: attributes of the opening tag, such as layer="project".

    The text loses only blank lines at its ends, and foldlog's tags in it become `&lt;...`. Framing
    the text of a frame again gives the same bytes.
    """
    assert tag in FRAMES, tag
    attributes = "".join(f' {name}="{_attribute(value)}"' for name, value in more.items())
    return f"<{tag}{attributes}>\n{harmless(text)}\n</{tag}>"


def harmless(text: str) -> str:
    """The text as it appears inside a frame: valid Unicode, with foldlog's tags escaped."""
    valid = text.encode("utf-8", "replace").decode()  # a lone surrogate is not valid text
    return _TAG.sub("&lt;", valid).strip("\r\n")


def unframed(block: str) -> Framed | None:
    """The parts of a frame that `framed` built; None for any other text."""
    found = _FRAMED.fullmatch(block)
    if found is None or _TAG.search(found["text"]):
        return None
    return Framed(found["tag"], dict(_MORE.findall(found["more"])), found["text"])


def _attribute(value: str) -> str:
    """The value with `_` for every character that could end the quotes or the tag around it:
    quotes, angle brackets and control characters.
    """
    clean = re.sub(r'[^\x20-\U0010ffff]|["<>]', "_", value)
    return clean.encode("utf-8", "replace").decode()

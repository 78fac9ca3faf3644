"""The only way to put third-party text into a prompt: inside a frame that the text cannot close.

A frame is a pair of our tags with the text between them. Anything inside that looks like one of our
tags is escaped, so a file cannot pose as another file or as text outside the frame.
"""

import re
from typing import NamedTuple

FRAMES = ("instruction_file", "memory_core", "memory_index", "summary")
# No two quantifiers over blanks are adjacent here: backtracking through a file of 16 KiB of blanks
# would take a quarter of a minute.
_TAG = re.compile(rf"<(?=\s*(?:/\s*)?(?:{'|'.join(FRAMES)})\b)", re.IGNORECASE)
_FRAMED = re.compile(
    rf'<(?P<tag>{"|".join(FRAMES)})(?P<more>(?: [a-z]+="[^"<>\n]*")*)>\n(?P<text>.*)\n</(?P=tag)>',
    re.DOTALL,
)
_MORE = re.compile(r' ([a-z]+)="([^"<>\n]*)"')


class Framed(NamedTuple):
    """A text out of its frame: the frame's tag, what its opening tag says, and the text."""

    tag: str
    more: dict[str, str]
    text: str


def framed(tag: str, text: str, **more: str) -> str:
    """A text in its frame; `more` is what the opening tag says, as in layer="project".

    The text loses nothing but blank lines at its ends; tags of ours in it become `&lt;...`. Framing
    what came out of a frame gives the same bytes.
    """
    assert tag in FRAMES, tag
    said = "".join(f' {name}="{_attribute(value)}"' for name, value in more.items())
    return f"<{tag}{said}>\n{harmless(text)}\n</{tag}>"


def harmless(text: str) -> str:
    """The text as it appears inside a frame: valid Unicode, without our tags."""
    whole = text.encode("utf-8", "replace").decode()  # half of a surrogate pair is not text
    return _TAG.sub("&lt;", whole).strip("\r\n")


def unframed(block: str) -> Framed | None:
    """What `framed` made, taken apart; None for anything else."""
    found = _FRAMED.fullmatch(block)
    if found is None or _TAG.search(found["text"]):
        return None
    return Framed(found["tag"], dict(_MORE.findall(found["more"])), found["text"])


def _attribute(value: str) -> str:
    """A value between quotes: a file name may hold a quote or a line end, and may not end the
    tag."""
    clean = re.sub(r'[^\x20-\U0010ffff]|["<>]', "_", value)
    return clean.encode("utf-8", "replace").decode()


__all__ = ["FRAMES", "Framed", "framed", "harmless", "unframed"]

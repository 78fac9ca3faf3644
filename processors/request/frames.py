"""The one way to put a text that others wrote into a prompt: inside a frame that it can not end.

A frame is a pair of tags of ours with the text between them. Whatever inside looks like one of our
tags is shown as text, so that a file can not pose as another file, nor as what stands outside.
This file must not know who wrote a text, nor what a prompt is made of.
"""

import re
from typing import NamedTuple

FRAMES = ("instruction_file", "memory_core", "memory_index", "summary")
# Blanks before and behind the slash never stand side by side in it: that would be looked through
# as often as there are blanks, which in a file of 16 KiB is a quarter of a minute.
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
    """The text as it stands inside a frame: valid Unicode, and no tag of ours in it."""
    whole = text.encode("utf-8", "replace").decode()  # half a surrogate pair is no text
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

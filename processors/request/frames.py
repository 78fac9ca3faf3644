"""The only ways to put third-party text into a prompt: in a frame that the text cannot close, or as
quoted lines.

A frame is a pair of foldlog's tags around the text. Anything in the text that looks like one of
these tags is escaped, so a file cannot pose as another file or as text outside the frame. A quoted
line follows a quote mark.
"""

import re
import unicodedata
from typing import NamedTuple

FRAMES = ("instruction_file", "memory_core", "memory_index", "summary", "call_result")
# No two quantifiers over spaces may be adjacent: backtracking through 16 KiB of spaces would take
# 15 s.
_TAG = re.compile(rf"<(?=\s*(?:/\s*)?(?:{'|'.join(FRAMES)})\b)", re.IGNORECASE)
_FRAMED = re.compile(
    rf'<(?P<tag>{"|".join(FRAMES)})(?P<more>(?: [a-z]+="[^"<>\n]*")*)>\n(?P<text>.*)\n</(?P=tag)>',
    re.DOTALL,
)
QUOTE = "| "
LINE_CHARS_MAX = 400  # a longer line of memory is cut in a prompt, but complete in load_memory
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


# -- quoted lines ----------------------------------------------------------------------------------


def quoted(text: str, *, clip: bool = False) -> list[str]:
    """The lines of a text, each after a quote mark. With `clip`, long lines are cut."""
    return [QUOTE + (_clipped(line) if clip else line) for line in _lines(text)]


def _lines(text: str) -> list[str]:
    """The lines of a text, split at \\n only. Other breaks, such as \\r or U+2028, are escaped."""
    lines = text.split("\n")
    return [line if line.isprintable() else "".join(map(escaped, line)) for line in lines]


# Control characters, line and paragraph separators, and marks that change the direction of all
# following text, which includes the frame. Joiners stay, because emoji and several writing systems
# need them.
_ODD = frozenset(("Cc", "Zl", "Zp", "Cs"))
_TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def escaped(char: str) -> str:
    """A character as it appears in a quoted line: itself, or its number."""
    if char == "\t" or (unicodedata.category(char) not in _ODD and char not in _TURNS):
        return char
    return f"\\u{ord(char):04x}"


def _clipped(line: str) -> str:
    if len(line) <= LINE_CHARS_MAX:
        return line
    return f"{line[:LINE_CHARS_MAX]} [{len(line) - LINE_CHARS_MAX} more characters]"

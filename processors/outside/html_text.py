"""Converts HTML to plain text: the visible text, and the address of each link.
Pure, in linear time.

The author of a page may have made the page slow to parse, and a tool's thread cannot be stopped. So
this parser makes one pass without backtracking: an unclosed element extends to the end, as in the
HTML standard. (Python's html.parser takes hours for two megabytes of `<a `.)
"""

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple
from urllib.parse import urljoin

from .definitions import printable

_SKIPPED = frozenset("script style template noscript svg math iframe object".split())
_RAW = ("script", "style", "title", "textarea")  # elements whose content is not parsed as markup
_BLOCKS = frozenset(
    "address article aside blockquote br dd div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6"
    " header hr li main nav ol p pre section table tr ul".split()
)
_SPACE = re.compile(r"[ \t\r\f\v\n]+")
_TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]*)")
_ATTRIBUTE = re.compile(
    r"""[\s/]*(?:([^\s/>][^\s/>=]*)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>]*))?)?"""
)
_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW}
_NO_CHARACTER = re.compile(r"&#[0-9]{8,};?")  # Python refuses to parse thousands of digits
LINK_CHARS_MAX = 500


class _Tag(NamedTuple):
    """A tag. `after`: the position after the tag."""

    name: str
    opens: bool
    closes: bool
    href: str
    after: int


class _Reader:
    """Receives texts and tags in order, and collects the visible text."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._parts: list[str] = []
        self._skipping: str | None = None
        self._depth = 0
        self._links: list[str] = []
        self._title = ""

    def open(self, tag: _Tag) -> None:
        if self._skipping is not None:
            self._depth += tag.name == self._skipping
        elif tag.name in _SKIPPED:
            self._skipping, self._depth = tag.name, 1
        elif tag.name in _BLOCKS:
            self._parts.append("\n- " if tag.name == "li" else "\n")
        elif tag.name in ("td", "th"):
            self._parts.append(" | ")
        elif tag.name == "a":
            self._links.append(self._address(tag.href))

    def close(self, name: str) -> None:
        if self._skipping is not None:
            self._depth -= name == self._skipping
            if self._depth == 0:
                self._skipping = None
        elif name in _BLOCKS:
            self._parts.append("\n")
        elif name == "a" and self._links:
            address = self._links.pop()
            if address:
                self._parts.append(f" ({address})")

    def take(self, text: str, *, title: bool = False) -> None:
        if self._skipping is not None:
            return
        text = _SPACE.sub(" ", _unescaped(text))
        if not title:
            self._parts.append(text)
        elif not self._title:
            self._title = text.strip()

    def _address(self, href: str) -> str:
        href = _unescaped(href).strip()
        if len(href) > LINK_CHARS_MAX or href.startswith("#"):
            return ""
        try:
            address = urljoin(self._base, href)
        except ValueError:
            return ""
        is_web = address.startswith(("http://", "https://"))
        return address if is_web and len(address) <= LINK_CHARS_MAX else ""

    def text(self) -> str:
        lines = [self._title, ""] if self._title else []
        for line in "".join(self._parts).split("\n"):
            line = line.strip()
            if line or (lines and lines[-1]):
                lines.append(line)
        return "\n".join(lines).strip("\n")


def text_of_html(html: str, base: str) -> str:
    """The text of a page. base: the address of the page, to which links are relative."""
    reader = _Reader(base)
    for piece, raw in _pieces(html):
        if isinstance(piece, str):
            reader.take(piece, title=raw == "title")
            continue
        if piece.opens:
            reader.open(piece)
        if piece.closes and not (piece.opens and piece.name in _BLOCKS):  # <br/> is one line
            reader.close(piece.name)
    return printable(reader.text(), lines=True)


def _pieces(html: str) -> Iterator[tuple[str | _Tag, str]]:
    """The texts and tags in order. Yields (text or tag, name). `name` is the element around a raw
    text, such as the text of a script; for all other pieces it is ''."""
    place = 0
    while place < len(html):
        start = html.find("<", place)
        start = len(html) if start < 0 else start
        if start > place:
            yield html[place:start], ""
        kind = html[start + 1 : start + 2]
        if _TAG.match(html, start):
            tag = _tag(html, start)
            if tag is None:
                return
            yield tag, ""
            place = tag.after
            if tag.name in _RAW and not tag.closes:
                end = _ENDS[tag.name].search(html, place)
                inside = len(html) if end is None else end.start()
                yield html[place:inside], tag.name
                place = inside
        elif kind in ("!", "?", "/") and kind:
            ending = "-->" if html.startswith("<!--", start) else ">"
            found = html.find(ending, start + 2)
            place = len(html) if found < 0 else found + len(ending)
        else:
            if start < len(html):
                yield "<", ""
            place = start + 1


def _tag(html: str, start: int) -> _Tag | None:
    """The tag that begins at `start`; None if the tag never ends."""
    found = _TAG.match(html, start)
    assert found is not None
    ends, name = bool(found[1]), found[2].lower()
    place, href, slash = found.end(), "", False
    while place < len(html) and html[place] != ">":
        attribute = _ATTRIBUTE.match(html, place)
        assert attribute is not None and attribute.end() > place
        slash = attribute[1] is None and "/" in attribute[0]
        if attribute[1] is not None and attribute[1].lower() == "href":
            href = href or (attribute[2] or "").strip("\"'")
        place = attribute.end()
    if place >= len(html):
        return None
    return _Tag(name, not ends, ends or slash, href, place + 1)


def _unescaped(text: str) -> str:
    """Replaces character references with characters; an invalid number becomes U+FFFD."""
    return unescape(_NO_CHARACTER.sub("\ufffd", text)) if "&" in text else text

"""HTML as plain text: what a person would read, links with their address. Pure, bounded."""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

from .definitions import printable

_SKIPPED = frozenset("script style template noscript svg math iframe object".split())
_BLOCKS = frozenset(
    "address article aside blockquote br dd div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6"
    " header hr li main nav ol p pre section table tr ul".split()
)
_SPACE = re.compile(r"[ \t\r\f\v]+")
_LINES = re.compile(r"\s*\n\s*\n\s*")
LINK_CHARS_MAX = 500


class _Reader(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self._base = base
        self._parts: list[str] = []
        self._skipping: str | None = None
        self._depth = 0
        self._links: list[str] = []
        self.title = ""
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self.title:
            self._in_title = True
        if self._skipping is not None:
            self._depth += tag == self._skipping
            return
        if tag in _SKIPPED:
            self._skipping, self._depth = tag, 1
        elif tag in _BLOCKS:
            self._parts.append("\n- " if tag == "li" else "\n")
        elif tag in ("td", "th"):
            self._parts.append(" | ")
        elif tag == "a":
            self._links.append(self._address(dict(attrs).get("href") or ""))

    def handle_endtag(self, tag: str) -> None:
        self._in_title = self._in_title and tag != "title"
        if self._skipping is not None:
            self._depth -= tag == self._skipping
            if self._depth == 0:
                self._skipping = None
        elif tag in _BLOCKS:
            self._parts.append("\n")
        elif tag == "a" and self._links:
            address = self._links.pop()
            if address:
                self._parts.append(f" ({address})")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif self._skipping is None:
            self._parts.append(_SPACE.sub(" ", data.replace("\n", " ")))

    def _address(self, href: str) -> str:
        try:
            address = urljoin(self._base, href.strip())
        except ValueError:
            return ""
        is_web = address.startswith(("http://", "https://")) and not href.startswith("#")
        return address if is_web and len(address) <= LINK_CHARS_MAX else ""

    def text(self) -> str:
        lines = "\n".join(line.strip() for line in "".join(self._parts).split("\n"))
        body = _LINES.sub("\n\n", lines).strip()
        title = _SPACE.sub(" ", self.title.replace("\n", " ")).strip()
        return f"{title}\n\n{body}" if title else body


def text_of_html(html: str, base: str) -> str:
    """What a page says. base: its address, which links are relative to."""
    reader = _Reader(base)
    reader.feed(html)
    reader.close()
    return printable(reader.text(), lines=True)

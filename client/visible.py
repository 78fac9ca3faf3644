"""Shows characters that a person cannot see, so that no part of a text is hidden.

`is_hidden` decides which characters these are, on every surface; inspector/static/visible.js has
the same rules for the browser, and a test compares the two for every character. Ordinary text keeps
what scripts and emoji need (`clean`). The arguments of a call, which a person approves, keep
nothing: every hidden character is escaped, and long runs of blanks are counted (`exact`).
"""

import json
import re
from collections import Counter
from unicodedata import category

BLANKS_MAX = 32
"""In arguments, longer runs of spaces, tabs and line ends are counted instead of shown."""
LINE_ENDS_MAX = 4
"""The same for line ends with nothing but spaces and tabs between them."""
SAME_MAX = 8
"""In arguments, longer runs of the same hidden character are counted."""

# Characters that draw nothing, although Unicode lists them neither as separators nor as control or
# format characters: the other default ignorable characters, blank letters and symbols, joiners.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u2d7f\u3164\ufe00-\ufe0f\uffa0\ufffc"
    "\U0001107f\U00013441\U00013442\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
# Private characters, and those that are newer than this Python, have a glyph in some fonts.
_HAS_A_GLYPH = ("Cn", "Co")
_NEVER_HAS = re.compile("[\u2065\ufff0-\ufff8\U000e0000-\U000e0fff]")

_EMOJI = (
    "[\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf"
    "\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
    "[\ufe0e\ufe0f]?[\U0001f3fb-\U0001f3ff]?"
)
_JOINS = (
    "[\u0620-\u06dc\u06de-\u06ff\u0710-\u088f\u0892-\u08e1\u08e3-\u0d7f\u1000-\u109f\u1780-\u17b3"
    "\u17b6-\u17d3]"
)
NEEDED = {
    "the flags of England, Scotland and Wales":
        "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|"
        "\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f",
    "the styles of an emoji, and joined emoji": f"{_EMOJI}(?:\u200d{_EMOJI})*",
    "keycaps": "\ufe0f\u20e3",
    "letters of Arabic and Indian scripts": f"(?<={_JOINS})[\u200c\u200d](?={_JOINS})",
    "one space in French or Chinese":
        "(?<![ \t\n\xa0\u202f\u3000])[\xa0\u202f\u3000](?![ \t\n\xa0\u202f\u3000])",
}
"""The sequences in which ordinary text keeps hidden characters, by why they are needed."""

_UNSETTLED = re.compile(f"(?:{_EMOJI}(?:\u200d{_EMOJI})*\u200d?|{_JOINS}[\u200c\u200d]?|\ufe0f)\\Z")
_ORDINARY = re.compile(f"(?P<needed>{'|'.join(NEEDED.values())})|[^\t\n -~]")
_SAME = f"(?P<same>[^\t\n -~])(?P=same){{{SAME_MAX},}}|[^\t\n -~]"
_VALUE = re.compile(
    f"(?P<blanks>[\t\n ]{{{BLANKS_MAX + 1},}}|(?:[\t ]*\n){{{LINE_ENDS_MAX + 1},}})|{_SAME}"
)
_JSON = re.compile(
    f"(?P<pair>\\\\[\"\\\\/bfru])|(?P<blanks>(?:[\t\n ]|\\\\[nt]){{{BLANKS_MAX + 1},}}|"
    f"(?:[\t ]*\n){{{LINE_ENDS_MAX + 1},}})|{_SAME}", re.DOTALL
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_COUNT = "\u27e8"  # begins a count; therefore arguments show it escaped
_NAMES = {" ": "␠", "\t": "␉", "\n": "␊", "\\t": "␉", "\\n": "␊"}


def is_hidden(char: str) -> bool:
    """Whether a character draws nothing, draws a blank (except the space itself), or controls how
    others are drawn. A character that this version of Unicode does not know counts as hidden.
    """
    return not char.isprintable() or _BLANK.match(char) is not None


def clean(text: str) -> str:
    """Ordinary text with hidden characters escaped, as in `\\x1b`. Tabs, line ends, private
    characters and the sequences of NEEDED are kept.
    """
    return _ORDINARY.sub(_cleaned, text.replace("\r\n", "\n"))


def settled(text: str) -> int:
    """How many characters at the start of a streamed text `clean` shows in the same way whatever
    follows them."""
    found = _UNSETTLED.search(text)
    return len(text) if found is None else found.start()


def exact(value: str) -> str:
    """A text that a person approves: everything hidden is escaped, long runs are counted."""
    return _VALUE.sub(_shown, value)


def exact_json(text: str) -> str:
    """The same for JSON text. An escape of a character that can be seen becomes this character."""
    return _JSON.sub(_shown, _STRING.sub(_respelled, text))


def escape(char: str) -> str:
    """A character as an escape with the number of its code point."""
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\u{{{code:x}}}"


def _cleaned(match: re.Match[str]) -> str:
    char = match.group()
    if match["needed"] or not is_hidden(char):
        return char
    if category(char) in _HAS_A_GLYPH and not _NEVER_HAS.match(char):
        return char
    if "\ud800" <= char <= "\udfff":
        return "\ufffd"
    return f"\\x{ord(char):02x}" if ord(char) < 256 else escape(char)


def _shown(match: re.Match[str]) -> str:
    text, groups = match.group(), match.groupdict()
    if groups.get("pair"):
        return text
    if groups["blanks"]:
        counts = Counter(_NAMES[one] for one in re.findall(r"\\?.", text, re.DOTALL))
        return f"{_COUNT}{' '.join(f'{name}×{count}' for name, count in counts.items())}⟩"
    if not is_hidden(text[0]) and text[0] != _COUNT:
        return text
    return escape(text) if len(text) == 1 else f"{_COUNT}{escape(text[0])}×{len(text)}⟩"


def _respelled(match: re.Match[str]) -> str:
    try:
        return json.dumps(json.loads(match.group(), strict=False), ensure_ascii=False)
    except ValueError:
        return match.group()

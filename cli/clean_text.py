"""Cleans text, so that it cannot control a terminal."""

import re

# C0 except newline and tab, DEL, C1 (0x9b alone starts an escape sequence), the line and paragraph
# separators, and characters that change the writing direction, which could disguise a printed
# command.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with everything that could control a terminal made visible, as in `\\x1b`."""
    return _SURROGATES.sub("\ufffd", _UNSAFE.sub(_visible, text.replace("\r\n", "\n")))


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def escaped(text: str) -> str:
    """The JSON text with characters that control a terminal escaped."""
    text = _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
    return _SURROGATES.sub(lambda match: f"\\u{ord(match.group()):04x}", text)

"""Cleans text, so that it cannot control a terminal."""

import re

from ...client.visible import clean, is_hidden

__all__ = ["clean", "escaped"]

_OTHER = re.compile("[^\n -~]")


def escaped(text: str) -> str:
    """The JSON text with hidden characters as JSON escapes, so that the value is the same."""
    return _OTHER.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    if not is_hidden(char):
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

"""Reads tool results for the demo's agent: names in a listing, a title, a first paragraph.

The format of tool results is unspecified, so every function accepts any text and returns something
printable.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MODE = re.compile(r"^[bcdlps-][rwxsStT-]{9}")
_NUMBERED = re.compile(r"^\s*\d+\s*[\t|:→]\s?")
_KINDS = {"dir", "directory", "file", "d", "f", "-", "link", "folder"}
_MANIFESTS = ("pyproject.toml", "package.json", "Cargo.toml", "go.mod", "Makefile", "setup.py")
_TEXT_ENDS = (".md", ".rst", ".txt", ".toml", ".py", ".js", ".ts", ".go", ".rs", ".c", ".sh")
# Phrases that state how a call ended, unless it simply succeeded.
_UNKNOWN = re.compile(r"\W*(?:the )?outcome (?:is )?(?:unknown|uncertain)", re.IGNORECASE)
_MAYBE = re.compile(r"may have run|may or may not|is not known", re.IGNORECASE)
_DENIED = re.compile(r"\b(denied|not allowed|refused by|rejected)\b", re.I)
_NOT_RUN = re.compile(r"\b(not run|cancelled|canceled|expired)\b", re.I)


def lines_of(result: str) -> list[str]:
    """The lines of a result, without line numbers if all lines (except a notice) have a number."""
    lines = result.splitlines()
    filled = [line for line in lines if line.strip()]
    numbered = sum(1 for line in filled if _NUMBERED.match(line))
    if numbered and numbered >= len(filled) - 1:
        return [_NUMBERED.sub("", line) for line in lines]
    return lines


def names_in(listing: str) -> list[str]:
    """The names of files and folders in a listing in JSON or text. Known folders end in a slash."""
    try:
        found = _names_in_json(json.loads(listing))
    except ValueError:
        found = [name for line in listing.splitlines() if (name := _name_in_line(line))]
    return list(dict.fromkeys(found))


def _names_in_json(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [name for item in value for name in _names_in_json(item)]
    if isinstance(value, dict):
        name = value.get("name") or value.get("path")
        if isinstance(name, str):
            folder = str(value.get("type") or value.get("kind")).startswith("d")
            return [name.rstrip("/") + "/" if folder else name]
        return [name for item in value.values() for name in _names_in_json(item)]
    return []


def _name_in_line(line: str) -> str | None:
    mode = _MODE.match(line.strip())
    if mode:
        return line.split()[-1] + ("/" if mode[0].startswith("d") else "")
    words = line.strip().lstrip("-*• ").split()
    if not words:
        return None
    folder = words[0].lower().strip("[]:") in ("dir", "directory", "d", "folder")
    if len(words) > 1 and words[0].lower().strip("[]:") in _KINDS:
        words = words[1:]
    name = words[0].strip("`'\",:")
    # A heading or a count is not a name: a name has a letter and is not part of a sentence.
    if not re.search(r"[A-Za-z]", name) or len(words) > 6:
        return None
    return name.rstrip("/") + "/" if folder or name.endswith("/") else name


def folders_in(names: list[str]) -> list[str]:
    """The names that are certainly folders."""
    return [name for name in names if name.endswith("/")]


def main_file(names: list[str]) -> str | None:
    """The file that most likely describes the directory."""
    files = [name for name in names if not name.endswith("/")]
    for name in files:
        if re.match(r"readme(\.|$)", name.rpartition("/")[2], re.IGNORECASE):
            return name
    for wanted in _MANIFESTS:
        if wanted in files:
            return wanted
    return next((name for name in files if name.endswith(_TEXT_ENDS)), None)


def about(content: str) -> tuple[str, str]:
    """(title, first paragraph) of a text file; either may be empty."""
    title, fenced = "", False
    paragraph: list[str] = []
    for line in map(str.strip, lines_of(content)):
        fenced ^= line.startswith("```")
        if line.startswith("#") and not title and not paragraph:
            title = line.lstrip("#! ").strip()
        elif fenced or line.startswith(("```", "#", "[!", "![", "<", "|", "---", "===")):
            if paragraph:
                break
        elif line:
            paragraph.append(line)
        elif paragraph:
            break
    return quoted(title, 120), " ".join(paragraph)


def failure_of(result: str, failed: bool) -> str | None:
    """How a call failed, as the end of a sentence; None if it succeeded."""
    # Unless the result is an error, these words count only at its start: a command may print them.
    if _UNKNOWN.match(result) or (failed and _MAYBE.search(result[:400])):
        return (
            "may or may not have run: its outcome is unknown. I did not run it again, because "
            f"twice could be worse than never. The tool's result: {quoted(result, 200)}"
        )
    if not failed:
        return None
    if _DENIED.search(result[:400]):
        return "was not allowed, so I left it alone."
    if _NOT_RUN.search(result[:400]):
        return f"was not run: {quoted(result, 200)}"
    return f"did not succeed: {quoted(result, 200)}"


def quoted(value: str, chars_max: int) -> str:
    """A text on one line, cut at a word boundary."""
    flat = " ".join(value.split())
    if len(flat) <= chars_max:
        return flat
    return flat[:chars_max].rpartition(" ")[0] + " ..."


def listed(names: list[str], count_max: int) -> str:
    """The first names as text, such as "`a`, `b` and `c`", with the number of further names."""
    head = [f"`{name}`" for name in names[:count_max]]
    rest = len(names) - len(head)
    if rest > 0:
        return f"{', '.join(head)} and {rest} more"
    return " and ".join([", ".join(head[:-1]), head[-1]]) if len(head) > 1 else "".join(head)


def count_of(number: int, one: str, many: str) -> str:
    """A number with its noun, such as "1 line" or "2 lines"."""
    return f"{number} {one if number == 1 else many}"

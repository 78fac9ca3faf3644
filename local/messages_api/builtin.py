"""The named scripts `echo`, `obedient` and `demo`, and scripts read from files."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from .demo import demo
from .obedient import obedient
from .request import Request
from .script import Reply, Rule, Script, Speaker, rule_from_json, text


def echo(request: Request) -> Reply:
    """Repeats the user's text, word by word."""
    return Reply([text(f"You said: {request.last_user_text}")], chunk="word")


UNKNOWN = "unknown field"
EXAMPLE = (
    'A rule: {"contains": "hello", "reply": {"blocks": [{"type": "text", "text": "Hi!"}]}}'
)
SPEAKERS: dict[str, Speaker] = {"echo": echo, "obedient": obedient, "demo": demo}


def load_script(name_or_file: str | Path) -> Script:
    """A script by name, or from a file: `.json` (a list of rules, or {"rules": [...]}), or `.py`
    with a global `script` (a Script or a list of rules, replies and functions).

    Raises ValueError for an unknown name or a file of another form, and OSError for a file that
    cannot be read.
    """
    name = str(name_or_file)
    if name in SPEAKERS:
        return Script([SPEAKERS[name]], name=name)
    path = Path(name_or_file)
    if path.suffix == ".json":
        return Script(_rules_of(path.read_text("utf-8")), name=path.stem)
    if path.suffix == ".py":
        found = runpy.run_path(str(path)).get("script")
        if isinstance(found, Script):
            return found
        if not isinstance(found, list | tuple) or not all(map(_is_rule, found)):
            raise ValueError(
                "a .py script sets `script = [...]`, a list of Rule, Reply or functions from a "
                f"request to a Reply, imported from foldlog.local.messages_api; {_instead(found)}"
            )
        return Script(found, name=path.stem)
    known = ", ".join(SPEAKERS)
    raise ValueError(f"unknown script {name!r}; known: {known}, or a .json or .py file")


def _rules_of(written: str) -> list[Rule]:
    """The rules in a .json file. Raises ValueError with the number of the invalid rule."""
    try:
        data = json.loads(written)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    rules = data.get("rules") if isinstance(data, dict) else data
    if not isinstance(rules, list):
        raise ValueError(f'a .json script is a list of rules, or {{"rules": [...]}}. {EXAMPLE}')
    found = []
    for number, rule in enumerate(rules, 1):
        try:
            found.append(rule_from_json(rule, SPEAKERS))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else _why(error)
            raise ValueError(f"rule {number} is wrong: {why}. {EXAMPLE}") from None
    return found


def _why(error: Exception) -> str:
    """Why a rule is invalid, as text without the names of foldlog's own functions."""
    text = str(error)
    for made in ("Rule", "Reply"):
        text = text.replace(f"{made}.__init__() got an unexpected keyword argument", UNKNOWN)
    return text if isinstance(error, ValueError) or UNKNOWN in text else (
        "a rule is an object, and so are its `reply` and each of its blocks"
    )


def _is_rule(value: object) -> bool:
    return isinstance(value, Rule | Reply) or callable(value)


def _instead(found: object) -> str:
    if found is None:
        return "it sets no `script`"
    return f"it sets {type(found).__name__} {repr(found)[:80]}"

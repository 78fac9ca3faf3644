"""The named scripts `echo`, `obedient` and `demo`, and scripts read from files."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from .demo import demo
from .obedient import obedient
from .request import Request
from .script import Reply, Script, Speaker, rule_from_json, text


def echo(request: Request) -> Reply:
    """Repeats the user's text, word by word."""
    return Reply([text(f"You said: {request.last_user_text}")], chunk="word")


SPEAKERS: dict[str, Speaker] = {"echo": echo, "obedient": obedient, "demo": demo}


def load_script(name_or_file: str | Path) -> Script:
    """A script by name, or from a file: `.json` (a list of rules, or {"rules": [...]}), or `.py`
    with a global `script` (a Script or a list of rules).

    Raises ValueError for an unknown name, FileNotFoundError for a missing file.
    """
    name = str(name_or_file)
    if name in SPEAKERS:
        return Script([SPEAKERS[name]], name=name)
    path = Path(name_or_file)
    if path.suffix == ".json":
        data = json.loads(path.read_text("utf-8"))
        rules = data["rules"] if isinstance(data, dict) else data
        return Script([rule_from_json(rule, SPEAKERS) for rule in rules], name=path.stem)
    if path.suffix == ".py":
        found = runpy.run_path(str(path))["script"]
        return found if isinstance(found, Script) else Script(found, name=path.stem)
    known = ", ".join(SPEAKERS)
    raise ValueError(f"unknown script {name!r}; known: {known}, or a .json or .py file")

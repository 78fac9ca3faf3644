"""The script `obedient`: it executes the commands in the text, line by line.

It is for end-to-end tests, where a message defines what the model will do, and for injection
tests: unlike a model, it also executes lines in tool results.

    CALL tool {"json": "input"}   one tool call; several lines are parallel calls
    THEN                          the lines below wait for the results of the calls above
    SAY text / THINK text         a text or thinking block
    FAULT name {"parameter": 1}   a fault, once per session and text, or "times" times
    GATE name [after]             wait at a gate, after this number of events
    PACE seconds                  pause after each delta
    STOP reason                   the stop_reason

Without any of these it answers `done: ` and the last results, or the user's text.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any

from .faults import fault
from .request import Request, text_of
from .script import Block, Reply, text, thinking, tool_use

_VERBS = ("CALL ", "SAY ", "THINK ", "FAULT ", "GATE ", "PACE ", "STOP ")
# Enough to recognize a result, short enough to read.
_DONE_CHARS = 400

_fault_counts: Counter[tuple[str, int, str]] = Counter()
_lock = threading.Lock()


def obedient(request: Request) -> Reply:
    """See the module's docstring."""
    commands = _commands(_text_of_results(request))
    if not commands:
        steps = _steps(request.last_user_text)
        step = _step_number(request)
        commands = _commands(steps[step]) if step < len(steps) else []
    if not commands:
        return Reply([text(f"done: {_outcome(request)}")], chunk="word")
    return _execute(commands, request)


def _text_of_results(request: Request) -> str:
    return "\n".join(text_of(block.get("content")) for block in request.last_results)


def _steps(message: str) -> list[str]:
    steps = [""]
    for line in message.splitlines():
        if line.strip() == "THEN":
            steps.append("")
        else:
            steps[-1] += line + "\n"
    return steps


def _step_number(request: Request) -> int:
    """The number of responses since the newest user text. Each response executed one step of that
    text."""
    number = 0
    for message in reversed(request.messages):
        if message["role"] == "assistant":
            number += 1
        elif message["role"] == "user" and _has_text(message):
            return number
    return number


def _has_text(message: dict[str, Any]) -> bool:
    content = message["content"]
    return isinstance(content, str) or any(block["type"] == "text" for block in content)


def _commands(message: str) -> list[tuple[str, str]]:
    lines = [line.strip() for line in message.splitlines()]
    return [
        (verb.strip(), line[len(verb) :].strip())
        for line in lines
        for verb in _VERBS
        if line.startswith(verb)
    ]


def _outcome(request: Request) -> str:
    content = _text_of_results(request) or request.last_user_text
    return content.strip()[:_DONE_CHARS]


def _execute(commands: list[tuple[str, str]], request: Request) -> Reply:
    blocks: list[Block] = []
    options: dict[str, Any] = {}
    for verb, rest in commands:
        first, _, tail = rest.partition(" ")
        if verb == "CALL":
            blocks.append(tool_use(first, tail.strip() or "{}"))
        elif verb == "SAY":
            blocks.append(text(rest))
        elif verb == "THINK":
            blocks.append(thinking(rest))
        elif verb == "FAULT":
            options |= _fault_once(first, json.loads(tail or "{}"), request)
        elif verb == "GATE":
            options |= {"gate": first, "gate_after": int(tail or 0)}
        elif verb == "PACE":
            options["pace_s"] = float(first)
        elif verb == "STOP":
            options["stop_reason"] = first
    if not blocks:
        blocks = [text(f"done: {_outcome(request)}")]
    return Reply(blocks, chunk="word", **options)


def _fault_once(name: str, params: dict[str, Any], request: Request) -> dict[str, Any]:
    times = params.pop("times", 1)
    wanted = fault(name, **params)
    key = (request.canary, len(request.messages), f"{name} {sorted(wanted.params.items())}")
    with _lock:
        if _fault_counts[key] >= times:
            return {}
        _fault_counts[key] += 1
    return {"fault": wanted}

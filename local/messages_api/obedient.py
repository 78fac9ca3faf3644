"""The script `obedient`: it does what the text tells it, line by line.

Owns the little language below. It is for tests of the whole system (a message says what the model
will do) and for injection tests: it obeys lines in tool results too, as no model should.

    CALL tool {"json": "input"}   one tool call; several lines are parallel calls
    THEN                          what follows is done after the results of the calls above
    SAY text / THINK text         a text or thinking block
    FAULT name {"parameter": 1}   a fault, once per session and text unless "times" says more
    GATE name [after]             wait at a gate after so many events
    PACE seconds                  pause after each delta
    STOP reason                   the stop_reason

Without any of these it answers `done: ` and the last results, or what was said.
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
# Enough to recognise a result, short enough to read.
_DONE_CHARS = 400

_faults_done: Counter[tuple[str, int, str]] = Counter()
_lock = threading.Lock()


def obedient(request: Request) -> Reply:
    """See the module's docstring."""
    ordered = _orders(_text_of_results(request))
    if not ordered:
        steps = _steps(request.last_user_text)
        step = _steps_done(request)
        ordered = _orders(steps[step]) if step < len(steps) else []
    if not ordered:
        return Reply([text(f"done: {_outcome(request)}")], chunk="word")
    return _obey(ordered, request)


def _text_of_results(request: Request) -> str:
    return "\n".join(text_of(block.get("content")) for block in request.last_results)


def _steps(said: str) -> list[str]:
    steps = [""]
    for line in said.splitlines():
        if line.strip() == "THEN":
            steps.append("")
        else:
            steps[-1] += line + "\n"
    return steps


def _steps_done(request: Request) -> int:
    """Responses since the newest text of a user: each one did a step of that text."""
    done = 0
    for message in reversed(request.messages):
        if message["role"] == "assistant":
            done += 1
        elif message["role"] == "user" and _says_something(message):
            return done
    return done


def _says_something(message: dict[str, Any]) -> bool:
    content = message["content"]
    return isinstance(content, str) or any(block["type"] == "text" for block in content)


def _orders(said: str) -> list[tuple[str, str]]:
    lines = [line.strip() for line in said.splitlines()]
    return [
        (verb.strip(), line[len(verb) :].strip())
        for line in lines
        for verb in _VERBS
        if line.startswith(verb)
    ]


def _outcome(request: Request) -> str:
    said = _text_of_results(request) or request.last_user_text
    return said.strip()[:_DONE_CHARS]


def _obey(ordered: list[tuple[str, str]], request: Request) -> Reply:
    blocks: list[Block] = []
    how: dict[str, Any] = {}
    for verb, rest in ordered:
        first, _, tail = rest.partition(" ")
        if verb == "CALL":
            blocks.append(tool_use(first, tail.strip() or "{}"))
        elif verb == "SAY":
            blocks.append(text(rest))
        elif verb == "THINK":
            blocks.append(thinking(rest))
        elif verb == "FAULT":
            how |= _fault_once(first, json.loads(tail or "{}"), request)
        elif verb == "GATE":
            how |= {"gate": first, "gate_after": int(tail or 0)}
        elif verb == "PACE":
            how["pace_s"] = float(first)
        elif verb == "STOP":
            how["stop_reason"] = first
    if not blocks:
        blocks = [text(f"done: {_outcome(request)}")]
    return Reply(blocks, chunk="word", **how)


def _fault_once(name: str, params: dict[str, Any], request: Request) -> dict[str, Any]:
    times = params.pop("times", 1)
    asked = fault(name, **params)
    key = (request.canary, len(request.messages), f"{name} {sorted(asked.params.items())}")
    with _lock:
        if _faults_done[key] >= times:
            return {}
        _faults_done[key] += 1
    return {"fault": asked}

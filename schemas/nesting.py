"""Parses JSON in folds, up to a fixed nesting depth.

`json.loads` fails when the interpreter's stack is full. The same bytes could therefore be valid in
a worker and invalid in a gateway, where more calls are on the stack already. Every reader of the
log must reach the same ruling, so this file counts the depth itself.
"""

import json
import re

NESTING_MAX = 500
"""The deepest nesting of arrays and objects. Python's own limit is about 990 on an empty stack."""

_NO_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[^"\[\]{}]+', re.DOTALL)
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}


def parsed(data: bytes) -> object:
    """The value of a JSON text. Raises ValueError if it is invalid or nested too deeply."""
    text = data.decode(json.detect_encoding(data), "surrogatepass")
    if text.count("[") + text.count("{") > NESTING_MAX and depth_of(text) > NESTING_MAX:
        raise ValueError(f"nested more than {NESTING_MAX} levels deep")
    return json.loads(text)


def depth_of(text: str) -> int:
    """The nesting depth of arrays and objects; exact for valid JSON."""
    depth = deepest = 0
    for character in _NO_BRACKETS.sub("", text):
        depth += _STEPS[character]
        deepest = max(deepest, depth)
    return deepest

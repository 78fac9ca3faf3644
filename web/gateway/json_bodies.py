"""Parses request bodies as strict JSON: refuses what two parsers could read differently.

The parsed values are bounded and unambiguous: numbers fit in 64 bits, an object has each name once,
texts are valid Unicode, and nesting is limited. Later code need not check this again.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from ...producers.checks import Invalid

DEPTH_MAX = 100
"""The limit of nesting, because folds and providers read these values recursively."""

VALUES_MAX = 200_000
"""The limit of values in a body, counted by opening brackets and commas. The event loop parses
bodies, and this many objects take about 0.2 s.
"""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_DIGITS_MAX = 20
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(data: bytes) -> Any:
    """The value of a body. Raises Invalid with the reason."""
    _demand_few(data)
    try:
        value = _DECODER.decode(data.decode())
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        why = _Unclear.reason(error)
        raise Invalid("invalid", f"the body is not valid JSON ({why}): nothing was done. Correct "
                      "it and send it again") from None
    _demand_shallow(value)
    if _SURROGATE.search(data):
        _demand_unicode(value)
    return value


class _Unclear(ValueError):
    """The JSON is refused although a lenient parser would accept it."""

    @staticmethod
    def reason(error: ValueError) -> str:
        """Why the body is refused, without any of its content."""
        match error:
            case _Unclear():
                return str(error)
            case json.JSONDecodeError():
                return f"{error.msg} at character {error.pos}"
            case _:
                return "it is not UTF-8"


def _integer(text: str) -> int:
    if len(text) > _DIGITS_MAX or not INT_MIN <= (number := int(text)) <= INT_MAX:
        raise _Unclear("an integer does not fit in 64 bits; send it as a string")
    return number


def _float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _Unclear("a number is too large for a double; send it as a string")
    return number


def _constant(text: str) -> Any:
    raise _Unclear(f"{text} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise _Unclear("an object has the same name twice")
    return value


_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=_float, parse_constant=_constant, object_pairs_hook=_object
)


def _demand_few(data: bytes) -> None:
    """Raise Invalid if the body has too many values, before it is parsed."""
    if _openings(data) <= VALUES_MAX:
        return
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")  # only quotes that end strings are left
    if plain.count(b'"') > 4 * VALUES_MAX or _openings(_outside_strings(plain)) > VALUES_MAX:
        raise Invalid("too_many_values", f"the body has more than {VALUES_MAX:,} opening brackets "
                      "and commas outside of its strings: nothing was done. Send fewer "
                      "values, or a large table as one string")


def _openings(data: bytes) -> int:
    """An upper bound of the number of values after the first, each of which follows `[`, `{` or
    `,`.
    """
    return data.count(b"[") + data.count(b"{") + data.count(b",")


def _outside_strings(plain: bytes) -> bytes:
    return b"".join(plain.split(b'"')[::2])


def _demand_shallow(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> Invalid:
    return Invalid("invalid", f"the body nests values more than {DEPTH_MAX} deep: nothing was "
                   "done. Send flatter values")


def _demand_unicode(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Invalid("invalid_text", "a string in the body has a lone surrogate, which is not "
        "valid Unicode: nothing was done. Remove it and send the body again") from None


class JsonRequest(Request):
    """A request whose JSON body is parsed strictly."""

    async def json(self) -> Any:
        """The body's value. Raises Invalid."""
        return read_json(await self.body())


class JsonRoute(APIRoute):
    """A route that parses JSON strictly even when the framework reads the body."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """The handler, called with a JsonRequest."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return strict

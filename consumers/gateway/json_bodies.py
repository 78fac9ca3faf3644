"""JSON as requests may hold it: what another reader could take for something else is refused.

Bounded and unambiguous: numbers fit in 64 bits, a name comes once in an object, texts are Unicode,
nothing nests deeper than messages and tools' arguments do. So nothing behind it must ask again.
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
"""Of values in values. Folds and providers read what is said here by recursion."""

VALUES_MAX = 200_000
"""Of a body, by its opening brackets and commas. It is read in the event loop: so many objects take
about 0.2 s."""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_DIGITS_MAX = 20
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(data: bytes) -> Any:
    """The value of a body. Raises Invalid, saying what of it can't be taken."""
    demand_few(data)
    try:
        value = _DECODER.decode(data.decode())
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        why = _Unclear.reason(error)
        raise Invalid("invalid", f"the body can't be taken as JSON: {why}") from None
    _demand_shallow(value)
    if _SURROGATE.search(data):
        _demand_unicode(value)
    return value


class _Unclear(ValueError):
    """JSON that is well formed, or nearly, and not taken."""

    @staticmethod
    def reason(error: ValueError) -> str:
        """What is wrong, without the content."""
        match error:
            case _Unclear():
                return str(error)
            case json.JSONDecodeError():
                return f"{error.msg} at character {error.pos}"
            case _:
                return "it is not UTF-8"


def _integer(text: str) -> int:
    if len(text) > _DIGITS_MAX or not INT_MIN <= (number := int(text)) <= INT_MAX:
        raise _Unclear("a whole number does not fit in 64 bits; send it as a text")
    return number


def _float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _Unclear("a number is larger than a double holds; send it as a text")
    return number


def _constant(text: str) -> Any:
    raise _Unclear(f"{text} is no JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _Unclear("an object has the same name twice")
    return made


_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=_float, parse_constant=_constant, object_pairs_hook=_object
)


def demand_few(data: bytes) -> None:
    """Raise Invalid for JSON of more values than a body may have, before any of them is made."""
    if _openings(data) <= VALUES_MAX:
        return
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")  # what texts have left ends them
    if plain.count(b'"') > 4 * VALUES_MAX or _openings(_outside_of_texts(plain)) > VALUES_MAX:
        raise Invalid("too_many_values", f"the body has more than {VALUES_MAX:,} opening brackets "
                      "and commas outside of its texts: nothing was done with it; send fewer "
                      "values, or a large table as one text")


def _openings(data: bytes) -> int:
    """As many as there are values behind the first one, or more: each follows one of these."""
    return data.count(b"[") + data.count(b"{") + data.count(b",")


def _outside_of_texts(plain: bytes) -> bytes:
    return b"".join(plain.split(b'"')[::2])


def _demand_shallow(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for held in level
            if isinstance(held, dict | list)
            for inner in (held.values() if isinstance(held, dict) else held)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> Invalid:
    return Invalid("invalid", f"the body nests values more than {DEPTH_MAX} deep")


def _demand_unicode(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Invalid("invalid_text", "a text of the body has half of a character (a lone "
                      "surrogate), which is not valid Unicode") from None


class JsonRequest(Request):
    """A request whose body is read so."""

    async def json(self) -> Any:
        """The body's value. Raises Invalid."""
        return read_json(await self.body())


class JsonRoute(APIRoute):
    """A route whose requests are read so, also by the framework."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """The handler, given such a request."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return strict

"""`@tool`: the schema that a model reads, the check of arguments, and the functions that it
rejects."""

import asyncio
import dataclasses
import json
from enum import StrEnum
from typing import Annotated, Literal

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from foldlog.processors.tools.tool import ToolContext, check_args, tool
from foldlog.schemas.enums import Approval, Effect


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    sku: str
    count: int = 1


@tool(effect="idempotent", approval="ask", timeout_s=1.5, result_tokens=100)
async def order(
    ctx,
    amount_cents: Annotated[int, "what it costs"],
    items: list[Item],
    colour: Colour = Colour.RED,
    note: str | None = None,
    mode: Literal["fast", "slow"] = "fast",
    tags: list[str] = [],  # noqa: B006 - the subject of a test
    price: float = 1.5,
    schema: str = "a name that pydantic models do not like",
) -> dict:
    """Order some things.

    It costs money.
    """
    return {"amount": amount_cents}


GOOD = {"amount_cents": 5, "items": [{"sku": "a"}]}


def test_the_tool_is_described_by_its_function():
    assert (order.name, order.effect, order.approval) == (
        "order",
        Effect.IDEMPOTENT,
        Approval.ASK,
    )
    assert order.description == "Order some things.\n\nIt costs money."
    assert (order.timeout_ms, order.result_tokens, order.stops) == (1500, 100, False)
    assert order.is_async and order.context == "ctx"


def test_S2_8_a_tool_without_options_is_once_and_needs_no_approval():
    @tool
    def hello(name: str) -> str:
        """Greet somebody."""
        return name

    assert (hello.effect, hello.approval) == (Effect.ONCE, Approval.NONE)
    assert hello.timeout_ms is None and not hello.is_async and hello.context is None


def test_the_schema_keeps_the_order_and_has_no_titles():
    schema = order.input_schema
    assert list(schema)[:2] == ["type", "properties"]
    assert list(schema["properties"]) == [
        "amount_cents", "items", "colour", "note", "mode", "tags", "price", "schema",
    ]  # fmt: skip
    assert schema["required"] == ["amount_cents", "items"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["amount_cents"] == {
        "description": "what it costs",
        "type": "integer",
    }
    assert schema["properties"]["mode"]["enum"] == ["fast", "slow"]
    assert '"title"' not in json.dumps(schema)


def test_a_parameter_may_be_named_title():
    @tool
    def publish(title: str) -> str:
        """Publish."""
        return title

    assert list(publish.input_schema["properties"]) == ["title"]
    assert publish.arguments.parse(b'{"title":"x"}') == {"title": "x"}


def test_arguments_arrive_with_their_types():
    raw = {**GOOD, "colour": "blue", "tags": ["x"], "price": 2}
    parsed = order.arguments.parse(json.dumps(raw).encode())
    assert parsed["items"] == [Item(sku="a")]
    assert parsed["colour"] is Colour.BLUE and parsed["price"] == 2
    assert parsed["mode"] == "fast" and parsed["note"] is None


def test_each_call_gets_its_own_mutable_default():
    first = order.arguments.parse(json.dumps(GOOD).encode())
    first["tags"].append("leak")
    assert order.arguments.parse(json.dumps(GOOD).encode())["tags"] == []


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", "amount_cents: Field required"),
        (b"{", "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"amount_cents":"5","items":[]}', "amount_cents: Input should be a valid integer"),
        (b'{"amount_cents":true,"items":[]}', "amount_cents"),
        (b'{"amount_cents":5.0,"items":[]}', "amount_cents"),
        (b'{"amount_cents":5,"items":[],"price":NaN}', "NaN is not JSON"),
        (b'{"amount_cents":5,"items":[],"price":1e999}', "price"),
        (b'{"amount_cents":5,"items":[],"extra":1}', "extra"),
        (b'{"amount_cents":5,"items":[{"sku":"a","extra":1}]}', "items.0.extra"),
        (b'{"amount_cents":5,"items":[{"sku":"a","count":"1"}]}', "items.0.count"),
        (b'{"amount_cents":5,"items":[],"mode":"medium"}', "'fast' or 'slow'"),
        (b'{"amount_cents":5,"items":[],"amount_cents":6}', "'amount_cents' occurs twice"),
        (b'{"amount_cents":5,"items":[{"sku":"a","sku":"b"}]}', "'sku' occurs twice"),
        (b'{"amount_cents":' + b"9" * 5000 + b',"items":[]}', "limit"),
    ],
)
def test_P2_wrong_arguments_are_explained_to_the_model(raw, error):
    why = check_args(order, raw)
    assert why is not None and why.startswith("order was not run, its arguments are wrong: ")
    assert error in why and len(why) < 2_000


def test_of_many_errors_the_first_are_listed():
    items = [{"sku": n} for n in range(50)]
    why = check_args(order, json.dumps({"amount_cents": 1, "items": items}).encode())
    assert why.endswith("; 45 more")


@given(raw=st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8")))
def test_the_check_never_raises(raw):
    why = check_args(order, raw)
    assert why is None or isinstance(why, str)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(extra=st.dictionaries(st.sampled_from(["note", "tags", "mode", "items", "x"]), json_values))
def test_valid_arguments_can_be_parsed(extra):
    raw = json.dumps({**GOOD, **extra}).encode()
    if check_args(order, raw) is None:
        assert set(order.arguments.parse(raw)) == set(order.input_schema["properties"])


def test_an_exception_of_a_validator_is_a_wrong_argument():
    class Odd(BaseModel):
        x: int

        def model_post_init(self, context):
            raise RuntimeError("odd")

    with pytest.raises(TypeError, match="module level"):

        @tool
        def local(value: "Missing") -> str:  # noqa: F821 - the subject of the test
            """Takes a type that is not defined."""

    @tool
    def odd(value: Odd) -> str:
        """Takes something odd."""

    assert "RuntimeError: odd" in check_args(odd, b'{"value":{"x":1}}')


def no_docstring(a: int) -> int:
    return a


def no_annotation(a) -> int:
    """Doc."""


def many(*a: int) -> int:
    """Doc."""


def more(**a: int) -> int:
    """Doc."""


def positional(a: int, /) -> int:
    """Doc."""


def hidden(_a: int) -> int:
    """Doc."""


def no_schema(a: asyncio.Future) -> int:
    """Doc."""


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (no_docstring, "needs a docstring"),
        (no_annotation, "needs an annotation"),
        (many, "must not be variadic"),
        (more, "must not be variadic"),
        (positional, "must not be variadic"),
        (hidden, "underscore"),
        (no_schema, "parameter 'a' of tool no_schema has the type Future, which JSON lacks"),
        (5, "made from a function"),
    ],
)
def test_an_unsuitable_function_is_rejected_at_import(function, error):
    with pytest.raises(TypeError, match=error):
        tool(function)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"effect": "sometimes"}, "pure, idempotent, once"),
        ({"approval": "maybe"}, "none, ask, deny"),
        ({"name": "a tool"}, "64 characters"),
        ({"name": "x" * 65}, "64 characters"),
        ({"timeout_s": 0}, "timeout_s of tool fine must be positive"),
        *(
            ({"effect": "pure", "cache_ttl_s": number}, "cache_ttl_s of tool fine must be positive")
            for number in (0, -1, float("nan"), float("inf"))
        ),
        ({"result_tokens": -1}, "must be positive"),
        ({"result_tokens": 0}, "must be positive"),
        ({"timeout_s": "30"}, "timeout_s of tool fine must be a number, not '30'"),
        ({"effect": "pure", "cache_ttl_s": "60"}, "cache_ttl_s of tool fine must be a number"),
        ({"result_tokens": True}, "result_tokens of tool fine must be a number"),
        ({"compactor": "haiku"}, "compactor of tool fine must be a function, not 'haiku'"),
        ({"reconciler": True}, "reconciler of tool fine must be a function"),
        ({"name": 5}, "64 characters"),
    ],
)
def test_wrong_options_are_rejected_at_import(options, error):
    with pytest.raises(ValueError, match=error):

        @tool(**options)
        def fine(a: int) -> int:
            """Doc."""


def test_the_context_is_found_by_name_or_by_type():
    @tool
    def by_type(run: ToolContext, a: int) -> int:
        """Doc."""

    assert by_type.context == "run"
    assert list(by_type.input_schema["properties"]) == ["a"]


def test_a_tool_is_frozen_and_still_a_function():
    with pytest.raises(dataclasses.FrozenInstanceError):
        order.name = "other"
    assert asyncio.run(order(None, 5, [])) == {"amount": 5}


def test_bad_input_a_type_without_a_schema_names_the_parameter_and_what_is_allowed():
    with pytest.raises(TypeError) as refused:

        @tool
        def send(order: int, sock: Exception) -> str:
            """Send it."""

    assert "parameter 'sock' of tool send has the type Exception, which JSON" in str(refused.value)
    assert "Use str, int, float" in str(refused.value) and "pydantic.dev" not in str(refused.value)
    assert refused.value.__cause__ is None, "the reason is printed once"


def test_bad_input_a_context_that_is_not_the_first_parameter_is_refused():
    with pytest.raises(TypeError, match="'ctx' of tool send gets the ToolContext.*must be the fir"):

        @tool
        def send(order: int, ctx: ToolContext) -> str:
            """Send it."""


@pytest.mark.parametrize(("hint", "default"), [(int, "five"), (str, 5), (list[int], ["a"])])
def test_bad_input_a_default_that_contradicts_its_annotation_is_refused(hint, default):
    def send(count=default):
        """Send it."""

    send.__annotations__["count"] = hint
    with pytest.raises(TypeError, match="the default of parameter 'count' of tool send is "):
        tool(send)


def test_bad_input_a_reconciler_of_a_pure_tool_is_refused():
    with pytest.raises(ValueError, match="tool look is pure.*reconciler"):

        @tool(effect="pure", reconciler=print)
        def look() -> str:
            """Look."""

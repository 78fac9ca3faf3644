"""The laws of the request: pure, legal, kept by the store, and growing only at its end."""

import json
from typing import NamedTuple

import pytest

from foldlog.local.messages_api.conversation import check_conversation
from foldlog.local.messages_api.errors import ApiError
from foldlog.local.messages_api.shape import check_shape
from foldlog.processors.context.build import request_bytes, request_sha256
from foldlog.processors.session import fold, initial
from foldlog.schemas import events as ev
from foldlog.schemas.value import replace
from foldlog.tests.laws.law import law
from foldlog.tests.laws.legal import blocks_of, findings, static_part
from foldlog.tests.laws.test_fold_laws import through_the_store
from foldlog.tests.laws.worlds import World

# Blocks that only the real API can have made up: the stand-in server knows its own ones only.
NOT_OF_THE_STAND_IN = ("does not match any of the expected tags", "not found in provided tools")


class Made(NamedTuple):
    """A request as its step made it. `moved`: a CONTEXT_SET came between it and the one before."""

    offset: int
    request: bytes
    moved: bool


def requests(world: World) -> list[Made]:
    """Every request of a history, in order."""
    made, moved = [], False
    for step in world.steps:
        if not step.ruling.accepted:
            continue
        moved |= isinstance(step.entry.event, ev.ContextSet)
        if isinstance(step.entry.event, ev.LlmCalled):
            request = request_bytes(step.views, world.blobs.read)
            made.append(Made(step.entry.offset, request, moved))
            moved = False
    return made


@law()
def test_every_request_is_legal(world):
    for made in requests(world):
        assert not findings(made.request), made.request.decode()


@law()
def test_the_strict_stand_in_server_takes_every_request(world):
    for made in requests(world):
        body = json.loads(made.request)
        try:
            check_shape(body, frozenset())
            check_conversation(body)
        except ApiError as refusal:
            assert any(text in str(refusal) for text in NOT_OF_THE_STAND_IN), refusal


@law()
def test_law_11_a_request_is_the_same_bytes_whoever_builds_it_and_whenever(world):
    views = initial(world.session_id)
    for step in world.steps:
        views, ruling = fold(through_the_store(views), step.entry)
        if not ruling.accepted or views.context.request is None:
            continue
        again = request_bytes(views, world.blobs.read)
        assert again == request_bytes(step.views, world.blobs.read)
        if isinstance(step.entry.event, ev.GenStart | ev.GenResumed):
            assert step.entry.event.request_sha256 == request_sha256(again)
    for made in requests(world)[-3:]:
        row = next(s.views.context.request for s in world.steps if s.entry.offset == made.offset)
        past = replace(world.views, context=replace(world.views.context, request=row))
        rebuilt = request_bytes(past, world.blobs.read)
        assert rebuilt == made.request, "any past request can be rebuilt from the newest view"


@law()
def test_S2_11_a_request_begins_with_the_one_before_it_block_by_block(world):
    made = requests(world)
    for one, other in zip(made, made[1:], strict=False):
        before, after = blocks_of(one.request), blocks_of(other.request)
        if before[-1][0] == "assistant":  # a pause, and nobody may have come back to it
            before = [place for place in before if '"server_tool_use"' not in place[1]]
            after = [place for place in after if '"server_tool_use"' not in place[1]]
            before = before[: 1 + max(n for n, (role, _) in enumerate(before) if role == "user")]
        assert after[: len(before)] == before
        if not other.moved:
            assert static_part(one.request) == static_part(other.request)


@law()
def test_S1_C_constraint_7_what_was_said_is_in_later_requests_byte_for_byte(world):
    said: list[str] = []
    for step in world.steps:
        event = step.entry.event
        if not step.ruling.accepted:
            continue
        if isinstance(event, ev.LlmCalled):
            request = request_bytes(step.views, world.blobs.read).decode()
            for block in said:
                assert block in request
        if isinstance(event, ev.GenComplete) and event.stop_reason in ("end_turn", "tool_use"):
            body = event.content
            whole = world.blobs.read(body.ref) if body.ref else body.inline or b""
            said += must_be_said_again(whole.decode(), event.stop_reason)


def must_be_said_again(content: str, stop_reason: str) -> list[str]:
    """The raw text of every signed thinking block that something visible follows."""
    raw = content[1:-1]
    blocks, decoder, place = [], json.JSONDecoder(), 0
    while place < len(raw):
        block, end = decoder.raw_decode(raw, place)
        blocks.append((block, raw[place:end]))
        place = end + 1
    shown = [
        n
        for n, (block, _) in enumerate(blocks)
        if (block["type"] == "text" and block["text"].strip())
        or (block["type"] == "tool_use" and stop_reason == "tool_use")
    ]
    return [
        text
        for n, (block, text) in enumerate(blocks)
        if block["type"] == "thinking" and block["signature"] and shown and n < shown[-1]
    ]


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ({"messages": []}, "no messages"),
        ({"messages": [("user", [{"type": "text", "text": " "}])]}, "visible"),
        ({"messages": [("assistant", [{"type": "text", "text": "a"}])]}, "first message"),
        ({"messages": [("user", [{"type": "tool_result", "tool_use_id": "a"}])]}, "for the calls"),
        (
            {
                "messages": [
                    ("user", [{"type": "text", "text": "a"}]),
                    ("assistant", [{"type": "tool_use", "id": "a", "name": "n", "input": {}}]),
                ]
            },
            "have no results",
        ),
        (
            {
                "messages": [
                    ("user", [{"type": "text", "text": "a"}]),
                    ("assistant", [{"type": "thinking", "thinking": "x", "signature": ""}]),
                ]
            },
            "without its signature",
        ),
        (
            {
                "messages": [
                    ("user", [{"type": "text", "text": "a"}]),
                    ("assistant", [{"type": "thinking", "thinking": "x", "signature": "s"}]),
                    ("user", [{"type": "text", "text": "a"}]),
                ]
            },
            "final block",
        ),
        (
            {
                "messages": [
                    ("user", [{"type": "text", "text": "a"}]),
                    ("assistant", [{"type": "server_tool_use", "id": "s", "input": {}}]),
                    ("user", [{"type": "text", "text": "a"}]),
                ]
            },
            "without its result",
        ),
    ],
)
def test_the_checker_finds_what_is_illegal(body, finding):
    messages = [{"role": role, "content": content} for role, content in body["messages"]]
    whole = {"model": "m", "max_tokens": 1, "messages": messages}
    assert any(finding in found for found in findings(json.dumps(whole).encode()))

"""The laws of the request: pure, legal, kept by the store, and growing only at its end."""

import json
from typing import NamedTuple

import pytest

from foldlog.processors.fold.projections.context_view import Request
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.request.build import request_bytes, request_sha256
from foldlog.schemas import events as ev
from foldlog.schemas.tokens import family_of
from foldlog.schemas.value import replace
from foldlog.tests.laws.api_rules import (
    OPAQUE,
    blocks_of,
    findings,
    static_part,
    without_thinking,
)
from foldlog.tests.laws.history import Step
from foldlog.tests.laws.law import law
from foldlog.tests.laws.resumed import sent_for
from foldlog.tests.laws.sealed import refusals
from foldlog.tests.laws.test_fold_laws import through_the_store
from foldlog.tests.laws.worlds import World

SPOKEN = ("assistant", "partial")


class Made(NamedTuple):
    """A request as its step made it."""

    step: Step
    request: bytes

    @property
    def row(self) -> Request:
        return self.step.views.context.request

    @property
    def shape(self) -> tuple:
        """What an adopting step changes."""
        return self.row.start, self.row.checkpoint, self.row.compacted_upto


def requests(world: World) -> list[Made]:
    """Every request of a history, in order."""
    return [
        Made(step, world.request_at(step))
        for step in world.steps
        if step.ruling.accepted and isinstance(step.entry.event, ev.LlmCalled)
    ]


@law()
def test_S1_B_every_request_is_legal(world):
    for made in requests(world):
        assert not findings(made.request), made.request.decode()


@law()
def test_S1_B_the_strict_server_takes_every_request_and_all_the_thinking_in_it(world):
    for made in requests(world):
        assert not refusals(made.request), made.request.decode()


@law()
def test_S1_E_the_strict_server_takes_every_request_of_background_work(world):
    for request in world.asked_beside:
        assert not refusals(request), request.decode()


@law()
def test_law_11_a_request_is_the_same_bytes_whoever_builds_it_and_whenever(world):
    views = initial(world.session_id)
    for step in world.steps:
        claims = isinstance(step.entry.event, ev.GenStart | ev.GenResumed)
        if claims or step.entry.offset % 5 == 0:  # a crash: what is not in the store is gone
            views = through_the_store(views)
        views, ruling = fold(views, step.entry)
        if not ruling.accepted or not (claims or says_something_new(step)):
            continue
        again = request_bytes(views, world.blobs.read)
        assert again == world.request_at(step)
        if claims:
            sent = sent_for(world, step, again)
            assert step.entry.event.request_sha256 == request_sha256(sent or b"")
    assert views == world.views, "nothing is in them that the store does not keep"
    for made in requests(world)[-3:]:
        past = replace(world.views, context=replace(world.views.context, request=made.row))
        rebuilt = request_bytes(past, world.blobs.read)
        assert rebuilt == made.request, "any past request can be rebuilt from the newest view"


def says_something_new(step: Step) -> bool:
    """Whether the views that a request is made of are others, and there is one."""
    before, after = step.before, step.views
    same = after.context is before.context and after.compaction is before.compaction
    return after.context.request is not None and not same


@law()
def test_S2_11_a_request_begins_with_the_one_before_it_block_by_block(world):
    """Unless it adopts something; under a new prefix, or once a part was not taken, it begins so
    but for the thinking, or for the files."""
    made = requests(world)
    for one, other in zip(made, made[1:], strict=False):
        same_prefix = one.row.prefixes == other.row.prefixes
        asked = [(made.row.model, made.row.params) for made in (one, other)]
        if same_prefix and asked[0] == asked[1]:
            assert static_part(one.request) == static_part(other.request)
        if one.shape != other.shape:
            continue
        before, after = blocks_of(one.request), blocks_of(other.request)
        if before[-1][0] == "assistant":  # a pause, and nobody may have come back to it
            before = [place for place in before if place[1]["type"] != "server_tool_use"]
            after = [place for place in after if place[1]["type"] != "server_tool_use"]
            before = before[: 1 + max(n for n, (role, _) in enumerate(before) if role == "user")]
        if not same_prefix or one.row.bound_from != other.row.bound_from:
            before, after = without_thinking(before), without_thinking(after)
        if one.row.files_after != other.row.files_after:
            before, after = without_files(before), without_files(after)
        assert after[: len(before)] == before


def without_files(blocks: list[tuple[str, dict]]) -> list[tuple[str, dict]]:
    """The blocks without the files and the texts that stand in for files."""
    return [
        (role, block)
        for role, block in blocks
        if block["type"] not in ("image", "document")
        and "[No longer shown: " not in json.dumps(block)
    ]


@law()
def test_S2_11_the_prefix_moves_by_what_the_log_says_and_by_nothing_else(world):
    made = requests(world)
    for one, other in zip(made, made[1:], strict=False):
        called, view = other.step.entry.event, other.step.before.compaction
        adopted = [s for s in (view.candidate, view.checkpoint) if s is not None]
        assert other.row.checkpoint is None or other.row.checkpoint in [s.offset for s in adopted]
        assert (other.row.checkpoint, other.row.compacted_upto) == (
            called.checkpoint, called.compacted_upto
        )
        if called.strategy == one.step.entry.event.strategy == "full":
            assert other.row.start == 0
        if called.checkpoint is not None and other.row.checkpoint == one.row.checkpoint:
            assert other.row.start == one.row.start


@law()
def test_S1_C_constraint_7_what_was_thought_is_said_again_byte_for_byte_where_it_was_signed(world):
    """It was signed for the prefix in force: since that moved last, all of it is said again that
    something visible follows, and nothing from before. What went on after a pause may have been
    signed for a call that the pause left open, and that is gone."""
    for made in requests(world):
        request, row = made.request.decode(), made.row
        fragments = list(made.step.views.context.fragments)
        bound: set[str] = set()
        elsewhere: set[str] = set()
        for place, fragment in enumerate(fragments[: row.fragments]):
            if fragment.kind not in SPOKEN:
                continue
            body = fragment.body
            whole = (world.blobs.read(body.ref) if body.ref else body.inline or b"").decode()
            kept = place >= row.start and place >= row.bound_from
            (bound if kept else elsewhere).update(thoughts(whole))
            paused = place and fragments[place - 1].kind in SPOKEN
            if kept and not paused and fragment.stop_reason in ("end_turn", "tool_use"):
                for text in must_be_said_again(whole, fragment.stop_reason):
                    assert text in request
        assert not any(text in request for text in elsewhere - bound)


def parsed(content: str) -> list[tuple[dict, str]]:
    """The blocks of an answer, and the text of each."""
    raw = content[1:-1]
    blocks, decoder, place = [], json.JSONDecoder(), 0
    while place < len(raw):
        block, end = decoder.raw_decode(raw, place)
        blocks.append((block, raw[place:end]))
        place = end + 1
    return blocks


def thoughts(content: str) -> list[str]:
    """The raw text of every signed thinking block."""
    return [text for block, text in parsed(content) if block.get(OPAQUE.get(block["type"], ""))]


def must_be_said_again(content: str, stop_reason: str) -> list[str]:
    """The raw text of every signed thinking block that something visible follows, and nothing was
    left out or renamed before it in the same answer: what comes then was signed for that."""
    blocks = parsed(content)
    shown = [
        n
        for n, (block, _) in enumerate(blocks)
        if (block["type"] == "text" and block["text"].strip())
        or (block["type"] == "tool_use" and stop_reason == "tool_use")
    ]
    must = []
    for n, (block, text) in enumerate(blocks):
        if block["type"] not in ("thinking", "redacted_thinking", "text"):
            break
        if block["type"] == "text" and not block["text"].strip():
            break
        if block.get(OPAQUE.get(block["type"], "")) and shown and n < shown[-1]:
            must.append(text)
    return must


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


@law()
def test_S3_6_the_first_request_is_weighed_with_its_prefix(world):
    """Before the first answer nothing else knows how heavy the prefix is."""
    for made in requests(world)[:1]:
        prefix = made.step.before.context.prefixes[-1].tokens(family_of(made.row.model))
        assert made.step.entry.event.prompt_tokens > prefix > 0

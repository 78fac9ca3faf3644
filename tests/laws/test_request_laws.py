"""The laws of the request: it is pure, legal, the same after a rebuild from the store, and only
extended at its end."""

import json
from itertools import cycle
from typing import NamedTuple

import pytest

from foldlog.processors.fold.cut_points import is_fixed
from foldlog.processors.fold.projections.context_view import Request
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.request.build import request_bytes, request_sha256
from foldlog.processors.request.left_out import is_left_out, thinking_from
from foldlog.schemas import events as ev
from foldlog.schemas.tokens import family_of
from foldlog.schemas.value import replace
from foldlog.tests.kit.api_rules import (
    OPAQUE,
    blocks_of,
    findings,
    static_part,
    without_thinking,
)
from foldlog.tests.kit.history import Step
from foldlog.tests.kit.signed_thinking import refusals
from foldlog.tests.laws.law import law
from foldlog.tests.laws.random_history import RandomHistory
from foldlog.tests.laws.resumed import sent_request
from foldlog.tests.laws.test_fold_laws import through_the_store

SPOKEN = ("assistant", "partial")


class Made(NamedTuple):
    """A request as it was built at its step."""

    step: Step
    request: bytes

    @property
    def row(self) -> Request:
        return self.step.views.context.request

    @property
    def shape(self) -> tuple:
        """The fields that change when a step adopts a summary or short forms."""
        left_out = tuple(replace(one, accepted=True) for one in self.row.left_out)
        return self.row.start, self.row.checkpoint, self.row.compacted_upto, left_out


def requests(history: RandomHistory) -> list[Made]:
    """Every request of a history, in order."""
    return [
        Made(step, history.request_at(step))
        for step in history.steps
        if step.ruling.accepted and isinstance(step.entry.event, ev.LlmCalled)
    ]


@law()
def test_S1_B_every_request_is_legal(history):
    for made in requests(history):
        assert not findings(made.request), made.request.decode()


@law()
def test_S1_B_the_strict_server_accepts_every_request_and_all_its_thinking(history):
    for made in requests(history):
        assert not refusals(made.request), made.request.decode()


@law()
def test_S1_E_the_strict_server_accepts_every_request_of_background_work(history):
    for request in history.background_requests:
        assert not refusals(request), request.decode()


@law()
def test_law_11_a_request_has_the_same_bytes_for_every_builder_at_any_time(history):
    views = initial(history.session_id)
    for step in history.steps:
        claims = isinstance(step.entry.event, ev.GenStart | ev.GenResumed)
        if claims or step.entry.offset % 5 == 0:  # a crash: only the store remains
            views = through_the_store(views)
        views, ruling = fold(views, step.entry)
        if not ruling.accepted or not (claims or changes_the_request(step)):
            continue
        again = request_bytes(views, history.blobs.read)
        assert again == history.request_at(step)
        if claims:
            sent = sent_request(history, step, again)
            assert step.entry.event.request_sha256 == request_sha256(sent or b"")
    assert views == history.views, "the store keeps everything in the views"
    for made in requests(history)[-3:]:
        past = replace(history.views, context=replace(history.views.context, request=made.row))
        rebuilt = request_bytes(past, history.blobs.read)
        assert rebuilt == made.request, "any past request can be rebuilt from the newest view"


def changes_the_request(step: Step) -> bool:
    """Whether there is a request, and the step changed the views from which it is built."""
    before, after = step.before, step.views
    same = after.context is before.context and after.compaction is before.compaction
    return after.context.request is not None and not same


@law()
def test_S2_11_a_request_begins_with_the_one_before_it_block_by_block(history):
    """A request that adopts a summary or short forms, or leaves out refused content, is an
    exception. Under a new prefix, or after the API rejected thinking or files, the law holds for
    the other blocks."""
    made = requests(history)
    for one, other in zip(made, made[1:], strict=False):
        same_prefix = one.row.prefixes == other.row.prefixes
        fields = [(made.row.model, made.row.params) for made in (one, other)]
        if same_prefix and fields[0] == fields[1]:
            assert static_part(one.request) == static_part(other.request)
        if one.shape != other.shape:
            continue
        before, after = blocks_of(one.request), blocks_of(other.request)
        if before[-1][0] == "assistant":  # a pause that may not have been continued
            before = [place for place in before if place[1]["type"] != "server_tool_use"]
            after = [place for place in after if place[1]["type"] != "server_tool_use"]
            before = before[: 1 + max(n for n, (role, _) in enumerate(before) if role == "user")]
        if not same_prefix or one.row.bound_from != other.row.bound_from:
            before, after = without_thinking(before), without_thinking(after)
        if one.row.files_after != other.row.files_after:
            before, after = without_files(before), without_files(after)
        assert after[: len(before)] == before


def without_files(blocks: list[tuple[str, dict]]) -> list[tuple[str, dict]]:
    """The blocks without files and without the texts that replace files."""
    return [
        (role, block)
        for role, block in blocks
        if block["type"] not in ("image", "document")
        and "[No longer shown: " not in json.dumps(block)
    ]


@law()
def test_S2_11_only_events_in_the_log_move_the_prefix(history):
    made = requests(history)
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
def test_S1_C_constraint_7_thinking_is_repeated_byte_for_byte_where_it_was_signed(history):
    """Thinking is signed for the prefix in force. Thinking since the last change of the prefix is
    repeated if something visible follows it; thinking from before that change is not repeated. An
    answer that continued a pause is exempt: it may have signed its thinking for a call that the
    pause left open, and that call is removed. So is, with a fixed budget, an answer with calls that
    cannot be sent with all of its thinking: it is sent as text."""
    for made in requests(history):
        request, row = made.request.decode(), made.row
        fragments = list(made.step.views.context.fragments)
        bound: set[str] = set()
        elsewhere: set[str] = set()
        for place, fragment in enumerate(fragments[: row.fragments]):
            if fragment.kind not in SPOKEN:
                continue
            body = fragment.body
            whole = (history.blobs.read(body.ref) if body.ref else body.inline or b"").decode()
            kept = place >= row.start and place >= thinking_from(row)
            kept = kept and not is_left_out(place, row)
            (bound if kept else elsewhere).update(thoughts(whole))
            paused = place and fragments[place - 1].kind in SPOKEN
            if kept and not paused and fragment.stop_reason in ("end_turn", "tool_use"):
                must = must_be_repeated(whole, fragment.stop_reason)
                in_part = fragment.stop_reason == "tool_use" and must != thoughts(whole)
                if not (in_part and is_fixed(row.params)):
                    assert all(text in request for text in must)
        assert not any(text in request for text in elsewhere - bound)


def parsed(content: str) -> list[tuple[dict, str]]:
    """The blocks of an answer, each with its JSON text."""
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


def must_be_repeated(content: str, stop_reason: str) -> list[str]:
    """The raw text of every signed thinking block that something visible follows. Omits a block if
    an earlier block of the answer is omitted or renamed, because its signature covers that block
    too."""
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


HI = {"type": "text", "text": "a"}
CUT, WHOLE = ({"type": "thinking", "thinking": "x", "signature": sign} for sign in ("", "s"))
USE = {"type": "tool_use", "id": "a", "name": "n", "input": {}}
SERVER_USE = {"type": "server_tool_use", "id": "s", "input": {}}


@pytest.mark.parametrize(
    ("blocks", "finding"),  # one block a message, of the user and the assistant in turn
    [
        ([], "no messages"),
        ([{"type": "text", "text": " "}], "visible"),
        ([{"type": "tool_result", "tool_use_id": "a"}], "for the calls"),
        ([{"type": "tool_result", "tool_use_id": "a"}], "without content"),
        ([HI, HI], "prefill"),
        ([HI, USE], "have no results"),
        ([HI, {**USE, "name": ""}], "wrong id, name or input"),
        ([HI, CUT], "without its signature"),
        ([HI, WHOLE, HI], "final block"),
        ([HI, SERVER_USE, HI], "without its result"),
    ],
)
def test_the_checker_finds_illegal_requests(blocks, finding):
    roles = cycle(("user", "assistant"))
    messages = [{"role": role, "content": [b]} for role, b in zip(roles, blocks, strict=False)]
    assert any(finding in found for found in found_in(messages=messages))


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"messages": [{"role": "assistant", "content": [HI]}]}, "first message"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"system": []}, "empty system"),
        ({"tools": [{"name": "a"}, {"name": "a"}]}, "tools without"),
    ],
)
def test_the_checker_finds_illegal_frames(changes, finding):
    assert any(finding in found for found in found_in(**changes))
    assert not found_in()


def found_in(**changes) -> list[str]:
    """The findings in a small request with these changes."""
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [HI]}]}
    return findings(json.dumps({**body, **changes}).encode())


@law()
def test_S3_6_the_tokens_of_the_first_request_include_its_prefix(history):
    """Before the first answer, no usage reports the tokens of the prefix."""
    for made in requests(history)[:1]:
        prefix = made.step.before.context.prefixes[-1].tokens(family_of(made.row.model))
        assert made.step.entry.event.prompt_tokens > prefix > 0

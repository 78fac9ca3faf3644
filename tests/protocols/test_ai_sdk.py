"""The UI message stream of the AI SDK, read by its real client: every prefix, late, cut, and whole.

Recorded and random histories. The client accepts what it is given at any instant, and ends up with
the message that the finished transcript gives, whoever came when.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from foldlog.consumers.protocols.ai_sdk import begin, encode, steered_in
from foldlog.consumers.protocols.ai_sdk_messages import messages
from foldlog.consumers.transcript_stream import Shown, snapshot
from foldlog.processors.session import SessionViews
from foldlog.tests.golden import golden
from foldlog.tests.laws.law import world_of
from foldlog.tests.protocols.shown import late, seen, turns_of

CLIENT = Path(__file__).with_name("ai_sdk_client.mjs")
SEEDS = range(25)
"""Of the random histories. A longer run, of 400, has passed as well."""


@pytest.fixture(scope="module")
def client(talk):
    """The real client; fails the test where it refuses."""
    process = talk(CLIENT)

    def ask(**request: Any) -> Any:
        said = process.ask(request)
        assert "error" not in said, said["error"]
        return said

    return ask


class Told(NamedTuple):
    """A history: at each event the views behind it, what it shows, and what had streamed."""

    views: list[SessionViews]
    shown: list[list[Shown]]
    streamed: list[list[Shown]]
    read: Any


@cache
def told(name: str | int) -> Told:
    """A recorded session by its name, a random one by its seed."""
    if isinstance(name, str):
        blobs = golden.blobs_of(golden.expected(name))
        session, records = golden.SESSION_ID, golden.records(name)
        read = lambda ref: blobs[ref.sha256]  # noqa: E731
    else:
        world = world_of(name)
        session, records, read = world.session_id, world.records, world.blobs.read
    events = list(seen(session, records, read))
    return Told(
        [event.views for event, _, _ in events],
        [shown for _, _, shown in events],
        [snapshot(viewer) for _, viewer, _ in events],
        read,
    )


def streamed(history: Told, turn: int) -> list[dict]:
    """The chunks of a turn as whoever was always there gets them, each by what was known then."""
    state, chunks = begin(history.views[-1].session_id, turn)
    for views, shown in zip(history.views, history.shown, strict=True):
        for thing in shown:
            state, more = encode(state, thing, history.read, steered_in(views))
            chunks += more
    return chunks


def joined(history: Told, turn: int, cut: int, *, go_on: bool = True) -> list[dict]:
    """The chunks of a turn for who comes behind an event and is first shown what was missed."""
    views = history.views[cut]
    things = [(views, thing) for thing in [*late(views, history.read), *history.streamed[cut]]]
    if go_on:
        rest = zip(history.views[cut + 1 :], history.shown[cut + 1 :], strict=True)
        things += [(then, thing) for then, shown in rest for thing in shown]
    state, chunks = begin(views.session_id, turn)
    for then, thing in things:
        state, more = encode(state, thing, history.read, steered_in(then))
        chunks += more
    return chunks


def finished(history: Told) -> dict[str, dict]:
    """The messages of turns in the finished transcript, by id."""
    made = messages(history.views[-1], history.read)
    return {m["id"]: m for m in json.loads(json.dumps(made)) if m["role"] == "assistant"}


HISTORIES = [*golden.names(), *SEEDS]


@pytest.mark.parametrize("name", HISTORIES)
def test_P5_every_prefix_of_a_turn_is_accepted_and_its_end_is_what_the_transcript_says(
    client, name
):
    history = told(name)
    final = finished(history)
    for turn in turns_of(history.views[-1]):
        chunks = without_errors(streamed(history, turn))
        said = client(**{"prefixes" if name in golden.names() else "each": chunks})
        if len(chunks) > 1:
            assert whole(said["message"]) == whole(final[said["message"]["id"]])
        else:
            assert f"{history.views[-1].session_id}:{turn}" not in final


def whole(message: dict) -> dict:
    """A message without the mark of a step that only began: the client tells of it with what
    comes next."""
    parts = message["parts"]
    return {**message, "parts": parts[:-1] if parts[-1:] == [{"type": "step-start"}] else parts}


def without_errors(chunks: list[dict]) -> list[dict]:
    """An `error` chunk ends the client's reading, as it should: see the test of it."""
    return [chunk for chunk in chunks if chunk["type"] != "error"]


@pytest.mark.parametrize("name", HISTORIES)
def test_I12_who_comes_at_any_instant_ends_up_with_what_the_others_have(client, name):
    history = told(name)
    final = finished(history)
    for cut, views in enumerate(history.views):
        turn = views.turn.number
        if not turn or not (history.shown[cut] or cut == len(history.views) - 1):
            continue
        now = without_errors(joined(history, turn, cut, go_on=False))
        client(chunks=now)
        said = client(chunks=without_errors(joined(history, turn, cut)))
        if len(now) > 1:
            assert whole(said["message"]) == whole(final[said["message"]["id"]]), (cut, turn)


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_is_a_list_of_valid_messages_at_any_instant(client, name):
    history = told(name)
    for views in history.views:
        made = messages(views, history.read)
        if made:
            client(messages=made)
            assert len({m["id"] for m in made}) == len(made)


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ([{"type": "text-delta", "id": "1", "delta": "x"}], "text-start"),
        ([{"type": "text-end", "id": "1"}], "text-start"),
        ([{"type": "tool-output-available", "toolCallId": "1", "output": 1}], "tool call ID"),
        ([{"type": "tool-input-delta", "toolCallId": "1", "inputTextDelta": ""}], "tool-input-"),
        ([{"type": "no-such-type"}], "Type validation failed"),
        ([{"type": "error", "errorText": "no luck"}], "no luck"),
        ([{"type": "data-x", "data": {"__proto__": 1}}], "prototype"),
    ],
)
def test_the_client_notices_what_is_wrong(talk, node, chunks, said):
    with node.talk(CLIENT) as process:
        start = [{"type": "start", "messageId": "s:1"}]
        assert said in process.ask({"chunks": start + chunks}).get("error", "")


def test_the_histories_hold_what_matters():
    kinds = {
        chunk["type"]
        for name in HISTORIES
        for turn in turns_of(told(name).views[-1])
        for chunk in streamed(told(name), turn)
    }
    assert kinds >= {
        "reset-step", "reasoning-end", "tool-approval-request", "tool-approval-response",
        "tool-output-denied", "tool-output-error", "steering-message", "data-doubt", "data-phase",
        "data-project", "abort", "error", "finish",
    }

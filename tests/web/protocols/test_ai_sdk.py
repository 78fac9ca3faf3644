"""The UI message stream of the AI SDK, read by the SDK's real client: every prefix, late, cut, and
whole.

The histories are recorded or random. The client accepts every stream, and ends up with the message
that the finished transcript gives, whenever the client connected.
"""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from foldlog.client.transcript_stream import Shown
from foldlog.processors.fold.views import SessionViews
from foldlog.tests.golden import golden
from foldlog.tests.web.protocols.shown_histories import (
    Watched,
    golden_session,
    random_session,
)
from foldlog.web.protocols.ai_sdk.messages import messages
from foldlog.web.protocols.ai_sdk.stream import begin, encode, steered_in

CLIENT = Path(__file__).with_name("ai_sdk_client.mjs")
SEEDS = (*range(11), 14)
"""Of random histories that together have every kind of chunk, as a test below checks. A longer run,
of 160, has passed as well."""
CUTS_APART = 3
"""A client connects, or loads the history, at one of so many moments of a random history."""


@pytest.fixture(scope="module")
def client(talk):
    """The real client. The test fails if the client refuses a stream."""
    process = talk(CLIENT)

    def ask(**request: Any) -> Any:
        response = process.ask(request)
        assert "error" not in response, response["error"]
        return response

    return ask


@cache
def history_of(name: str | int) -> Watched:
    """A recorded session by its name, or a random session by its seed."""
    return golden_session(name) if isinstance(name, str) else random_session(name)


def encoded(
    history: Watched, turn: int, things: Iterable[tuple[Shown, SessionViews]]
) -> list[dict]:
    """The chunks of a turn for these shown things, each with the views at its time."""
    state, chunks = begin(history.session_id, turn)
    for thing, views in things:
        state, more = encode(state, thing, history.read, steered_in(views))
        chunks += more
    return chunks


def streamed(history: Watched, turn: int) -> list[dict]:
    """The chunks of a turn for a client that is connected from the start."""
    return encoded(history, turn, history.things())


def missed_before(history: Watched, cut: int) -> Iterator[tuple[Shown, SessionViews]]:
    """What a client sees first if it connects after a moment."""
    moment = history.moments[cut]
    for thing, _ in history.late(moment):
        yield thing, moment.views


def turns_of(history: Watched) -> range:
    """The numbers of a history's turns, none if nothing was ever shown."""
    return range(1, history.moments[-1].views.turn.number + 1 if history.moments else 1)


def finished(history: Watched, client: Any) -> dict[str, dict]:
    """The message of each turn, by the message's id. It comes from the finished transcript; if the
    turn has not ended, it is the message of a client that connects now."""
    if not history.moments:
        return {}
    made = json.loads(json.dumps(messages(history.moments[-1].views, history.read)))
    ended = {m["id"]: m for m in made if "reason" in m.get("metadata", {})}
    last = history.moments[-1].views.turn
    if not last.open:
        return ended
    late = encoded(history, last.number, missed_before(history, -1))
    return ended | {f"{history.session_id}:{last.number}": client(chunks=late)["message"]}


HISTORIES = [*golden.names(), *SEEDS]


@pytest.mark.parametrize("name", HISTORIES)
def test_P5_every_prefix_of_a_turn_is_accepted_and_its_end_agrees_with_the_transcript(
    client, name
):
    history = history_of(name)
    final = finished(history, client)
    for turn in turns_of(history):
        chunks = without_errors(streamed(history, turn))
        message = client(**{"prefixes" if name in golden.names() else "each": chunks})["message"]
        assert whole(message) == whole(final[message["id"]])


def whole(message: dict) -> dict:
    """A message without the `step-start` of an empty last step, which the client reports together
    with the next part."""
    parts = message["parts"]
    return {**message, "parts": parts[:-1] if parts[-1:] == [{"type": "step-start"}] else parts}


def without_errors(chunks: list[dict]) -> list[dict]:
    """The chunks without `error` chunks, because these end the client's reading, as another test
    checks."""
    return [chunk for chunk in chunks if chunk["type"] != "error"]


@pytest.mark.parametrize("name", HISTORIES)
def test_I12_a_client_that_connects_at_any_moment_ends_up_with_the_same_message(client, name):
    history = history_of(name)
    final = finished(history, client)
    step = 1 if isinstance(name, str) else CUTS_APART
    for cut in range(0, len(history.moments), step):
        turn = history.moments[cut].views.turn.number
        if not turn:
            continue
        late = encoded(history, turn, missed_before(history, cut))
        client(chunks=without_errors(late))
        rest = [*missed_before(history, cut), *history.things(cut + 1)]
        message = client(chunks=without_errors(encoded(history, turn, rest)))["message"]
        assert whole(message) == whole(final[message["id"]]), (cut, turn)


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_is_a_list_of_valid_messages_at_any_moment(client, name):
    history = history_of(name)
    for moment in history.moments[:: 1 if isinstance(name, str) else CUTS_APART]:
        made = messages(moment.views, history.read)
        if made:
            client(messages=made)
            assert len({m["id"] for m in made}) == len(made)


def test_a_call_in_doubt_keeps_its_first_reason():
    """The defect: the line that asks a person replaced it."""
    parts = 0
    for name in HISTORIES:
        for turn in turns_of(history_of(name)):
            open_doubts: dict[str, str] = {}
            for chunk in streamed(history_of(name), turn):
                if chunk["type"] == "data-doubt":
                    parts, data = parts + 1, chunk["data"]
                    assert open_doubts.setdefault(chunk["id"], data["why"]) == data["why"]
                    if "resolved" in data:
                        del open_doubts[chunk["id"]]
    assert parts


@pytest.mark.parametrize(
    ("chunks", "error"),
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
def test_the_client_reports_invalid_chunks(talk, node, chunks, error):
    with node.talk(CLIENT) as process:
        start = [{"type": "start", "messageId": "s:1"}]
        assert error in process.ask({"chunks": start + chunks}).get("error", "")


def test_the_histories_have_every_kind_of_chunk_that_matters():
    kinds = {
        chunk["type"]
        for name in HISTORIES
        for turn in turns_of(history_of(name))
        for chunk in streamed(history_of(name), turn)
    }
    assert kinds >= {
        "reset-step", "reasoning-end", "tool-approval-request", "tool-approval-response",
        "tool-output-denied", "tool-output-error", "steering-message", "data-doubt", "data-phase",
        "data-project", "abort", "error", "finish",
    }

"""The UI message stream of the AI SDK, read by its real client: every prefix, late, cut, and whole.

Recorded and random histories. The client accepts what it is given at any instant, and ends up with
the message that the finished transcript gives, whoever came when.
"""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from foldlog.consumers.protocols.ai_sdk.messages import messages
from foldlog.consumers.protocols.ai_sdk.stream import begin, encode, steered_in
from foldlog.consumers.transcript_stream import Shown
from foldlog.processors.fold.views import SessionViews
from foldlog.tests.consumers.protocols.shown_histories import (
    Watched,
    golden_session,
    random_session,
)
from foldlog.tests.golden import golden

CLIENT = Path(__file__).with_name("ai_sdk_client.mjs")
SEEDS = (*range(11), 14)  # which hold every kind of part, as a test below says
"""Of the random histories. A longer run, of 160, has passed as well."""
CUTS_APART = 3
"""Of a random history, one moment in so many is one at which somebody comes or loads."""


@pytest.fixture(scope="module")
def client(talk):
    """The real client; fails the test where it refuses."""
    process = talk(CLIENT)

    def ask(**request: Any) -> Any:
        said = process.ask(request)
        assert "error" not in said, said["error"]
        return said

    return ask


@cache
def told(name: str | int) -> Watched:
    """A recorded session by its name, a random one by its seed."""
    return golden_session(name) if isinstance(name, str) else random_session(name)


def encoded(
    history: Watched, turn: int, things: Iterable[tuple[Shown, SessionViews]]
) -> list[dict]:
    """The chunks of a turn for things shown, each by what was known then."""
    state, chunks = begin(history.session_id, turn)
    for thing, views in things:
        state, more = encode(state, thing, history.read, steered_in(views))
        chunks += more
    return chunks


def going_on(history: Watched, after: int = 0) -> Iterator[tuple[Shown, SessionViews]]:
    """What is shown from a moment on."""
    for moment in history.moments[after:]:
        for thing in moment.shown:
            yield thing, moment.views


def streamed(history: Watched, turn: int) -> list[dict]:
    """The chunks of a turn as whoever was always there gets them."""
    return encoded(history, turn, going_on(history))


def missed_until(history: Watched, cut: int) -> Iterator[tuple[Shown, SessionViews]]:
    """What somebody is shown first who comes behind a moment."""
    moment = history.moments[cut]
    for thing, _ in history.late(moment):
        yield thing, moment.views


def turns_of(history: Watched) -> range:
    """The turns that there were; none in a history in which nobody was shown anything."""
    return range(1, history.moments[-1].views.turn.number + 1 if history.moments else 1)


def finished(history: Watched, client: Any) -> dict[str, dict]:
    """The message of each turn by its id: as the finished transcript has it, or, of a turn that
    has not ended, as who comes now gets it."""
    if not history.moments:
        return {}
    made = json.loads(json.dumps(messages(history.moments[-1].views, history.read)))
    ended = {m["id"]: m for m in made if "reason" in m.get("metadata", {})}
    last = history.moments[-1].views.turn
    if not last.open:
        return ended
    late = encoded(history, last.number, missed_until(history, -1))
    return ended | {f"{history.session_id}:{last.number}": client(chunks=late)["message"]}


HISTORIES = [*golden.names(), *SEEDS]


@pytest.mark.parametrize("name", HISTORIES)
def test_P5_every_prefix_of_a_turn_is_accepted_and_its_end_is_what_the_transcript_says(
    client, name
):
    history = told(name)
    final = finished(history, client)
    for turn in turns_of(history):
        chunks = without_errors(streamed(history, turn))
        said = client(**{"prefixes" if name in golden.names() else "each": chunks})
        assert whole(said["message"]) == whole(final[said["message"]["id"]])


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
    final = finished(history, client)
    step = 1 if isinstance(name, str) else CUTS_APART
    for cut in range(0, len(history.moments), step):
        turn = history.moments[cut].views.turn.number
        if not turn:
            continue
        late = encoded(history, turn, missed_until(history, cut))
        client(chunks=without_errors(late))
        rest = [*missed_until(history, cut), *going_on(history, cut + 1)]
        said = client(chunks=without_errors(encoded(history, turn, rest)))
        assert whole(said["message"]) == whole(final[said["message"]["id"]]), (cut, turn)


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_is_a_list_of_valid_messages_at_any_instant(client, name):
    history = told(name)
    for moment in history.moments[:: 1 if isinstance(name, str) else CUTS_APART]:
        made = messages(moment.views, history.read)
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
        for turn in turns_of(told(name))
        for chunk in streamed(told(name), turn)
    }
    assert kinds >= {
        "reset-step", "reasoning-end", "tool-approval-request", "tool-approval-response",
        "tool-output-denied", "tool-output-error", "steering-message", "data-doubt", "data-phase",
        "data-project", "abort", "error", "finish",
    }

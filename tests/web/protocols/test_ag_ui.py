"""Every prefix of every history is a legal AG-UI stream, and the real client ends up with the same
messages as the encoder."""

import random
from collections import Counter
from pathlib import Path

import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

from foldlog.client.transcript_stream import Dropped
from foldlog.processors.fold.views import initial
from foldlog.tests.golden import golden
from foldlog.tests.web.protocols.shown_histories import golden_session, random_session
from foldlog.web.protocols.ag_ui.events import Encoder
from foldlog.web.protocols.ag_ui.messages import Messages, snapshots

CLIENT = Path(__file__).parents[2] / "node" / "ag_ui.mjs"
EVENT = TypeAdapter(Event)
SEEDS = range(20)


@pytest.fixture(scope="module")
def client(talk):
    return talk(CLIENT)


def encoded(watched, things=None):
    """The encoder after everything was shown, and a list of events for each shown thing."""
    encoder = Encoder(watched.session_id, watched.read)
    pieces = [encoder.show(thing, views) for thing, views in things or watched.things()]
    return encoder, pieces


def usage_by_run(pieces):
    """The usage that each ended run reports, by run."""
    found, run = {}, None
    for event in (event for piece in pieces for event in piece):
        run = event["runId"] if event["type"] == "RUN_STARTED" else run
        if "usage" in event:
            found[run] = event["usage"]
    return found


def accepted(client, events, messages, known=()):
    """Send these events to the real client, and return the client's state. Checks that the client
    gives no warning and ends up with these messages."""
    state = client.ask({"events": events, "messages": list(known)})
    assert (state["error"], state["warnings"], state["wrong"]) == (None, [], []), events[-6:]
    assert state["messages"] == messages
    return state


def model_checked(events):
    """Check that the Python models accept the events, and know every field."""
    for event in events:
        model = EVENT.validate_python(event)
        assert model.model_dump(mode="json", by_alias=True) == event, event
        assert not model.model_extra, event


@pytest.mark.parametrize("name", golden.names())
def test_S2_every_prefix_of_a_recorded_session_is_accepted(client, name):
    watched = golden_session(name)
    encoder = Encoder(watched.session_id, watched.read)
    events, closed = [], []
    for thing, views in watched.things():
        events += encoder.show(thing, views)
        closed = [*events, *encoder.close()]
        state = accepted(client, closed, encoder.messages.all)["state"]
        assert {k: v for k, v in state.items() if k != "updated_at"}
    model_checked(closed)
    assert bool(closed) == bool(watched.moments)
    assert encoder.run is None or encoder.close()[-1]["type"] == "RUN_ERROR"


@pytest.mark.parametrize("forged", (False, True))
def test_S2_random_sessions_cut_anywhere_are_accepted(client, forged):
    chance = random.Random(7)
    kinds = Counter()
    for seed in SEEDS:
        watched = random_session(seed, forged=forged)
        things = list(watched.things())
        cuts = chance.sample(range(len(things)), min(2, len(things)))
        for cut in (*cuts, len(things)):
            encoder, pieces = encoded(watched, things[:cut])
            events = [event for piece in pieces for event in piece] + encoder.close()
            if events:
                accepted(client, events, encoder.messages.all)
        model_checked(events)
        kinds += Counter(event["type"] for event in events)
    for kind in ("MESSAGES_SNAPSHOT", "RUN_ERROR", "TOOL_CALL_RESULT", "REASONING_ENCRYPTED_VALUE"):
        assert kinds[kind], f"no history had a {kind}: {kinds}"


def test_S2_a_late_client_ends_up_with_the_same_messages_as_an_early_one(client):
    chance = random.Random(11)
    for seed in SEEDS:
        watched = random_session(seed)
        encoder, pieces = encoded(watched)
        messages, usage = encoder.messages.all, usage_by_run(pieces)
        for moment in chance.sample(watched.moments, min(2, len(watched.moments))):
            at = watched.moments.index(moment) + 1
            late, pieces = encoded(watched, [*watched.late(moment), *watched.things(at)])
            assert late.messages.all == messages
            assert usage_by_run(pieces) == usage
            accepted(client, [e for p in pieces for e in p], late.messages.all)


@pytest.mark.parametrize("name", golden.names())
def test_S2_a_client_that_joins_an_open_run_ends_up_with_the_same_messages(client, name):
    watched = golden_session(name)
    things = list(watched.things())
    whole, _ = encoded(watched)
    for cut in range(len(things)):
        encoder, before = encoded(watched, things[: cut + 1])
        if encoder.run is None:
            continue
        known = Messages()
        for event in (e for piece in before[: cut // 2] for e in piece):
            known.apply(event)
        events = encoder.join(known.all)
        for thing, views in things[cut + 1 :]:
            events += encoder.show(thing, views)
        events += encoder.close()
        state = accepted(client, events, whole.messages.all, known.all)["state"]
        assert state == encoder._state


@pytest.mark.parametrize("session", [*golden.names(), *SEEDS])
def test_S2_the_usage_of_a_turns_runs_agrees_with_the_ledger(session):
    watched = random_session(session) if session in SEEDS else golden_session(session)
    reported = Counter()
    for run, usage in usage_by_run(encoded(watched)[1]).items():
        turn = int(run.split(":")[1].split(".")[0])
        for entry in usage:
            assert entry["totalTokens"] == entry["inputTokens"] + entry["outputTokens"]
            parts = entry["cachedInputTokens"] + entry["cacheWriteInputTokens"]
            assert entry["inputTokens"] >= parts
            reported[turn] += entry["totalTokens"]
    views = watched.moments[-1].views if watched.moments else initial("s")
    spent = [row for row in views.ledger.spent if row.kind == "answer"]
    for line in (line for line in views.transcript.lines if line.kind == "ended"):
        paid = [(r.offset, r.read_tokens + r.output_tokens) for r in spent if r.turn == line.turn]
        in_time = sum(tokens for offset, tokens in paid if offset < line.offset)
        # A report after the end of its turn is part of a run only if another run follows.
        assert in_time <= reported[line.turn] <= sum(tokens for _, tokens in paid)


def test_P6_the_text_of_a_superseded_attempt_is_removed_at_once_with_the_reason():
    watched = golden_session("crash_and_resume")
    encoder = Encoder(watched.session_id, watched.read)
    for thing, views in watched.things():
        events = encoder.show(thing, views)
        if isinstance(thing, Dropped):
            break
    assert [message["id"] for message in encoder.messages.all] == ["m1"]
    kinds = [event["type"] for event in events]
    assert kinds == ["TEXT_MESSAGE_END", "CUSTOM", "MESSAGES_SNAPSHOT"]
    assert events[1]["value"]["why"] == "attempt 2 takes its place"


def test_snapshots_that_move_messages_or_remove_all_thoughts(client):
    def run(*events):
        ids = {"threadId": "t", "runId": "r"}
        started = {"type": "RUN_STARTED", **ids, "protocolVersion": "1.0"}
        return [started, *events, {"type": "RUN_FINISHED", **ids}]

    user = {"id": "m1", "role": "user", "content": "hi"}
    thought = {"id": "s/1.1/thought0", "role": "reasoning", "content": "hm"}
    reply = {"id": "s/1.1", "role": "assistant", "content": "yes"}
    for have, want in (
        ([user, thought, reply], [user]),
        ([thought, reply, user], [user, thought, reply]),
        ([user, thought, reply], []),
        ([reply, user], [user, reply]),
        ([thought], [reply]),
    ):
        accepted(client, run(*snapshots(have, want)), want, have)

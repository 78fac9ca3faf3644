"""Every prefix of every history is a legal AG-UI stream, and the real client ends with the same."""

import random
from collections import Counter
from pathlib import Path

import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

from foldlog.consumers.protocols.ag_ui.events import Encoder
from foldlog.consumers.protocols.ag_ui.messages import Messages, snapshots
from foldlog.consumers.transcript_stream import Dropped
from foldlog.processors.fold.views import initial
from foldlog.tests.consumers.protocols.shown_histories import golden_session, random_session
from foldlog.tests.golden import golden

CLIENT = Path(__file__).parents[2] / "node" / "ag_ui.mjs"
EVENT = TypeAdapter(Event)
SEEDS = range(20)


@pytest.fixture(scope="module")
def client(talk):
    return talk(CLIENT)


def encoded(watched, things=None):
    """The encoder after all that was shown, and a list of events per thing."""
    encoder = Encoder(watched.session_id, watched.read)
    pieces = [encoder.show(thing, views) for thing, views in things or watched.things()]
    return encoder, pieces


def usage_by_run(pieces):
    """What each run that ended says its model calls cost."""
    found, run = {}, None
    for event in (event for piece in pieces for event in piece):
        run = event["runId"] if event["type"] == "RUN_STARTED" else run
        if "usage" in event:
            found[run] = event["usage"]
    return found


def is_taken(client, events, messages, known=()):
    """Demand that the real client takes these events without a word, and ends with the messages."""
    held = client.ask({"events": events, "messages": list(known)})
    assert (held["error"], held["warnings"], held["wrong"]) == (None, [], []), events[-6:]
    assert held["messages"] == messages
    return held


def model_checked(events):
    """Demand that the Python models take the events, and know every field."""
    for event in events:
        model = EVENT.validate_python(event)
        assert model.model_dump(mode="json", by_alias=True) == event, event
        assert not model.model_extra, event


@pytest.mark.parametrize("name", golden.names())
def test_S2_every_prefix_of_a_recorded_session_is_taken(client, name):
    watched = golden_session(name)
    encoder = Encoder(watched.session_id, watched.read)
    events, closed = [], []
    for thing, views in watched.things():
        events += encoder.show(thing, views)
        closed = [*events, *encoder.close()]
        held = is_taken(client, closed, encoder.messages.all)
        assert {k: v for k, v in held["state"].items() if k != "updated_at"}
    model_checked(closed)
    assert bool(closed) == bool(watched.moments)
    assert encoder.run is None or encoder.close()[-1]["type"] == "RUN_ERROR"


@pytest.mark.parametrize("forged", (False, True))
def test_S2_random_sessions_cut_anywhere_are_taken(client, forged):
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
                is_taken(client, events, encoder.messages.all)
        model_checked(events)
        kinds += Counter(event["type"] for event in events)
    for kind in ("MESSAGES_SNAPSHOT", "RUN_ERROR", "TOOL_CALL_RESULT", "REASONING_ENCRYPTED_VALUE"):
        assert kinds[kind], f"no history had a {kind}: {kinds}"


def test_S2_who_comes_late_ends_with_the_same_messages_as_who_was_always_there(client):
    chance = random.Random(11)
    for seed in SEEDS:
        watched = random_session(seed)
        encoder, pieces = encoded(watched)
        always, paid = encoder.messages.all, usage_by_run(pieces)
        for moment in chance.sample(watched.moments, min(2, len(watched.moments))):
            at = watched.moments.index(moment) + 1
            rest = [(t, m.views) for m in watched.moments[at:] for t in m.shown]
            late, pieces = encoded(watched, [*watched.late(moment), *rest])
            assert late.messages.all == always
            assert usage_by_run(pieces) == paid
            is_taken(client, [e for p in pieces for e in p], late.messages.all)


@pytest.mark.parametrize("name", golden.names())
def test_S2_a_client_that_joins_an_open_run_ends_with_the_same_messages(client, name):
    watched = golden_session(name)
    things = list(watched.things())
    whole, _ = encoded(watched)
    for cut in range(len(things)):
        encoder, before = encoded(watched, things[: cut + 1])
        if encoder.run is None:
            continue
        mine = Messages()
        for event in (e for piece in before[: cut // 2] for e in piece):
            mine.apply(event)
        known = mine.all
        events = encoder.join(known)
        for thing, views in things[cut + 1 :]:
            events += encoder.show(thing, views)
        held = is_taken(client, [*events, *encoder.close()], whole.messages.all, known)
        assert held["state"] == encoder._state


@pytest.mark.parametrize("session", [*golden.names(), *SEEDS])
def test_S2_the_usage_of_a_turns_runs_is_what_the_ledger_has_of_it(session):
    watched = random_session(session) if session in SEEDS else golden_session(session)
    told = Counter()
    for run, usage in usage_by_run(encoded(watched)[1]).items():
        turn = int(run.split(":")[1].split(".")[0])
        for entry in usage:
            assert entry["totalTokens"] == entry["inputTokens"] + entry["outputTokens"]
            parts = entry["cachedInputTokens"] + entry["cacheWriteInputTokens"]
            assert entry["inputTokens"] >= parts
            told[turn] += entry["totalTokens"]
    views = watched.moments[-1].views if watched.moments else initial("s")
    spent = [row for row in views.ledger.spent if row.kind == "answer"]
    for line in (line for line in views.transcript.lines if line.kind == "ended"):
        paid = [(r.offset, r.read_tokens + r.output_tokens) for r in spent if r.turn == line.turn]
        in_time = sum(tokens for offset, tokens in paid if offset < line.offset)
        # What reports behind the end of its turn is in a run only if one comes behind it.
        assert in_time <= told[line.turn] <= sum(tokens for _, tokens in paid)


def test_P6_words_of_a_superseded_attempt_go_at_once_and_it_is_said_what_takes_their_place():
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


def test_a_snapshot_that_moves_and_one_that_takes_all_thoughts_away(client):
    def run(*events):
        named = {"threadId": "t", "runId": "r"}
        started = {"type": "RUN_STARTED", **named, "protocolVersion": "1.0"}
        return [started, *events, {"type": "RUN_FINISHED", **named}]

    user = {"id": "m1", "role": "user", "content": "hi"}
    thought = {"id": "s/1.1/thought0", "role": "reasoning", "content": "hm"}
    said = {"id": "s/1.1", "role": "assistant", "content": "yes"}
    for have, want in (
        ([user, thought, said], [user]),
        ([thought, said, user], [user, thought, said]),
        ([user, thought, said], []),
        ([said, user], [user, said]),
        ([thought], [said]),
    ):
        is_taken(client, run(*snapshots(have, want)), want, have)

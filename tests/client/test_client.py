"""The client: every command waits for the fold's decision, and a refusal has the reason."""

import threading

import pytest

from foldlog.client.calls import AlreadyResolved, UnknownCall, call_named
from foldlog.client.client import Client
from foldlog.client.outcomes import CommandRefused, NoAnswerYet
from foldlog.client.show import UnknownSession
from foldlog.client.transcript_stream import LineAdded, Settled, Token
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.played import Played, memory_log, settings_in
from foldlog.tests.kit.waiting import PATIENCE_S, joined


def asking_for_approval(client, log, *calls):
    """The session s1, whose model requested these calls; each call waits for approval."""
    client.say("s1", "go", message_id="m1")
    played = Played(log, "s1")
    played.propose("", *(calls or [("charge", {"cents": 5})]))
    for index in range(len(calls or [1])):
        played.invoke(index, approval="ask")
    return played


def test_a_first_message_to_an_unknown_session_opens_it(client):
    decision, message_id = client.say("s1", "hi", message_id="m1")
    assert decision.verdict == "accepted" and message_id == "m1"
    views = client.views("s1")
    assert views.turn.agent == "default" and views.state.user_id == "ana" and views.turn.open


def test_S0_5_two_tabs_of_one_user_are_two_sessions(client):
    for tab in ("tab-a", "tab-b"):
        client.say(tab, "hi")
        client.lock(tab, "shared-project")
    a, b = client.views("tab-a").state, client.views("tab-b").state
    assert a.user_id == b.user_id and a.project_id == b.project_id == "shared-project"
    assert a.session_id != b.session_id


def test_S0_6_another_tab_of_the_same_user_can_cancel_the_turn(client, log, tmp_path):
    client.say("tab-a", "hi")
    eve = Client(settings_in(tmp_path, user="eve"), log)
    with pytest.raises(CommandRefused, match="belongs to another user"):
        eve.cancel("tab-a")
    other_tab = Client(settings_in(tmp_path), log)
    assert other_tab.cancel("tab-a").views.turn.closing.reason == "cancelled"


def test_opening_again_is_harmless_but_another_agent_is_refused(client):
    assert client.open("s1", agent="shop").verdict == "accepted"
    assert client.open("s1", agent="shop").verdict == "duplicate"
    with pytest.raises(CommandRefused, match="already open") as refused:
        client.open("s1", agent="other")
    assert refused.value.decision.code == "already_open"


def test_S0_4_an_invalid_phase_transition_is_refused(client):
    client.open("s1")
    assert client.trigger("s1", "start_build").views.state.phase == "building"
    with pytest.raises(CommandRefused, match="invalid transition: phase=building, event=publish"):
        client.trigger("s1", "publish")
    assert client.views("s1").state.phase == "building"


def test_S0_3_a_second_lock_is_refused(client):
    client.open("s1")
    client.lock("s1", "p1", command_id="c1")
    assert client.lock("s1", "p1", command_id="c1").verdict == "duplicate"
    with pytest.raises(CommandRefused, match="project_id already locked"):
        client.lock("s1", "p1")


def test_commands_to_an_unknown_session_are_refused(client):
    for command in (
        lambda: client.cancel("nobody"),
        lambda: client.trigger("nobody", "publish"),
        lambda: client.lock("nobody", "p1"),
        lambda: client.terminate("nobody"),
    ):
        with pytest.raises(CommandRefused, match="unknown session"):
            command()
    with pytest.raises(UnknownSession, match="foldlog open nobody"):
        client.views("nobody")


def test_a_cancel_names_the_turn_and_the_phase(client, log):
    client.say("s1", "hi")
    decision = client.cancel("s1")
    event = Client.follow(client, "s1").poll(0)[decision.offset].event
    assert isinstance(event, ev.CancelRequested)
    assert (event.turn, event.seen_phase) == (1, "chatting")


def test_a_cancel_of_an_ended_turn_stops_nothing_else(client, log):
    client.say("s1", "one")
    Played(log, "s1").answer("first")
    client.say("s1", "two")
    with pytest.raises(CommandRefused, match="turn 1 is not running"):
        client.cancel("s1", turn=1)
    assert client.views("s1").turn.closing is None


def test_a_cancel_after_the_step_does_not_close_the_turn(client):
    client.say("s1", "one")
    turn = client.cancel("s1", mode="after_step").views.turn
    assert turn.should_stop and turn.closing is None


def test_an_approval_is_bound_to_the_arguments(client, log):
    asking_for_approval(client, log)
    with pytest.raises(CommandRefused, match="not those that were shown"):
        client.decide("s1", "1.1.0", "allow", args_sha256="0" * 64)
    assert client.decide("s1", "1.1.0", "allow").verdict == "accepted"
    assert client.decide("s1", "1.1.0", "allow").verdict == "duplicate", "spent once"
    with pytest.raises(CommandRefused, match="asks no longer"):
        client.decide("s1", "1.1.0", "deny")


def test_remember_grants_the_arguments(client, log):
    asking_for_approval(client, log)
    turn = client.decide("s1", "1.1.0", "allow", remember=True).views.turn
    assert turn.grants == (f"charge {turn.calls[0].args_sha256}",)


def test_a_call_is_named_by_its_place_or_by_the_providers_id(client, log):
    played = asking_for_approval(client, log, ("charge", {}), ("refund", {}))
    assert client.decide("s1", "toolu_110", "deny").verdict == "accepted"
    assert played.views.turn.calls[0].decision == "deny"
    with pytest.raises(UnknownCall, match=r"in doubt: 1\.1\.1 \(refund, asks\)$"):  # no done one
        client.decide("s1", "1.9.9", "allow")
    with pytest.raises(UnknownCall, match="no call nothing is open"):
        client.decide("s1", "nothing", "allow")


def test_a_call_id_that_the_provider_repeated_is_ambiguous(client, log):
    client.say("s1", "go")
    played = Played(log, "s1")
    played.call()
    played.start()
    played.complete("", [("charge", {}), ("refund", {})], call_id="call_0")
    for index in (0, 1):
        played.invoke(index, approval="ask")
    with pytest.raises(UnknownCall, match=r"names 2 calls of this session \(1\.1\.0, 1\.1\.1\)"):
        client.decide("s1", "call_0", "allow")
    assert call_named(played.views, "1.1.1").name == "refund"


def test_beyond_3_a_doubt_is_resolved_by_a_person_once(client, log):
    played = asking_for_approval(client, log)
    client.decide("s1", "1.1.0", "allow")
    played.tool_start()
    played.uncertain()
    resolved = client.resolve("s1", "1.1.0", "happened", report="invoice 17")
    assert resolved.views.turn.calls[0].human == "happened"
    assert client.resolve("s1", "1.1.0", "happened").verdict == "duplicate"
    end = log.end_offsets(SESSION_EVENTS)
    for outcome, report in (("did_not_happen", ""), ("happened", "invoice 18")):
        with pytest.raises(AlreadyResolved, match=r"at offset \d+: it happened \(invoice 17\)"):
            client.resolve("s1", "1.1.0", outcome, report=report)
    assert log.end_offsets(SESSION_EVENTS) == end, "nothing is written"


def test_beyond_3_a_doubt_that_outlived_its_turn_is_resolved_once(client, log):
    played = asking_for_approval(client, log)
    client.decide("s1", "1.1.0", "allow")
    played.tool_start()
    played.uncertain()
    client.cancel("s1")
    played.end("cancelled")
    assert [call.key for call in played.views.turn.doubts] == ["1.1.0"]
    assert client.resolve("s1", "1.1.0", "happened", report="it was").verdict == "accepted"
    with pytest.raises(AlreadyResolved, match=r"it happened \(it was\)"):
        client.resolve("s1", "1.1.0", "did_not_happen")


def test_beyond_3_a_concurrent_second_report_raises_already_resolved(client, log, monkeypatch):
    """Two people saw the doubt. The fold compares only outcomes, so a second report with the same
    outcome is a duplicate."""
    played = asking_for_approval(client, log)
    client.decide("s1", "1.1.0", "allow")
    played.tool_start()
    played.uncertain()
    produce = client.sessions.resolve

    def after_another(*args, **named):
        monkeypatch.undo()
        client.sessions.resolve("s1", "1.1.0", "happened", report="first", user="ana")
        return produce(*args, **named)

    monkeypatch.setattr(client.sessions, "resolve", after_another)
    with pytest.raises(AlreadyResolved, match=r"it happened \(first\)"):
        client.resolve("s1", "1.1.0", "happened", report="second")


def test_a_terminated_session_stays_terminated(client):
    client.open("s1")
    assert client.terminate("s1", reason="done").verdict == "accepted"
    assert client.terminate("s1").verdict == "duplicate"
    with pytest.raises(CommandRefused, match="open a new one"):
        client.say("s1", "hello?")


def test_ask_waits_for_the_answer_and_a_repetition_returns_it(tmp_path):
    log = memory_log(threaded=True)
    with Client(settings_in(tmp_path), log) as client:
        client.open("s1")
        played = Played(log, "s1")

        def work():
            played.wait(lambda views: views.turn.open)
            played.answer("hello")

        worker = threading.Thread(target=work)
        worker.start()
        first = client.ask("s1", "hi", message_id="m1", timeout_s=PATIENCE_S)
        joined(worker)
        assert first.text == "hello" and first.reason == "end_turn"
        assert client.ask("s1", "hi", message_id="m1") == first, "S0.10"
        with pytest.raises(NoAnswerYet):
            client.ask("s1", "more", timeout_s=0.01)


def test_views_at_an_offset_are_those_right_after_it(client, log):
    decision, _ = client.say("s1", "hi")
    Played(log, "s1").answer("hello")
    assert client.views("s1", at=decision.offset) == decision.views
    assert client.views("s1", at=10_000) == client.views("s1")


def test_watch_shows_the_output_so_far_and_then_follows(client, log):
    client.say("s1", "hi")
    played = Played(log, "s1")
    played.call()
    played.start()
    played.chunk("hel")
    watching = client.watch("s1")
    cursor, shown = next(watching)
    assert cursor is not None and shown.text == "hel"
    assert next(watching) == (played.fold.cursor, None)
    played.chunk("lo")
    played.complete("hello")
    played.end()
    kinds = [type(next(watching)[1]) for _ in range(3)]
    assert kinds == [Token, Settled, LineAdded]


def test_P5_watch_resumes_from_any_cursor_that_it_returned(client, log):
    client.say("s1", "hi")
    Played(log, "s1").answer("hello you")

    def until_quiet(cursor):
        received = []
        for place, shown in client.watch("s1", cursor):
            if shown is None:
                return received
            received.append((place, shown))
        return received

    whole = until_quiet(0)
    for number, (cursor, _) in enumerate(whole):
        if cursor is not None:
            assert until_quiet(cursor) == whole[number + 1 :]

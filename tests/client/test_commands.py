"""Every command of a session waits for the fold's ruling, and a refusal has the reason."""

import pytest

from foldlog.client.calls import AlreadyResolved, UnknownCall, call_named
from foldlog.client.connection import connect
from foldlog.client.follow import Follow
from foldlog.client.log_client import LogClient
from foldlog.client.outcomes import CommandRefused
from foldlog.client.session import Session
from foldlog.client.show import UnknownSession
from foldlog.log.errors import Refused
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.played import Played, settings_in


def asking_for_approval(client, log, *calls):
    """The session s1, whose model requested these calls; each call waits for approval."""
    Session(client, "s1").say("go", message_id="m1")
    played = Played(log, "s1")
    played.propose("", *(calls or [("charge", {"cents": 5})]))
    for index in range(len(calls or [1])):
        played.invoke(index, approval="ask")
    return played


def test_a_first_message_to_an_unknown_session_opens_it(client):
    decision = Session(client, "s1").say("hi", message_id="m1")
    assert decision.verdict == "accepted"
    views = Session(client, "s1").views()
    assert views.turn.agent == "default" and views.state.user_id == "ana" and views.turn.open


def test_S0_5_two_tabs_of_one_user_are_two_sessions(client):
    for tab in ("tab-a", "tab-b"):
        Session(client, tab).say("hi")
        Session(client, tab).lock("shared-project")
    a, b = Session(client, "tab-a").views().state, Session(client, "tab-b").views().state
    assert a.user_id == b.user_id and a.project_id == b.project_id == "shared-project"
    assert a.session_id != b.session_id


def test_S0_6_another_tab_of_the_same_user_can_cancel_the_turn(client, log, tmp_path):
    Session(client, "tab-a").say("hi")
    eve = LogClient(settings_in(tmp_path, user="eve"), log)
    with pytest.raises(CommandRefused, match="belongs to another user"):
        Session(eve, "tab-a").cancel()
    other_tab = LogClient(settings_in(tmp_path), log)
    assert Session(other_tab, "tab-a").cancel().views.turn.closing.reason == "cancelled"


def test_opening_again_is_harmless_but_another_agent_is_refused(client):
    assert Session(client, "s1").open(agent="shop").verdict == "accepted"
    assert Session(client, "s1").open(agent="shop").verdict == "duplicate"
    with pytest.raises(CommandRefused, match="already open") as refused:
        Session(client, "s1").open(agent="other")
    assert refused.value.decision.code == "already_open"


def test_S0_4_an_invalid_phase_transition_is_refused(client):
    Session(client, "s1").open()
    assert Session(client, "s1").trigger("start_build").views.state.phase == "building"
    with pytest.raises(CommandRefused, match="invalid transition: phase=building, event=publish"):
        Session(client, "s1").trigger("publish")
    assert Session(client, "s1").views().state.phase == "building"


def test_S0_3_a_second_lock_is_refused(client):
    Session(client, "s1").open()
    Session(client, "s1").lock("p1", command_id="c1")
    assert Session(client, "s1").lock("p1", command_id="c1").verdict == "duplicate"
    with pytest.raises(CommandRefused, match="project_id already locked"):
        Session(client, "s1").lock("p1")


def test_commands_to_an_unknown_session_are_refused(client):
    for command in (
        lambda: Session(client, "nobody").cancel(),
        lambda: Session(client, "nobody").trigger("publish"),
        lambda: Session(client, "nobody").lock("p1"),
        lambda: Session(client, "nobody").terminate(),
    ):
        with pytest.raises(CommandRefused, match="unknown session"):
            command()
    with pytest.raises(UnknownSession, match="foldlog open nobody"):
        Session(client, "nobody").views()


def test_a_cancel_names_the_turn_and_the_phase(client, log):
    Session(client, "s1").say("hi")
    decision = Session(client, "s1").cancel()
    with Follow(log, ("s1",)) as follow:
        event = follow.poll(0)[decision.offset].event
    assert isinstance(event, ev.CancelRequested)
    assert (event.turn, event.seen_phase) == (1, "chatting")


def test_a_cancel_of_an_ended_turn_stops_nothing_else(client, log):
    Session(client, "s1").say("one")
    Played(log, "s1").answer("first")
    Session(client, "s1").say("two")
    with pytest.raises(CommandRefused, match="turn 1 is not running"):
        Session(client, "s1").cancel(turn=1)
    assert Session(client, "s1").views().turn.closing is None


def test_an_approval_is_bound_to_the_arguments(client, log):
    asking_for_approval(client, log)
    with pytest.raises(CommandRefused, match="not those that were shown"):
        Session(client, "s1").decide("1.1.0", "allow", args_sha256="0" * 64)
    assert Session(client, "s1").decide("1.1.0", "allow").verdict == "accepted"
    assert Session(client, "s1").decide("1.1.0", "allow").verdict == "duplicate", "spent once"
    with pytest.raises(CommandRefused, match="asks no longer"):
        Session(client, "s1").decide("1.1.0", "deny")


def test_a_call_is_named_by_its_place_or_by_the_providers_id(client, log):
    played = asking_for_approval(client, log, ("charge", {}), ("refund", {}))
    assert Session(client, "s1").decide("toolu_110", "deny").verdict == "accepted"
    assert played.views.turn.calls[0].decision == "deny"
    with pytest.raises(UnknownCall, match=r"in doubt: 1\.1\.1 \(refund, asks\)$"):  # no done one
        Session(client, "s1").decide("1.9.9", "allow")
    with pytest.raises(UnknownCall, match="no call nothing is open"):
        Session(client, "s1").decide("nothing", "allow")


def test_a_call_id_that_the_provider_repeated_is_ambiguous(client, log):
    Session(client, "s1").say("go")
    played = Played(log, "s1")
    played.call()
    played.start()
    played.complete("", [("charge", {}), ("refund", {})], call_id="call_0")
    for index in (0, 1):
        played.invoke(index, approval="ask")
    with pytest.raises(UnknownCall, match=r"names 2 calls of this session \(1\.1\.0, 1\.1\.1\)"):
        Session(client, "s1").decide("call_0", "allow")
    assert call_named(played.views, "1.1.1").name == "refund"


def test_beyond_3_a_doubt_is_resolved_by_a_person_once(client, log):
    played = asking_for_approval(client, log)
    Session(client, "s1").decide("1.1.0", "allow")
    played.tool_start()
    played.uncertain()
    resolved = Session(client, "s1").resolve("1.1.0", happened="invoice 17")
    assert resolved.views.turn.calls[0].human == "happened"
    assert Session(client, "s1").resolve("1.1.0", happened="invoice 17").verdict == "duplicate"
    end = log.end_offsets(SESSION_EVENTS)
    for outcome in ({"did_not_happen": True}, {"happened": "invoice 18"}):
        with pytest.raises(AlreadyResolved, match=r"at offset \d+: it happened \(invoice 17\)"):
            Session(client, "s1").resolve("1.1.0", **outcome)
    assert log.end_offsets(SESSION_EVENTS) == end, "nothing is written"


def test_beyond_3_a_doubt_that_outlived_its_turn_is_resolved_once(client, log):
    played = asking_for_approval(client, log)
    Session(client, "s1").decide("1.1.0", "allow")
    played.tool_start()
    played.uncertain()
    Session(client, "s1").cancel()
    played.end("cancelled")
    assert [call.key for call in played.views.turn.doubts] == ["1.1.0"]
    assert Session(client, "s1").resolve("1.1.0", happened="it was").verdict == "accepted"
    with pytest.raises(AlreadyResolved, match=r"it happened \(it was\)"):
        Session(client, "s1").resolve("1.1.0", did_not_happen=True)


def test_beyond_3_a_concurrent_second_report_raises_already_resolved(client, log, monkeypatch):
    """Two people saw the doubt. The fold compares only outcomes, so a second report with the same
    outcome is a duplicate."""
    played = asking_for_approval(client, log)
    Session(client, "s1").decide("1.1.0", "allow")
    played.tool_start()
    played.uncertain()
    produce = client.writer.resolve

    def after_another(*args, **named):
        monkeypatch.undo()
        client.writer.resolve("s1", "1.1.0", "happened", report="first", user="ana")
        return produce(*args, **named)

    monkeypatch.setattr(client.writer, "resolve", after_another)
    with pytest.raises(AlreadyResolved, match=r"it happened \(first\)"):
        Session(client, "s1").resolve("1.1.0", happened="second")


def test_a_terminated_session_stays_terminated(client):
    Session(client, "s1").open()
    assert Session(client, "s1").terminate(reason="done").verdict == "accepted"
    assert Session(client, "s1").terminate().verdict == "duplicate"
    with pytest.raises(CommandRefused, match="open a new one"):
        Session(client, "s1").say("hello?")


def test_views_at_an_offset_are_those_right_after_it(client, log):
    decision = Session(client, "s1").say("hi")
    Played(log, "s1").answer("hello")
    assert Session(client, "s1").views(at=decision.offset) == decision.views


def test_a_pattern_that_does_not_match_the_call_itself_is_refused(client, log):
    asking_for_approval(client, log)
    end = log.end_offsets(SESSION_EVENTS)
    with pytest.raises(Refused, match="does not match this call of charge itself"):
        Session(client, "s1").approve("1.1.0", like={"note": "*"})
    assert log.end_offsets(SESSION_EVENTS) == end, "nothing is written"
    views = Session(client, "s1").approve("1.1.0", like={"cents": "*"}).views
    assert [grant.split()[0] for grant in views.turn.grants] == ["charge"]


def test_a_ruling_prints_as_one_line(client):
    decision = Session(client, "s1").open()
    assert repr(decision) == f"<Decision on offset {decision.offset} of s1: accepted>"


def test_messages_name_the_channel_of_their_connection(log, settings):
    with connect(settings, log=log, channel="push:crm") as connection:
        decision = connection.open("s1").say("hi")
    with Follow(log, ("s1",)) as follow:
        assert follow.poll(0)[decision.offset].event.channel == "push:crm"

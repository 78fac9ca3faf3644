"""`approve`, `deny`, `resolve`: a decision is bound to one call and the arguments that are
printed."""

import os
import pwd
from hashlib import sha256

import pytest

from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.played import Played


@pytest.fixture
def played(shell):
    """The session s1 with two calls that wait for approval."""
    shell("send s1 go")
    played = Played(shell.log, "s1")
    played.propose("", ("charge", {"cents": 5, "to": "\x1b[8mme"}), ("mail", {}))
    played.invoke(0, approval="ask")
    played.invoke(1, approval="ask")
    return played


def test_approve_shows_the_arguments_it_binds_to(shell, played):
    ran = shell("approve s1 1.1.0")
    first, second = ran.out.splitlines()
    assert first == 'charge (1.1.0) with {"cents": 5, "to": "\\u001b[8mme"}'
    assert second.startswith("charge is allowed (offset ")
    call = played.views.turn.calls[0]
    assert (call.status, call.decision) == ("allowed", "allow")
    assert "done before" in shell("approve s1 1.1.0").out


HIDING = {"command": "ls \u200b\u3164" + " " * 12_990 + "&& rm -rf ~" + "x" * 12_000, "zz": "last"}
SHOWN = (
    '{"command": "ls \\u200b\\u3164⟨␠×12990⟩&& rm -rf ~' + "x" * 12_000 + '", "zz": "last"}'
)


@pytest.mark.parametrize("command", ["approve s1 1.1.0", "deny s1 1.1.0", "show s1"])
def test_E11_no_part_of_the_arguments_is_hidden(shell, command):
    shell("send s1 go")
    played = Played(shell.log, "s1")
    played.propose("", ("run", HIDING))
    played.invoke(0, approval="ask")
    assert SHOWN in shell(command).out
    assert not shell(command).out.count("\u3164")


def test_remember_allows_later_calls_with_the_same_arguments(shell, played):
    (decision,) = shell("approve s1 1.1.1 --remember --json").json
    assert (decision["call"], decision["name"], decision["args"]) == ("1.1.1", "mail", "{}")
    assert played.views.turn.grants == (f"mail {sha256(b'{}').hexdigest()}",)


def test_the_output_states_which_later_calls_are_allowed(shell, played):
    same = shell("approve s1 1.1.1 --remember").out.splitlines()[1]
    assert "and so are later calls of mail with exactly these arguments, for the rest" in same
    like = shell("approve s1 1.1.0 --remember-like cents=5 --remember-like", "to=*\x1b*me")
    assert "where cents is '5' and to is" in like.out
    assert played.views.turn.grants[-1] == 'charge {"cents":"5","to":"*\\u001b*me"}'
    assert shell("approve s1 1.1.0 --remember-like x").code == 2
    assert shell("approve s1 1.1.0 --remember --remember-like a=b").code == 2


@pytest.mark.parametrize("like", ["cents=5", "command=*", "cents=6 --remember-like to=*"])
def test_a_pattern_that_does_not_match_its_own_call_is_refused_and_allows_nothing(
    shell, played, like
):
    refused = shell(f"approve s1 1.1.0 --remember-like {like}")
    assert refused.code == 1 and "does not match this call of charge itself" in refused.err
    assert played.views.turn.calls[0].status == "asks" and played.views.turn.grants == ()


def test_deny_by_the_providers_call_id(shell, played):
    assert "mail is denied" in shell("deny s1 toolu_111").out
    refused = shell("approve s1 1.1.1")
    assert refused.code == 1 and "asks no longer" in refused.err


def test_an_unknown_call_is_refused_and_the_known_ones_are_listed(shell, played):
    refused = shell("approve s1 1.1.7")
    assert refused.code == 1
    assert "1.1.0 (charge, asks), 1.1.1 (mail, asks)" in refused.err


def test_another_user_cannot_decide(shell, played):
    assert "belongs to another user" in shell("approve s1 1.1.0 --user eve").err
    assert played.views.turn.calls[0].status == "asks"


def test_beyond_3_resolve_settles_a_doubt(shell, played):
    for index in (0, 1):
        shell(f"approve s1 1.1.{index}")
        played.tool_start(index)
        played.uncertain(index)
    assert "call 1.1.0 happened" in shell("resolve s1 1.1.0 --happened", "invoice 17").out
    assert "did not happen" in shell("resolve s1 1.1.1 --did-not-happen").out
    assert [call.human for call in played.views.turn.calls] == ["happened", "did_not_happen"]
    assert "done before, nothing changed" in shell("resolve s1 1.1.0 --happened", "invoice 17").out


def test_beyond_3_resolving_a_doubt_again_otherwise_is_refused_with_its_outcome(shell, played):
    """The defect: a second `foldlog resolve` with another text printed "nothing changed" and exited
    with 0."""
    for index in (0, 1):
        shell(f"approve s1 1.1.{index}")
        played.tool_start(index)
        played.uncertain(index)
    shell("resolve s1 1.1.0 --happened", "invoice 17")
    shell("resolve s1 1.1.1 --did-not-happen")
    other = shell("resolve s1 1.1.0 --happened", "invoice 18")
    assert (other.code, other.out) == (1, "")
    assert "call 1.1.0 was already resolved, at offset " in other.err
    assert "it happened (invoice 17). Nothing was changed" in other.err
    for more in ("resolve s1 toolu_111 --happened x", "resolve s1 1.1.1 --happened x"):
        refused = shell(more)
        assert refused.code == 1 and "1.1.1 was already resolved" in refused.err
        assert "it did not happen." in refused.err
    assert shell("resolve s1 1.1.1 --did-not-happen").code == 0, "the same again is harmless"
    played.answer("well")
    late = shell("resolve s1 1.1.0 --happened", "invoice 19")
    assert late.code == 1 and "it happened (invoice 17)" in late.err, "its turn has ended"


@pytest.mark.parametrize("text", ["", "  \n"])
def test_beyond_3_happened_needs_a_text(shell, played, text):
    shell("approve s1 1.1.0")
    played.tool_start(0)
    played.uncertain(0)
    refused = shell("resolve s1 1.1.0 --happened", text)
    assert refused.code == 2 and "Nothing was written. State what happened" in refused.err
    assert played.views.turn.calls[0].status == "doubt"


def test_C17_a_command_records_the_os_user_independent_of_the_option_user(shell, played):
    shell("approve s1 1.1.0 --user ana")
    records = [r for p in shell.log.topic(SESSION_EVENTS).partitions for r in p.records]
    entry = next(e for e in map(entry_of, records) if isinstance(e.event, ev.ApprovalDecided))
    name = pwd.getpwuid(os.getuid()).pw_name
    assert entry.by == f"command os_user {name}"
    assert shell("approve s1 1.1.1 --user eve").code == 1

"""Authentication: valid and invalid tokens, origins, and the host names of this machine."""

import time
from contextlib import nullcontext

import jwt
import pytest

from foldlog.processors.worker import page_access
from foldlog.schemas.origin import TokenRole
from foldlog.tests.web.gateway.served import SECRET
from foldlog.web.gateway.access import (
    Access,
    Act,
    Caller,
    Foreign,
    Unauthenticated,
    may,
    token_for,
)

ACCESS = Access("local", SECRET, ["https://app.example"])


def caller_of(token):
    return ACCESS.caller({"authorization": f"Bearer {token}"}, {})


def signed(secret=SECRET, algorithm="HS256", **changes):
    now = int(time.time())
    claims = {"sub": "ana", "aud": "foldlog", "iat": now, "exp": now + 60} | changes
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, secret, algorithm)


def test_a_token_names_its_user():
    caller = caller_of(token_for("ana", SECRET, 60))
    assert (caller.user, caller.everything) == ("ana", False)
    assert 0 < caller.until - time.time() <= 60
    assert ACCESS.caller({}, {"foldlog_token": token_for("bob", SECRET)}).user == "bob"


@pytest.mark.parametrize(
    "token",
    [
        signed(exp=int(time.time()) - 1),
        signed(exp=int(time.time()) + 7200),
        signed(secret="t" * 40),
        signed(aud="another"),
        signed(sub=None),
        signed(exp=None),
        signed(sub="no user/"),
        signed(secret=None, algorithm="none"),
        signed()[:-2],
        "not.a.token",
        "",
    ],
)
def test_an_invalid_token_is_refused_and_the_error_contains_nothing_of_it(token):
    with pytest.raises(Unauthenticated) as refused:
        caller_of(token)
    assert not token or token[:20] not in str(refused.value)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://app.example"])
def test_a_page_of_another_origin_is_refused(origin):
    with pytest.raises(Foreign):
        ACCESS.admit({"host": "gateway.example", "origin": origin})


def test_pages_of_the_gateway_and_of_allowed_origins_are_admitted():
    ACCESS.admit({"host": "gateway.example", "origin": "https://app.example"})
    ACCESS.admit({"host": "gateway.example", "origin": "https://gateway.example"})
    ACCESS.admit({"host": "gateway.example"})


@pytest.mark.parametrize("host", ["rebound.example:8377", "", "127.0.0.1.example"])
def test_development_mode_serves_loopback_hosts_only(host):
    with pytest.raises(Foreign, match="loopback"):
        Access("local", None).admit({"host": host})


@pytest.mark.parametrize(
    ("host", "is_admitted"),
    [
        ("[::ffff:127.0.0.1]:8377", True),
        ("[::ffff:10.0.0.7]:8377", False),
        ("LOCALHOST:1", True),
        ("localhost:1:2", False),
    ],
)
def test_the_gateway_and_a_workers_pages_admit_the_same_loopback_names(host, is_admitted):
    """The defect: the gateway had its own check, which refused an IPv4-mapped loopback address."""
    with nullcontext() if is_admitted else pytest.raises(Foreign):
        Access("local", None).admit({"host": host})
    answer = page_access.refusal("/status", page_access.Caller("127.0.0.1", host, ""), None)
    assert (answer is None) == is_admitted


@pytest.mark.parametrize("host", ["127.0.0.1:8377", "localhost:1", "[::1]:8377", "127.0.0.1"])
def test_in_development_mode_every_caller_is_the_user_of_the_settings(host):
    access = Access("local", None)
    access.admit({"host": host})
    assert access.caller({}, {}) == Caller("local", is_developer=True)


@pytest.mark.parametrize(("claim", "roles"), [
    (["operator", "decide"], {"operator", "decide"}), (["operator", "root", 7, []], {"operator"}),
    ("operator", set()), (None, set()), ({"operator": True}, set()), ([["operator"]], set()),
])
def test_a_tokens_roles_are_a_list_and_unknown_ones_are_ignored(claim, roles):
    assert caller_of(signed(roles=claim)).roles == roles


@pytest.mark.parametrize(("roles", "owner", "acts"), [
    ((), "ana", {"read", "decide", "write"}), ((), "bob", set()), (("decide",), "bob", set()),
    (("operator",), "bob", {"read"}), (("operator", "decide"), "bob", {"read", "decide"}),
])
def test_what_a_caller_may_do_with_a_session(roles, owner, acts):
    caller = Caller("ana", frozenset(map(TokenRole, roles)))
    assert {act for act in Act if may(caller, owner, act)} == acts
    assert all(may(Caller("ana", is_developer=True), owner, act) for act in Act)

"""Caller asks: tokens that count and those that do not, origins, and the names of this machine."""

import time

import jwt
import pytest

from foldlog.consumers.gateway.access import Access, Caller, Foreign, Unauthenticated, token_for

SECRET = "s" * 40
ACCESS = Access("local", SECRET, ["https://app.example"])


def bearing(token):
    return ACCESS.caller({"authorization": f"Bearer {token}"}, {})


def signed(secret=SECRET, algorithm="HS256", **changes):
    now = int(time.time())
    claims = {"sub": "ana", "aud": "foldlog", "iat": now, "exp": now + 60} | changes
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, secret, algorithm)


def test_a_token_says_who_asks():
    who = bearing(token_for("ana", SECRET, 60))
    assert who[:2] == ("ana", False) and 0 < who.until - time.time() <= 60
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
def test_a_token_that_does_not_count_is_told(token):
    with pytest.raises(Unauthenticated):
        bearing(token)


def test_nothing_of_a_token_is_in_an_error():
    token = signed(secret="t" * 40)
    with pytest.raises(Unauthenticated) as refused:
        bearing(token)
    assert token[:20] not in str(refused.value)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://app.example"])
def test_a_page_of_another_origin_is_kept_out(origin):
    with pytest.raises(Foreign):
        ACCESS.admit("GET", {"host": "gateway.example", "origin": origin})


def test_pages_of_the_gateway_and_of_those_allowed_come_in():
    ACCESS.admit("POST", {"host": "gateway.example", "origin": "https://app.example"})
    ACCESS.admit("POST", {"host": "gateway.example", "origin": "https://gateway.example"})
    ACCESS.admit("POST", {"host": "gateway.example"})


@pytest.mark.parametrize("host", ["rebound.example:8377", "", "127.0.0.1.example"])
def test_in_development_mode_only_loopback_is_answered(host):
    with pytest.raises(Foreign, match="loopback"):
        Access("local", None).admit("GET", {"host": host})


@pytest.mark.parametrize("host", ["127.0.0.1:8377", "localhost:1", "[::1]:8377", "127.0.0.1"])
def test_in_development_mode_whoever_asks_is_the_user_of_the_settings(host):
    access = Access("local", None)
    access.admit("GET", {"host": host})
    assert access.caller({}, {}) == Caller("local", everything=True)

"""Who asks: a short-lived signed token says it, or, on this machine alone, nobody needs to.

A session belongs to the user who opened it, which is a fact of the log; every read and every write
asks for it anew, and another's is answered as one that does not exist. Without a secret the gateway
is in development mode: it binds to loopback only, takes everybody for the user of the settings, and
shows that user every session. Only this file imports jwt.
"""

import ipaddress
import math
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

import jwt

from ...log.errors import Refused
from ...log.settings import SECRET_BYTES_MIN
from ...schemas.ids import is_id

AUDIENCE = "foldlog"
ALGORITHM = "HS256"
TOKEN_S_MAX = 3_600
"""How long a token may live, in seconds: one that leaked is soon worth nothing."""
COOKIE = "foldlog_token"


class Unauthenticated(Refused):
    """No token, or one that does not count (401)."""


class Foreign(Refused):
    """A request from a page of another origin, or for another name of this machine (403)."""


class Who(NamedTuple):
    """Who asks. everything: development mode, in which one person sees it all. until: when the
    token expires, Unix s, and with it a stream that was opened by it."""

    user: str
    everything: bool = False
    until: float = math.inf


class Access:
    """Checks tokens and origins. `secret` None: development mode, for `user`."""

    def __init__(self, user: str, secret: str | None, origins: Collection[str] = ()) -> None:
        assert secret is None or len(secret.encode()) >= SECRET_BYTES_MIN
        self._user, self._secret, self.origins = user, secret, frozenset(origins)

    @property
    def development(self) -> bool:
        """Whether nobody is asked who they are."""
        return self._secret is None

    def who(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Who:
        """Who asks, by these headers (lower case) and cookies. Raises Unauthenticated."""
        if self._secret is None:
            return Who(self._user, everything=True)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        token = given.strip() if scheme.lower() == "bearer" else cookies.get(COOKIE, "")
        if not token:
            raise Unauthenticated("a token is needed: Authorization: Bearer ... (`foldlog token`)")
        return self.bearer(token)

    def bearer(self, token: str) -> Who:
        """Who a token names, and until when. Raises Unauthenticated."""
        assert self._secret is not None, "nobody has a token in development mode"
        needed = ["sub", "exp", "iat", "aud"]
        try:
            claims = jwt.decode(
                token, self._secret, [ALGORITHM], audience=AUDIENCE, options={"require": needed}
            )
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("this token has expired: get a new one") from None
        except jwt.InvalidTokenError:
            raise Unauthenticated("this token is not one of this installation") from None
        if claims["exp"] - claims["iat"] > TOKEN_S_MAX:
            raise Unauthenticated(f"a token may live for {TOKEN_S_MAX} s at most")
        if not is_id(claims["sub"]):
            raise Unauthenticated("this token names no user")
        return Who(claims["sub"], until=claims["exp"])

    def admit(self, method: str, headers: Mapping[str, str]) -> None:
        """Raise Foreign for a page of another origin that is not allowed, and, in development mode,
        for a name of this machine that others may have given it."""
        host = headers.get("host", "")
        if self.development and not is_loopback(host_name(host)):
            raise Foreign(f"in development mode this gateway answers to loopback, not to {host!r}")
        origin = headers.get("origin")
        if origin is None or origin in self.origins:
            return
        if origin.partition("://")[2] != host:
            raise Foreign(
                f"pages of {origin!r} may not use this gateway: allow it with --cors-origin"
            )


def host_name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def is_loopback(name: str) -> bool:
    """Whether a name or address can only mean this machine."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def token_for(user: str, secret: str, life_s: int = 900) -> str:
    """A token for a user, good for `life_s` seconds."""
    assert is_id(user) and 0 < life_s <= TOKEN_S_MAX, (user, life_s)
    now = int(time.time())
    claims = {"sub": user, "aud": AUDIENCE, "iat": now, "exp": now + life_s}
    return jwt.encode(claims, secret, ALGORITHM)

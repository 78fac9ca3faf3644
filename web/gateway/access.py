"""Authentication by short-lived signed tokens; development mode needs none and is local only.

A session belongs to the user who opened it, as recorded in the log. `may` decides what a caller may
do with a session; a plain user's request for another user's session gets the response for an
unknown session. An operator (TokenRole) may read every session, and each look is recorded
(looks.py). Without a secret the gateway is in development mode: it binds to loopback only, treats
every caller as the user of the settings, and shows this user every session. Only this file imports
jwt.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import NamedTuple, assert_never

import jwt
from starlette.requests import Request

from ...log.errors import Refused
from ...log.settings import SECRET_BYTES_MIN
from ...processors.worker.page_access import host_name, is_loopback
from ...schemas.ids import is_id, why_not_an_id
from ...schemas.origin import Proof, TokenRole

AUDIENCE = "foldlog"
ALGORITHM = "HS256"
TOKEN_S_MAX = 3_600
"""The longest lifetime of a token, in seconds, so that a leaked token soon expires."""
COOKIE = "foldlog_token"


class Unauthenticated(Refused):
    """The token is missing or invalid (401)."""


class Foreign(Refused):
    """A request from a page of another origin, or with an unknown host name (403)."""


class NotYours(Refused):
    """An operator's request that would change another user's session (403)."""


class Caller(NamedTuple):
    """The user of a request.

    roles: what this user may do in the sessions of others.
    until: when the user must be authenticated again, such as the expiry of a token (Unix s). The
        streams of the request end then.
    is_developer: whether the gateway is in development mode, in which this user may do everything.
    """

    user: str
    roles: frozenset[TokenRole] = frozenset()
    until: float = math.inf
    is_developer: bool = False

    @property
    def everything(self) -> bool:
        """Whether the user may see every session."""
        return self.is_developer or TokenRole.OPERATOR in self.roles

    def is_look(self, owner: str) -> bool:
        """Whether reading a session of this owner is a look, which is recorded."""
        return owner != self.user and not self.is_developer


class Act(StrEnum):
    """What a request does with a session. decide: answer an approval, or settle a doubt."""

    READ = "read"
    DECIDE = "decide"
    WRITE = "write"


def may(caller: Caller, owner: str, act: Act) -> bool:
    """Whether the caller may do this with a session of `owner`. Every route asks this function."""
    if caller.is_developer or owner == caller.user:
        return True
    if TokenRole.OPERATOR not in caller.roles:
        return False
    match act:
        case Act.READ:
            return True
        case Act.DECIDE:
            return TokenRole.DECIDE in caller.roles
        case Act.WRITE:
            return False
    assert_never(act)


Authenticate = Callable[[Request], str | Caller | None]
"""Returns the id of the user who sent a request, a Caller for a user with roles, or None to refuse
the request. An application that mounts the gateway and authenticates its own users passes this
function.
"""


class Access:
    """Checks tokens and origins.

    secret: None for development mode, in which every caller is `user`.
    authenticate: called to find the user, instead of reading a token.
    """

    def __init__(
        self,
        user: str,
        secret: str | None,
        origins: Collection[str] = (),
        authenticate: Authenticate | None = None,
    ) -> None:
        assert secret is None or len(secret.encode()) >= SECRET_BYTES_MIN
        self._user, self._secret, self.origins = user, secret, frozenset(origins)
        self._authenticate = authenticate

    @property
    def development(self) -> bool:
        """Whether requests are not authenticated."""
        return self._secret is None and self._authenticate is None

    @property
    def proof(self) -> Proof:
        """How callers are authenticated."""
        if self._authenticate is not None:
            return Proof.APP
        return Proof.NONE if self._secret is None else Proof.TOKEN

    def caller_of(self, request: Request) -> Caller:
        """The user of a request. Raises Unauthenticated, and ValueError if `authenticate` returned
        an invalid user id or role.
        """
        if self._authenticate is None:
            return self.caller(request.headers, request.cookies)
        found = self._authenticate(request)
        if found is None:
            raise Unauthenticated("this application knows no user for this request. Nothing was "
                                  "done. Sign in.")
        user, roles, until, _ = found if isinstance(found, Caller) else Caller(found)
        if not isinstance(user, str) or not is_id(user):
            raise ValueError(f"authenticate: {why_not_an_id('the user', str(user))}")
        if unknown := set(roles) - set(TokenRole):
            raise ValueError(f"authenticate: the roles are {', '.join(TokenRole)}, not {unknown}")
        return Caller(user, frozenset(map(TokenRole, roles)), until)

    def caller(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Caller:
        """The user of a request with these headers (lower case) and cookies. Raises
        Unauthenticated.
        """
        if self._secret is None:
            return Caller(self._user, is_developer=True)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        token = given.strip() if scheme.lower() == "bearer" else cookies.get(COOKIE, "")
        if not token:
            raise Unauthenticated("this request has no token. Nothing was done. Send "
                                  "Authorization: Bearer TOKEN (make one with `foldlog token`).")
        return self.bearer(token)

    def bearer(self, token: str) -> Caller:
        """The user of a token, and when the token expires. Raises Unauthenticated."""
        assert self._secret is not None, "development mode has no tokens"
        needed = ["sub", "exp", "iat", "aud"]
        try:
            claims = jwt.decode(
                token, self._secret, [ALGORITHM], audience=AUDIENCE, options={"require": needed}
            )
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("this token has expired. Nothing was done. Get a new "
                                  "one.") from None
        except jwt.InvalidTokenError:
            raise Unauthenticated("this token was not made by this installation. Nothing was "
                                  "done. Get a new one.") from None
        if claims["exp"] - claims["iat"] > TOKEN_S_MAX:
            raise Unauthenticated(f"this token lives longer than {TOKEN_S_MAX} s. Nothing was "
                                  "done. Use a token that expires sooner.")
        if not is_id(claims["sub"]):
            raise Unauthenticated("this token names no valid user. Nothing was done. Get a new "
                                  "one.")
        given = claims.get("roles")
        roles = frozenset(role for role in TokenRole if isinstance(given, list) and role in given)
        return Caller(claims["sub"], roles, claims["exp"])

    def admit(self, headers: Mapping[str, str]) -> None:
        """Raise Foreign if the request comes from a page of a forbidden origin or, in development
        mode, if its Host header is not loopback (DNS rebinding).
        """
        host = headers.get("host", "")
        if self.development and not is_loopback(host_name(host)):
            raise Foreign(f"in development mode this gateway answers loopback hosts only, not "
            f"{host!r}. Nothing was done. Use localhost, or start the gateway with a secret.")
        origin = headers.get("origin")
        is_ours = origin is None or origin in self.origins or origin.partition("://")[2] == host
        if not is_ours:
            raise Foreign(
                f"pages from {origin!r} may not use this gateway. Nothing was done. "
                "Allow the origin with --cors-origin."
            )


def token_for(
    user: str, secret: str, life_s: int = 900, roles: Collection[TokenRole] = ()
) -> str:
    """A token for a user, valid for `life_s` seconds."""
    assert is_id(user) and 0 < life_s <= TOKEN_S_MAX, (user, life_s)
    now = int(time.time())
    claims = {"sub": user, "aud": AUDIENCE, "iat": now, "exp": now + life_s}
    if roles:
        claims["roles"] = sorted(roles)
    return jwt.encode(claims, secret, ALGORITHM)

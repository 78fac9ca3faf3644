"""Translates the login settings of `client.properties` into those of Faust's client.

The properties have librdkafka's names, which Faust's client aiokafka does not know.
"""

import asyncio
import json
import ssl
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from ..log import Settings, SettingsError

_BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_TOKEN_S = 10.0  # timeout of the token endpoint


def faust_credentials(settings: Settings) -> Any:
    """The value of Faust's `broker_credentials`; None for a cluster without TLS and login.

    Raises SettingsError for a property that aiokafka does not support.
    """
    from faust import SASLCredentials, SSLCredentials
    from faust.auth import OAuthCredentials

    given = settings.client_properties
    protocol = given.get("security.protocol", "plaintext").upper()
    context = _context(given) if protocol in ("SSL", "SASL_SSL") else None
    if protocol == "PLAINTEXT":
        return None
    if protocol == "SSL":
        return SSLCredentials(context)
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "")).upper()
    if mechanism == "OAUTHBEARER" and given.get("sasl.oauthbearer.method", "").lower() == "oidc":
        return OAuthCredentials(oauth_cb=_token_provider(given), ssl_context=context)
    if mechanism not in _BY_PASSWORD:
        raise SettingsError(
            f"client.properties: `foldlog fleet` cannot log in with sasl.mechanism={mechanism}. It "
            f"supports {', '.join(_BY_PASSWORD)}, OAUTHBEARER with method oidc, and mutual TLS."
        )
    return SASLCredentials(
        username=given.get("sasl.username"),
        password=given.get("sasl.password"),
        mechanism=mechanism,
        ssl_context=context,
    )


def _context(given: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context for the properties. Raises SettingsError for an unusable file."""
    try:
        context = ssl.create_default_context(
            cafile=given.get("ssl.ca.location"), cadata=given.get("ssl.ca.pem")
        )
        if "ssl.certificate.location" in given:
            context.load_cert_chain(
                given["ssl.certificate.location"],
                given.get("ssl.key.location"),
                given.get("ssl.key.password"),
            )
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise SettingsError(
            f"client.properties: the certificates cannot be used ({error}). Correct "
            "ssl.ca.location, ssl.certificate.location, ssl.key.location or ssl.key.password."
        ) from error
    if given.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _token_provider(given: Mapping[str, str]) -> Any:
    """Requests a token from the token endpoint at each login of the client."""
    from aiokafka.conn import AbstractTokenProvider

    class TokenProvider(AbstractTokenProvider):
        async def token(self) -> str:
            return await asyncio.to_thread(_token, given)

    return TokenProvider()


def _token(given: Mapping[str, str]) -> str:
    """Request a token by the client credentials grant, as librdkafka does."""
    login = f"{given['sasl.oauthbearer.client.id']}:{given['sasl.oauthbearer.client.secret']}"
    form = {"grant_type": "client_credentials"}
    if scope := given.get("sasl.oauthbearer.scope"):
        form["scope"] = scope
    request = urllib.request.Request(
        given["sasl.oauthbearer.token.endpoint.url"],
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": f"Basic {b64encode(login.encode()).decode()}"},
    )
    with urllib.request.urlopen(request, timeout=_TOKEN_S) as answer:
        return str(json.load(answer)["access_token"])

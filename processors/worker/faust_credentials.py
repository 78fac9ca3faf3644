"""What Faust's client needs to log in where `client.properties` says that librdkafka's does.

Faust uses aiokafka, which knows none of librdkafka's property names. This file owns the translation
and must not know what is read or written. Only this file and `rendezvous.py` import faust.
"""

import asyncio
import json
import ssl
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from ...log import Settings, SettingsError

_PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_TOKEN_S = 10.0  # for the token endpoint to answer


def faust_credentials(settings: Settings) -> Any:
    """Faust's `broker_credentials`; None for a cluster without TLS and login.

    Raises SettingsError where the properties ask for something that aiokafka lacks.
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
    if mechanism not in _PASSWORDS:
        raise SettingsError(
            f"client.properties: `foldlog users` can't log in with sasl.mechanism={mechanism}; it "
            f"knows {', '.join(_PASSWORDS)}, OAUTHBEARER with method oidc, and mutual TLS."
        )
    return SASLCredentials(
        username=given.get("sasl.username"),
        password=given.get("sasl.password"),
        mechanism=mechanism,
        ssl_context=context,
    )


def _context(given: Mapping[str, str]) -> ssl.SSLContext:
    """TLS as the properties say. Raises SettingsError naming a file that cannot be used."""
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
            f"client.properties: the certificates can't be used ({error}). Correct "
            "ssl.ca.location, ssl.certificate.location, ssl.key.location or ssl.key.password."
        ) from error
    if given.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _token_provider(given: Mapping[str, str]) -> Any:
    """Asks the token endpoint for a token each time the client logs in."""
    from aiokafka.conn import AbstractTokenProvider

    class TokenProvider(AbstractTokenProvider):
        async def token(self) -> str:
            return await asyncio.to_thread(_token, given)

    return TokenProvider()


def _token(given: Mapping[str, str]) -> str:
    """A token by the client credentials grant, as librdkafka asks for one."""
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

"""Reads an installation's push channels from `foldlog.toml`: the endpoints to which answers are
sent.

    [channels.crm]
    url = "https://crm.example/foldlog"
    secret_env = "CRM_SECRET"

Answers to a message with the channel `push:crm` are sent to this URL. This file validates the
settings of a channel; it sends nothing. The URL and the secret are never shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from .errors import SettingsError

_KNOWN = ("url", "secret_env", "networks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One webhook. secret: None if its variable is not set in this process. networks: the private
    networks, such as 10.1.2.0/24, that may contain the webhook's address; if there are none, the
    address must be public.
    """

    name: str
    url: str = field(repr=False)
    secret_env: str
    secret: str | None = field(repr=False)
    networks: tuple[str, ...] = ()


def channels_from(
    table: Any, source: str, env: Mapping[str, str]
) -> tuple[dict[str, Channel], tuple[str, ...]]:
    """The valid channels of a `[channels]` table, by name, and the errors of the invalid channels.
    """
    if not isinstance(table, dict):
        return {}, (f"{source}: channels must be tables, as in [channels.crm]",)
    good, wrong = {}, []
    for name, options in table.items():
        try:
            good[name] = _channel(name, options, f"{source}, channels.{name}", env)
        except SettingsError as error:
            wrong.append(str(error).rstrip("."))
    return good, tuple(wrong)


def _channel(name: str, options: Any, where: str, env: Mapping[str, str]) -> Channel:
    if not name.isascii() or not all(c.isalnum() or c in "._-" for c in name) or len(name) > 64:
        raise SettingsError(f"{where}: the name must be 1-64 of A-Z a-z 0-9 . _ -")
    if not isinstance(options, dict):
        raise SettingsError(f"{where} must be a table with url and secret_env")
    unknown = sorted(set(options) - set(_KNOWN))
    if unknown:
        raise SettingsError(f"{where}: unknown {', '.join(unknown)}. Known: {', '.join(_KNOWN)}.")
    for what in ("url", "secret_env"):
        if not isinstance(options.get(what), str) or not options[what].strip():
            raise SettingsError(f"{where}: {what} is missing")
    networks = _networks(options.get("networks", []), where)
    _check_url(options["url"], networks, where)
    secret = env.get(options["secret_env"]) or None
    return Channel(
        name=name,
        url=options["url"],
        secret_env=options["secret_env"],
        secret=secret,
        networks=networks,
    )


def _networks(given: Any, where: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise SettingsError(f'{where}: networks must be a list, as in ["10.1.2.0/24"]')
    try:
        return tuple(str(ip_network(text)) for text in given)
    except ValueError as error:
        raise SettingsError(f"{where}: networks: {error}") from error


def _check_url(url: str, networks: tuple[str, ...], where: str) -> None:
    """Raise SettingsError if the URL is unusable, without showing the URL, which may contain a
    secret.
    """
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    if not named or not url.isascii() or any(c.isspace() for c in url):
        raise SettingsError(f"{where}: url is not a URL")
    if parts.username is not None or parts.password is not None:
        raise SettingsError(f"{where}: url must not contain a user or a password")
    if parts.scheme != "https" and not (parts.scheme == "http" and networks):
        raise SettingsError(
            f"{where}: url must begin with https://; http:// only for a channel with networks"
        )

"""Reads an installation's push channels from `foldlog.toml`: the endpoints to which answers are
sent.

    [channels.crm]
    url = "https://crm.example/foldlog"
    secret_env = "CRM_SECRET"

Answers to a message with the channel `push:crm` are sent to this URL. This file validates the
settings of a channel; it sends nothing. The URL and the secret are never shown.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from ..schemas.ids import DOTS
from .errors import SettingsError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_KEYS_SHOWN_MAX = 5
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_KNOWN = ("url", "secret_env", "networks")


def keys_text(names: Iterable[str]) -> str:
    """Keys of a settings file for one line of text: few, and without special characters."""
    shown = [name if _PLAIN_KEY.fullmatch(name) else ascii(name[:60]) for name in names]
    more = len(shown) - _KEYS_SHOWN_MAX
    return ", ".join(shown[:_KEYS_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def is_text(value: str) -> bool:
    """Whether a value is valid UTF-8. Python represents the other bytes of a variable or an
    argument as surrogates."""
    return _SURROGATES.search(value) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One webhook.

    secret: None if its variable is not set in this process.
    networks: the private networks, such as 10.1.2.0/24, that may contain the webhook's address; if
        there are none, the address must be public.
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
            _check_name(name, source)
            good[name] = _channel(name, options, f"{source}, channels.{name}", env)
        except SettingsError as error:
            wrong.append(str(error).rstrip("."))
    return good, tuple(wrong)


def _check_name(name: str, source: str) -> None:
    if not _NAME.fullmatch(name) or name in DOTS:
        raise SettingsError(
            f"{source}: the name must be 1-64 of A-Z a-z 0-9 . _ - in each [channels.NAME], "
            "not `.` or `..`"
        )


def _channel(name: str, options: Any, where: str, env: Mapping[str, str]) -> Channel:
    if not isinstance(options, dict):
        raise SettingsError(f"{where} must be a table with url and secret_env")
    unknown = sorted(set(options) - set(_KNOWN))
    if unknown:
        raise SettingsError(f"{where}: unknown {keys_text(unknown)}. Known: {', '.join(_KNOWN)}.")
    for what in ("url", "secret_env"):
        if not isinstance(options.get(what), str) or not options[what].strip():
            raise SettingsError(f"{where}: {what} is missing")
    if not _VARIABLE.fullmatch(options["secret_env"]):
        # It is not shown, because it may be the secret itself.
        raise SettingsError(f"{where}: secret_env must be the name of an environment variable")
    networks = _networks(options.get("networks", []), where)
    _check_url(options["url"], networks, where)
    secret = env.get(options["secret_env"]) or None
    if secret is not None and not is_text(secret):
        raise SettingsError(f"{where}: {options['secret_env']} is not valid UTF-8 text")
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
    except ValueError:
        raise SettingsError(
            f'{where}: networks must be networks without host bits, as in ["10.1.2.0/24"]'
        ) from None


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

"""How one setting is read: its environment variables, and the values that it may have.

An invalid value is never shown, because a secret may have been put into the wrong setting.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from .channels import is_text
from .errors import SettingsError

STORE_SCHEMES = ("s3", "gs", "az", "memory")
"""The object stores that can hold blobs."""

NAME_BYTES_MAX = 255
"""The longest name of a file or directory on Linux."""

_STORE = re.compile(r"[A-Za-z0-9._/-]*")
_VARIABLES = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


class Row(NamedTuple):
    """How a setting is read. Its name, type, default and meaning are those of its field.

    variables: the first one that is set and not empty is used; if none is given here, the name of
        the setting after FOLDLOG_.
    bounds: of a whole number.
    words: the only values.
    test: what a value must pass, with `rule` for users.
    convert: the last step, (value, source) to the setting's type.
    is_file: a relative path in `foldlog.toml` begins at that file.
    is_path: the value becomes a Path.
    is_secret: never shown.
    can_be_empty: an empty value is a value.
    demands_value: an empty variable is an error, not ignored.
    """

    variables: tuple[str, ...] = ()
    bounds: tuple[int, int] | None = None
    words: tuple[str, ...] = ()
    test: Callable[[str], Any] | None = None
    rule: str = ""
    convert: Callable[[str, str], Any] | None = None
    is_file: bool = False
    is_path: bool = False
    is_secret: bool = False
    can_be_empty: bool = False
    demands_value: bool = False

    def checked(self, name: str, value: Any, source: str) -> Any:
        """The value, validated and converted to the setting's type. Raises SettingsError."""
        if self.bounds is not None:
            return _number(name, value, source, *self.bounds)
        if self.is_file and isinstance(value, Path):
            value = str(value)
        if not isinstance(value, str):
            raise SettingsError(f"{source}: {name} must be a string, not {type(value).__name__}")
        utf8(value, f"{source}: {name}")
        if why := self._why_wrong(value):
            raise SettingsError(f"{source}: {name} {why}")
        return self.convert(value.strip(), source) if self.convert else value.strip()

    def _why_wrong(self, value: str) -> str:
        if not self.is_secret and _CONTROLS.search(value.strip()):
            return "contains a control character"
        if self.is_path and any(len(part.encode()) > NAME_BYTES_MAX for part in value.split("/")):
            return f"has a name of more than {NAME_BYTES_MAX} bytes"
        if self.words and value not in self.words:
            return f"must be {' or '.join(self.words)}"
        if self.test is not None and not self.test(value):
            return self.rule
        is_empty = not self.can_be_empty and not value.strip()
        return "is empty. Set it, or remove it." if is_empty else ""


def path(*variables: str) -> Row:
    """The row of a path."""
    return Row(variables, is_file=True, is_path=True)


def whole(low: int, high: int) -> Row:
    """The row of a whole number."""
    return Row(bounds=(low, high))


def _number(name: str, value: Any, source: str, low: int, high: int) -> int:
    try:
        number = int(value) if not isinstance(value, (bool, float)) else None
    except (TypeError, ValueError):
        number = None
    if number is None or not low <= number <= high:
        raise SettingsError(f"{source}: {name} must be a whole number {low} to {high}")
    return number


def utf8(value: str, source: str) -> str:
    """The value. Raises SettingsError if it is not valid UTF-8."""
    if not is_text(value):
        raise SettingsError(f"{source} is not valid UTF-8 text")
    return value


def variable_globs(value: str, source: str) -> tuple[str, ...]:
    """Names of variables, separated by commas."""
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not all(map(_VARIABLES.fullmatch, names)):
        raise SettingsError(
            f"{source}: tool_env must be names of variables separated by commas, as in "
            "DATABASE_URL,PG*"
        )
    return names


def blob_place(text: str, source: str) -> tuple[str, Path | None]:
    """A directory or a URL of an object store, as a user gave it: (url, None) or ('', directory).
    Raises SettingsError.
    """
    if text.startswith("file:///"):
        return "", Path(text.removeprefix("file://"))
    if "://" not in text:
        return "", Path(text).absolute()
    return store_url(text, source), None


def store_url(value: str, source: str) -> str:
    """The URL of an object store, without a trailing slash. An invalid URL is not shown, because it
    may contain a password.
    """
    wrong = SettingsError(
        f"{source}: blobs must be s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, "
        "az://ACCOUNT/CONTAINER/PREFIX or file:///DIRECTORY; without a user, a password or "
        "parameters, because the credentials are set as docs/blobs.md describes. A directory can "
        "also be given as blobs_dir."
    )
    scheme, separator, place = value.partition("://")
    place = place.strip("/")
    if not separator or scheme not in STORE_SCHEMES or not _STORE.fullmatch(place):
        raise wrong
    if {".", ".."} & set(place.split("/")):
        raise wrong
    if not place and scheme != "memory":
        raise wrong
    return f"{scheme}://{place}"


def fleet_url_of(value: str, source: str) -> str:
    """The URL of the fleet, without a trailing slash. An invalid one is not shown."""
    try:
        parts = urlsplit(value)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits or "@" in value or not re.fullmatch(r"[!-~]+", value):
        raise SettingsError(f"{source}: fleet_url must be http(s)://HOST[:PORT]")
    return value.rstrip("/")


def base_url_of(value: str, source: str) -> str:
    """The URL. An invalid URL is not shown, because it may contain a password."""
    try:
        parts = urlsplit(value)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits or not re.fullmatch(r"[!-~]+", value):
        raise SettingsError(
            f"{source}: base_url must be http(s)://[USER:PASSWORD@]HOST[:PORT][/PATH]"
        )
    return value

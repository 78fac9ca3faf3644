"""An operator's settings for an MCP server: its address, its tools, and the rules for them.

The settings are data, validated when they are created, without connecting to the server. The
server's own hints about its tools count only if the operator trusts them: by default a third-party
tool is `once` and needs approval.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from urllib.parse import parse_qsl, unquote, urlsplit

from ..schemas.enums import Approval, Effect

# `SERVER__TOOL` is split at its first double underscore, so a server's name must not contain one.
_NAME = re.compile(r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")
NAME_CHARS_MAX = 24  # of the 64 that a tool's name may have
ENV_BYTES_MAX = 32 * 1024  # env is passed through a pipe with a buffer of 64 KiB
KEY_CHARS_MIN = 12  # a part of a url's path of at least this length may be a key
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """An MCP server whose tools an agent has, under the names `NAME__TOOL`.

    command: the program and arguments of a server on stdin and stdout.
    url: the address of a server over streamable HTTP; a server has either a command or a url.
    env: environment variables added for the command.
    headers: HTTP headers added to every request. env, headers, and all of the url except its host
        are secret: never logged, not part of a repr.
    allow: globs of the tools that the model may use; empty means all.
    rare: globs of tools that only a search finds.
    effects, approvals: the effect and the approval rule for each glob of tools; the first glob that
        matches counts.
    trust_hints: believe the server's hints on tools that `effects` does not name (read-only tools
        are then pure and run without approval).
    timeout_s: how many seconds a call may take.

    Raises TypeError or ValueError, whose text names the mistake.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = field(default="", repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    effects: Mapping[str, str] = field(default_factory=dict)
    approvals: Mapping[str, str] = field(default_factory=dict)
    trust_hints: bool = False
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > NAME_CHARS_MAX:
            raise ValueError(
                f"the name of an MCP server is 1-{NAME_CHARS_MAX} characters of [A-Za-z0-9-], with "
                f"single underscores between them, not {self.name!r}"
            )
        for what in ("command", "allow", "rare"):
            object.__setattr__(self, what, self._texts(what))
        if bool(self.command) == bool(self.url):
            raise ValueError(f"MCP server {self.name} needs either a command or a url, not both")
        if self.url and urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError(f"the url of MCP server {self.name} must begin with http(s)://")
        if (self.url and self.env) or (self.command and self.headers):
            raise ValueError(f"MCP server {self.name}: env is for a command, headers for a url")
        for what in ("env", "headers", "effects", "approvals"):
            self._check_texts(what)
        if sum(len(k) + len(v) for k, v in self.env.items()) > ENV_BYTES_MAX:
            raise ValueError(f"the env of MCP server {self.name} is over {ENV_BYTES_MAX} bytes")
        _check_words(self.name, "effect", self.effects, Effect)
        _check_words(self.name, "approval", self.approvals, Approval)
        seconds = self.timeout_s
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 1 <= seconds < float("inf"):
            raise ValueError(f"timeout_s of MCP server {self.name} must be seconds, 1 or more")

    @property
    def prefix(self) -> str:
        """The prefix of the names of its tools."""
        return f"{self.name}__"

    def takes(self, tool: str) -> bool:
        """Whether a tool of the server is offered to the model."""
        return not self.allow or _matches(tool, self.allow)

    def is_rare(self, tool: str) -> bool:
        """Whether the model finds a tool only by a search."""
        return _matches(tool, self.rare)

    def effect(self, tool: str) -> str | None:
        """The effect that the operator set for this tool, or None."""
        return _first(tool, self.effects)

    def approval(self, tool: str) -> str | None:
        """The approval rule that the operator set for this tool, or None."""
        return _first(tool, self.approvals)

    def secrets(self) -> tuple[str, ...]:
        """The texts of these settings that must never be shown."""
        url = urlsplit(self.url)
        values = [text for _, text in parse_qsl(url.query)]
        keys = [part for part in url.path.split("/") if len(part) >= KEY_CHARS_MIN]
        asked = [url.username or "", url.password or "", url.path, url.query, *values, *keys]
        given = {*self.env.values(), *self.headers.values(), *asked, *map(unquote, asked)}
        return tuple(sorted((v for v in given if len(v) >= 4), key=len, reverse=True))

    def _texts(self, what: str) -> tuple[str, ...]:
        given = getattr(self, what)
        if isinstance(given, str):
            raise TypeError(f"{what} of MCP server {self.name} must be a list, not {given!r}")
        texts = tuple(given)
        if not all(isinstance(text, str) and text and "\0" not in text for text in texts):
            raise TypeError(f"{what} of MCP server {self.name} must be a list of strings")
        return texts

    def _check_texts(self, what: str) -> None:
        for key, text in getattr(self, what).items():
            if not isinstance(key, str) or not isinstance(text, str) or "\0" in key + text:
                raise TypeError(f"{what} of MCP server {self.name} must map texts to texts")


def _check_words(server: str, what: str, given: Mapping[str, str], words: type[StrEnum]) -> None:
    for tool, word in given.items():
        if word not in list(words):
            raise ValueError(
                f"MCP server {server}: the {what} {word!r} of {tool} is not one of "
                f"{', '.join(words)}"
            )


def _matches(tool: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(tool, glob) for glob in globs)


def _first(tool: str, words: Mapping[str, str]) -> str | None:
    return next((word for glob, word in words.items() if fnmatchcase(tool, glob)), None)

"""The options of commands. Functions pass options on with these types. An `Option` reads what a
person gives on the command line, in the gateway's JSON or in another protocol.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from ..schemas.enums import WhenBusy
from .checks import a_word


class MessageOptions(TypedDict, total=False):
    """The options of `Sessions.say`."""

    message_id: str | None
    when_busy: str
    attach: Sequence[Path | str]


class CancelOptions(TypedDict, total=False):
    """The options of `Sessions.cancel`."""

    mode: str
    reason: str
    cancel_id: str | None


class Grant(TypedDict, total=False):
    """The options of `Sessions.decide`: the later calls that an approval covers."""

    remember: bool
    like: Mapping[str, str] | None


class Option(NamedTuple):
    """An option that a person types: a flag, or one of the `words`, by default the first."""

    name: str
    help: str
    words: type[StrEnum] | None = None

    @property
    def default(self) -> str | bool:
        """The value if the option is not given."""
        return False if self.words is None else next(iter(self.words)).value

    def of(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The option in a JSON object, by its name. A flag counts only if it is `true`. Raises
        Invalid.
        """
        value: Any = given.get(self.name)
        if self.words is None:
            return {self.name: value is True}
        return {self.name: a_word(self.name, value or str(self.default), self.words).value}


WHEN_BUSY = Option(
    "when_busy",
    "If a turn runs: wait for its end, end it, or join it after the next tool results.",
    WhenBusy,
)
REMEMBER = Option(
    "remember", "Allow later calls with exactly these arguments, for the rest of the session."
)
SAME_ARGUMENTS: Grant = {"remember": True}
"""The grant that REMEMBER gives."""

"""The static prefixes of a session's requests, and their tokens for each family of models.

The writer of CONTEXT_SET has the whole text of the prefix, so it records the prefix's tokens in the
event. In older logs the event has only the size in bytes, and the tokens are estimated from it, so
that an old log still folds to the same views.
"""

from ....schemas import events as ev
from ....schemas.tokens import NEW, estimate_size
from ....schemas.value import Value
from ..rows import Rows
from .messages import body_size


class Prefix(Value):
    """A static prefix: system prompt and tools, as JSON. `new`, `old`: the prefix's tokens, counted
    for the newer and the older family of models; 0 if the log lacks them."""

    sha256: str
    system: ev.Body
    tools: ev.Body
    offset: int
    new: int = 0
    old: int = 0

    @property
    def is_weighed(self) -> bool:
        """Whether the log has the tokens of this prefix."""
        return self.new > 0

    def tokens(self, counts: str) -> int:
        """The tokens of this prefix, counted for a family of models."""
        if not self.is_weighed:
            return self.by_size(counts)
        return self.new if counts == NEW else self.old

    def by_size(self, counts: str) -> int:
        """The tokens of this prefix, estimated from its size in bytes as if it were English
        prose."""
        return estimate_size(body_size(self.system) + body_size(self.tools), counts)


def prefix_of(event: ev.ContextSet, offset: int = -1) -> Prefix:
    """The prefix that an event sets. `offset`: the event's, or -1 if it is not in the log yet."""
    return Prefix(
        event.sha256, event.system, event.tools, offset, event.tokens, event.tokens_old
    )


def standing(prefixes: Rows[Prefix]) -> Prefix | None:
    """The prefix of the next requests, or None."""
    return prefixes[-1] if len(prefixes) else None


def heavier(one: Prefix | None, other: Prefix, counts: str) -> int:
    """How many more tokens `other` has than `one`, both counted in the same way."""
    if one is None:
        return other.tokens(counts)
    if one.is_weighed and other.is_weighed:
        return other.tokens(counts) - one.tokens(counts)
    return other.by_size(counts) - one.by_size(counts)

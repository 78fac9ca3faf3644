"""The types that several events share: bodies, usage, proposed calls.

The fields are documented in avro/*.avsc; a test compares the classes with them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

from ..bounds import USAGE_TOKENS_MAX, Bytes, Count

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def event(cls: type[T]) -> type[T]:
    """A class decorator that makes the class an immutable dataclass with keyword arguments."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@event
class BlobRef:
    """A reference to bytes in the content-addressed blob store."""

    sha256: str
    bytes: Bytes
    media_type: str


ReadBlob = Callable[[BlobRef], bytes]
"""Returns the bytes of a blob; may raise BlobError."""


@event
class Body:
    """Content, either inline or in the blob store (then `inline` may hold a preview)."""

    inline: bytes | None = None
    ref: BlobRef | None = None


@event
class Budget:
    """The token limits under which a request was decided."""

    soft_tokens: int
    hard_tokens: int


@event
class Usage:
    """Tokens of one attempt of a model call, normalized: the input counts do not overlap."""

    input_tokens: int
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    output_tokens: int
    raw: bytes

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """The five counts in the order of the fields. If one is negative or above USAGE_TOKENS_MAX,
        all five are 0; `raw` still has what the provider reported."""
        counts = (
            self.input_tokens,
            self.cache_read_tokens,
            self.cache_write_5m_tokens,
            self.cache_write_1h_tokens,
            self.output_tokens,
        )
        return counts if all(0 <= n <= USAGE_TOKENS_MAX for n in counts) else (0, 0, 0, 0, 0)


@event
class Try:
    """One request that background work sent to a model."""

    model: str
    usage: Usage | None = None


@event
class AgentDigest:
    """An agent that a worker serves, and the digest of its definition."""

    name: str
    digest: str


@event
class ProposedCall:
    """A tool call that the model proposed: one tool_use block of its response."""

    index: Count
    call_id: str
    name: str
    args: Body
    args_sha256: str
    args_error: str | None = None


@event
class Trigger:
    """A change of state that a tool requests with its result."""

    trigger: str | None = None
    project_id: str | None = None

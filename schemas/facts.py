"""The facts of `session-facts`, for programs that read many sessions without folding the log.

A worker derives at most one fact from an event (processors/facts/) and writes it, so the session
and the offset of the event identify a fact. The topic has a record per fact, with the user as the
key. In each of its partitions, the facts of one partition of session-events appear in the order of
their offsets. Earlier facts may appear again, for example after a restart, but none is left out: a
reader that remembers the last offset of each partition of session-events sees every fact once.

A value is Avro in single-object encoding (codec.py), with a schema per type in avro_facts/. The
record header `t` has the type.
"""

import json
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from fastavro import parse_schema
from msgspec import Struct

from . import codec
from .codec import HEAD_BYTES, MAGIC, Headers, Schema, Undecodable
from .enums import ApprovalAnswer, DoubtAnswer, EndReason, ModelWork

TITLE_CHARS_MAX = 120
NAME_CHARS_MAX = 128
"""The longest name of a tool or a model, and the longest code, in a fact; longer ones are cut."""
WAITING_MAX = 256
"""The most calls that one fact lists; later ones are left out."""


class Fact(Struct, frozen=True, kw_only=True, gc=False):
    """What all facts have.

    agent: the name of the session's agent.
    partition, offset: of the event in session-events that the fact is derived from.
    at: the broker time of that event, Unix ms.
    """

    user_id: str
    session_id: str
    agent: str
    partition: int
    offset: int
    at: int


class ModelUsage(Struct, frozen=True, kw_only=True, gc=False):
    """The requests to one model for one kind of work, and their tokens, which do not overlap.

    picodollars: the cost at the worker's prices, at most 2**62; None if a request has no price.
    """

    model: str
    work: ModelWork
    requests: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    output_tokens: int
    picodollars: int | None = None


class WaitingCall(Struct, frozen=True, kw_only=True, gc=False):
    """A call that waits for a person.

    call: TURN.STEP.INDEX.
    expires_at: Unix ms; 0 for a doubt, and for an approval that does not expire.
    code: why the call is in doubt; empty for an approval.
    """

    call: str
    tool: str
    expires_at: int = 0
    code: str = ""


class SessionOpened(Fact, frozen=True, kw_only=True):
    """A session was opened. It is idle.

    title, turn: of a fork, what it inherited; otherwise empty and 0.
    """

    parent_id: str | None = None
    project_id: str | None = None
    phase: str
    title: str = ""
    turn: int = 0


class SessionTitled(Fact, frozen=True, kw_only=True):
    """The session's first message. It also begins a turn, because no turn is open then.

    title: the text of the message in one line, cut to TITLE_CHARS_MAX characters; empty if it has
    no text, or if the text is in a blob.
    turn: the turn that it begins.
    """

    title: str
    turn: int


class PhaseChanged(Fact, frozen=True, kw_only=True):
    """The session has another phase or another project.

    settled: the calls whose approval or doubt the same event ended.
    doubts: the calls that are in doubt from now on.
    """

    phase: str
    project_id: str | None = None
    settled: tuple[str, ...] = ()
    doubts: tuple[WaitingCall, ...] = ()


class TurnBegun(Fact, frozen=True, kw_only=True):
    """A message opened a turn: the session is working."""

    turn: int


class TurnEnded(Fact, frozen=True, kw_only=True):
    """A turn ended, and with it every open approval of the session. Earlier doubts remain open.

    error: the code of the failed model call with which the turn ended, or empty.
    steps: the steps of the turn.
    ms: from the turn's first message to its end, without the time that it waited for people.
    usage: all requests since the last TurnEnded or SessionClosed, including background work.
    doubts: the calls that were running and are in doubt from now on.
    next_turn: the turn that queued messages open at once, or 0: the session is idle, or closed.
    """

    turn: int
    reason: EndReason
    error: str = ""
    steps: int
    ms: int
    usage: tuple[ModelUsage, ...] = ()
    doubts: tuple[WaitingCall, ...] = ()
    next_turn: int = 0


class ApprovalAsked(Fact, frozen=True, kw_only=True):
    """A call needs the approval of a person. expires_at: Unix ms, or 0 if it does not expire."""

    call: str
    tool: str
    expires_at: int


class ApprovalAnswered(Fact, frozen=True, kw_only=True):
    """A call no longer needs an approval.

    answer: if it is `withdrawn`, the turn is about to end, and this concerns every open approval of
    the session, of which `call` is the first.
    """

    call: str
    answer: ApprovalAnswer


class DoubtOpened(Fact, frozen=True, kw_only=True):
    """It is unknown whether a call had its effect. The fact may repeat for an open doubt, with
    another code."""

    call: str
    tool: str
    code: str


class DoubtSettled(Fact, frozen=True, kw_only=True):
    """It became known whether a call had its effect."""

    call: str
    answer: DoubtAnswer


class SessionFailed(Fact, frozen=True, kw_only=True):
    """The session is frozen: no worker can continue it. code: unreadable or fold_error."""

    code: str


class SessionRepaired(Fact, frozen=True, kw_only=True):
    """A person made the session skip an unreadable record (RECORD_SKIPPED): it is no longer frozen.
    The fields replace all that is known about the session, except counts and sums. It may be the
    first fact of a session.

    turn: the open or last turn. usage: as in TurnEnded, of turns that ended while it was frozen.
    """

    title: str
    phase: str
    project_id: str | None = None
    turn: int
    is_working: bool
    is_closed: bool
    approvals: tuple[WaitingCall, ...] = ()
    doubts: tuple[WaitingCall, ...] = ()
    usage: tuple[ModelUsage, ...] = ()


class SessionClosed(Fact, frozen=True, kw_only=True):
    """The session was terminated, and with it every open approval. An open turn ends after it, with
    a TurnEnded; the session remains closed. usage: as in TurnEnded."""

    usage: tuple[ModelUsage, ...] = ()


class FactType(NamedTuple):
    """One row of the table of facts."""

    name: str
    cls: type


FACT_TYPES = (
    FactType("SESSION_OPENED", SessionOpened),
    FactType("SESSION_TITLED", SessionTitled),
    FactType("PHASE_CHANGED", PhaseChanged),
    FactType("TURN_BEGUN", TurnBegun),
    FactType("TURN_ENDED", TurnEnded),
    FactType("APPROVAL_ASKED", ApprovalAsked),
    FactType("APPROVAL_ANSWERED", ApprovalAnswered),
    FactType("DOUBT_OPENED", DoubtOpened),
    FactType("DOUBT_SETTLED", DoubtSettled),
    FactType("SESSION_FAILED", SessionFailed),
    FactType("SESSION_REPAIRED", SessionRepaired),
    FactType("SESSION_CLOSED", SessionClosed),
)
BY_NAME = {row.name: row for row in FACT_TYPES}
BY_CLASS = {row.cls: row for row in FACT_TYPES}


class UnknownFact(NamedTuple):
    """A record that this version cannot read. `type`: the header `t`, or empty."""

    type: str
    why: str


def schema_of(name: str) -> Schema:
    """The .avsc of a type of fact, as a dict."""
    file = resources.files(__package__).joinpath("avro_facts", f"{name}.avsc")
    schema: Schema = json.loads(file.read_text("utf-8"))
    return schema


@cache
def _writer(cls: type) -> tuple[bytes, Any]:
    schema = schema_of(BY_CLASS[cls].name)
    return MAGIC + codec.fingerprint_of(schema), parse_schema(schema)


_Reader = tuple[type, Any, Any]
"""Class, the writer's parsed schema, and the current schema if it differs (else None)."""


@cache
def _readers() -> dict[bytes, _Reader]:
    """The readers of all schemas that ever wrote a fact (history_facts/, whose files are like those
    of history/), by the first 10 bytes of a value."""
    found: dict[bytes, _Reader] = {}
    for file in resources.files(__package__).joinpath("history_facts").iterdir():
        shape = json.loads(file.read_text("utf-8"))
        cls = BY_NAME[shape["type"]].cls
        head = MAGIC + codec.fingerprint_of(shape["schema"])
        found[head] = cls, parse_schema(shape["schema"]), _writer(cls)[1]
    return found | {_writer(row.cls)[0]: (row.cls, _writer(row.cls)[1], None) for row in FACT_TYPES}


def encode_fact(fact: Fact) -> tuple[bytes, Headers]:
    """The value and the headers of a fact's record. Raises ValueError when a field does not fit its
    schema."""
    row = BY_CLASS[type(fact)]
    return codec.encode_as(fact, *_writer(row.cls)), [("t", row.name.encode())]


def decode_fact(
    value: bytes | None, headers: Iterable[tuple[str, bytes]] = ()
) -> Fact | UnknownFact:
    """The fact in a record. Never raises: a record that cannot be read is an UnknownFact."""
    kind = next((v.decode("utf-8", "replace") for name, v in headers if name == "t" and v), "")
    found = _readers().get((value or b"")[:HEAD_BYTES])
    if value is None or found is None:
        return UnknownFact(kind, "no schema of this version")
    try:
        fact: Fact = codec.read_as(value, *found)
    except Undecodable as error:
        return UnknownFact(kind, str(error))
    return fact

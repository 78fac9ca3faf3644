"""Defines the tables of an export: names, columns, SQL types and descriptions.

JSON lines, Parquet and `foldlog sql` have exactly these tables. rows.py makes the rows. The fields
`at` and `offset` of `--json` have other names here, because both are reserved words in SQL.
"""

from typing import NamedTuple

TEXT, INT, BIG, BOOL, JSON = "VARCHAR", "INTEGER", "BIGINT", "BOOLEAN", "JSON"
TIME, MONEY = "TIMESTAMP", "DECIMAL(38, 12)"


class Column(NamedTuple):
    """A column: its name, its SQL type, its description."""

    name: str
    type: str
    description: str


class Table(NamedTuple):
    """A table: its name, the meaning of a row, and the columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)


def _columns(text: str) -> tuple[Column, ...]:
    """Parse columns from lines `name TYPE: description`."""
    types = {"text": TEXT, "int": INT, "big": BIG, "bool": BOOL, "json": JSON, "time": TIME}
    types["money"] = MONEY
    found = [Column("session_id", TEXT, "the session")]
    for line in text.strip().splitlines():
        head, _, description = line.strip().partition(": ")
        name, kind = head.split()
        found.append(Column(name, types[kind], description))
    return tuple(found)


EVENTS = Table("events", "a record of the log, also if the fold refused it", _columns("""
    partition int: of the log
    at_offset big: its offset, which gives the order within a partition
    logged_at time: the broker's clock, UTC; for display, not for ordering
    type text: as in the log, GEN_COMPLETE and so on
    writer text: the role that wrote it
    verdict text: the fold's verdict: accepted, ignored, refused
    code text: why it was ignored or refused
    turn int: the turn it names
    step int: the step it names
    attempt int: the attempt it names
    call text: the call it is about, TURN.STEP.INDEX
    fields json: all its fields, as `foldlog tail --json` prints them
"""))
SESSIONS = Table("sessions", "a session", _columns("""
    user_id text: its user
    agent text: the agent that serves it
    project_id text: the project it is locked to
    phase text: chatting, building, verifying, done
    status text: idle, busy, unserved, asks, doubt, frozen, terminated
    reason text: why it is idle, busy or unserved, such as stopped or rate_limit
    turns int: turns so far
    opened_at time: when it was opened
    updated_at time: time of its last event
    parent_session text: the session it was forked from
    parent_offset big: where it was forked
    partition int: its partition
    first_offset big: of its first event
    last_offset big: of its last event
    accepted_events big: number of accepted events
    ignored_events big: number of late, stale or repeated events
    refused_events big: number of refused events
    messages int: rows in messages
    tool_calls int: rows in tool_calls
    attempts int: rows in usage
    input_tokens big: not cached
    cache_read_tokens big: read from the cache
    cache_write_tokens big: written to the cache
    output_tokens big: written by models
    cost_usd money: the known part of its cost
    unpriced_attempts int: attempts whose model has no price
"""))
MESSAGES = Table("messages", "a message of a person or a model, in order of `seq`", _columns("""
    seq int: place in the session, from 0
    message_id text: the sender's id; for an answer TURN.STEP
    role text: user or assistant
    status text: complete; or partial, for a stopped answer
    turn int: its turn
    step int: the step of an answer
    at_offset big: of its event
    logged_at time: of its event
    text text: its text; an attachment is named in brackets
    by_user text: its author
    channel text: the channel it came through
    when_busy text: queue, interrupt, steer
    model text: the model that answered
    stop_reason text: why the model or the attempt stopped
    became text: how the turn of a message ended
    parts int: number of rows in parts
"""))
PARTS = Table("parts", "a content block of a message, in order of `part`", _columns("""
    seq int: of the message
    part int: place in the message, from 0
    type text: text, thinking, tool_use, image, document...; missing: its blob is unavailable
    text text: its text or thinking
    signature text: of thinking, byte for byte
    call text: of a tool_use: its call, if it was complete
    name text: of a tool_use: the tool; of a document: its title
    input json: of a tool_use: the arguments
    media_type text: of an attachment or a missing blob
    sha256 text: its name in the blob store
    bytes big: its size
    raw text: the block, byte for byte
"""))
TOOL_CALLS = Table("tool_calls", "a tool call requested by a model", _columns("""
    call text: TURN.STEP.INDEX, its identity
    turn int: the turn
    step int: the step whose answer requested it
    index int: which tool_use of that answer, from 0
    call_id text: the provider's label; providers repeat them
    name text: the tool
    args json: its arguments
    args_raw text: the arguments if they are not JSON
    args_sha256 text: of the arguments
    args_error text: what is wrong with them
    effect text: pure, idempotent, once
    approval text: none, ask, deny
    status text: proposed, asks, allowed, started, doubt, contradicted, done
    outcome text: ok, error, not_run, cancelled
    attempts int: claims of workers
    owner text: of the last claim
    proposed_at time: when the model requested it
    proposed_offset big: the offset of that request
    started_at time: the last claim
    ended_at time: when it ended
    ended_offset big: the offset of that end
    via text: tool or reconciler
    result text: the full result
    result_sha256 text: of a result in the blob store
    result_bytes big: its size
    told text: the notice that the model got instead of a result
    doubt text: why it was in doubt
    resolution text: a person's report: happened, did_not_happen
    resolved_by text: that person
    resolved_at time: when
"""))
USAGE = Table("usage", "a request to a model, including lost ones and background work", _columns("""
    kind text: answer or background
    work text: of background: compaction, memory...
    upto big: of background: the last offset it covers
    turn int: the turn of an answer
    step int: the step
    attempt int: which attempt, from 1
    request int: which request of the attempt, from 1; only background work makes more than one
    strategy text: start; or replace, resume: how it took over
    owner text: the worker
    outcome text: complete, failed, stopped, lost (never reported), running
    counts bool: whether its result was used
    model text: the model called
    input_tokens big: not cached; null if the provider never reported it
    cache_read_tokens big: read from the cache
    cache_write_5m_tokens big: written to the short cache
    cache_write_1h_tokens big: written to the long cache
    output_tokens big: written
    cost_usd money: by the table of prices; null without a price
    stop_reason text: of an answer; why, of one that was stopped
    response_id text: the provider's
    error text: of a failure
    detail text: of a failure, for people
    http_status int: of a failure
    started_at time: the claim
    started_offset big: of the claim
    ended_at time: the outcome
    ended_offset big: of the outcome
    request_sha256 text: of the request that was sent
    builder text: which version built it
"""))
APPROVALS = Table("approvals", "an approval request, a used grant, or a refused "
                  "decision", _columns("""
    call text: TURN.STEP.INDEX
    name text: the tool
    args_sha256 text: of the exact arguments
    asked_at time: when it was requested
    asked_offset big: the offset of the request
    expires_at time: when the request expires
    decision text: allow, deny, expired; grant: allowed by an earlier decision; null: pending
    remember bool: whether it also allows later calls of the tool
    by_user text: who decided
    decided_at time: when it was decided
    decided_offset big: the offset of the decision; for a grant, of the one that gave it
    verdict text: refused or ignored, if the decision was not accepted
    code text: why it was not accepted
"""))
TABLES = (EVENTS, SESSIONS, MESSAGES, PARTS, TOOL_CALLS, USAGE, APPROVALS)
BY_NAME = {table.name: table for table in TABLES}

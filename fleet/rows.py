"""The rows of the fleet's tables, and how a fact changes them: pure functions without Faust.

Every row has a guard, `seen`: for each partition of session-events the offset of the last fact that
changed the row. A fact that is not newer changes nothing, but its row is written again, because a
process may have been killed after it stored the row and before it sent the row to the changelog.
A fact that cannot change a row writes nothing and does not move the guard: its repetition cannot
change the row either, since facts of one partition repeat in order. Of two versions of a row, one
covers the other, so the newer one is known without a clock (`covers`).

Facts are partitioned by user. A cell of an agent, a model or all users is therefore a partial sum,
and its key ends with the partition; a query adds up the partitions.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from ..log.partition import partition_for
from ..schemas.enums import ApprovalAnswer, EndReason
from ..schemas.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    DoubtOpened,
    DoubtSettled,
    Fact,
    ModelUsage,
    PhaseChanged,
    SessionClosed,
    SessionFailed,
    SessionOpened,
    SessionRepaired,
    SessionTitled,
    TurnBegun,
    TurnEnded,
    WaitingCall,
)
from ..schemas.ids import is_id

HOUR_MS = 3_600_000
INBOX_MAX = 1_000
"""The most entries of one user's inbox, of usually 150 bytes."""
ROW_BYTES_MAX = 900_000
"""The largest row, so that it fits into a record; a larger one loses its oldest entries."""
WAITING_MAX = 1_000
"""The most open approvals, and the most open doubts, that a session's row lists."""
MODELS_MAX = 100
"""The most models whose usage a session's row lists; further ones are summed as OTHER_MODELS."""
OTHER_MODELS = "others"
SUM_MAX = 2**63 - 1
"""Sums stop here, so that a row can always be written."""
PER_DOUBLING = 4
"""Buckets of a histogram for each doubling of a time, so percentiles have an error of about 9 %."""

FAILURES = frozenset({
    EndReason.FAILED, EndReason.MAX_STEPS, EndReason.MAX_TOKENS, EndReason.BUDGET_EXCEEDED,
    EndReason.REFUSAL,
})  # fmt: skip
"""The ends that count as a failure, the same as in the inspector."""

IDLE, WORKING, FROZEN, ENDED = "idle", "working", "frozen", "ended"
APPROVAL, DOUBT, FAILED = "approval", "doubt", "failed"
SESSIONS, INBOX, HOURS = "sessions", "inbox", "hours"
USER, AGENT, MODEL, ALL = SCOPES = ("user", "agent", "model", "all")


class Usage(msgspec.Struct, omit_defaults=True):
    """Requests and their tokens, which do not overlap.

    picodollars: the cost of the requests with a price. unpriced: the requests without a price.
    """

    requests: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    picodollars: int = 0
    unpriced: int = 0

    def add(self, used: ModelUsage) -> None:
        """Add the usage of a fact."""
        for name in _COUNTS:
            setattr(self, name, _sum(getattr(self, name), getattr(used, name)))
        if used.picodollars is None:
            self.unpriced = _sum(self.unpriced, used.requests)
        else:
            self.picodollars = _sum(self.picodollars, used.picodollars)

    @property
    def tokens(self) -> int:
        """All tokens."""
        return min(sum(getattr(self, name) for name in _COUNTS[1:]), SUM_MAX)


def _sum(one: int, other: int) -> int:
    return min(one + other, SUM_MAX)


_COUNTS = (
    "requests", "input_tokens", "cache_read_tokens", "cache_write_5m_tokens",
    "cache_write_1h_tokens", "output_tokens",
)  # fmt: skip


class Waiting(msgspec.Struct, omit_defaults=True):
    """A call that waits for a person since `at`, Unix ms. `expires_at` 0: it does not expire."""

    tool: str
    at: int
    expires_at: int = 0
    code: str = ""


class Failure(msgspec.Struct):
    """A turn that failed at `at`, Unix ms. `error`: the code of its last failed attempt."""

    turn: int
    reason: str
    error: str
    at: int


class Row(msgspec.Struct, omit_defaults=True):
    """What all rows have.

    seen: the guard, offsets by partition of session-events.
    damaged: the row was lost once, so its counts and sums lack what came before.
    """

    seen: dict[int, int] = {}
    damaged: bool = False


class SessionRow(Row, omit_defaults=True):
    """A session. Times are Unix ms of the broker.

    turn: the open or last turn. failure: the last turn that failed; if it is the present turn, the
    session waits for a person. code: why the session is frozen. ms: the time in turns without waits
    for people.
    """

    user_id: str = ""
    session_id: str = ""
    agent: str = ""
    title: str = ""
    phase: str = ""
    project_id: str | None = None
    parent_id: str | None = None
    opened_at: int = 0
    changed_at: int = 0
    turn: int = 0
    status: str = IDLE
    code: str = ""
    turns: int = 0
    failures: int = 0
    failure: Failure | None = None
    approvals: dict[str, Waiting] = {}
    doubts: dict[str, Waiting] = {}
    usage: dict[str, Usage] = {}
    ms: int = 0


class Entry(msgspec.Struct, omit_defaults=True):
    """One thing that waits for a person since `at`, Unix ms.

    kind: approval, doubt, failed or frozen. call, tool: of an approval or a doubt. code: why the
    call is in doubt, why the session is frozen, or the reason of the failed turn's end.
    """

    session_id: str
    agent: str
    kind: str
    at: int
    call: str = ""
    tool: str = ""
    expires_at: int = 0
    code: str = ""
    error: str = ""
    turn: int = 0


class InboxRow(Row, omit_defaults=True):
    """What waits for one user, by `session/kind/call`. dropped: entries over INBOX_MAX, of which
    the oldest were dropped."""

    entries: dict[str, Entry] = {}
    dropped: int = 0


class HourRow(Row, omit_defaults=True):
    """The sums over one hour. failures: turns by reason. times: turns by bucket of their time."""

    turns: int = 0
    failures: dict[str, int] = {}
    tokens: int = 0
    picodollars: int = 0
    unpriced: int = 0
    times: dict[int, int] = {}

    def add(self, other: "HourRow") -> None:
        """Add the sums of another cell."""
        self.turns += other.turns
        self.tokens = _sum(self.tokens, other.tokens)
        self.picodollars = _sum(self.picodollars, other.picodollars)
        self.unpriced = _sum(self.unpriced, other.unpriced)
        self.damaged |= other.damaged
        for reason, count in other.failures.items():
            self.failures[reason] = self.failures.get(reason, 0) + count
        for bucket, count in other.times.items():
            self.times[bucket] = self.times.get(bucket, 0) + count


class Cell(NamedTuple):
    """The parts of a key of the table of hours. hour: Unix hours. value: '' in the scope `all`."""

    scope: str
    value: str
    hour: int
    partition: int

    @property
    def key(self) -> bytes:
        """Hours have seven digits, so that the keys of a value are in the order of time."""
        return f"{self.scope}|{self.value}|{self.hour:07}|{self.partition}".encode()


def cell_of(key: bytes) -> Cell:
    """The parts of a key. Raises ValueError."""
    scope, _, rest = key.decode().partition("|")
    value, hour, partition = rest.rsplit("|", 2)
    if scope not in SCOPES:
        raise ValueError("an unknown scope")
    return Cell(scope, value, int(hour), int(partition))


def session_key(user_id: str, session_id: str) -> bytes:
    """The key of a session. Ids have no slash."""
    return f"{user_id}/{session_id}".encode()


def session_of(key: bytes) -> tuple[str, str]:
    """User and session of a key. Raises ValueError."""
    user, _, session = key.decode().partition("/")
    if not (is_id(user) and is_id(session)):
        raise ValueError("not user/session")
    return user, session


def user_of(key: bytes) -> str:
    """The user of a key of the inbox. Raises ValueError."""
    user = key.decode()
    if not is_id(user):
        raise ValueError("not a user")
    return user


class Table(NamedTuple):
    """A table: the class of its rows, and the partition of a key, among a number of partitions,
    which raises ValueError for a key that no row has."""

    row: type[Row]
    partition: Callable[[bytes, int], int]


TABLES: dict[str, Table] = {
    SESSIONS: Table(SessionRow, lambda key, count: partition_for(session_of(key)[0], count)),
    INBOX: Table(InboxRow, lambda key, count: partition_for(user_of(key), count)),
    HOURS: Table(HourRow, lambda key, _: cell_of(key).partition),
}
_DECODERS = {name: msgspec.msgpack.Decoder(table.row) for name, table in TABLES.items()}
_ENCODER = msgspec.msgpack.Encoder()
R = TypeVar("R", bound=Row)


def decoded(table: str, value: bytes | None) -> Row | None:
    """A row; None if the value is none or cannot be read."""
    try:
        return _DECODERS[table].decode(value or b"")
    except (msgspec.MsgspecError, ValueError):
        return None


def encoded(row: Row) -> bytes:
    """The value of a row."""
    value = _ENCODER.encode(row)
    while len(value) > ROW_BYTES_MAX and _drop_oldest(row):
        value = _ENCODER.encode(row)
    return value


def _drop_oldest(row: Row) -> bool:
    """Drop a quarter of the entries. Returns whether there were any."""
    if isinstance(row, InboxRow):
        dropped = list(row.entries)[: len(row.entries) // 4 + 1]
        for name in dropped:
            del row.entries[name]
        row.dropped += len(dropped)
        return bool(dropped)
    lists = (row.approvals, row.doubts) if isinstance(row, SessionRow) else ()
    for waiting in lists:
        for call in list(waiting)[: len(waiting) // 4 + 1]:
            del waiting[call]
    return any(lists)


class _Changed(msgspec.Struct):
    changed_at: int = 0


_CHANGED = msgspec.msgpack.Decoder(_Changed)


def changed_at(value: bytes) -> int:
    """When a session changed, from its row; 0 if the row cannot be read. Much faster than reading
    all of it."""
    try:
        return _CHANGED.decode(value).changed_at
    except (msgspec.MsgspecError, ValueError):
        return 0


def is_key(table: str, key: bytes | None, partition: int, partitions: int) -> bool:
    """Whether a row of the table can have this key in this partition."""
    try:
        return key is not None and TABLES[table].partition(key, partitions) == partition
    except ValueError:
        return False


def covers(newer: Row, older: Row) -> bool:
    """Whether a row contains every fact that another version of it contains."""
    return all(newer.seen.get(place, -1) >= offset for place, offset in older.seen.items())


class Write(NamedTuple):
    """A row to write. lost: the stored row could not be read, so the row began again."""

    table: str
    key: bytes
    value: bytes
    lost: bool


def writes(
    fact: Fact, partition: int, read: Callable[[str, bytes], bytes | None]
) -> Iterator[Write]:
    """The rows that a fact writes. `partition`: of the fact's record in session-facts. `read`
    returns the stored value of a table's key."""

    def changed(table: str, key: bytes, change: Callable[[Row], bool]) -> Iterator[Write]:
        value = read(table, key)
        row = decoded(table, value)
        lost = row is None and value is not None
        if row is None:
            row = TABLES[table].row(damaged=lost)
        if fact.offset > row.seen.get(fact.partition, -1):
            if not change(row):
                return
            row.seen[fact.partition] = fact.offset
        yield Write(table, key, encoded(row), lost)

    key = session_key(fact.user_id, fact.session_id)
    yield from changed(SESSIONS, key, lambda row: _session(row, fact))
    yield from changed(INBOX, fact.user_id.encode(), lambda row: _inbox(row, fact))
    for cell, sums in hours_of(fact, partition).items():
        yield from changed(HOURS, cell.key, partial(_add, sums))


# ---- sessions ----------------------------------------------------------------------------------


def _session(row: Row, fact: Fact) -> bool:
    assert isinstance(row, SessionRow)
    row.user_id, row.session_id, row.agent = fact.user_id, fact.session_id, fact.agent
    row.changed_at = fact.at
    for used in getattr(fact, "usage", ()):
        full = used.model not in row.usage and len(row.usage) >= MODELS_MAX
        row.usage.setdefault(OTHER_MODELS if full else used.model, Usage()).add(used)
    match fact:
        case SessionOpened():
            row.opened_at, row.parent_id = fact.at, fact.parent_id
            row.title, row.turn = fact.title, fact.turn
            row.phase, row.project_id = fact.phase, fact.project_id
        case SessionTitled():
            row.title = fact.title
            _begin(row, fact.turn)
        case TurnBegun():
            _begin(row, fact.turn)
        case PhaseChanged():
            row.phase, row.project_id = fact.phase, fact.project_id
            for call in fact.settled:
                row.approvals.pop(call, None)
                row.doubts.pop(call, None)
        case TurnEnded():
            _end(row, fact)
        case ApprovalAsked():
            wait = Waiting(fact.tool, fact.at, fact.expires_at)
            row.approvals = _within(row.approvals | {fact.call: wait})
        case ApprovalAnswered(answer=ApprovalAnswer.WITHDRAWN):
            row.approvals.clear()
        case ApprovalAnswered():
            row.approvals.pop(fact.call, None)
        case DoubtOpened():
            wait = Waiting(fact.tool, fact.at, 0, fact.code)
            row.doubts = _within(row.doubts | {fact.call: wait})
        case DoubtSettled():
            row.doubts.pop(fact.call, None)
        case SessionFailed():
            row.status, row.code = FROZEN, fact.code
        case SessionRepaired():
            _repair(row, fact)
        case SessionClosed():
            row.status, row.code = ENDED, ""
            row.approvals.clear()
    return True


def _begin(row: SessionRow, turn: int) -> None:
    row.turn = turn
    if row.status == IDLE:
        row.status = WORKING


def _end(row: SessionRow, fact: TurnEnded) -> None:
    row.turn = fact.next_turn or fact.turn
    if row.status in (IDLE, WORKING):
        row.status = WORKING if fact.next_turn else IDLE
    row.turns += 1
    row.ms = _sum(row.ms, fact.ms)
    if fact.reason in FAILURES:
        row.failures += 1
        row.failure = Failure(fact.turn, str(fact.reason), fact.error, fact.at)
    row.approvals.clear()
    row.doubts = _within(row.doubts | _waiting(fact.doubts, fact.at))


def _repair(row: SessionRow, fact: SessionRepaired) -> None:
    row.title, row.phase, row.project_id = fact.title, fact.phase, fact.project_id
    row.turn, row.code = fact.turn, ""
    row.status = ENDED if fact.is_closed else WORKING if fact.is_working else IDLE
    row.approvals = _waiting(fact.approvals, fact.at)
    row.doubts = _waiting(fact.doubts, fact.at)


def _waiting(calls: tuple[WaitingCall, ...], at: int) -> dict[str, Waiting]:
    return {call.call: Waiting(call.tool, at, call.expires_at, call.code) for call in calls}


def _within(waiting: dict[str, Waiting]) -> dict[str, Waiting]:
    return dict(list(waiting.items())[-WAITING_MAX:])


# ---- the inbox ---------------------------------------------------------------------------------


def _inbox(row: Row, fact: Fact) -> bool:
    assert isinstance(row, InboxRow)
    gone, new = inbox_changes(fact)
    prefix = f"{fact.session_id}/"
    leaving = [
        name for name in row.entries
        if name.startswith(prefix) and any(f"{name}/".startswith(prefix + end) for end in gone)
    ]  # fmt: skip
    for name in leaving:
        del row.entries[name]
    for kind, call in new:
        name = f"{prefix}{kind}/{call.call}" if call.call else f"{prefix}{kind}"
        row.entries.pop(name, None)
        row.entries[name] = Entry(
            fact.session_id, fact.agent, kind, fact.at, call.call, call.tool, call.expires_at,
            call.code,
        )  # fmt: skip
        if kind == FAILED and isinstance(fact, TurnEnded):
            row.entries[name].error, row.entries[name].turn = fact.error, fact.turn
    for name in list(row.entries)[: max(0, len(row.entries) - INBOX_MAX)]:
        del row.entries[name]
        row.dropped += 1
    return bool(leaving or new)


def inbox_changes(
    fact: Fact,
) -> tuple[tuple[str, ...], tuple[tuple[str, WaitingCall], ...]]:
    """The entries of the fact's session that leave the user's inbox, as `KIND/` or `KIND/CALL/`
    ('' for all of them), and the calls that enter it by kind."""

    def entry(
        kind: str, call: str = "", tool: str = "", expires_at: int = 0, code: str = ""
    ) -> tuple[str, WaitingCall]:
        return kind, WaitingCall(call=call, tool=tool, expires_at=expires_at, code=code)

    match fact:
        case SessionTitled() | TurnBegun():
            return (f"{FAILED}/",), ()
        case PhaseChanged():
            kinds = (APPROVAL, DOUBT)
            return tuple(f"{kind}/{call}/" for call in fact.settled for kind in kinds), ()
        case TurnEnded():
            failed = fact.reason in FAILURES and not fact.next_turn
            doubts = tuple((DOUBT, call) for call in fact.doubts)
            end = (entry(FAILED, code=str(fact.reason)),) if failed else ()
            return (f"{APPROVAL}/", f"{FAILED}/"), (*doubts, *end)
        case ApprovalAsked():
            return (), (entry(APPROVAL, fact.call, fact.tool, fact.expires_at),)
        case ApprovalAnswered(answer=ApprovalAnswer.WITHDRAWN):
            return (f"{APPROVAL}/",), ()
        case ApprovalAnswered():
            return (f"{APPROVAL}/{fact.call}/",), ()
        case DoubtOpened():
            return (), (entry(DOUBT, fact.call, fact.tool, code=fact.code),)
        case DoubtSettled():
            return (f"{DOUBT}/{fact.call}/",), ()
        case SessionFailed():
            return (), (entry(FROZEN, code=fact.code),)
        case SessionRepaired():
            approvals = tuple((APPROVAL, call) for call in fact.approvals)
            return ("",), (*approvals, *((DOUBT, call) for call in fact.doubts))
        case SessionClosed():
            return (f"{APPROVAL}/", f"{FAILED}/", f"{FROZEN}/"), ()
        case _:
            return (), ()


# ---- hours -------------------------------------------------------------------------------------


def hours_of(fact: Fact, partition: int) -> dict[Cell, HourRow]:
    """The cells that a fact changes, each with what it adds. The hour is that of the fact.

    A turn and its time count for each model that the turn used; tokens and cost only for their own.
    """
    usage = getattr(fact, "usage", ())
    if not isinstance(fact, TurnEnded) and not usage:
        return {}
    by_model: dict[str, Usage] = {}
    for used in usage:
        by_model.setdefault(used.model, Usage()).add(used)
    places = [(USER, fact.user_id), (AGENT, fact.agent), (ALL, "")]
    hour = fact.at // HOUR_MS
    cells = {
        Cell(*place, hour, partition): _sums(fact, tuple(by_model.values())) for place in places
    }
    for model, used in by_model.items():
        cells[Cell(MODEL, model, hour, partition)] = _sums(fact, (used,))
    return cells


def _sums(fact: Fact, usage: tuple[Usage, ...]) -> HourRow:
    row = HourRow(
        tokens=min(sum(used.tokens for used in usage), SUM_MAX),
        picodollars=min(sum(used.picodollars for used in usage), SUM_MAX),
        unpriced=min(sum(used.unpriced for used in usage), SUM_MAX),
    )
    if isinstance(fact, TurnEnded):
        row.turns, row.times = 1, {bucket_of(fact.ms): 1}
        if fact.reason in FAILURES:
            row.failures = {str(fact.reason): 1}
    return row


def _add(sums: HourRow, row: Row) -> bool:
    assert isinstance(row, HourRow)
    row.add(sums)
    return True


def bucket_of(ms: int) -> int:
    """The histogram bucket of a time."""
    return int(PER_DOUBLING * math.log2(max(1, ms)))


def percentile(times: dict[int, int], share: float) -> int | None:
    """The time, in ms, below which a `share` of the times lie; None if there are none."""
    wanted = share * sum(times.values())
    for bucket in sorted(times):
        wanted -= times[bucket]
        if wanted <= 0:
            return round(2 ** ((bucket + 0.5) / PER_DOUBLING))
    return None

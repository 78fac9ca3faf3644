"""Checks the whole installation, and reports problems and whatever waits for a person.

Each check is a function that reads the log or the stores and yields findings, which `findings.py`
puts in words.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...client.follow import read_before
from ...client.show import Everything
from ...client.waiting import asking, doubtful
from ...log.door import Behind, Difference, Log
from ...log.errors import TopicMissing
from ...log.made import LogGrown, LogMoved, demand_as_made, facts_of, partitions_of
from ...log.partition import partition_for
from ...log.settings import Settings
from ...processors.fold.projections import partition as partition_fold
from ...processors.fold.projections.transcript import Line
from ...processors.fold.views import SessionViews
from ...processors.outside.connection import State
from ...processors.store.store import Belongs, fold_version, open_readonly
from ...processors.wake.budget import Rules
from ...processors.wake.facts import wake
from ...processors.wake.table import Action
from ...processors.wake.work_ends import WorkEnd
from ...reports.replay import store_directory
from ...schemas.enums import EndReason
from ...schemas.ids import is_id
from ...schemas.topics import (
    DEAD_LETTERS,
    PARTITION_COUNT,
    REPLICATION_FACTOR,
    SESSION_EVENTS,
    UNCLEAN,
    topics,
)
from .findings import SHOWN_MAX, Code, Finding, TopicRemedy, found, named

IDLE_MS = 30_000
"""After how many ms without an event a session with pending work counts as not served."""

WORK_ENDS: dict[str, Code] = {
    WorkEnd.TOO_LITTLE: Code.BACKGROUND_TOO_LITTLE,
    WorkEnd.ABORTED: Code.BACKGROUND_RETRIED,
    WorkEnd.STOPPED: Code.BACKGROUND_RETRIED,
    WorkEnd.NOTHING_LEFT: Code.BACKGROUND_RETRIED,
    WorkEnd.OWN_MODEL_FAILED: Code.BACKGROUND_OWN_MODEL_FAILED,
    WorkEnd.OWN_MODEL_REFUSED: Code.BACKGROUND_OWN_MODEL_FAILED,
    WorkEnd.NOT_SUMMARIZED: Code.BACKGROUND_OWN_MODEL_FAILED,
}
"""The finding about background work by the code of its end. Any other end is a failure, and so is
an end that an older version wrote without a code."""

WAITING = (Code.BACKGROUND_TOO_LITTLE, Code.BACKGROUND_RETRIED)

LETTERS_MAX = 5
"""The most dead letters shown; further dead letters are only counted."""

LETTER_HEADERS = "__dlq.errors."
"""Prefix of the dead-letter headers that name the record's place and the error."""


def topics_as_wanted(log: Log, settings: Settings) -> Iterator[Finding]:
    """Check that the topics exist with the right partition count and properties."""
    try:
        demand_as_made(log)
    except TopicMissing:
        pass  # reported below
    except LogGrown as grown:
        yield found(Code.LOG_GROWN, topic=SESSION_EVENTS, made=grown.made, now=grown.now)
        return
    except LogMoved as moved:
        yield found(Code.LOG_MOVED, prefix=moved.prefix)
        return
    replication = settings.replication
    report = log.check_topics(topics(settings.partitions, replication))
    for name in report.missing:
        yield found(Code.TOPIC_MISSING, topic=name)
    for each in report.differs:
        # An unclean leader election loses claims, whatever the setting `durability` requires.
        code = Code.TOPIC_HARMFUL if each.fatal or each.what == UNCLEAN else Code.TOPIC_DIFFERS
        yield found(
            code, difference=each, servers=settings.bootstrap_servers or "HOST:9092",
            **_topic_remedy(log, settings, each, bool(report.reassignment)),
        )
    if not report.missing and not report.differs:
        count, copies, least = len(report.same), replication.factor, replication.in_sync_min
        one_copy = Code.TOPICS_OK_FLUSHED if replication.flushed else Code.TOPICS_OK_ONE_COPY
        code = one_copy if copies == 1 else Code.TOPICS_OK
        yield found(code, count=count, copies=copies, in_sync_min=least)
    yield from _replicas_behind(report.behind)
    if not report.missing:
        yield from _records_deleted(log)


def _topic_remedy(
    log: Log, settings: Settings, differs: Difference, has_plan: bool
) -> dict[str, Any]:
    if differs.what == PARTITION_COUNT:
        return _partitions_remedy(log, settings)
    if differs.what == REPLICATION_FACTOR:
        return {"remedy": TopicRemedy.REASSIGN if has_plan else TopicRemedy.ADD_BROKERS}
    return {"remedy": TopicRemedy.SET_PROPERTIES}


def _replicas_behind(behind: Sequence[Behind]) -> Iterator[Finding]:
    """Report partitions whose replicas are not all in sync."""
    stopped = [str(each) for each in behind if each.is_read_only]
    if stopped:
        yield found(Code.PARTITIONS_READ_ONLY, count=len(stopped), partitions=named(stopped))
    late = [str(each) for each in behind if not each.is_read_only]
    if late:
        yield found(Code.REPLICAS_BEHIND, count=len(late), partitions=named(late))


def _partitions_remedy(log: Log, settings: Settings) -> dict[str, Any]:
    """The remedy if a topic's partition count differs from the setting."""
    try:
        made = facts_of(log).partitions
    except TopicMissing:
        made = None
    if made is None:
        return {"remedy": TopicRemedy.SET_PARTITIONS_UNLESS_ADDED}
    was_wrong = made != settings.partitions
    return {"remedy": TopicRemedy.SET_PARTITIONS if was_wrong else TopicRemedy.MOVE, "made": made}


def _records_deleted(log: Log) -> Iterator[Finding]:
    for partition, first in log.first_offsets(SESSION_EVENTS).items():
        if first > 0:
            yield found(Code.RECORDS_DELETED, partition=partition, first=first)


def partitions_held(everything: Everything, partitions: int) -> Iterator[Finding]:
    """Check that a worker has claimed every partition for every role."""
    never = {
        role: [
            number
            for number in range(partitions)
            if everything.holders.get(number, partition_fold.INITIAL).holder(role) is None
        ]
        for role in partition_fold.ROLES
    }
    for role, numbers in never.items():
        if numbers:
            yield found(
                Code.PARTITIONS_UNCLAIMED, count=len(numbers), partitions=partitions, role=role
            )
    if not any(never.values()):
        owners = {h.owner for view in everything.holders.values() for h in view.holders}
        whose = ", ".join(sorted(owners))
        yield found(Code.PARTITIONS_CLAIMED, partitions=partitions, owners=whose)


def stores(log: Log, settings: Settings) -> Iterator[Finding]:
    """Check that the worker's stores belong to this log, and how far they are behind it."""
    belongs = Belongs(log.identity(), log.topic_id(SESSION_EVENTS), fold_version())
    behind, opened = 0, 0
    for number in range(partitions_of(log)):
        directory = store_directory(settings, number)
        if not directory.is_dir():
            continue
        try:
            store = open_readonly(directory)
        except OSError as error:
            yield found(Code.STORE_UNREADABLE, directory=directory, error=error.strerror)
            continue
        except Exception as broken:  # rocksdict raises plain Exception
            yield found(Code.STORE_DAMAGED, directory=directory, error=broken)
            continue
        opened += 1
        cursor, whose = store.cursor.offset, store.belongs
        store.close()
        # Read after the store: a worker may be running
        end = log.end_offsets(SESSION_EVENTS)[number]
        if whose != belongs or cursor > end:
            yield found(Code.STORE_FOREIGN, directory=directory)
        else:
            behind += end - cursor
    if opened:
        state = settings.state_dir
        yield found(Code.STORES_READ, opened=opened, directory=state, behind=behind)
    else:
        yield found(Code.STORES_NONE, directory=settings.state_dir)


def can_be_opened(everything: Everything, name: str, partitions: int) -> bool:
    """Whether a session is open, or can be opened: another program may write records with a key
    that is no session id, or to a partition that is not the key's."""
    home = partition_for(name, partitions)
    is_its_own = is_id(name) and everything.places[name] == home
    return is_its_own or everything.sessions[name].turn.known


def frozen_sessions(everything: Everything, partitions: int) -> Iterator[Finding]:
    """Find sessions that are frozen at an event that this version does not understand, or because
    their fork seed is missing.
    """
    for name, views in sorted(everything.sessions.items()):
        if views.frozen is not None:
            is_one = can_be_opened(everything, name, partitions)
            yield found(
                Code.SESSION_FROZEN if is_one else Code.RECORD_OF_NO_SESSION,
                session=name, partition=everything.places[name],
                offset=views.frozen.offset, why=views.frozen.why,
            )


MCP_STATES: dict[str, Code] = {
    State.NEW: Code.MCP_STATE,
    State.UP: Code.MCP_STATE,
    State.CLOSED: Code.MCP_STATE,
    State.ENDED: Code.MCP_ENDED,
    State.DOWN: Code.MCP_DOWN,
    State.NOT_AGREED: Code.MCP_NOT_AGREED,
}
"""The finding about an MCP server by its state. A worker of another version may report another
state, or none."""


def mcp_servers(states: Mapping[str, str], words: Mapping[str, str]) -> Iterator[Finding]:
    """Check the MCP servers of the running worker.

    states: the state of each server, by name.
    words: the same for people.
    """
    for name, text in sorted(words.items()):
        code = MCP_STATES.get(states.get(name, ""), Code.MCP_UNKNOWN)
        yield found(code, server=name, state=text)


def people_wanted(everything: Everything) -> Iterator[Finding]:
    """Find tool calls that wait for approval, and calls in doubt."""
    for name, views in sorted(everything.sessions.items()):
        for call in asking(views.turn):
            yield found(Code.APPROVAL_WAITS, session=name, tool=call.name, call=call.key)
        for call in doubtful(views.turn):
            yield found(Code.CALL_IN_DOUBT, session=name, tool=call.name, call=call.key)


def refused_to_tools(everything: Everything) -> Iterator[Finding]:
    """Find phase transitions and locks that tools requested and the fold refused, which are bugs in
    the tools. Refusals of one trigger for one code are one finding, with the newest reason.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    sessions: dict[tuple[str, str, str], list[str]] = {}
    reasons: dict[tuple[str, str, str], str] = {}
    for name in newest_first(everything):
        for line in reversed(list(everything.sessions[name].transcript.lines)):
            for refused in line.refused:
                key = line.name, refused.code, refused.what
                counts[key] += 1
                sessions.setdefault(key, []).append(name)
                reasons.setdefault(key, refused.detail)
    for key, times in counts.most_common():
        names = named(list(dict.fromkeys(sessions[key])))
        yield found(
            Code.TOOL_REFUSED, tool=key[0], times=times, why=reasons[key], sessions=names
        )


def out_of_room(everything: Everything) -> Iterator[Finding]:
    """Find sessions whose last turn ended without an answer because the context window was full."""
    of_agents: dict[str, list[tuple[str, Line]]] = {}
    for name in newest_first(everything):
        views = everything.sessions[name]
        ended = None if views.turn.open or views.turn.terminated else _last_end(views)
        if ended is not None and ended.name == EndReason.BUDGET_EXCEEDED:
            of_agents.setdefault(views.turn.agent, []).append((name, ended))
    for agent, ends in sorted(of_agents.items()):
        yield found(Code.OUT_OF_ROOM, agent=agent, ends=ends, session=ends[0][0])


def _last_end(views: SessionViews) -> Line | None:
    lines = views.transcript.lines
    places = range(len(lines) - 1, -1, -1)
    return next((lines[place] for place in places if lines[place].kind == "ended"), None)


def newest_first(everything: Everything) -> list[str]:
    """The names of the sessions, most recently changed first."""
    return sorted(everything.sessions, key=lambda name: (-everything.last_at.get(name, 0), name))


def background_failures(
    everything: Everything, most: int | None = SHOWN_MAX
) -> Iterator[Finding]:
    """Find sessions whose last background work had no result. Sessions whose work failed come
    first, then those whose work was skipped or stopped; in both groups, the most recently changed
    session comes first. Workers retry all of this work automatically.
    """
    failed: list[Finding] = []
    skipped: list[Finding] = []
    for name in newest_first(everything):
        background = everything.sessions[name].background
        if background.said:
            code = WORK_ENDS.get(background.code, Code.BACKGROUND_FAILED)
            finding = found(code, session=name, why=background.said)
            (skipped if code in WAITING else failed).append(finding)
    for findings, more_code in (
        (failed, Code.BACKGROUND_MORE_FAILED), (skipped, Code.BACKGROUND_MORE_WAIT),
    ):
        yield from findings[:most]
        if more := len(findings) - len(findings[:most]):
            yield found(more_code, count=more)


def owed_and_idle(everything: Everything, now: int) -> Iterator[Finding]:
    """Find sessions that have work to do now and have had no event for IDLE_MS.

    A session whose rows of WAKE are all `wait`, `begin` or `abort` is not reported.
    """
    for name, views in sorted(everything.sessions.items()):
        number = everything.places[name]
        holders = everything.holders.get(number, partition_fold.INITIAL)
        try:
            every = wake(views, holders, now, Rules())
        except Exception as bug:  # a bug must not hide the other findings
            error = f"{type(bug).__name__}: {bug}"
            yield found(Code.SESSION_CANNOT_CONTINUE, session=name, error=error)
            continue
        of_effects = (Action.WAIT, Action.BEGIN, Action.ABORT)
        rows = [owed for owed in every if owed.owed not in of_effects]
        quiet = now - everything.last_at[name]
        if rows and quiet > IDLE_MS:
            work = sorted({(owed.owed, owed.row) for owed in rows})
            yield found(Code.WORK_PENDING, session=name, work=work, quiet_s=quiet // 1000)


def dead_letters(log: Log, everything: Everything) -> Iterator[Finding]:
    """Find records that could not be decoded. If one of them belongs to a frozen session, the
    finding is a problem; otherwise it is a note. Records that `foldlog skip` skipped are only
    counted.
    """
    partitions = partitions_of(log)
    frozen = {
        name.encode() for name, views in everything.sessions.items()
        if views.frozen and can_be_opened(everything, name, partitions)
    }
    passed_over = {
        (str(everything.places[name]), str(offset))
        for name, views in everything.sessions.items()
        for offset in views.skipped
    }
    last: deque[dict[str, str]] = deque(maxlen=LETTERS_MAX)
    left = skipped = 0
    code = Code.DEAD_LETTERS_LEFT
    for partition, end in log.end_offsets(DEAD_LETTERS).items():
        for record in read_before(log, DEAD_LETTERS, partition, end):
            header = {
                name.removeprefix(LETTER_HEADERS): value.decode("utf-8", "replace")
                for name, value in record.headers
                if name.startswith(LETTER_HEADERS)
            }
            if (header.get("partition"), header.get("offset")) in passed_over:
                skipped += 1
                continue
            left += 1
            last.append(header)
            if record.key in frozen:
                code = Code.DEAD_LETTERS_FREEZE
    if not left:
        none = Code.DEAD_LETTERS_SKIPPED if skipped else Code.DEAD_LETTERS_NONE
        yield found(none, skipped=skipped)
        return
    yield found(code, left=left, skipped=skipped)
    for headers in last:
        yield found(Code.DEAD_LETTER, headers=headers)


def sessions_counted(everything: Everything) -> Finding:
    """Count the sessions, and those with an open turn."""
    known = [views for views in everything.sessions.values() if views.turn.known]
    running = sum(views.turn.open for views in known)
    return found(Code.SESSIONS_COUNTED, count=len(known), running=running)

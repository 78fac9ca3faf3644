"""Checks the whole installation, and reports problems and whatever waits for a person.

Each check is a function that reads the log or the stores and yields findings. A finding states the
problem and the remedy.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...client.follow import read_before
from ...client.show import Everything
from ...client.waiting import asking, doubtful
from ...log.door import Behind, Difference, Log
from ...log.errors import TopicMismatch, TopicMissing
from ...log.made import demand_as_made, facts_of, partitions_of
from ...log.partition import partition_for
from ...log.settings import Settings
from ...log.topic_commands import MORE_BROKERS, set_properties
from ...processors.fold.projections import partition as partition_fold
from ...processors.fold.projections.background import ABORTED, NOT_SUMMARIZED, NOTHING_LEFT, STOPPED
from ...processors.fold.projections.transcript import Line
from ...processors.fold.views import SessionViews
from ...processors.outside.connection import ENDED, NOT_AGREED
from ...processors.store.store import Belongs, fold_version, open_readonly
from ...processors.wake.budget import Rules
from ...processors.wake.decide import TOO_LITTLE
from ...processors.wake.facts import wake
from ...reports.replay import store_directory
from ...schemas.enums import EndReason
from ...schemas.ids import is_id
from ...schemas.topics import (
    DEAD_LETTERS,
    DEAD_LETTERS_MS,
    PARTITION_COUNT,
    REPLICATION_FACTOR,
    SESSION_EVENTS,
    UNCLEAN,
    Replication,
    topics,
)

IDLE_MS = 30_000
"""After how many ms without an event a session with pending work counts as not served."""

SHOWN_MAX = 3
"""The most sessions named for each kind of finding, since most have the same cause."""

TOO_LONG = (
    "nothing: the summary is retried after more messages; if this persists, the prompt or single "
    "results are too large for the agent's soft_tokens and resume_tokens"
)
RETRIED = "nothing: the remaining work is retried"
OTHER_MODEL = (
    "nothing is lost; if a model fails every time, give the agent another one: "
    "Agent(compaction=Compaction(model=...))"
)
NOT_BY_PROVIDER = (
    "nothing is lost; if it fails every time, the agent's own model cannot compact: remove "
    "provider=True from Agent(compaction=Compaction(...)), or name another model there"
)
NO_ROOM = (
    "see what fills the window with foldlog context show {}; shorten the prompt, the tools and "
    "their results, or raise hard_tokens; the next message tries again"
)
LETTERS_MAX = 5
"""The most dead letters shown; further dead letters are only counted."""

LETTERS_DO = {
    "problem": "find out what wrote them; a newer version may be able to read them",
    "note": "find out what wrote them; no session waits for them, and Kafka deletes them after "
            f"{DEAD_LETTERS_MS // 86_400_000} days",
}
"""Advice about dead letters, by the level of the finding."""

LETTER_HEADERS = "__dlq.errors."
"""Prefix of the dead-letter headers that name the record's place and the error."""


class Finding(NamedTuple):
    """The result of a check.

    `level`: ok, note (waits for a person) or problem. `do`: what the operator should do, or ''.
    """

    level: str
    check: str
    text: str
    do: str = ""


def topics_as_wanted(log: Log, settings: Settings) -> Iterator[Finding]:
    """Check that the topics exist with the right partition count and properties."""
    try:
        demand_as_made(log)
    except TopicMissing:
        pass  # reported below
    except TopicMismatch as error:
        sentences = str(error).split(". ")  # what happened, what was kept, what to do
        yield Finding("problem", "topics", sentences[0], sentences[-1])
        return
    replication = settings.replication
    report = log.check_topics(topics(settings.partitions, replication))
    for name in report.missing:
        yield Finding("problem", "topics", f"{name} is missing", "foldlog topics apply")
    for found in report.differs:
        # An unclean leader election loses claims, whatever the setting `durability` requires.
        harms = found.fatal or found.what == UNCLEAN
        do = _about_a_difference(log, settings, found, bool(report.reassignment))
        yield Finding("problem" if harms else "note", "topics", str(found), do)
    if not report.missing and not report.differs:
        yield Finding("ok", "topics", _in_order(len(report.same), replication))
    yield from _replicas_behind(report.behind)
    if not report.missing:
        yield from _records_deleted(log)


def _in_order(count: int, replication: Replication) -> str:
    """The text about topics that fit their definition."""
    text = f"{count} topics have the required properties"
    if replication.factor == 1:
        return f"{text}; one copy of each record, which is lost with the broker's disk"
    return (
        f"{text}; {replication.factor} copies of each record, of which {replication.in_sync_min} "
        "are written before it is acknowledged"
    )


def _about_a_difference(log: Log, settings: Settings, found: Difference, has_plan: bool) -> str:
    if found.what == PARTITION_COUNT:
        return _about_partitions(log, settings)
    if found.what == REPLICATION_FACTOR:
        return "foldlog topics apply, which prints the commands" if has_plan else MORE_BROKERS
    return set_properties([found], settings.bootstrap_servers or "HOST:9092")


def _replicas_behind(behind: Sequence[Behind]) -> Iterator[Finding]:
    """Report partitions whose replicas are not all in sync."""
    stopped = [str(each) for each in behind if each.is_read_only]
    if stopped:
        yield Finding(
            "problem", "replicas",
            f"Kafka accepts no record for {len(stopped)} partitions: {named(stopped)}",
            "start the brokers that are down; sessions of these partitions wait, nothing is lost",
        )
    late = [str(each) for each in behind if not each.is_read_only]
    if late:
        yield Finding(
            "note", "replicas", f"{len(late)} partitions have fewer copies: {named(late)}",
            "start the brokers that are down, or wait until they have caught up",
        )


def _about_partitions(log: Log, settings: Settings) -> str:
    """What to do about a topic whose partition count differs from the setting."""
    try:
        made = facts_of(log).partitions
    except TopicMissing:
        made = None
    if made is None:
        return "set `partitions` to the topics' partition count, unless partitions were added later"
    if made != settings.partitions:
        return f"set `partitions` to {made}, the count this log was created with"
    return f"partitions were added later: foldlog move --to-prefix NEW --partitions {made}, or more"


def _records_deleted(log: Log) -> Iterator[Finding]:
    for partition, first in log.first_offsets(SESSION_EVENTS).items():
        if first > 0:
            yield Finding(
                "problem",
                "log",
                f"partition {partition} begins at offset {first}: the earlier records were deleted,"
                " and the archive does not have them",
                "set FOLDLOG_ARCHIVE to the directory that `foldlog retain` used, or restore the "
                "records; keep the stores: they cannot be rebuilt without these records",
            )


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
            yield Finding(
                "problem",
                "partitions",
                f"no worker has ever claimed {len(numbers)} of {partitions} partitions for {role}",
                "start one: foldlog worker (or foldlog dev)",
            )
    if not any(never.values()):
        owners = {h.owner for view in everything.holders.values() for h in view.holders}
        whose = ", ".join(sorted(owners))
        yield Finding("ok", "partitions", f"all {partitions} were claimed, by {whose}")


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
            yield Finding(
                "problem", "store", f"{directory} cannot be opened: {error.strerror}",
                "free the resource the system lacks; the store is intact and needs no repair",
            )
            continue
        except Exception as broken:  # rocksdict raises plain Exception
            yield Finding(
                "note", "store", f"{directory} is damaged: {broken}",
                "nothing: the next worker rebuilds it from the log",
            )
            continue
        opened += 1
        cursor, whose = store.cursor.offset, store.belongs
        store.close()
        # Read after the store: a worker may be running
        end = log.end_offsets(SESSION_EVENTS)[number]
        if whose != belongs or cursor > end:
            yield Finding(
                "note", "store", f"{directory} was built from another log or by another version",
                "nothing: the next worker rebuilds it from the log",
            )
        else:
            behind += end - cursor
    if opened:
        text = f"{opened} stores in {settings.state_dir}, {behind} records behind"
        yield Finding("ok", "store", text)
    else:
        yield Finding("ok", "store", f"none in {settings.state_dir}: no worker has run here yet")


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
        if views.frozen is not None and not can_be_opened(everything, name, partitions):
            yield Finding(
                "note",
                "frozen",
                f"the record at offset {views.frozen.offset} of partition "
                f"{everything.places[name]} is of no session ({name}): {views.frozen.why}",
            )
        elif views.frozen is not None:
            yield Finding(
                "problem",
                "frozen",
                f"session {name} is frozen at offset {views.frozen.offset}: {views.frozen.why}",
                f"foldlog skip {name} --offset {views.frozen.offset} continues without that "
                "record; or upgrade to a version that understands it (for a fork without its "
                "seed: restore the blobs and delete the store and the snapshots of its "
                "partition), then restart the worker",
            )


def mcp_servers(states: Mapping[str, str]) -> Iterator[Finding]:
    """Check the MCP servers of the running worker. states: the reported state of each server, by
    name.
    """
    for name, state in sorted(states.items()):
        if state == ENDED:
            yield Finding(
                "note", "mcp", f"server {name} is {state}",
                "nothing: the next call reconnects; if it happens often, find out why the server "
                "ends",
            )
        elif state.startswith("down"):
            yield Finding(
                "problem", "mcp", f"server {name} is {state}",
                "start or repair the server: its calls fail until it is back; other tools work",
            )
        elif NOT_AGREED in state:
            yield Finding(
                "note", "mcp", f"server {name} is {state}",
                "restart the worker: it then reads the server's tools again",
            )
        else:
            yield Finding("ok", "mcp", f"server {name} is {state}")


def people_wanted(everything: Everything) -> Iterator[Finding]:
    """Find tool calls that wait for approval, and calls in doubt."""
    for name, views in sorted(everything.sessions.items()):
        for call in asking(views.turn):
            yield Finding(
                "note", "approvals", f"session {name}: {call.name} ({call.key}) waits for approval",
                f"foldlog approve {name} {call.key}, or deny",
            )
        for call in doubtful(views.turn):
            yield Finding(
                "note", "doubts",
                f"session {name}: it is unknown whether {call.name} ({call.key}) happened",
                f"foldlog resolve {name} {call.key} --happened TEXT | --did-not-happen",
            )


def refused_to_tools(everything: Everything) -> Iterator[Finding]:
    """Find phase transitions and locks that tools requested and the fold refused, which are bugs in
    the tools.
    """
    counts: Counter[tuple[str, str]] = Counter()
    sessions: dict[tuple[str, str], list[str]] = {}
    for name in newest_first(everything):
        for line in everything.sessions[name].transcript.lines:
            if line.kind != "result" or "; " not in line.text:
                continue
            for why in line.text.split("; ")[1:]:
                counts[line.name, why] += 1
                sessions.setdefault((line.name, why), []).append(name)
    for (tool, why), times in counts.most_common():
        names = named(list(dict.fromkeys(sessions[tool, why])))
        yield Finding(
            "note",
            "tools",
            f"tool {tool} was refused {times} times: {why} ({names})",
            "fix the tool: the request changed nothing, and the model got the reason",
        )


def out_of_room(everything: Everything) -> Iterator[Finding]:
    """Find sessions whose last turn ended without an answer because the context window was full."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name in newest_first(everything):
        views = everything.sessions[name]
        ended = None if views.turn.open or views.turn.terminated else _last_end(views)
        if ended is not None and ended.name == EndReason.BUDGET_EXCEEDED:
            found.setdefault(views.turn.agent, []).append((name, ended.text))
    for agent, ends in sorted(found.items()):
        count = f"{len(ends)} sessions" if len(ends) > 1 else "a session"
        shown = named([f"{name} ({text})" if text else name for name, text in ends])
        text = f"the last turn of {count} of agent {agent} ended with budget_exceeded: {shown}"
        yield Finding("note", "budget", text, NO_ROOM.format(ends[0][0]))


def _last_end(views: SessionViews) -> Line | None:
    lines = views.transcript.lines
    places = range(len(lines) - 1, -1, -1)
    return next((lines[place] for place in places if lines[place].kind == "ended"), None)


def named(names: list[str]) -> str:
    """The first SHOWN_MAX names, and how many more there are."""
    more = [f"{len(names) - SHOWN_MAX} more"] if len(names) > SHOWN_MAX else []
    return ", ".join([*names[:SHOWN_MAX], *more])


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
    failed: list[tuple[str, str]] = []
    skipped: list[tuple[str, str]] = []
    for name in newest_first(everything):
        views = everything.sessions[name]
        if outcome := views.background.said:
            do = _what_to_do(views, outcome)
            findings = skipped if do in (TOO_LONG, RETRIED) else failed
            findings.append((f"session {name}: {outcome}", do))
    for findings, which in (
        (failed, "whose background work failed"), (skipped, "whose background work is waiting"),
    ):
        for text, do in findings[:most]:
            yield Finding("note", "background", text, do)
        if more := len(findings) - len(findings[:most]):
            yield Finding("note", "background", f"{more} more sessions {which}")


def _what_to_do(views: SessionViews, outcome: str) -> str:
    if outcome.endswith(TOO_LITTLE):
        return TOO_LONG
    if outcome.endswith((ABORTED, STOPPED, NOTHING_LEFT)):
        return RETRIED
    request, (_, _, why) = views.context.request, outcome.partition(": ")
    own = request is not None and why.startswith(f"{request.model} ")
    return NOT_BY_PROVIDER if own or why == NOT_SUMMARIZED else OTHER_MODEL


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
            yield Finding(
                "problem", "owed",
                f"session {name} cannot continue: {type(bug).__name__}: {bug}",
                f"report it; foldlog cancel {name} ends the turn, foldlog fork {name} forks it",
            )
            continue
        rows = [owed for owed in every if owed.owed not in ("wait", "begin", "abort")]
        quiet = now - everything.last_at[name]
        if rows and quiet > IDLE_MS:
            what = ", ".join(sorted({f"{owed.owed} ({owed.row})" for owed in rows}))
            yield Finding(
                "problem", "owed", f"session {name} has pending work, {what}, and no event for "
                                   f"{quiet // 1000} s",
                "check that a worker with its agent is running; foldlog wake " + name,
            )


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
    level = "note"
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
                level = "problem"
    if not left:
        text = f"{skipped} records could not be decoded; `foldlog skip` passed over all of them"
        yield Finding("ok", "dead letters", text if skipped else "none")
        return
    more = f", and {skipped} more that `foldlog skip` passed over" if skipped else ""
    text = f"{left} records could not be decoded{more}; the last of them:"
    yield Finding(level, "dead letters", text, LETTERS_DO[level])
    for header in last:
        text = ", ".join(f"{name} {value}" for name, value in sorted(header.items()))
        yield Finding("note", "dead letters", text)


def sessions_counted(everything: Everything) -> Finding:
    """Count the sessions, and those with an open turn."""
    known = [views for views in everything.sessions.values() if views.turn.known]
    running = sum(views.turn.open for views in known)
    return Finding("ok", "sessions", f"{len(known)}, {running} with an open turn")

"""A check of the whole installation: what is wrong or waits for a person, and what to do about it.

Each check is a function that yields findings; a finding says what was found and what to do. This
file asks the log and the store, and must not know how a worker is reached or anything is printed.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...log.door import Log
from ...log.errors import TopicMismatch, TopicMissing
from ...log.made import demand_as_made, facts_of, partitions_of
from ...log.settings import Settings
from ...processors.fold.projections import partition as partition_fold
from ...processors.fold.projections.background import ABORTED, NOT_SUMMARIZED, NOTHING_LEFT, STOPPED
from ...processors.fold.projections.transcript import Line
from ...processors.fold.views import SessionViews
from ...processors.outside.connection import ENDED
from ...processors.store.store import Belongs, fold_version, open_readonly
from ...processors.wake.decide import TOO_LITTLE
from ...processors.wake.facts import Rules, wake
from ...schemas.enums import EndReason
from ...schemas.topics import DEAD_LETTERS, SESSION_EVENTS, UNCLEAN, topics
from ..follow import read_before
from ..replay import store_directory
from ..show import Everything
from ..waiting import asking, doubtful

IDLE_MS = 30_000
"""A session that owes something and has been quiet for so long is not being served."""

SHOWN_MAX = 3
"""Sessions that are named of one kind; the cause is the same most times."""

SKIPPED = (
    "nothing: a summary is tried again when more was said; if this stays, the prompt or single "
    "results are large for the agent's soft_tokens and resume_tokens"
)
AGAIN = "nothing: what is still to be done is tried again"
IN_VAIN = (
    "nothing is lost; if a model fails each time, give the agent another one: "
    "Agent(compaction=Compaction(model=...))"
)
BY_ITSELF = (
    "nothing is lost; if it fails each time, the agent's own model is not able to: take "
    "provider=True out of Agent(compaction=Compaction(...)), or name another model there"
)
NO_ROOM = (
    "see what fills it, foldlog context show {}; say less in the prompt, the tools and their "
    "results, or raise hard_tokens: the next message tries again"
)
LETTERS_MAX = 5
"""Dead letters that are shown; the others are counted."""

LETTER_HEADERS = "__dlq.errors."
"""The prefix of a dead letter's headers that say where the record lies, and why it is one."""


class Finding(NamedTuple):
    """level: ok, note (waits for a person), problem. `do`: what to do, '' if nothing."""

    level: str
    check: str
    text: str
    do: str = ""


def topics_as_wanted(log: Log, settings: Settings) -> Iterator[Finding]:
    """The topics are there, with the right number of partitions and the right properties."""
    try:
        demand_as_made(log)
    except TopicMissing:
        pass  # said below
    except TopicMismatch as error:
        sentences = str(error).split(". ")  # what happened, what was kept, what to do
        yield Finding("problem", "topics", sentences[0], sentences[-1])
        return
    report = log.check_topics(topics(settings.partitions))
    for name in report.missing:
        yield Finding("problem", "topics", f"{name} is missing", "foldlog topics apply")
    for found in report.differs:
        do = _about_partitions(log, settings) if found.fatal else "change it in Kafka"
        # A leader that lacks records loses claims; no other property of a topic does harm.
        harms = found.fatal or found.what == UNCLEAN
        yield Finding("problem" if harms else "note", "topics", str(found), do)
    if not report.missing and not report.differs:
        yield Finding("ok", "topics", f"{len(report.same)} topics are as they must be")
    if not report.missing:
        yield from _records_deleted(log)


def _about_partitions(log: Log, settings: Settings) -> str:
    """What to do about a topic whose number of partitions is not the setting's."""
    try:
        made = facts_of(log).partitions
    except TopicMissing:
        made = None
    if made is None:
        return "set `partitions` to what the topics have, if nobody added partitions"
    if made != settings.partitions:
        return f"set `partitions` to {made}, with which this log was made"
    return f"somebody added partitions: foldlog move --to-prefix NEW --partitions {made}, or more"


def _records_deleted(log: Log) -> Iterator[Finding]:
    for partition, first in log.first_offsets(SESSION_EVENTS).items():
        if first > 0:
            yield Finding(
                "problem",
                "log",
                f"partition {partition} begins at offset {first}: somebody deleted what was before",
                "bring the records back; keep the stores, which can't be made anew without them",
            )


def partitions_held(everything: Everything, partitions: int) -> Iterator[Finding]:
    """Each partition was taken by a worker for each role."""
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
                f"no worker ever took {len(numbers)} of {partitions} partitions for {role}",
                "foldlog worker (or foldlog dev)",
            )
    if not any(never.values()):
        owners = {h.owner for view in everything.holders.values() for h in view.holders}
        whose = ", ".join(sorted(owners))
        yield Finding("ok", "partitions", f"all {partitions} were taken, by {whose}")


def stores(log: Log, settings: Settings) -> Iterator[Finding]:
    """The worker's stores are of this log, and how far they have come."""
    belongs = Belongs(log.identity(), log.topic_id(SESSION_EVENTS), fold_version())
    behind, seen = 0, 0
    for number in range(partitions_of(log)):
        directory = store_directory(settings, number)
        if not directory.is_dir():
            continue
        try:
            store = open_readonly(directory)
        except OSError as refused:
            yield Finding(
                "problem", "store", f"{directory} cannot be opened: {refused.strerror}",
                "free what the system lacks; the store is kept, and needs no repair",
            )
            continue
        except Exception as broken:  # rocksdict raises plain Exception
            yield Finding(
                "note", "store", f"{directory} is damaged: {broken}",
                "nothing: the next worker rebuilds it from the log",
            )
            continue
        seen += 1
        cursor, whose = store.cursor.offset, store.belongs
        store.close()
        end = log.end_offsets(SESSION_EVENTS)[number]  # after the store: a worker may run
        if whose != belongs or cursor > end:
            yield Finding(
                "note", "store", f"{directory} was not folded from this log by this version",
                "nothing: the next worker makes it anew from the log",
            )
        else:
            behind += end - cursor
    if seen:
        text = f"{seen} stores in {settings.state_dir}, {behind} records behind"
        yield Finding("ok", "store", text)
    else:
        yield Finding("ok", "store", f"none in {settings.state_dir}: no worker worked here yet")


def frozen_sessions(everything: Everything) -> Iterator[Finding]:
    """Sessions stopped at an event that this version does not understand, or lacks the seed of."""
    for name, views in sorted(everything.sessions.items()):
        if views.frozen is not None:
            yield Finding(
                "problem",
                "frozen",
                f"session {name} is frozen at offset {views.frozen.offset}: {views.frozen.why}",
                f"foldlog skip {name} --offset {views.frozen.offset} continues without that record;"
                " or upgrade to a version that understands it (of a fork without its seed: bring "
                "the blobs back, delete its partition's store) and restart the worker",
            )


def mcp_servers(states: Mapping[str, str]) -> Iterator[Finding]:
    """The MCP servers of the worker that runs, by name, as it knows them."""
    for name, state in sorted(states.items()):
        if state == ENDED:
            yield Finding(
                "note", "mcp", f"server {name} is {state}",
                "nothing: the next call connects anew; if that comes often, see why it ends",
            )
        elif state.startswith("down"):
            yield Finding(
                "problem", "mcp", f"server {name} is {state}",
                "start it or correct it: its calls fail until it is back, and nothing else does",
            )
        elif "starts anew" in state:
            yield Finding(
                "note", "mcp", f"server {name} is {state}",
                "start the worker anew: it is told at once which tools there are",
            )
        else:
            yield Finding("ok", "mcp", f"server {name} is {state}")


def people_wanted(everything: Everything) -> Iterator[Finding]:
    """Approvals and doubts that wait for a person."""
    for name, views in sorted(everything.sessions.items()):
        for call in asking(views.turn):
            yield Finding(
                "note", "approvals", f"session {name}: {call.name} ({call.key}) asks",
                f"foldlog approve {name} {call.key}, or deny",
            )
        for call in doubtful(views.turn):
            yield Finding(
                "note", "doubts",
                f"session {name}: it is not known whether {call.name} ({call.key}) happened",
                f"foldlog resolve {name} {call.key} --happened TEXT | --did-not-happen",
            )


def refused_to_tools(everything: Everything) -> Iterator[Finding]:
    """Transitions and locks that tools asked for and the fold refused: each is a tool's mistake."""
    found: Counter[tuple[str, str]] = Counter()
    whose: dict[tuple[str, str], list[str]] = {}
    for name in newest_first(everything):
        for line in everything.sessions[name].transcript.lines:
            if line.kind != "result" or "; " not in line.text:
                continue
            for why in line.text.split("; ")[1:]:
                found[line.name, why] += 1
                whose.setdefault((line.name, why), []).append(name)
    for (tool, why), times in found.most_common():
        names = named(list(dict.fromkeys(whose[tool, why])))
        yield Finding(
            "note",
            "tools",
            f"tool {tool} was refused {times} times: {why} ({names})",
            "correct the tool: what it asked for changed nothing, and the model was told",
        )


def out_of_room(everything: Everything) -> Iterator[Finding]:
    """Sessions whose last turn found no room in the window: whoever wrote got no answer."""
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
    """The first of them, and how many more there are."""
    more = [f"{len(names) - SHOWN_MAX} more"] if len(names) > SHOWN_MAX else []
    return ", ".join([*names[:SHOWN_MAX], *more])


def newest_first(everything: Everything) -> list[str]:
    """The sessions, last changed first."""
    return sorted(everything.sessions, key=lambda name: (-everything.last_at.get(name, 0), name))


def background_in_vain(
    everything: Everything, most: int | None = SHOWN_MAX
) -> Iterator[Finding]:
    """Background work whose newest try came to nothing, of each kind the newest: what failed, and
    after it what was not worth a try or was stopped. It is tried again by itself, later."""
    failed: list[tuple[str, str]] = []
    idle: list[tuple[str, str]] = []
    for name in newest_first(everything):
        views = everything.sessions[name]
        if said := views.background.said:
            do = _what_to_do(views, said)
            kind = idle if do in (SKIPPED, AGAIN) else failed
            kind.append((f"session {name}: {said}", do))
    for kind, what in ((failed, "whose background work failed"), (idle, "that wait for more")):
        for text, do in kind[:most]:
            yield Finding("note", "background", text, do)
        if more := len(kind) - len(kind[:most]):
            yield Finding("note", "background", f"{more} more sessions {what}")


def _what_to_do(views: SessionViews, said: str) -> str:
    if said.endswith(TOO_LITTLE):
        return SKIPPED
    if said.endswith((ABORTED, STOPPED, NOTHING_LEFT)):
        return AGAIN
    request, (_, _, why) = views.context.request, said.partition(": ")
    own = request is not None and why.startswith(f"{request.model} ")
    return BY_ITSELF if own or why == NOT_SUMMARIZED else IN_VAIN


def owed_and_idle(everything: Everything, now: int) -> Iterator[Finding]:
    """Sessions that owe work and have been quiet (invariant: none, unless parked)."""
    for name, views in sorted(everything.sessions.items()):
        number = everything.places[name]
        holders = everything.holders.get(number, partition_fold.INITIAL)
        rows = [
            owed
            for owed in wake(views, holders, now, Rules())
            if owed.owed not in ("wait", "begin", "abort")
        ]
        quiet = now - everything.last_at[name]
        if rows and quiet > IDLE_MS:
            what = ", ".join(sorted({f"{owed.owed} ({owed.row})" for owed in rows}))
            yield Finding(
                "problem", "owed", f"session {name} owes {what} and is quiet for {quiet // 1000} s",
                "see that a worker runs, with its agent; foldlog wake " + name,
            )


def dead_letters(log: Log, everything: Everything) -> Iterator[Finding]:
    """Records that could not be decoded; what `foldlog skip` passed over is no problem any more."""
    passed_over = {
        (str(everything.places[name]), str(offset))
        for name, views in everything.sessions.items()
        for offset in views.skipped
    }
    last: deque[dict[str, str]] = deque(maxlen=LETTERS_MAX)
    left = skipped = 0
    for partition, end in log.end_offsets(DEAD_LETTERS).items():
        for record in read_before(log, DEAD_LETTERS, partition, end):
            told = {
                name.removeprefix(LETTER_HEADERS): value.decode("utf-8", "replace")
                for name, value in record.headers
                if name.startswith(LETTER_HEADERS)
            }
            if (told.get("partition"), told.get("offset")) in passed_over:
                skipped += 1
            else:
                left += 1
                last.append(told)
    if not left:
        text = f"{skipped} records could not be decoded; `foldlog skip` passed over all of them"
        yield Finding("ok", "dead letters", text if skipped else "none")
        return
    more = f", and {skipped} more that `foldlog skip` passed over" if skipped else ""
    yield Finding(
        "problem", "dead letters",
        f"{left} records could not be decoded{more}; the last of them:",
        "see who writes to the topic; a newer version may read them",
    )
    for told in last:
        text = ", ".join(f"{name} {value}" for name, value in sorted(told.items()))
        yield Finding("note", "dead letters", text)


def sessions_counted(everything: Everything) -> Finding:
    """How many sessions there are, and how many have an open turn."""
    known = [views for views in everything.sessions.values() if views.turn.known]
    running = sum(views.turn.open for views in known)
    return Finding("ok", "sessions", f"{len(known)}, {running} with an open turn")

"""sessions, show, tail, request, wake: inspect the log. They fold the log and need no worker.

Only `wake --run` writes to the log.
"""

import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ...client.follow import Follow
from ...client.printable import event_json, no_text, text_of_body
from ...client.show import VIEWS, known, now_ms, owed_json, request_of, view_json
from ...client.spending import ledger_json, ledger_lines, saving_of, session_cost
from ...client.status import situation_of
from ...client.waiting import asking, doubtful, what_it_waits_for
from ...log.blobs import BlobError
from ...log.partition import partition_for
from ...producers.checks import an_id
from ...schemas.codec import ChunkSeen, Entry
from ...schemas.events import GenChunk
from ...schemas.topics import SESSION_EVENTS
from ..edge import Edge, at_option, example, json_option, pass_edge
from ..terminal.clean_text import clean
from ..terminal.event_lines import event_line
from ..terminal.printing import brief, emit, has_styles, line, note, pretty, table, when
from ..terminal.progress import Bar
from .context import note_if_not_written, print_context
from .decide import exactly
from .replay_bundle import bundle_option
from .run import agent_option, run_wake
from .session_list import STATUSES, TimeParam, Wanted, find_listed, print_list

if TYPE_CHECKING:
    from ...client.session_fold import SessionFold
    from ...processors.advice.prices import PriceTable
    from ...processors.fold.projections.turn_view import Call
    from ...processors.fold.views import SessionViews
    from ...processors.wake.budget import Rules
    from ...schemas.events.parts import ReadBlob


TEXT_CHARS_MAX = 4_000
"""The most characters of one message or answer in the overview, since people paste whole files."""

LEDGER_COLUMNS = "step attempt outcome model input read write_5m write_1h output cost".split()


@click.command("sessions", epilog=example(
    "foldlog sessions", "foldlog sessions --status asks --status failed",
    "foldlog sessions --agent shop --since 2h",
))
@click.option("--user", metavar="USER", help="Only the sessions of this user (default: all).")
@click.option("--status", "statuses", multiple=True, type=click.Choice(list(STATUSES)),
              help="Only sessions with this status; repeatable.")
@click.option("--agent", "agents", multiple=True, metavar="NAME",
              help="Only sessions of this agent; repeatable.")
@click.option("--since", "since_ms", type=TimeParam(), metavar="TIME",
              help="Only sessions that changed since then: 30m, 2h, 3d, today, or a date.")
@json_option
@pass_edge
def sessions_command(
    edge: Edge,
    user: str | None,
    statuses: tuple[str, ...],
    agents: tuple[str, ...],
    since_ms: int | None,
    as_json: bool,
) -> None:
    """List the sessions.

    The most recently changed come first. The list comes from the fleet, within a second of a
    change; without a fleet the log is folded. The column `time` is the time that the turns took,
    without waits for people; `cached` is the share of the input cost that prompt caching saved.
    --status takes one of these words:

    \b
    idle        no turn runs (shown as `stopped` if a person stopped the last)
    busy        a turn runs (shown as `working`, or what it waits for)
    asks        a call waits for approval
    doubt       a person must record the outcome of a call
    unserved    no worker serves the agent (shown as `no worker`)
    failed      the last turn failed (or shown as `over budget`)
    frozen      a record cannot be read
    terminated  the session was ended (shown as `ended`)

    With a fleet, the log is read for at most 2 s to tell `busy` from `unserved`, but without a
    limit for --status unserved. A turn of which this is unknown is shown as `turn open`.
    """
    wanted = Wanted(user, agents, statuses, since_ms or 0)
    rows, total = find_listed(edge, wanted)
    if as_json:
        for row in rows:
            emit(row.json())
        return
    print_list(rows)
    if rows:
        return
    if not total:
        note("no sessions yet: `foldlog chat` opens one")
    elif user is not None and not (statuses or agents or since_ms):
        note(f"no sessions of user {user}; without --user all are listed")
    else:
        note(f"none of the {total} sessions matches; `foldlog sessions` lists all")


@click.command("show", epilog=example(
    "foldlog show s1", "foldlog show s1 --view transcript", "foldlog show s1 --view state --at 120",
    "foldlog show s1 --view context --strategy sliding_window_20"
))
@click.argument("session")
@click.option("--view", type=click.Choice(VIEWS), help="Print one view completely.")
@at_option
@click.option("--strategy", metavar="NAME",
              help="With --view context: the context under full, sliding_window_N or compacted.")
@click.option("--resolve", is_flag=True, help="Print large content too, from the blob store.")
@bundle_option
@json_option
@pass_edge
def show_command(
    edge: Edge,
    session: str,
    view: str | None,
    at: int | None,
    strategy: str | None,
    resolve: bool,
    as_json: bool,
) -> None:
    """Show the views of a session.

    Without --view: its state, what it waits for, and the end of its transcript. The views are
    folded from the log up to now, or up to an offset of the session's partition.
    """
    if strategy is not None and view != "context":
        raise click.UsageError("--strategy applies to a context. Add --view context.")
    client = edge.client()
    read = client.read_blob if resolve else None
    with client.fold(session) as folded:
        views = known(folded, at)
        note_if_not_written(folded, at)
        if strategy is not None:
            print_context(views, strategy, client.read_blob, as_json=as_json)
        elif as_json:
            names = (view,) if view else VIEWS
            found = {name: view_json(folded, name, read) for name in names}
            if "ledger" in found:
                found["ledger"] = ledger_json(views.ledger, edge.prices)
            emit(found[view] if view else found)
        elif view == "ledger":
            _ledger(views, edge.prices)
        elif view == "transcript":
            for text in transcript_lines(views, client.read_blob):
                line(text)
        elif view:
            click.echo(pretty(view_json(folded, view, read)))
        else:
            _overview(folded, client.read_blob, edge.prices)


def _ledger(views: "SessionViews", prices: "PriceTable") -> None:
    table(ledger_lines(views.ledger, prices), LEDGER_COLUMNS)
    line(str(saving_of(views.ledger, prices)))
    line(f"tokens as the provider counted them, prices as of {prices.version}")


def _overview(folded: "SessionFold", read: Any, prices: "PriceTable") -> None:
    views = folded.views
    state, turn = views.state, views.turn
    words = situation_of(views, folded.holders).words
    line(f"session {views.session_id} of {state.user_id}: {words}")
    line(f"  agent {turn.agent}, phase {state.phase}, project {state.project_id or 'none'}")
    running = "open" if turn.open else "ended"
    waiting = f"{len(turn.queue)} message{'s' * (len(turn.queue) != 1)} waiting"
    line(f"  turn {turn.number} {running}, step {turn.step}, {waiting}")
    usage = views.ledger
    read_in = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    line(f"  tokens: {read_in} in ({usage.cache_read_tokens} of them from the cache), "
         f"{usage.output_tokens} out; cost: {session_cost(usage, prices)}")
    line(f"  changed {when(state.updated_at)}, partition {folded.partition}, "
         f"next offset {folded.cursor}")
    if state.pending_tool is not None:
        line(f"  tool {state.pending_tool.name} ({state.pending_tool.call}), "
             f"attempt {state.pending_tool.attempt}, {state.pending_tool.open} open")
    waits = what_it_waits_for(views, folded.holders)
    if waits.text:
        line(f"  {waits.text}")
    for call in (*asking(turn), *doubtful(turn)):
        line(f"  call {call.key} {call.status}: {call.name} {_args(call, read)}")
    for text in transcript_lines(views, read)[-12:]:
        line("  | " + _start(text).replace("\n", "\n  | "))


def _args(call: "Call", read: "ReadBlob") -> str:
    try:
        return exactly(call, read)
    except BlobError as error:
        return f"[{error}]"


def _start(text: str) -> str:
    """The text; a long text is cut, and its length is appended."""
    if len(text) <= TEXT_CHARS_MAX:
        return text
    return f"{text[:TEXT_CHARS_MAX]}... [{len(text)} characters; --view transcript prints all]"


def _inline(body: Any) -> str:
    return (body.inline or b"").decode("utf-8", "replace")


def transcript_lines(views: "SessionViews", read: Any) -> list[str]:
    """The transcript as text for people; an entry may span several lines."""
    return [clean(text) for _, text in transcript_rows(views, read)]


def transcript_rows(
    views: "SessionViews", read: Any, *, from_turn: int = 0
) -> list[tuple[str, str]]:
    """The kind and the text of each entry of the transcript. The caller must clean the text."""

    def content(body: Any) -> str:
        try:
            return text_of_body(body, read)
        except BlobError as error:
            return f"[{error}]"

    rows: list[tuple[str, str]] = []
    for row in views.transcript.lines:
        if row.turn < from_turn:
            continue
        match row.kind:
            case "message":
                text = f"> {content(row.body)}"
            case "answer" if remark := no_text(row, read):
                rows.append(("remark", f"[{remark}]"))
                continue
            case "answer" | "partial":
                stopped = "" if row.kind == "answer" else f" [stopped: {row.name}]"
                stopped = f" [refused: {row.text}]" if row.text else stopped
                text = content(row.body) + stopped
            case "call" | "asks" | "result" | "doubt" | "approval" | "resolved":
                inline = f"{brief(_inline(row.body))}" if row.body else ""
                parts = (f"[{row.kind} {row.call} {row.name}]", inline, brief(row.text))
                text = " ".join(part for part in parts if part)
            case "ended":
                why = row.text and f" ({row.text})"
                text = f"[turn {row.turn} ended: {row.name}{why}]"
            case _:
                text = f"[{' '.join(part for part in (row.kind, row.name, row.text) if part)}]"
        if text.strip():
            rows.append((str(row.kind), text))
    return rows


@click.command("tail", epilog=example("foldlog tail s1 --follow", "foldlog tail --json --follow"))
@click.argument("session", required=False)
@click.option("--follow", "-f", is_flag=True, help="Keep printing new events.")
@click.option("--from", "start", type=click.IntRange(min=0), metavar="OFFSET",
              help="Start at this offset (of each partition that is read).")
@click.option("--last", "-n", type=click.IntRange(min=0), metavar="NUMBER",
              help="Of the existing events, print only the last NUMBER.")
@click.option("--chunks", is_flag=True, help="Print GEN_CHUNK too, the pieces of streamed answers.")
@click.option("--resolve", is_flag=True, help="Print large content too, from the blob store.")
@bundle_option
@json_option
@pass_edge
def tail_command(
    edge: Edge,
    session: str | None,
    follow: bool,
    start: int | None,
    last: int | None,
    chunks: bool,
    resolve: bool,
    as_json: bool,
) -> None:
    """Print the events of a session, or of all.

    One line per event: PARTITION:OFFSET, the local time, the session (without SESSION), the type,
    and the content in a few words; in colours on a terminal, unless NO_COLOR is set. --json prints
    every field. Every record of the log is printed, including those that the fold refused or
    ignored: `foldlog replay --from` prints the ruling on each.
    """
    client = edge.client()
    read = client.read_blob if resolve else None
    if session is not None:
        an_id("the name of a session", session)
    session_ids = None if session is None else (session,)
    with Follow(edge.log, session_ids, _begin(edge, session, start)) as events:
        bar = Bar("tail", "records")
        batches = events.to(events.ends(), bar)
        existing = (entry for batch in batches for entry in batch)
        matching = (entry for entry in existing if chunks or not _is_chunk(entry))
        shown = matching if last is None else deque(matching, last)
        printed = _print_events(shown, as_json, read, session is None, bar.erase)
        if not printed and not follow:
            note("no events" if session is None else f"session {session} has no events")
        while follow:
            new = events.poll()
            matching = (entry for entry in new if chunks or not _is_chunk(entry))
            _print_events(matching, as_json, read, session is None)


def _begin(edge: Edge, session: str | None, start: int | None) -> dict[int, int]:
    """The offset from which to read each partition: `start`, or the nearest offset that the
    partition has.
    """
    if start is None:
        return {}
    first, end = edge.log.first_offsets(SESSION_EVENTS), edge.log.end_offsets(SESSION_EVENTS)
    partitions = first if session is None else {partition_for(session, len(first)): 0}
    return {p: min(max(start, first[p]), end[p]) for p in partitions}


def _is_chunk(entry: Entry) -> bool:
    return isinstance(entry.event, GenChunk | ChunkSeen)


def _print_events(
    entries: Iterable[Entry],
    as_json: bool,
    read: "ReadBlob | None",
    is_of_all: bool,
    before: Callable[[], None] = lambda: None,
) -> int:
    """Print the events and return their number.

    is_of_all: whether to print the session of each event.
    before: called before each line.
    """
    colours = has_styles(sys.stdout)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    count = 0
    for entry in entries:
        count += 1
        before()
        if as_json:
            emit(event_json(entry, read))
        else:
            click.echo(
                event_line(entry, read, session=is_of_all, colours=colours, width=width)
            )
    return count


@click.command("request", epilog=example("foldlog request s1 1.2 | python -m json.tool"))
@click.argument("session")
@click.argument("step", metavar="TURN.STEP")
@bundle_option
@json_option
@pass_edge
def request_command(edge: Edge, session: str, step: str, as_json: bool) -> int | None:
    """Print a past model request and check its hash.

    The request is rebuilt from the log alone, byte for byte. stdout gets the bytes, without a
    newline; stderr reports whether their sha256 equals the one in the claim of the model call. Exit
    code 1 if they differ. Bytes and hash exclude the `"stream":true` that is added on sending.
    """
    parts = step.split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise click.UsageError(f"TURN.STEP must be two numbers, as in 1.2, not {step!r}.")
    client = edge.client()
    with client.fold(session, chunks=True) as folded:
        found = request_of(folded, int(parts[0]), int(parts[1]), client.read_blob)
    claims = [{"attempt": a, "request_sha256": sha, "builder": b} for a, sha, b in found.claims]
    if as_json:
        emit({
            "session": session,
            "step": step,
            "sha256": found.sha256,
            "agrees": found.agrees,
            "claims": claims,
            "request": found.body.decode(),
        })
    elif sys.stdout.isatty():
        click.echo(clean(found.body.decode()), nl=False)
    else:
        sys.stdout.buffer.write(found.body)
        sys.stdout.flush()
    verdict = "equal to its claim" if found.agrees else "NOT equal to its claim"
    verdict = verdict if claims else "not claimed yet"
    note(f"{len(found.body)} bytes, sha256 {found.sha256}: {verdict}")
    for claim in claims:
        note(f"  attempt {claim['attempt']}: {claim['request_sha256']} by {claim['builder']}")
    return None if found.agrees else 1


@click.command("wake", epilog=example("foldlog wake s1", "foldlog wake s1 --run"))
@click.argument("session")
@click.option("--run", is_flag=True,
              help="Do the work in this process; not while a worker runs here.")
@agent_option
@json_option
@pass_edge
def wake_command(
    edge: Edge, session: str, run: bool, agents: tuple[str, ...], as_json: bool
) -> None:
    """Show a session's pending work, and why; with --run, do it.

    Prints the rows of the WAKE table that match the session's views, as every worker evaluates
    them. Which rows match depends on the limits of the session's agent: name this agent with
    --agent, as for a worker. A running worker does this work; with --run this command does it, with
    the same code, until the session is idle or waits for a person.
    """
    if run:
        run_wake(edge, session, agents)
    with edge.client().fold(session) as folded:
        views = known(folded)
        rules = _rules_of(views.turn.agent, agents)
        owed = owed_json(views, folded.holders, now_ms(folded), rules)
    if as_json:
        for row in owed:
            emit(row)
        return
    rows = [{**row, "of": row["subject"], "due at": _due(row)} for row in owed]
    table(rows, ("row", "owed", "of", "role", "due at", "why"))
    if not owed:
        words = situation_of(views, folded.holders).words
        line(f"session {session} has no pending work: {words}")


def _rules_of(wanted: str, names: Sequence[str]) -> "Rules":
    """The limits of the session's agent.

    If that agent is not loaded, prints a note and returns the default limits.
    """
    from ...processors.wake.budget import Rules
    from ...processors.wake.decide import rules_of
    from ..agents import load_agents

    found = {agent.name: agent for agent in load_agents(names)}
    if wanted in found:
        return rules_of(found[wanted])
    note(f"the session's agent {wanted} is not among {', '.join(found)}, so the rows are those "
         "under the default limits. Load the agent with --agent FILE.")
    return Rules()


def _due(row: dict[str, Any]) -> str:
    return when(row["due"]) if row["due"] else ""

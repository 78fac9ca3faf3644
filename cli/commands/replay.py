"""replay: refolds the log, prints the hashes of its views, compares them with a worker's store.

`reports/replay.py` does the folding.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ...client.printable import event_json
from ...client.show import UnknownSession
from ...log.errors import Refused
from ...log.made import partitions_of
from ...log.partition import partition_for
from ...processors.fold.sessions import FoldedEvent
from ...reports.replay import Folded, Replay, Verified, read_blobs, verify
from ...reports.replay_many import HASH, INTO, VERIFY, Hashed, jobs_of, run_jobs
from ...schemas.codec import ChunkSeen
from ...schemas.topics import SESSION_EVENTS
from ..edge import Edge, example, json_option, pass_edge
from ..terminal.event_lines import event_line
from ..terminal.printing import emit, line, note
from ..terminal.progress import Bar
from .replay_bundle import replay_bundle, use_bundle

PLACE = "OFFSET, or a date and time as in 2026-11-21T10:00"


def offsets(edge: Edge, text: str | None, session: str | None) -> dict[int, int] | None:
    """The offset in each partition that the value of --from or --to stands for.

    A time stands for the first event at or after that time.
    """
    if text is None:
        return None
    partitions = partitions_of(edge.log)
    targets = range(partitions) if session is None else [partition_for(session, partitions)]
    if text.isascii() and text.isdigit():
        return dict.fromkeys(targets, int(text))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not a position in the log. Give {PLACE}.") from None
    found = edge.log.offsets_at(SESSION_EVENTS, int(at.timestamp() * 1000))
    return {p: found[p] for p in targets}


@click.command("replay", epilog=example(
    "foldlog replay --session s1 --from 0", "foldlog replay --verify",
    "foldlog replay --bundle s1.foldlog",
))
@click.option("--session", metavar="SESSION", help="Only this session.")
@click.option("--from", "start", metavar="PLACE", help=f"List the events from PLACE on: {PLACE}.")
@click.option("--to", "stop", metavar="PLACE", help="Fold up to PLACE, inclusive.")
@click.option("--verify", "compare", is_flag=True, help="Compare with the worker's store.")
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write the folded views to new stores below DIR; the live ones stay untouched.")
@click.option("--jobs", "--processes", "processes", type=click.IntRange(min=1), metavar="N",
              help="Partitions folded at once, each in a process of its own (default: one per "
                   "processor for a large log).")
@click.option("--bundle", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Replay this bundle, offline, and compare the result with its manifest.")
@json_option
@pass_edge
def replay_command(
    edge: Edge,
    session: str | None,
    start: str | None,
    stop: str | None,
    compare: bool,
    into: Path | None,
    processes: int | None,
    bundle: Path | None,
    as_json: bool,
) -> int | None:
    """Refold the log and compare it with the store.

    Every fold starts at the first offset. The output is the sha256 of every view of every session:
    anyone who replays the same log gets the same hashes. --from lists events with the ruling on
    each. --verify refolds up to the cursor of each store in the worker's state directory and
    compares view by view; exit code 1 if any differs. --into writes a store from which a worker
    with FOLDLOG_STATE_DIR=DIR can continue; the live worker may run meanwhile. --bundle needs no
    broker: it folds the session of an exported bundle, rebuilds its requests and compares both with
    the originals.
    """
    if bundle is not None and not (start or stop):
        if compare or session:
            raise click.UsageError(
                "--bundle is compared with its own manifest. Omit --verify and --session."
            )
        return replay_bundle(edge, bundle, as_json)
    if bundle is not None:
        use_bundle(edge, bundle)
    if into is not None and (session or start or compare):
        raise click.UsageError("--into writes complete stores. Combine it only with --to.")
    if compare:
        if start or stop:
            raise click.UsageError(
                "--verify folds from the first offset to the store's cursor. Omit --from and --to."
            )
        return _verify(edge, session, as_json, processes)
    begin, last = offsets(edge, start, session), offsets(edge, stop, session)
    ends = last and {p: offset + 1 for p, offset in last.items()}
    if stop and not stop.isdigit():
        ends = last  # the first offset at or after a time is not before it
    if session is None and begin is None:
        _replay_all(edge, ends, into, processes, as_json)
        return None
    replay = Replay(edge.log, session, ends, read_blobs(edge.settings))
    for step in replay.steps():
        if begin is not None and step.entry.offset >= begin[step.entry.partition]:
            _print_step(step, as_json)
    for name in sorted(replay.sessions):
        _print_folded(replay.sessions[name], as_json)
    if not replay.sessions and session is not None:
        raise UnknownSession(f"session {session} has no events. See `foldlog sessions`.")
    if not replay.sessions:
        note("no events")
    return None


def _replay_all(
    edge: Edge,
    ends: dict[int, int] | None,
    into: Path | None,
    processes: int | None,
    as_json: bool,
) -> None:
    jobs = jobs_of(edge.log, HASH if into is None else INTO, ends, into)
    with Bar("replay") as bar:
        results = list(run_jobs(edge.log, edge.elsewhere, jobs, bar, processes=processes))
    sessions = sorted((hashed for each in results for hashed in each.sessions), key=lambda h: h[0])
    for hashed in sessions:
        _print_folded(hashed, as_json)
    if not sessions:
        note("no events")
    if into is not None:
        note(f"{len(results)} stores were written below {into}: a worker uses them with "
             f"FOLDLOG_STATE_DIR={into}")


def _print_step(step: FoldedEvent, as_json: bool) -> None:
    if isinstance(step.entry.event, ChunkSeen):
        return  # replay does not decode chunks: `foldlog tail --chunks` does
    if as_json:
        event = event_json(step.entry)
        emit({**event, "verdict": step.ruling.verdict, "code": step.ruling.code})
        return
    ruling = "" if step.ruling.accepted else f"  <- {step.ruling.verdict} ({step.ruling.code})"
    shown = event_line(step.entry, None, session=True, colours=False, width=None)
    click.echo(shown + ruling)


def _print_folded(folded: Folded | Hashed, as_json: bool) -> None:
    if as_json:
        emit({
            "session": folded.session_id,
            "partition": folded.partition,
            "first_offset": folded.first,
            "next_offset": folded.next,
            "rulings": dict(folded.rulings),
            "sha256": folded.hashes,
        })
        return
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(folded.rulings.items()))
    line(f"session {folded.session_id}: partition {folded.partition}, offsets {folded.first} to "
         f"{folded.next - 1}, {counts}")
    for view, sha in folded.hashes.items():
        line(f"  {view:13} {sha}")


def _verify(
    edge: Edge, session: str | None, as_json: bool, processes: int | None
) -> int | None:
    if session is not None:
        found = list(verify(edge.log, edge.settings, session))
    else:
        jobs = jobs_of(edge.log, VERIFY)
        with Bar("verify") as bar:
            results = list(run_jobs(edge.log, edge.elsewhere, jobs, bar, processes=processes))
        found = [each.verified for each in results if each.verified is not None]
    for verified in found:
        for row in _rows(verified):
            emit(row) if as_json else line(_line(row))
    if not found:
        raise Refused(
            f"no store below {edge.settings.state_dir}: nothing to compare. Run a worker first, or "
            "set FOLDLOG_STATE_DIR to its state directory."
        )
    failed = [v for v in found if v.problem or v.differences]
    sessions = sum(v.sessions for v in found)
    if not failed and not as_json:
        line(f"every view of {sessions} sessions in {len(found)} partitions matches the log")
    return 1 if failed else None


def _rows(verified: Verified) -> Iterator[dict[str, Any]]:
    same = not verified.problem and not verified.differences
    yield {
        "partition": verified.partition,
        "cursor": verified.cursor,
        "sessions": verified.sessions,
        "same": same,
        "problem": verified.problem,
    }
    for difference in verified.differences:
        yield difference._asdict()


def _line(row: dict[str, Any]) -> str:
    if "view" in row:
        return (
            f"  session {row['session_id']}, {row['view']}: log {row['log_sha256']}, store "
            f"{row['store_sha256']}\n    {row['where']}"
        )
    head = f"partition {row['partition']}: {row['sessions']} sessions at offset {row['cursor']}"
    if row["problem"]:
        return f"partition {row['partition']}: not compared: {row['problem']}"
    return f"{head}: {'the same' if row['same'] else 'DIFFERENT'}"

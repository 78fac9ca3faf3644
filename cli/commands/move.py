"""move: moves every session of this log to a new log. `upkeep/moving.py` defines what moves."""

import click

from ...log import open_log
from ...log.door import Log
from ...log.errors import FoldlogError
from ...log.made import facts_of, partitions_of
from ..edge import Edge, example, json_option, pass_edge
from ..terminal.printing import emit, line
from ..terminal.progress import Clock


class MoveInterrupted(FoldlogError):
    """Ctrl-C ended a move. What was written is kept, and the same command continues the move."""


@click.command("move", epilog=example("foldlog move --to-prefix v2- --partitions 24"))
@click.option("--to-prefix", required=True, metavar="TEXT", help="The topic prefix of the new log.")
@click.option("--partitions", type=click.IntRange(min=1), metavar="NUMBER",
              help="The number of partitions of the new log (default: as many as this one).")
@click.option("--close-turns", is_flag=True,
              help="Also move sessions with a call in doubt or an open turn; the turn ends.")
@json_option
@pass_edge
def move_command(
    edge: Edge, to_prefix: str, partitions: int | None, close_turns: bool, as_json: bool
) -> None:
    """Move all sessions to a new log.

    Use it to get more partitions, which cannot be added to a log that is in use. The new log has
    its own topics on the same cluster and shares the blobs. Stop workers and gateways first. Each
    session keeps its name, user, agent, transcript, context, phase and project; its offsets start
    over. The past costs and the doubts of the sessions, and all terminated sessions, stay in the
    old log. Memory is copied. At the end the old log is marked as moved: it can be read, and
    nothing writes to it any more. After Ctrl-C the same command continues.
    """
    from ...upkeep.moving import move

    completed: list[str] = []

    clock = Clock("moving")

    def report(text: str) -> None:
        completed.append(text)
        clock.note(text)

    if to_prefix == edge.settings.topic_prefix:
        raise click.UsageError(f"--to-prefix {to_prefix!r} is this log's own prefix. Give another.")
    partition_count = partitions or partitions_of(edge.log)
    flags = ("--to-prefix", "--partitions")
    settings = edge.connected().of_log(to_prefix, partition_count, flags=flags)
    new = open_log(settings)
    try:
        read = edge.client().read_blob
        with clock:
            moved = move(edge.log, new, settings, read, close_turns=close_turns, report=report)
    except KeyboardInterrupt as pressed:
        raise MoveInterrupted(_progress_of(edge.log, to_prefix, completed)) from pressed
    finally:
        new.close()
    if as_json:
        emit({**moved._asdict(), "topic_prefix": to_prefix, "partitions": partition_count})
        return
    line(f"{moved.sessions} sessions and {moved.memory} records of memory moved")
    for name, why in moved.left:
        line(f"session {name} stays: {why}")
    line(f"Next: set FOLDLOG_TOPIC_PREFIX={to_prefix} and FOLDLOG_PARTITIONS={partition_count} "
         "wherever foldlog runs, then start the workers")


def _progress_of(old: Log, to_prefix: str, completed: list[str]) -> str:
    """The progress of an interrupted move, and what to do."""
    if facts_of(old).moved_to is not None:
        return (
            "interrupted after everything was moved, and the old log is marked. Next: set "
            f"FOLDLOG_TOPIC_PREFIX={to_prefix} wherever foldlog runs; the same command again "
            "prints what stayed in the old log"
        )
    if not completed:
        return "interrupted before a session or memory was written. Run the same command again."
    return (
        f"interrupted. Done: {'; '.join(completed)}. The old log is complete and not marked as "
        "moved; what was written to the new one is kept. Start nothing on either, and run the same "
        f"command again: it continues. To give up, delete the topics beginning with {to_prefix!r}"
    )

"""move: every session of this log to a new one. What that takes along, consumers/moving.py says."""

import click

from ..log import open_log
from ..log.door import Log
from ..log.errors import FoldlogError
from ..log.made import facts_of, partitions_of
from .edge import Edge, example, json_option, pass_edge
from .printing import emit, line, note


class MoveInterrupted(FoldlogError):
    """Ctrl-C ended a move. What was written is kept, and the same command continues."""


@click.command("move", epilog=example("foldlog move --to-prefix v2- --partitions 24"))
@click.option("--to-prefix", required=True, metavar="TEXT", help="The topic prefix of the new log.")
@click.option("--partitions", type=click.IntRange(min=1), metavar="NUMBER",
              help="How many partitions it is made with (default: as many as this one).")
@click.option("--close-turns", is_flag=True,
              help="Also move sessions with an open turn, which ends, or a call in doubt.")
@json_option
@pass_edge
def move_command(
    edge: Edge, to_prefix: str, partitions: int | None, close_turns: bool, as_json: bool
) -> None:
    """Move all sessions to a new log.

    For more partitions, which can't be added to a log that is in use. The new log has topics of its
    own on the same cluster and shares the blobs. End workers and gateways first. Each session keeps
    its name, user, agent, transcript, context, phase and project; its offsets begin anew, and what
    it has cost so far stays in the old log, as do terminated sessions and doubts. Memory is copied.
    At the end the old log is marked: it can be read, and nothing writes to it any more. After
    Ctrl-C the same command continues.
    """
    from ..consumers.moving import move

    done: list[str] = []

    def say(text: str) -> None:
        done.append(text)
        note(text)

    if to_prefix == edge.settings.topic_prefix:
        raise click.UsageError(f"--to-prefix {to_prefix!r}: this log has that prefix itself.")
    wanted = partitions or partitions_of(edge.log)
    flags = ("--to-prefix", "--partitions")
    settings = edge.connected().of_log(to_prefix, wanted, flags=flags)
    new = open_log(settings)
    try:
        read = edge.client().read_blob
        moved = move(edge.log, new, settings, read, close_turns=close_turns, say=say)
    except KeyboardInterrupt as pressed:
        raise MoveInterrupted(_what_is_there(edge.log, to_prefix, done)) from pressed
    finally:
        new.close()
    if as_json:
        emit({**moved._asdict(), "topic_prefix": to_prefix, "partitions": wanted})
        return
    line(f"{moved.sessions} sessions and {moved.memory} records of memory moved")
    for name, why in moved.left:
        line(f"session {name} stays: {why}")
    line(f"Next: set FOLDLOG_TOPIC_PREFIX={to_prefix} and FOLDLOG_PARTITIONS={wanted} wherever "
         "foldlog runs, then start the workers")


def _what_is_there(old: Log, to_prefix: str, done: list[str]) -> str:
    """What an interrupted move came to, and what to do."""
    if facts_of(old).moved_to is not None:
        return (
            "interrupted when all was moved, and the old log is marked. Next: set "
            f"FOLDLOG_TOPIC_PREFIX={to_prefix} wherever foldlog runs; the same command again says "
            "what stayed in the old log"
        )
    if not done:
        return "interrupted before a session or memory was written: run the same command again"
    return (
        f"interrupted. Done: {'; '.join(done)}. The old log is whole and is not marked as moved; "
        "what was written to the new one is kept. Start nothing on either, and run the same "
        f"command again: it continues. To give up, delete the topics beginning with {to_prefix!r}"
    )

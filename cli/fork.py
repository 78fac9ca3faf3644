"""fork, regenerate: sessions that begin as another was.

This file must not know what a fork takes over: consumers/branching.py and the fold do.
"""

import click

from ..consumers.branching import Forked
from .edge import Edge, example, json_option, pass_edge, user_option
from .printing import emit, line


@click.command("fork", epilog=example(
    "foldlog fork s1 --at 120", "foldlog fork s1 --at 120 --as another-way"
))
@click.argument("session")
@click.option("--at", type=int, metavar="OFFSET",
              help="As of right after this offset of its partition (default: now).")
@click.option("--as", "name", metavar="NEW", help="The id of the new session (default: made here).")
@user_option
@json_option
@pass_edge
def fork_command(
    edge: Edge, session: str, at: int | None, name: str | None, user: str | None, as_json: bool
) -> None:
    """Open a session that begins as another was.

    What was said up to there is the new session's past, and its requests begin with the same bytes.
    Nothing is run or delivered again; an open turn is closed in the fork, doubts stay with the
    parent. Both go on, neither knows of the other. `foldlog tail SESSION` shows the offsets.
    """
    _report(edge.client(user).fork(session, at, name=name), as_json)


@click.command("regenerate", epilog=example("foldlog regenerate s1", "foldlog regenerate s1 2"))
@click.argument("session")
@click.argument("turn", type=click.IntRange(min=1), required=False)
@click.option("--as", "name", metavar="NEW", help="The id of the new session (default: made here).")
@user_option
@json_option
@pass_edge
def regenerate_command(
    edge: Edge, session: str, turn: int | None, name: str | None, user: str | None, as_json: bool
) -> None:
    """Ask for another answer, in a fork.

    The session is forked before TURN (default: its last), and what was said in that turn is said
    again to the fork. The first answer stays where it is.
    """
    _report(edge.client(user).regenerate(session, turn, name=name), as_json)


def _report(forked: Forked, as_json: bool) -> None:
    decision = forked.decision
    if as_json:
        emit({
            "session": forked.session_id,
            "parent_session": forked.parent,
            "parent_offset": forked.offset,
            "message_id": forked.message_id,
            "verdict": decision.verdict,
            "offset": decision.offset,
        })
        return
    again = "; the same was said to it" if forked.message_id else ""
    was = " (it was open already)" if decision.verdict == "duplicate" else ""
    line(f"session {forked.session_id} begins as {forked.parent} was after offset "
         f"{forked.offset}{was}{again}")
    line(f"  go on with `foldlog chat {forked.session_id}`")

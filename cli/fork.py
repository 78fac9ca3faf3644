"""fork, regenerate, skip: sessions that begin as another was, or continue without a record.

This file must not know what a fork takes over: consumers/branching.py and the fold do.
"""

import click

from ..consumers.branching import Forked
from .edge import Edge, example, json_option, pass_edge, user_option
from .printing import emit, line, note


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


@click.command("skip", epilog=example("foldlog skip s1", "foldlog skip s1 --offset 120"))
@click.argument("session")
@click.option("--offset", type=click.IntRange(min=0), metavar="OFFSET",
              help="The record that froze it, as doctor names it; another one is refused.")
@click.option("--reason", default="", help="Why, for people.")
@user_option
@json_option
@pass_edge
def skip_command(
    edge: Edge, session: str, offset: int | None, reason: str, user: str | None, as_json: bool
) -> None:
    """Continue a frozen session without the record that froze it.

    A session is frozen at a record that cannot be decoded or folded. The record stays in the log;
    RECORD_SKIPPED has every reader pass over it, in replays and forks too, and what was written to
    the session since counts. There is no way back: prefer an upgrade where a newer version
    understands the record.
    """
    skipped = edge.client(user).skip(session, offset, reason=reason)
    frozen, decision = skipped.decision.views.frozen, skipped.decision
    if as_json:
        emit({
            "session": session,
            "skipped_offset": skipped.offset,
            "verdict": decision.verdict,
            "offset": decision.offset,
            "uncounted": list(skipped.uncounted),
            "frozen_at": None if frozen is None else frozen.offset,
        })
        return
    line(f"session {session} continues without the record at offset {skipped.offset} "
         f"(offset {decision.offset})")
    if skipped.uncounted:
        note(f"written in the same moment and not counted: offsets {list(skipped.uncounted)}; "
             "send it again")
    if frozen is not None:
        note(f"it is frozen again, at offset {frozen.offset} ({frozen.why}): "
             f"`foldlog skip {session}` passes over that record too")


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

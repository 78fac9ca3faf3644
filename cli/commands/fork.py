"""fork, regenerate, rerun, skip: fork a session, or continue a frozen one without the faulty
record.

`client/branching.py` and the fold decide what a fork inherits.
"""

import click

from ...client.branching import Forked
from ..edge import Edge, example, json_option, pass_edge, user_option
from ..terminal.printing import emit, line, note

as_option = click.option("--as", "name", metavar="NEW",
                         help="The id of the new session (default: a generated one).")


@click.command("fork", epilog=example(
    "foldlog fork s1 --at 120", "foldlog fork s1 --at 120 --as another-way"
))
@click.argument("session")
@click.option("--at", type=int, metavar="OFFSET",
              help="As of right after this offset of its partition (default: now).")
@as_option
@user_option
@json_option
@pass_edge
def fork_command(
    edge: Edge, session: str, at: int | None, name: str | None, user: str | None, as_json: bool
) -> None:
    """Open a session that starts from the history of another.

    The new session inherits the parent's history up to OFFSET, and its requests start with the same
    bytes. Nothing is run or delivered again; an open turn is closed in the fork, and doubts stay
    with the parent. The two sessions continue independently. `foldlog tail SESSION` shows the
    offsets.
    """
    _report(edge.client(user).branching().fork(session, at, name), as_json)


@click.command("regenerate", epilog=example("foldlog regenerate s1", "foldlog regenerate s1 2"))
@click.argument("session")
@click.argument("turn", type=click.IntRange(min=1), required=False)
@as_option
@user_option
@json_option
@pass_edge
def regenerate_command(
    edge: Edge, session: str, turn: int | None, name: str | None, user: str | None, as_json: bool
) -> None:
    """Generate another answer, in a fork.

    Forks the session before TURN (default: the last turn) and sends the messages of that turn to
    the fork again. The first answer stays in the original session.
    """
    _report(edge.client(user).branching().regenerate(session, turn, name), as_json)


@click.command("rerun", epilog=example(
    'foldlog rerun s1 "Compare only the two cheapest."',
    "foldlog rerun s1 --result 1.1.0 - < weather.json",
))
@click.argument("session")
@click.argument("text")
@click.option("--result", "call", metavar="CALL",
              help="Edit the result of this call (TURN.STEP.INDEX) instead of a message.")
@click.option("--error", is_flag=True, help="With --result: tell the model that the call failed.")
@click.option("--reason", default="", help="With --result: the reason, for people.")
@click.option("--at", type=int, metavar="OFFSET",
              help="Edit the last message as of right after this offset (default: now).")
@as_option
@user_option
@json_option
@pass_edge
def rerun_command(
    edge: Edge, session: str, text: str, call: str | None, error: bool, reason: str,
    at: int | None, name: str | None, user: str | None, as_json: bool,
) -> None:
    """Edit the last message or a result, and run again in a fork.

    TEXT replaces the text of the last message or, with --result, what the model got from a call; -
    reads it from stdin. The fork begins right before the message, or right after the results of the
    call's step. No tool runs again. The first answer stays in the original session.
    """
    if call is None and (error or reason):
        raise click.UsageError("--error and --reason need --result. Nothing was written.")
    if text == "-":
        text = click.get_text_stream("stdin").read()
    branching = edge.client(user).branching()
    forked = branching.rerun(
        session, text, call=call, at=at, error=error, reason=reason, name=name
    )
    sent = f"the result of call {call} was replaced in it" if call else "your text was sent to it"
    _report(forked, as_json, sent)


@click.command("skip", epilog=example("foldlog skip s1", "foldlog skip s1 --offset 120"))
@click.argument("session")
@click.option("--offset", type=click.IntRange(min=0), metavar="OFFSET",
              help="The record that froze it, as doctor prints it; any other offset is refused.")
@click.option("--reason", default="", help="The reason, for people.")
@user_option
@json_option
@pass_edge
def skip_command(
    edge: Edge, session: str, offset: int | None, reason: str, user: str | None, as_json: bool
) -> None:
    """Continue a frozen session without the record that froze it.

    A session freezes at a record that cannot be decoded or folded. The record stays in the log. The
    event RECORD_SKIPPED makes every reader skip the record, in replays and forks too. The events
    that were written to the session after the record then take effect. This cannot be undone:
    prefer an upgrade if a newer version understands the record.
    """
    skipped = edge.client(user).branching().skip(session, offset, reason)
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
        note(f"events written at the same time have no effect, at offsets "
             f"{list(skipped.uncounted)}. Send them again.")
    if frozen is not None:
        note(f"it is frozen again, at offset {frozen.offset} ({frozen.why}): "
             f"`foldlog skip {session}` skips that record too")


def _report(
    forked: Forked, as_json: bool, sent: str = "the same message was sent to it"
) -> None:
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
    what = f"; {sent}" if forked.message_id or forked.turn else ""
    existed = " (it was open already)" if decision.is_repeated else ""
    line(f"session {forked.session_id} is a fork of {forked.parent} after offset "
         f"{forked.offset}{existed}{what}")
    line(f"  continue with `foldlog chat {forked.session_id}`")

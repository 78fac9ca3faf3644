"""send, open, cancel, terminate, phase, lock: write an event, and print the fold's ruling on it.

Each waits until its event is folded.
"""

import sys
from typing import TYPE_CHECKING, Any, Unpack
from uuid import uuid4

import click

from ...client.commands import DEFAULT_AGENT
from ...client.gen_sent import note_sent
from ...client.outcomes import ANSWER_S, Answer, CommandRefused, Decision, NoAnswerYet
from ...processors.fold.transitions import TRANSITIONS
from ...producers.options import WHEN_BUSY, CancelOptions, MessageOptions
from ...schemas.enums import CancelMode
from ..edge import (
    Edge,
    command_option,
    example,
    json_option,
    on_session,
    pass_edge,
    user_option,
)
from ..terminal.printing import emit, line, note
from ..terminal.progress import Clock
from ..worker_info import unserved

if TYPE_CHECKING:
    from ...client.session import Session


def decision_json(decision: Decision) -> dict[str, Any]:
    """The ruling on a command, for `--json`."""
    return {
        "session": decision.session_id,
        "verdict": decision.verdict,
        "code": decision.code,
        "detail": decision.detail,
        "offset": decision.offset,
    }


def report(decision: Decision, text: str, as_json: bool, **more: Any) -> None:
    """Print the ruling on a command: `text`, or for a duplicate the note that nothing changed."""
    if as_json:
        emit({**decision_json(decision), **more})
    elif decision.is_repeated:
        line(f"done before, nothing changed (offset {decision.offset})")
    else:
        line(f"{text} (offset {decision.offset})")


@click.command("send", epilog=example(
    'foldlog send s1 "What changed since yesterday?" --wait',
    "git diff | foldlog send s1 - --wait",
    'foldlog send s1 "What is wrong here?" --attach screen.png --wait',
))
@click.argument("session")
@click.argument("text", required=False)
@click.option("--message-id", metavar="ID", help="Your id: a repeated message counts once.")
@click.option(
    "--attach", multiple=True, type=click.Path(dir_okay=False), metavar="FILE",
    help="An image or a PDF to send with it; repeatable.",
)
@click.option("--wait", is_flag=True, help="Wait for the answer and print it.")
@command_option(WHEN_BUSY)
@click.option("--agent", metavar="NAME",
              help="The agent of a session that this message opens (default: default).")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0), default=ANSWER_S, show_default=True,
    metavar="SECONDS", help="How long --wait waits.",
)
@user_option
@json_option
@pass_edge
def send_command(
    edge: Edge,
    session: str,
    text: str | None,
    wait: bool,
    agent: str | None,
    timeout_s: float,
    user: str | None,
    as_json: bool,
    **options: Unpack[MessageOptions],
) -> int | None:
    """Send a message to a session; open it if it is new.

    TEXT is one message; `-` reads it from stdin. Without TEXT, --message-id with --wait waits for
    the answer to a message that was sent before. With --wait the answer is printed on stdout; exit
    code 1 if the turn failed, or no answer came in time (the turn then continues).
    """
    message_id = options["message_id"]
    if options["attach"] and text is None:
        text = ""
    if text is None and not (wait and message_id):
        raise click.UsageError("TEXT is missing. Give a message, or wait for the answer to an "
                               "earlier one with --message-id ID --wait.")
    if text == "-":
        text = sys.stdin.read()
    talk = edge.session(session, user, agent)
    client = talk.client
    if text is not None:
        options["message_id"] = message_id = uuid4().hex if message_id is None else message_id
        decision = talk.say(text, **options)
        if not wait:
            more = {"message_id": message_id, "partition": talk.fold.partition}
            report(decision, _place_of(decision, message_id), as_json, **more)
            why = unserved(edge.settings.state_dir, talk.fold.holders, talk.agent)
            if why:
                note(f"no worker answers now: {why}. The message is kept. It is answered when "
                     "a worker runs: start one with `foldlog worker` or `foldlog dev`.")
            return None
    assert message_id is not None
    answer = _wait_for_answer(talk, message_id, timeout_s)
    _print_answer(answer, as_json)
    sys.stdout.flush()
    note_sent(client.writer.producer, talk.fold.views, answer.turn, client.channel)
    return 1 if answer.reason == "failed" else None


def _wait_for_answer(session: "Session", message_id: str, timeout_s: float) -> Answer:
    from ...client.session import reply_from_now

    try:
        with Clock("waiting for the answer") as clock:
            reply = reply_from_now(session, message_id)
            return reply.answer(timeout_s=timeout_s, report=clock.note)
    except NoAnswerYet as late:
        reason = late.waits.text if late.waits.person or late.waits.lacks else ""
        when = "that is settled" if reason else "a worker runs"
        raise NoAnswerYet(
            f"message {message_id} of session {session.id} is not answered yet"
            f"{reason and f': {reason}'}. It is kept, and its turn continues when {when}. To wait "
            f"again: foldlog send {session.id} --message-id {message_id} --wait"
        ) from None


def _place_of(decision: Decision, message_id: str) -> str:
    turn = decision.views.turn
    waits = any(queued.message_id == message_id for queued in turn.queue)
    place = f"waits behind turn {turn.number}" if waits else f"turn {turn.number}"
    return f"message {message_id}: {place}"


def _print_answer(answer: Answer, as_json: bool) -> None:
    if as_json:
        emit({
            "session": answer.session_id,
            "turn": answer.turn,
            "reason": answer.reason,
            "text": answer.text,
            "offset": answer.offset,
            "message_id": answer.message_id,
            "note": answer.note,
        })
    elif answer.text:
        line(answer.text)
    if answer.reason not in ("end_turn", "stop_tool"):
        note(f"turn {answer.turn} ended: {answer.reason}" + (answer.note and f" ({answer.note})"))
    elif answer.note:
        note(answer.note)


@click.command("open", epilog=example("foldlog open s1 --agent shop"))
@click.argument("session")
@click.option("--agent", metavar="NAME", help="The agent that serves it (default: default).")
@on_session
def open_command(session: "Session", agent: str | None, as_json: bool) -> None:
    """Open a session.

    Opening it again for the same user and agent is harmless; for another user or agent, the command
    is refused.
    """
    decision = session.open(agent or DEFAULT_AGENT)
    text = f"session {session.id} is open: user {session.user}, agent {agent or DEFAULT_AGENT}"
    report(decision, text, as_json)
    if decision.views.turn.terminated:
        note(f"session {session.id} is terminated and takes no more messages; its log is kept. "
             "Open a new one")


@click.command("cancel", epilog=example("foldlog cancel s1", "foldlog cancel s1 --after-step"))
@click.argument("session")
@click.option("--turn", type=click.IntRange(min=1), metavar="NUMBER",
              help="The turn to cancel (default: the running one).")
@click.option("--seen-phase", metavar="PHASE",
              help="Refuse unless the session is still in this phase (default: the current one).")
@click.option("--after-step", "mode", flag_value=CancelMode.AFTER_STEP.value,
              default=CancelMode.NOW.value, help="Stop when the running step and its tools end.")
@click.option("--reason", default="", help="The reason, for people.")
@click.option("--cancel-id", metavar="ID", help="Your id: a repeated cancel counts once.")
@on_session
def cancel_command(
    session: "Session", as_json: bool, turn: int | None, seen_phase: str | None,
    **options: Unpack[CancelOptions],
) -> None:
    """Cancel the running turn of a session.

    The cancel is valid only for the current turn and phase. If the turn or the phase has changed by
    the time the cancel is in the log, the fold refuses the cancel. Queued messages are kept.
    """
    try:
        decision = session.cancel(turn=turn, seen_phase=seen_phase, **options)
    except CommandRefused as error:
        if error.decision.code == "nothing_to_cancel":
            note(f"no turn runs in session {session.id}: there is nothing to cancel")
        raise
    view = decision.views
    what = f"turn {view.turn.number} is cancelled" if view.turn.open else "no turn ran"
    if options["mode"] == CancelMode.AFTER_STEP:
        what = f"turn {view.turn.number} stops after this step"
    report(decision, f"{what}; the phase is {view.state.phase}", as_json)


@click.command("terminate", epilog=example('foldlog terminate s1 --reason "done with it"'))
@click.argument("session")
@click.option("--reason", default="", help="The reason, for people.")
@on_session
def terminate_command(session: "Session", reason: str, as_json: bool) -> None:
    """End a session permanently.

    Its turn is closed and queued messages are dropped; it takes no more messages. Its log is kept.
    """
    decision = session.terminate(reason=reason)
    report(decision, f"session {session.id} is terminated", as_json)


@click.command("phase", epilog=example("foldlog phase s1 start_build"))
@click.argument("session")
@click.argument("trigger")
@click.option("--command-id", metavar="ID", help="Your id: a repeated command counts once.")
@on_session
def phase_command(
    session: "Session", trigger: str, command_id: str | None, as_json: bool
) -> None:
    """Trigger a phase transition.

    TRIGGER is open_existing, start_build, todo_done_build, publish, revert or cancel. The phase
    determines which triggers are legal (docs/reference/session-state.md); a refusal lists them.
    """
    try:
        decision = session.trigger(trigger, command_id=command_id)
    except CommandRefused as error:
        current = error.decision.views.state.phase
        if error.decision.views.turn.known:
            note(f"legal in phase {current}: {', '.join(TRANSITIONS[current])}")
        raise
    phase = decision.views.state.phase
    report(decision, f"the phase is {phase}", as_json, phase=phase)


@click.command("lock", epilog=example("foldlog lock s1 my-project"))
@click.argument("session")
@click.argument("project")
@click.option("--command-id", metavar="ID", help="Your id: a repeated command counts once.")
@on_session
def lock_command(
    session: "Session", project: str, command_id: str | None, as_json: bool
) -> None:
    """Lock a session to a project, once in its life.

    A second lock is refused, even for the same project.
    """
    decision = session.lock(project, command_id=command_id)
    project_id = decision.views.state.project_id
    report(decision, f"the project is {project_id}", as_json, project_id=project_id)

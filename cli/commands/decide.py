"""approve, deny, resolve: write a person's answer about a call, valid only for the arguments that
are printed.

CALL is TURN.STEP.INDEX, or the provider's call_id if it is unique in the session.
"""

from typing import TYPE_CHECKING, Any, Unpack

import click

from ...client.calls import call_named
from ...client.outcomes import Decision
from ...client.printable import shown, whole
from ...client.visible import exact_json
from ...processors.fold.grants import grant_text
from ...producers.options import REMEMBER, Grant
from ...schemas.enums import Decision as Decided
from ...schemas.grant import pattern_text
from ..edge import (
    Edge,
    command_option,
    example,
    json_option,
    on_session,
    pass_edge,
    user_option,
)
from ..terminal.printing import line
from .session import report

if TYPE_CHECKING:
    from ...client.session import Session
    from ...processors.fold.projections.turn_view import Call
    from ...schemas.events.parts import ReadBlob


def exactly(call: "Call", read: "ReadBlob") -> str:
    """The call's complete arguments as text for a person, with nothing hidden."""
    return exact_json(whole(call.args, read).decode("utf-8", "backslashreplace"))


def decide_on(
    session: "Session", call_name: str, decided: Decided, as_json: bool, **grant: Unpack[Grant]
) -> tuple[Decision, "Call", Any]:
    """Print a call's arguments, then approve or deny the call with exactly these arguments."""
    call, read = call_named(session.fold.to_end(), call_name), session.client.read_blob
    if not as_json:
        line(f"{call.name} ({call.key}) with {exactly(call, read)}")
    decision = session.decide(call.key, decided, args_sha256=call.args_sha256, **grant)
    return decision, call, shown(whole(call.args, read))


def _globs(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict:
    """The given ARGUMENT=GLOB options as a mapping."""
    for each in given:
        if not each.partition("=")[0] or "=" not in each:
            raise click.BadParameter(f"{each!r} is not ARGUMENT=GLOB, as in 'command=git log *'")
    return {name: glob for name, _, glob in (each.partition("=") for each in given)}


@click.command("approve", epilog=example(
    "foldlog approve s1 1.2.0",
    "foldlog approve s1 1.2.0 --remember",
    "foldlog approve s1 1.2.0 --remember-like 'command=git log *'",
))
@click.argument("session")
@click.argument("call")
@command_option(REMEMBER)
@click.option("--remember-like", "like", multiple=True, metavar="ARGUMENT=GLOB", callback=_globs,
              help="Allow later calls whose arguments match; give it once per argument. * matches "
              "any text without characters that are special to a shell, and without `..` in a "
              "path.")
@user_option
@json_option
@pass_edge
def approve_command(
    edge: Edge, session: str, call: str, user: str | None, as_json: bool, **grant: Unpack[Grant]
) -> None:
    """Approve a tool call.

    CALL is TURN.STEP.INDEX as `foldlog show SESSION` prints it, or the provider's call_id. The
    approval covers this call with the arguments that are printed, once. --remember and
    --remember-like extend it to later calls; the output states which.
    """
    if all(grant.values()):
        raise click.UsageError("give --remember or --remember-like, not both.")
    decision, found, args = decide_on(
        edge.session(session, user), call, Decided.ALLOW, as_json, **grant
    )
    text = f"{found.name} is allowed"
    if any(grant.values()):
        like = grant.get("like")
        what = pattern_text(like) if like else found.args_sha256
        text += f", and so are {grant_text(f'{found.name} {what}')}, for the rest of the session"
    report(decision, text, as_json, call=found.key, name=found.name, args=args)


@click.command("deny", epilog=example("foldlog deny s1 1.2.0"))
@click.argument("session")
@click.argument("call")
@on_session
def deny_command(session: "Session", call: str, as_json: bool) -> None:
    """Deny a tool call.

    CALL is TURN.STEP.INDEX as `foldlog show SESSION` prints it, or the provider's call_id. The
    model gets the denial as the call's result, and the turn continues.
    """
    decision, found, args = decide_on(session, call, Decided.DENY, as_json)
    report(decision, f"{found.name} is denied", as_json, call=found.key, name=found.name, args=args)


@click.command("resolve", epilog=example(
    'foldlog resolve s1 1.2.0 --happened "the invoice 17 was sent"',
    "foldlog resolve s1 1.2.0 --did-not-happen",
))
@click.argument("session")
@click.argument("call")
@click.option("--happened", metavar="TEXT", help="The call ran; the model gets TEXT as its result.")
@click.option("--did-not-happen", is_flag=True,
              help="The call did not run; the model may repeat it.")
@user_option
@json_option
@pass_edge
def resolve_command(
    edge: Edge,
    session: str,
    call: str,
    happened: str | None,
    did_not_happen: bool,
    user: str | None,
    as_json: bool,
) -> None:
    """Record the outcome of a call in doubt.

    CALL is TURN.STEP.INDEX as `foldlog show SESSION` prints it, or the provider's call_id. This
    does not run the call again: it records an outcome, which the model sees.
    """
    if (happened is None) != did_not_happen:
        raise click.UsageError("give either --happened TEXT or --did-not-happen.")
    if happened is not None and not happened.strip():
        raise click.UsageError("the text of --happened is empty. Nothing was written. State what "
                               "happened: the model gets this text as the result.")
    decision = edge.session(session, user).resolve(
        call, happened=happened, did_not_happen=did_not_happen
    )
    outcome_text = "happened" if happened is not None else "did not happen"
    report(decision, f"call {call} {outcome_text}", as_json)

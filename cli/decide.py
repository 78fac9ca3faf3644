"""approve, deny, resolve: a person's word on a call, with the call shown that it binds to.

CALL is TURN.STEP.INDEX, or the provider's call_id where it is unique in the session.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..consumers.calls import call_named, demand_match
from ..consumers.contents import shown, whole
from ..consumers.outcomes import Decision, decision_on, demand
from ..processors.fold.grants import told
from ..schemas.enums import Decision as Decided, Resolution
from ..schemas.grant import pattern_text
from .edge import Edge, example, json_option, pass_edge, user_option
from .printing import line
from .talk import report

if TYPE_CHECKING:
    from ..consumers.client import Client
    from ..processors.fold.projections.turn_view import Call


def arguments(call: "Call", client: "Client") -> Any:
    """The arguments as they came, whole."""
    return shown(whole(call.args, client.read_blob))


def decide_on(
    client: "Client",
    session: str,
    call_name: str,
    decided: Decided,
    *,
    remember: bool,
    like: Mapping[str, str] | None = None,
    as_json: bool,
) -> tuple[Decision, "Call", Any]:
    """Decide on a call, bound to the arguments that are shown here before it is produced."""
    with client.fold(session) as folded:
        call = call_named(folded.to_end(), call_name)
        args = arguments(call, client)
        if not as_json:
            line(f"{call.name} ({call.key}) with {args}")
        if like:
            demand_match(call, like, client.read_blob)
        receipt = client.sessions.decide(
            session,
            call.key,
            decided,
            args_sha256=call.args_sha256,
            remember=remember,
            like=like,
            user=client.user,
        )
        return demand(decision_on(folded, receipt)), call, args


def _globs(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict:
    """ARGUMENT=GLOB, several times, as a mapping."""
    for each in given:
        if not each.partition("=")[0] or "=" not in each:
            raise click.BadParameter(f"{each!r}: say ARGUMENT=GLOB, as in 'command=git log *'")
    return {name: glob for name, _, glob in (each.partition("=") for each in given)}


@click.command("approve", epilog=example(
    "foldlog approve s1 1.2.0",
    "foldlog approve s1 1.2.0 --remember",
    "foldlog approve s1 1.2.0 --remember-like 'command=git log *'",
))
@click.argument("session")
@click.argument("call")
@click.option("--remember", is_flag=True,
              help="Allow later calls with the very same arguments, for the rest of the session.")
@click.option("--remember-like", "like", multiple=True, metavar="ARGUMENT=GLOB", callback=_globs,
              help="Allow later calls whose arguments are so; once for each argument. * stands for "
              "any text without characters that mean something to a shell, and without `..` in a "
              "path.")
@user_option
@json_option
@pass_edge
def approve_command(
    edge: Edge,
    session: str,
    call: str,
    remember: bool,
    like: dict[str, str],
    user: str | None,
    as_json: bool,
) -> None:
    """Allow a call that asks.

    CALL is TURN.STEP.INDEX as `foldlog show SESSION` has it, or the provider's call_id. The
    approval holds for the arguments that are printed and for nothing else, once, unless
    --remember or --remember-like says more: what that is, is printed.
    """
    if remember and like:
        raise click.UsageError("say one of --remember and --remember-like.")
    decision, found, args = decide_on(
        edge.client(user),
        session,
        call,
        Decided.ALLOW,
        remember=remember,
        like=like,
        as_json=as_json,
    )
    said = f"{found.name} is allowed"
    if remember or like:
        what = pattern_text(like) if like else found.args_sha256
        said += f", and so are {told(f'{found.name} {what}')}, for the rest of the session"
    report(decision, said, as_json, call=found.key, name=found.name, args=args)


@click.command("deny", epilog=example("foldlog deny s1 1.2.0"))
@click.argument("session")
@click.argument("call")
@user_option
@json_option
@pass_edge
def deny_command(edge: Edge, session: str, call: str, user: str | None, as_json: bool) -> None:
    """Deny a call that asks.

    CALL is TURN.STEP.INDEX as `foldlog show SESSION` has it, or the provider's call_id. The model
    is told that the call was denied, and goes on.
    """
    decision, found, args = decide_on(
        edge.client(user), session, call, Decided.DENY, remember=False, as_json=as_json
    )
    report(decision, f"{found.name} is denied", as_json, call=found.key, name=found.name, args=args)


@click.command("resolve", epilog=example(
    'foldlog resolve s1 1.2.0 --happened "the invoice 17 was sent"',
    "foldlog resolve s1 1.2.0 --did-not-happen",
))
@click.argument("session")
@click.argument("call")
@click.option("--happened", metavar="TEXT", help="It happened; TEXT is what the model is told.")
@click.option("--did-not-happen", is_flag=True, help="It did not; the model may call again.")
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
    """Say what happened to a call in doubt.

    CALL is TURN.STEP.INDEX as `foldlog show SESSION` has it, or the provider's call_id. Nothing is
    run again by this: it is an outcome that the model sees.
    """
    if (happened is None) != did_not_happen:
        raise click.UsageError("say one of --happened TEXT and --did-not-happen.")
    if happened is not None and not happened.strip():
        raise click.UsageError("the text of --happened is what the model is told: say what "
                               "happened. Nothing was written.")
    outcome = Resolution.HAPPENED if happened is not None else Resolution.DID_NOT_HAPPEN
    decision = edge.client(user).resolve(session, call, outcome, report=happened or "")
    word = "happened" if happened is not None else "did not happen"
    report(decision, f"call {call} {word}", as_json)

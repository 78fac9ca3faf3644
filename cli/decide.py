"""approve, deny, resolve: a person's word on a call, with the call shown that it binds to.

CALL is TURN.STEP.INDEX, or the provider's call_id where it is unique in the session.
"""

from typing import TYPE_CHECKING, Any

import click

from ..consumers.calls import call_named
from ..consumers.contents import shown, whole
from ..consumers.outcomes import Decision, decision_on, demand
from ..schemas.words import Decision as Decided
from ..schemas.words import Resolution
from .edge import Edge, example, json_option, pass_edge, user_option
from .printing import line
from .talk import report

if TYPE_CHECKING:
    from ..consumers.client import Client
    from ..processors.projections.turn_view import Call


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
    as_json: bool,
) -> tuple[Decision, "Call", Any]:
    """Decide on a call, bound to the arguments that are shown here before it is produced."""
    with client.fold(session) as folded:
        call = call_named(folded.to_end(), call_name)
        args = arguments(call, client)
        if not as_json:
            line(f"{call.name} ({call.key}) with {args}")
        receipt = client.sessions.decide(
            session,
            call.key,
            decided,
            args_sha256=call.args_sha256,
            remember=remember,
            user=client.user,
        )
        return demand(decision_on(folded, receipt)), call, args


@click.command("approve", epilog=example(
    "foldlog approve s1 1.2.0", "foldlog approve s1 1.2.0 --remember"
))
@click.argument("session")
@click.argument("call")
@click.option("--remember", is_flag=True, help="Allow this tool for the rest of the session.")
@user_option
@json_option
@pass_edge
def approve_command(
    edge: Edge, session: str, call: str, remember: bool, user: str | None, as_json: bool
) -> None:
    """Allow a call that asks.

    CALL is TURN.STEP.INDEX as `foldlog show SESSION` has it, or the provider's call_id. The
    approval holds for the arguments that are printed and for nothing else, once.
    """
    decision, found, args = decide_on(
        edge.client(user), session, call, Decided.ALLOW, remember=remember, as_json=as_json
    )
    told = f"{found.name} is allowed" + (" for the rest of the session" if remember else "")
    report(decision, told, as_json, call=found.key, name=found.name, args=args)


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
    outcome = Resolution.HAPPENED if happened is not None else Resolution.DID_NOT_HAPPEN
    decision = edge.client(user).resolve(session, call, outcome, report=happened or "")
    word = "happened" if happened is not None else "did not happen"
    report(decision, f"call {call} {word}", as_json)

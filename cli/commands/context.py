"""`foldlog context`: the context the model would get, what compaction left out, and why."""

from typing import TYPE_CHECKING, Any

import click

from ...client.context_view import changes, context_json
from ...client.printable import plain
from ...client.show import known
from ..edge import Edge, at_option, example, json_option, pass_edge
from ..terminal.printing import brief, emit, line, note, table

if TYPE_CHECKING:
    from ...client.session_fold import SessionFold
    from ...processors.fold.views import SessionViews

STRATEGY = "full, sliding_window_N or compacted (default: the one its requests use)."


@click.group("context")
def context_command() -> None:
    """Show the model's context, and what was left out."""


@context_command.command("show", epilog=example(
    "foldlog context show s1", "foldlog context show s1 --strategy sliding_window_20 --at 120"
))
@click.argument("session")
@click.option("--strategy", metavar="NAME", help=STRATEGY)
@at_option
@json_option
@pass_edge
def show_command(
    edge: Edge, session: str, strategy: str | None, at: int | None, as_json: bool
) -> None:
    """Show the context the model would get, now or at an offset.

    Prints the system prompt, the messages and the stand-ins for omitted parts as the next request
    would send them, and counts the tools. Nothing is sent. Tokens are estimates.
    """
    client = edge.client()
    with client.fold(session) as folded:
        views = known(folded, at)
        note_if_not_written(folded, at)
        print_context(views, strategy, client.read_blob, as_json=as_json)


def note_if_not_written(folded: "SessionFold", at: int | None) -> None:
    """Note on stderr that the requested offset does not exist yet and an earlier offset is shown.
    """
    if at is not None and at >= folded.cursor:
        note(f"offset {at} is not written yet: this is as of {folded.cursor - 1}, the last one")


def print_context(
    views: "SessionViews", strategy: str | None, read: Any, *, as_json: bool
) -> None:
    """Print a context. Raises click.UsageError for an unknown strategy."""
    try:
        context = context_json(views, strategy, read)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if views.context.request is None:
        how = "" if strategy else f"; shown with {context['strategy']}, the default"
        note(f"session {views.session_id} has made no request yet: its agent's prompt, tools and "
             f"strategy are not in the log{how}")
    if as_json:
        emit(context)
        return
    line(f"strategy {context['strategy']}: about {context['tokens']} tokens, "
         f"{len(context['tools'])} tools, {len(context['messages'])} messages")
    if context["large_results"]:
        line(f"short forms: {context['shown_short']} of {context['large_results']} large results")
    for block in context["system"]:
        line(f"system  {brief(str(block.get('text', '')))}")
    for number, message in enumerate(context["messages"]):
        line(f"{number:3} {message['role']:9} about {message['tokens']} tokens")
        for block in message["content"]:
            line(f"      {block.get('type', '?'):12} {brief(_text_of(block), 120)}")


def _text_of(block: dict[str, Any]) -> str:
    for name in ("text", "thinking", "content"):
        if isinstance(block.get(name), str):
            return block[name]
    return f"{block.get('name', '')} {block.get('input', '')}".strip()


@context_command.command("diff", epilog=example(
    "foldlog context diff s1", "foldlog context diff s1 --all --json"
))
@click.argument("session")
@click.option("--all", "every", is_flag=True, help="Print every change, not just the newest.")
@at_option
@json_option
@pass_edge
def diff_command(edge: Edge, session: str, every: bool, at: int | None, as_json: bool) -> None:
    """Show what the requests no longer contain, what replaced it, and why.

    Prints each change of the model's context: an adopted summary, short forms of results, a window
    that moved, content that the provider refused, or a message that no request has room for;
    without --all only the newest. Nothing is lost: `foldlog show SESSION --view transcript` and
    `foldlog tail SESSION` still print all of it.
    """
    client = edge.client()
    with client.fold(session) as folded:
        end = folded.end() if at is None else min(at + 1, folded.end())
        found = list(changes(folded, end, client.read_blob))
        known(folded, at)
        note_if_not_written(folded, at)
    if as_json:
        for change in found if every else found[-1:]:
            emit(plain(change))
        return
    if not found:
        note(f"nothing was left out of the requests of {session} so far")
    for change in found if every else found[-1:]:
        line(f"offset {change.offset}, step {change.step}: {change.kind}, because {change.why}")
        line(f"tokens, estimated: {change.before} before, {change.after} after")
        if change.instead:
            line(f"instead: {brief(change.instead, 400)}")
        rows = [
            {"what": p.what, "name": p.name, "tokens": p.tokens, "offset": p.offset,
             "words": brief(p.words, 90)}
            for p in change.left_out
        ]
        table(rows, ["what", "name", "tokens", "offset", "words"])

"""`foldlog`: the list of commands, loaded on first use, and what becomes of errors.

Exit codes: 0 done, 1 refused or not possible now (the reason on stderr), 2 usage, 3 the log can't
be reached, 130 interrupted. This file must not import a command before it is asked for: `--help`
answers at once.
"""

import contextlib
import difflib
import logging
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..log import environment
from ..log.errors import (
    FoldlogError,
    LogFatal,
    LogUnreachable,
    Refused,
    SettingsError,
    TopicMismatch,
)

if TYPE_CHECKING:
    from .edge import Edge

DONE, REFUSED, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130


class Named(NamedTuple):
    """Where a command lives, under which heading it is listed, and its one line of help."""

    name: str
    module: str
    heading: str
    help: str


TALK, DECIDE, LOOK, RUN = "Talk", "Decide", "Look", "Run"
COMMANDS = (
    Named("chat", "chat", TALK, "Talk to a session: answers stream, tools ask."),
    Named("send", "talk", TALK, "Say something to a session; opens it if it is new."),
    Named("open", "talk", TALK, "Open a session."),
    Named("cancel", "talk", TALK, "Stop what runs in a session."),
    Named("terminate", "talk", TALK, "End a session for good."),
    Named("fork", "fork", TALK, "Open a session that begins as another was."),
    Named("regenerate", "fork", TALK, "Ask for another answer, in a fork."),
    Named("phase", "talk", DECIDE, "Trigger a phase transition."),
    Named("lock", "talk", DECIDE, "Lock a session to a project, once in its life."),
    Named("approve", "decide", DECIDE, "Allow a call that asks."),
    Named("deny", "decide", DECIDE, "Deny a call that asks."),
    Named("resolve", "decide", DECIDE, "Say what happened to a call in doubt."),
    Named("skip", "fork", DECIDE, "Continue a frozen session without the record that froze it."),
    Named("sessions", "look", LOOK, "List the sessions."),
    Named("show", "look", LOOK, "Show the views of a session."),
    Named("tail", "look", LOOK, "Print the events of a session, or of all."),
    Named("search", "search", LOOK, "Find what was said, in all sessions."),
    Named("memory", "memory", LOOK, "Show or edit what is remembered of a user or a project."),
    Named("context", "context", LOOK, "Show what the model is shown, and what was left out."),
    Named("request", "look", LOOK, "Print a past model request and check its hash."),
    Named("wake", "look", LOOK, "Show what a session owes now, and why; with --run, do it."),
    Named("replay", "replay", LOOK, "Fold the log anew, compare with the store."),
    Named("sql", "sql", LOOK, "Ask the log in SQL."),
    Named("export", "export", LOOK, "Write sessions to files for other tools."),
    Named("traces", "traces", LOOK, "Export a session's traces, made from the log."),
    Named("doctor", "doctor", LOOK, "Check everything and say what to do."),
    Named("dev", "run", RUN, "Start all of it: Kafka, topics, a supervised worker, the gateway."),
    Named("gateway", "gateway", RUN, "Serve sessions over HTTP: inspector, streams, protocols."),
    Named("token", "gateway", RUN, "Print a token for the gateway."),
    Named("demo", "run", RUN, "Watch an agent survive being killed, on a real broker."),
    Named("up", "machine", RUN, "Start the local Kafka."),
    Named("down", "machine", RUN, "Stop the local Kafka; its data is kept."),
    Named("status", "machine", RUN, "Say what runs: Kafka, topics, worker."),
    Named("topics", "machine", RUN, "Make the topics, or say what differs."),
    Named("move", "move", RUN, "Move all sessions to a new log."),
    Named("worker", "run", RUN, "Run a worker."),
    Named("users", "run", RUN, "Serve the open sessions of each user over HTTP."),
)
BY_NAME = {command.name: command for command in COMMANDS}


class Commands(click.Group):
    """Commands by name, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [command.name for command in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        named = BY_NAME.get(cmd_name)
        if named is None:
            return None
        module = import_module(f"..{named.module}", f"{__package__}.x")
        found: click.Command = getattr(module, f"{cmd_name}_command")
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        close = difflib.get_close_matches(args[0], BY_NAME, 1) if args else []
        if args and args[0] not in BY_NAME and not args[0].startswith("-"):
            hint = f", did you mean {close[0]}?" if close else ""
            ctx.fail(f"no such command: {args[0]}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading in (TALK, DECIDE, LOOK, RUN):
            with formatter.section(heading):
                rows = [(c.name, c.help) for c in COMMANDS if c.heading == heading]
                formatter.write_dl(rows)


def _version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"foldlog {version('foldlog')}")
        context.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Begin with `foldlog dev` in one terminal and `foldlog chat` in another.",
)
@click.option("--bootstrap-servers", metavar="HOSTS", help="The Kafka brokers, host:port,...")
@click.option("--topic-prefix", metavar="TEXT", help="Separates installations on one cluster.")
@click.option("--home", metavar="DIR", help="Where local data lives: broker, stores, blobs.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    metavar="FILE",
    help="Settings to read instead of ./foldlog.toml.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version,
              help="Print the version and exit.")
@click.pass_obj
def foldlog(edge: "Edge", /, config: Path | None, **flags: str | None) -> None:
    """Agent sessions as a Kafka log: talk to them, look into them, run them."""
    edge.configure(flags, config)


def exit_code(error: Exception) -> int:
    """What the shell is told of an error."""
    if isinstance(error, SettingsError) or getattr(error, "usage", False):
        return USAGE
    if isinstance(error, LogUnreachable | TopicMismatch | LogFatal):
        return UNREACHABLE
    if isinstance(error.__cause__, KeyboardInterrupt):
        return INTERRUPTED
    return REFUSED


def main(args: Sequence[str] | None = None, edge: "Edge | None" = None) -> int:
    """Run a command; the exit code. `edge`: settings and a log at hand, as tests give them."""
    from .edge import Edge
    from .log_lines import to_stderr

    if edge is None:
        environment.begin()
    edge = edge or Edge()
    words = sys.argv[1:] if args is None else args
    as_json = "--json" in takewhile(lambda word: word != "--", words)
    # A client that tries again says so at a lower level; its errors reach the user as errors.
    to_stderr(logging.ERROR, "foldlog: %(message)s")
    try:
        result = foldlog.main(args, "foldlog", standalone_mode=False, obj=edge)
        return result if isinstance(result, int) else DONE
    except click.ClickException as error:
        error.show()
        if as_json:
            _emit_refusal("refused", "usage", error.format_message())
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except UnicodeEncodeError as error:  # bytes of the command line that are no text
        wrong = SettingsError(f"{error.object!r} is not valid UTF-8 text. Nothing was sent.")
        _tell(wrong, as_json)
        return USAGE
    except (FoldlogError, OSError) as error:
        _tell(error, as_json)
        return exit_code(error)
    finally:
        with contextlib.suppress(KeyboardInterrupt):  # what was asked for is done, or was told
            edge.close()


def _tell(error: Exception, as_json: bool) -> None:
    """The reason on stderr; with --json as one object on stdout as well."""
    from .printing import note

    verdict = "refused" if isinstance(error, Refused) else "failed"
    decision = getattr(error, "decision", None)
    if as_json and decision is not None:
        from .printing import emit
        from .talk import decision_json

        emit(decision_json(decision))
    elif as_json:
        _emit_refusal(verdict, code_of(error), str(error))
    note(f"{'refused' if verdict == 'refused' else 'foldlog'}: {error}")


def code_of(error: Exception) -> str:
    """The code of an error for machines: its own, or the name of its class as unknown_session."""
    code = getattr(error, "code", "")
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
    return code if isinstance(code, str) and code else name


def _emit_refusal(verdict: str, code: str, detail: str) -> None:
    from .printing import emit

    emit({"verdict": verdict, "code": code, "detail": detail})


if __name__ == "__main__":
    sys.exit(main())

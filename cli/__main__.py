"""The command `foldlog`: lists its commands, and turns errors into exit codes and messages.

Exit codes: 0 success; 1 refused or not possible now, with the reason on stderr; 2 usage error; 3
the log is unreachable; 4 the disk is full; 130 interrupted. A command's module is imported on first
use, so `--help` answers at once.
"""

import atexit
import contextlib
import difflib
import gc
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
from ..log.channels import is_text
from ..log.errors import (
    FoldlogError,
    LogFatal,
    LogUnreachable,
    Refused,
    SettingsError,
    TopicMismatch,
    is_out_of_space,
)

if TYPE_CHECKING:
    from .edge import Edge

DONE, REFUSED, USAGE, UNREACHABLE, DISK_FULL, INTERRUPTED = 0, 1, 2, 3, 4, 130


class Entry(NamedTuple):
    """One row of the list: the command's module, its heading, and its one line of help.

    is_service: whether SIGTERM and Ctrl-C end it with code 0, from its first import on.
    """

    name: str
    module: str
    heading: str
    help: str
    is_service: bool = False


TALK, DECIDE, INSPECT, RUN = "Talk", "Decide", "Inspect", "Run"
COMMANDS = (
    Entry("chat", "chat", TALK, "Talk to a session: answers stream, tools ask for approval."),
    Entry("send", "session", TALK, "Send a message to a session; open it if it is new."),
    Entry("open", "session", TALK, "Open a session."),
    Entry("cancel", "session", TALK, "Cancel the running turn of a session."),
    Entry("terminate", "session", TALK, "End a session permanently."),
    Entry("fork", "fork", TALK, "Open a session that starts from the history of another."),
    Entry("regenerate", "fork", TALK, "Generate another answer, in a fork."),
    Entry("rerun", "fork", TALK, "Edit the last message or a result, and run again in a fork."),
    Entry("phase", "session", DECIDE, "Trigger a phase transition."),
    Entry("lock", "session", DECIDE, "Lock a session to a project, once in its life."),
    Entry("approve", "decide", DECIDE, "Approve a tool call."),
    Entry("deny", "decide", DECIDE, "Deny a tool call."),
    Entry("resolve", "decide", DECIDE, "Record the outcome of a call in doubt."),
    Entry("skip", "fork", DECIDE, "Continue a frozen session without the record that froze it."),
    Entry("sessions", "inspect", INSPECT, "List the sessions."),
    Entry("show", "inspect", INSPECT, "Show the views of a session."),
    Entry("tail", "inspect", INSPECT, "Print the events of a session, or of all."),
    Entry("search", "search", INSPECT, "Search the transcripts of all sessions."),
    Entry("memory", "memory", INSPECT, "Show or edit the memory of a user or a project."),
    Entry("context", "context", INSPECT, "Show the model's context, and what was left out."),
    Entry("request", "inspect", INSPECT, "Print a past model request and check its hash."),
    Entry("wake", "inspect", INSPECT,
          "Show a session's pending work, and why; with --run, do it."),
    Entry("replay", "replay", INSPECT, "Refold the log and compare it with the store."),
    Entry("sql", "sql", INSPECT, "Query the log in SQL."),
    Entry("export", "export", INSPECT, "Write sessions to files for other tools."),
    Entry("traces", "traces", INSPECT, "Export a session's traces, built from the log."),
    Entry("looks", "looks", INSPECT,
          "Print what operators read of the sessions of other users, oldest first."),
    Entry("doctor", "doctor", INSPECT, "Check the installation and suggest fixes."),
    Entry("init", "init", RUN, "Write a small project: an agent, its tests, a README."),
    Entry("dev", "run", RUN, "Start everything: Kafka, topics, a supervised worker, the gateway.",
          is_service=True),
    Entry("gateway", "gateway", RUN, "Serve sessions over HTTP: inspector, streams, protocols.",
          is_service=True),
    Entry("token", "gateway", RUN, "Print a token for the gateway."),
    Entry("demo", "run", RUN, "Watch an agent survive being killed, on a real broker."),
    Entry("up", "kafka", RUN, "Start the local Kafka."),
    Entry("down", "kafka", RUN, "Stop the local Kafka; its data is kept."),
    Entry("status", "kafka", RUN, "Show what runs: Kafka, topics, worker."),
    Entry("topics", "kafka", RUN, "Create the topics, or report how they differ."),
    Entry("snapshots", "snapshots", RUN, "List, make and delete snapshots of the stores."),
    Entry("blobs", "blobs", RUN, "Verify, clean and copy the blob store."),
    Entry("retain", "retain", RUN, "Archive old sessions, and delete their records from the log."),
    Entry("move", "move", RUN, "Move all sessions to a new log."),
    Entry("worker", "run", RUN, "Run a worker.", is_service=True),
    Entry("fleet", "fleet", RUN, "Answer questions about all sessions over HTTP.", is_service=True),
)
BY_NAME = {command.name: command for command in COMMANDS}


class Commands(click.Group):
    """The commands by name. Each command's module is imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [command.name for command in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = BY_NAME.get(cmd_name)
        if entry is None:
            return None
        module = import_module(f".commands.{entry.module}", __package__)
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        close = difflib.get_close_matches(args[0], BY_NAME, 1) if args else []
        if args and args[0] not in BY_NAME and not args[0].startswith("-"):
            hint = f", did you mean {close[0]}?" if close else ""
            ctx.fail(f"no such command: {args[0]}{hint}")
        if args and args[0] in BY_NAME and BY_NAME[args[0]].is_service:
            from .terminal.signals import ending_with_0

            ctx.with_resource(ending_with_0())
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading in (TALK, DECIDE, INSPECT, RUN):
            with formatter.section(heading):
                rows = [(c.name, c.help) for c in COMMANDS if c.heading == heading]
                formatter.write_dl(rows)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `foldlog dev` in one terminal and `foldlog chat` in another.",
)
@click.option("--bootstrap-servers", metavar="HOSTS", help="The Kafka brokers, host:port,...")
@click.option("--topic-prefix", metavar="TEXT", help="Separates installations on one cluster.")
@click.option("--home", metavar="DIR", help="The directory of local data: broker, stores, blobs.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    metavar="FILE",
    help="The settings file to read instead of ./foldlog.toml.",
)
@click.version_option(package_name="foldlog", message="%(prog)s %(version)s",
                      help="Print the version and exit.")
@click.pass_obj
def foldlog(edge: "Edge", /, config: Path | None, **flags: str | None) -> None:
    """Agent sessions in a Kafka log: talk to them, inspect them, run them."""
    edge.configure(flags, config)


def exit_code(error: Exception) -> int:
    """The exit code for an error."""
    if isinstance(error, SettingsError) or getattr(error, "usage", False):
        return USAGE
    if isinstance(error, LogUnreachable | TopicMismatch | LogFatal):
        return UNREACHABLE
    if isinstance(error.__cause__, KeyboardInterrupt):
        return INTERRUPTED
    if is_out_of_space(error):
        return DISK_FULL
    return REFUSED


def _end_quickly() -> None:
    """Skip the garbage collection of all loaded modules when the interpreter ends: it takes a
    worker 0.4 s. DuckDB needs it, because its bindings print every object that was not freed.
    """
    if "_duckdb" not in sys.modules:
        gc.freeze()


def main(args: Sequence[str] | None = None, edge: "Edge | None" = None) -> int:
    """Run a command and return its exit code. `edge`: the settings and the log of a test."""
    from .edge import Edge
    from .terminal.log_lines import to_stderr

    if edge is None:
        atexit.register(_end_quickly)
        edge = Edge()
        edge.is_child = environment.begin()
    words = sys.argv[1:] if args is None else args
    as_json = "--json" in takewhile(lambda word: word != "--", words)
    # The Kafka client logs its retries at a lower level; its errors reach the user as errors.
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
    except UnicodeError as error:
        _print_error(SettingsError(_not_text(error, words)), as_json)
        return USAGE
    except (FoldlogError, OSError) as error:
        _print_error(error, as_json)
        return exit_code(error)
    finally:
        with contextlib.suppress(KeyboardInterrupt):  # the result or the error is printed already
            edge.close()


def _not_text(error: UnicodeError, words: Sequence[str]) -> str:
    """The message for a text that cannot be encoded or decoded. The text is not shown, because it
    may be a secret."""
    for number, word in enumerate(words, 1):
        if not is_text(word):
            return f"argument {number} is not valid UTF-8 text. Nothing was sent."
    codec = str(getattr(error, "encoding", "utf-8")).lower()
    if isinstance(error, UnicodeEncodeError) and codec not in ("utf-8", "utf8"):
        return f"a text has characters that {codec} lacks. Set PYTHONUTF8=1 or a UTF-8 locale."
    return "a text that this command read is not valid UTF-8. Correct it, then try again."


def _print_error(error: Exception, as_json: bool) -> None:
    """Print an error's reason on stderr, and with --json also as one object on stdout."""
    from .terminal.printing import emit, note

    verdict = "refused" if isinstance(error, Refused) else "failed"
    decision = getattr(error, "decision", None)
    if as_json and decision is not None:
        from .commands.session import decision_json

        emit(decision_json(decision))
    elif as_json:
        _emit_refusal(verdict, code_of(error), str(error))
    note(f"{'refused' if verdict == 'refused' else 'foldlog'}: {error}")


def code_of(error: Exception) -> str:
    """The machine-readable code of an error: its `code` if it has one, else its class name in lower
    case with underscores, such as `unknown_session`.
    """
    code = getattr(error, "code", "")
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
    return code if isinstance(code, str) and code else name


def _emit_refusal(verdict: str, code: str, detail: str) -> None:
    from .terminal.printing import emit

    emit({"verdict": verdict, "code": code, "detail": detail})


if __name__ == "__main__":
    sys.exit(main())

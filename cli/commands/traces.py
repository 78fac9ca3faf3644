"""traces: exports a session's work as OpenTelemetry spans, which are built from the log."""

import os
import re
from urllib.parse import unquote, urlsplit

import click

from ..edge import Edge, example, json_option, pass_edge
from ..terminal.printing import emit, line, table

HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


@click.command("traces", epilog=example(
    "foldlog traces s1", "foldlog traces s1 --otlp http://localhost:4318",
    "foldlog traces s1 --json > spans.json",
))
@click.argument("session")
@click.option("--otlp", metavar="URL", help="Send them to this OTLP/HTTP receiver.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE",
              help=f"With --otlp: a header to send; repeatable (also: {HEADERS}).")
@json_option
@pass_edge
def traces_command(
    edge: Edge, session: str, otlp: str | None, headers: tuple[str, ...], as_json: bool
) -> None:
    """Export a session's traces, built from the log.

    There is one trace per turn, with spans for the turn, its model calls, its tools and each
    attempt; spans have no content. Only what has ended is exported. Ids are derived from offsets in
    the log, so sending the traces again, from any machine, changes nothing at the receiver.
    """
    from ...reports.traces.otlp import request_json, send
    from ...reports.traces.traces import traces

    if otlp is not None and not _is_address(otlp):
        raise click.UsageError("--otlp: nothing was sent: give http(s)://HOST[:PORT][/PATH].")
    spans = list(traces(edge.client(), session))
    if otlp is not None:
        sent = send(spans, otlp, _headers(headers))
        if as_json:
            emit({"session_id": session, "receiver": otlp, "spans": sent})
        else:
            line(f"{sent} spans of session {session} sent to {otlp}")
    elif as_json:
        emit(request_json(spans))
    else:
        table(
            [
                {
                    "trace": span.trace_id[:8],
                    "span": span.name,
                    "ms": span.end_ms - span.start_ms,
                    "error": span.error,
                }
                for span in spans
            ],
            ("trace", "span", "ms", "error"),
        )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    """The headers from the environment, overridden by the options. Raises click.UsageError."""
    from_env = [unquote(part) for part in os.environ.get(HEADERS, "").split(",") if part.strip()]
    headers = {}
    for text in (*from_env, *given):
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            # The message must not quote the text, which may be a secret.
            raise click.UsageError("--header: nothing was sent: give NAME=VALUE.")
        if not re.fullmatch(r"[ -~]+", text.strip()):
            raise click.UsageError(
                f"--header, or {HEADERS}: nothing was sent: give printable ASCII characters."
            )
        headers[name.strip().lower()] = value.strip()
    return headers

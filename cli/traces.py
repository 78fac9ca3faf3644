"""`foldlog traces`: what a session did as OpenTelemetry spans, made from the log afterwards."""

import os
from urllib.parse import unquote, urlsplit

import click

from .edge import Edge, example, json_option, pass_edge
from .printing import emit, line, table

HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


@click.command("traces", epilog=example(
    "foldlog traces s1", "foldlog traces s1 --otlp http://localhost:4318",
    "foldlog traces s1 --json > spans.json",
))
@click.argument("session")
@click.option("--otlp", metavar="URL", help="Send them to this OTLP/HTTP receiver.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE",
              help=f"With --otlp: a header to send; may be given several times (also: {HEADERS}).")
@json_option
@pass_edge
def traces_command(
    edge: Edge, session: str, otlp: str | None, headers: tuple[str, ...], as_json: bool
) -> None:
    """Export a session's traces, made from the log.

    A trace per turn: the turn, its model calls, its tools, each attempt by itself; without content.
    Only what has ended is exported. Ids follow from places in the log, so that sending again, from
    anywhere, changes nothing at the receiver.
    """
    from ..consumers.telemetry.otlp import request_json, send
    from ..consumers.telemetry.traces import traces

    if otlp is not None and not _is_address(otlp):
        raise click.UsageError("--otlp: say http(s)://HOST[:PORT][/PATH]; nothing was sent.")
    spans = list(traces(edge.client(), session))
    if otlp is not None:
        sent = send(spans, otlp, _headers(headers))
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
    """Those of the environment, then those of the command line. Raises click.UsageError."""
    known = [unquote(part) for part in os.environ.get(HEADERS, "").split(",") if part.strip()]
    found = {}
    for text in (*known, *given):
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.UsageError("--header: say NAME=VALUE")  # not the text: it may be a secret
        found[name.strip().lower()] = value.strip()
    return found

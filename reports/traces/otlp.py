"""Encodes spans as OTLP: as JSON for people and files, and as protobuf to send, if it is installed.

Spans are sent as plain OTLP over HTTP, which collectors, Langfuse and Phoenix accept.
"""

import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from itertools import islice
from typing import Any

from ...log.errors import Retry
from .spans import Span

BATCH = 500
"""The most spans in one request, which then has at most half a megabyte."""

SEND_S = 30.0
PATH = "/v1/traces"


class NotSent(Retry):
    """The receiver did not accept the spans. Sending them again is harmless."""


def request_json(spans: Iterable[Span]) -> dict[str, Any]:
    """An export request in OTLP's JSON encoding."""
    scope = {"name": "foldlog", "version": version("foldlog")}
    resource = {"service.name": "foldlog", "service.version": scope["version"]}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": scope, "spans": [_span(span) for span in spans]}],
            }
        ]
    }


def _span(span: Span) -> dict[str, Any]:
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        **({"parentSpanId": span.parent_id} if span.parent_id else {}),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_ms * 1_000_000),
        "endTimeUnixNano": str(span.end_ms * 1_000_000),
        "attributes": _attributes(span.attributes),
        "links": [{"traceId": link.trace_id, "spanId": link.span_id} for link in span.links],
        "status": {"code": 2, "message": span.error} if span.error else {"code": 0},
    }


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list() | tuple():
            return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}


def send(spans: Iterable[Span], url: str, headers: Mapping[str, str] | None = None) -> int:
    """Send spans to a receiver, `URL/v1/traces`, and return the number sent. Raises NotSent."""
    remaining, sent = iter(spans), 0
    place = url if url.endswith(PATH) else url.rstrip("/") + PATH
    while batch := list(islice(remaining, BATCH)):
        body, kind = encoded(request_json(batch))
        request = urllib.request.Request(place, body, {"content-type": kind, **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=SEND_S) as response:
                response.read()
        except urllib.error.HTTPError as error:
            raise NotSent(
                f"{place} answered {error.code} {error.reason} after {sent} spans. Check the "
                "address and the credentials (--header), then send again: ids stay the same."
            ) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            raise NotSent(
                f"{place} cannot be reached ({why}); {sent} spans were sent before that. Start the "
                "receiver or name another one, then send again: ids stay the same."
            ) from None
        sent += len(batch)
    return sent


def encoded(request: dict[str, Any]) -> tuple[bytes, str]:
    """A request as bytes, and its content type. Protobuf needs the extra `otel`."""
    try:
        from google.protobuf.json_format import ParseDict
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
    except ImportError:
        return json.dumps(request).encode(), "application/json"
    message = ParseDict(_ids(request), trace_service_pb2.ExportTraceServiceRequest())
    return message.SerializeToString(), "application/x-protobuf"


def _ids(value: Any) -> Any:
    """Convert ids from hex, which OTLP's JSON uses, to base64, which protobuf's own JSON uses."""
    if isinstance(value, list):
        return [_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64encode(bytes.fromhex(field)).decode()
        if name in ("traceId", "spanId", "parentSpanId")
        else _ids(field)
        for name, field in value.items()
    }

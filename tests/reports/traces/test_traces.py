"""Traces from the log: the spans are the same each time, one per attempt, below their turns."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from foldlog.log import partition_for
from foldlog.processors.fold.sessions import FoldedEvent
from foldlog.producers import Sessions
from foldlog.producers.tracing import TRACEPARENT
from foldlog.reports.traces import otlp
from foldlog.reports.traces.spans import CLIENT, INTERNAL, Link, Span, spans_of
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.cli.harness import Shell, make_shell
from foldlog.tests.golden.record import PLAYS
from foldlog.tests.kit.history import History
from foldlog.tests.kit.played import PARTITIONS, memory_log, settings_in
from foldlog.tests.kit.waiting import joined
from foldlog.tests.web.gateway.served import served

PARENT = "00-" + "a1" * 16 + "-" + "b2" * 8 + "-01"


def seen_of(s: History) -> list[FoldedEvent]:
    return [FoldedEvent(x.entry, x.ruling, x.before, x.views) for x in s.steps]


def spans(name: str) -> list[Span]:
    return list(spans_of(seen_of(PLAYS[name]()), "log"))


@pytest.mark.parametrize("name", PLAYS)
def test_spans_are_the_same_each_time_and_grow_with_the_log(name):
    events = seen_of(PLAYS[name]())
    whole = list(spans_of(events, "log"))
    assert whole == list(spans_of(events, "log"))
    for cut in range(0, len(events), 7):
        part = list(spans_of(events[:cut], "log"))
        assert whole[: len(part)] == part
    assert len({span.span_id for span in whole}) == len(whole)
    other = {span.span_id for span in spans_of(events, "another log")}
    assert not other & {span.span_id for span in whole}


@pytest.mark.parametrize("name", PLAYS)
def test_every_parent_and_link_is_an_exported_span(name):
    found = spans(name)
    known = {(span.trace_id, span.span_id) for span in found}
    turns = [span for span in found if span.name.startswith("invoke_agent")]
    open_turn = PLAYS[name]().views.turn.open
    for span in found:
        assert span.start_ms <= span.end_ms and len(span.trace_id) == 32 == 2 * len(span.span_id)
        if span.parent_id and not open_turn:
            assert (span.trace_id, span.parent_id) in known
        assert {tuple(link) for link in span.links} <= known or open_turn
    ended = [x for x in PLAYS[name]().views.transcript.lines if x.kind == "ended"]
    assert [span.attributes["foldlog.turn"] for span in turns] == [x.turn for x in ended]


def test_a_turn_with_tools_has_their_names_and_its_tokens():
    found = spans("conversation")
    by_name = {}
    for span in found:
        by_name.setdefault(span.name, []).append(span)
    assert len(by_name["execute_tool charge"]) == 2 and len(by_name["execute_tool look"]) == 1
    (charge, _) = by_name["execute_tool charge"]
    assert charge.kind == INTERNAL and charge.attributes["gen_ai.tool.call.id"] == "c"
    chats = [span for span in found if span.name.startswith("chat ")]
    assert all(span.kind == CLIENT for span in chats)
    assert {span.span_id for span in chats} >= {link.span_id for link in charge.links}
    assert chats[0].attributes["gen_ai.response.finish_reasons"] == ["end_turn"]
    last = by_name[next(name for name in by_name if name.startswith("invoke_agent"))][-1]
    of_turn = [x for x in chats if x.parent_id == last.span_id]
    assert last.attributes["gen_ai.usage.input_tokens"] == sum(
        x.attributes["gen_ai.usage.input_tokens"] for x in of_turn
    ) > 0
    text = json.dumps(otlp.request_json(found))
    for content in ("good day", "buying", '"cents"', "mind the price"):
        assert content not in text


def test_a_lost_attempt_is_a_span_that_its_successor_links_to():
    found = [span for span in spans("crash_and_resume") if span.name.startswith("chat ")]
    lost = [span for span in found if span.error == "superseded"]
    assert lost
    linked = {link.span_id for span in found for link in span.links}
    assert {span.span_id for span in lost} <= linked


def test_background_work_has_traces_of_its_own():
    background = [x for x in spans("compaction") if "foldlog.background.kind" in x.attributes]
    turns = {x.trace_id for x in spans("compaction") if x.name.startswith("invoke_agent")}
    assert background and all(not x.parent_id and x.trace_id not in turns for x in background)
    rows = [row for row in PLAYS["compaction"]().views.ledger.spent if row.work]
    read = [x.attributes["gen_ai.usage.input_tokens"] for x in background]
    assert max(row.request for row in rows) > 1, "a span has all requests of its attempt"
    assert len(read) < len(rows) and sum(read) == sum(row.read_tokens for row in rows)


# -- sending ---------------------------------------------------------------------------------------


@contextmanager
def receiver(status: int = 200, promised: int = 0):
    """An OTLP receiver: its address, and the requests that it has received. promised: the bytes of
    its answers, which end before the first of them."""
    received: list[tuple[str, dict, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, dict(self.headers.items()), body))
            self.send_response(status)
            self.send_header("content-length", str(promised))
            self.end_headers()

        def log_message(self, *_args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", received
    finally:
        server.shutdown()
        joined(thread)
        server.server_close()


@pytest.fixture
def shell(tmp_path, capsys) -> Shell:
    """Commands over a log with a recorded session."""
    made = make_shell(tmp_path, capsys)
    producer = made.log.producer()
    for record in PLAYS["conversation"]().records:
        place = partition_for("golden", PARTITIONS)
        producer.append(SESSION_EVENTS, record.key, record.value, record.headers, partition=place)
    return made


def test_foldlog_traces_sends_valid_otlp(shell):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    ran = shell("traces golden --json")
    (printed,) = ran.json
    (made,) = printed["resourceSpans"][0]["scopeSpans"]
    with receiver() as (url, received):
        ran = shell(f"traces golden --otlp {url}", "--header", "Authorization=Basic abc")
        assert ran.code == 0 and f"{len(made['spans'])} spans" in ran.out
        ((path, headers, body),) = received
    assert path == "/v1/traces" and headers["Authorization"] == "Basic abc"
    assert headers["Content-Type"] == "application/x-protobuf"
    read = ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans
    assert [span.span_id.hex() for span in read] == [span["spanId"] for span in made["spans"]]
    assert [span.trace_id.hex() for span in read] == [span["traceId"] for span in made["spans"]]
    assert "execute_tool charge" in shell("traces golden").out


@pytest.mark.parametrize("value", ["a=hush\r\nx", "a=hush\u00e9", "a=hush\udcff", "a\n=hush"])
def test_a_header_that_cannot_be_sent_is_not_shown(shell, monkeypatch, value):
    with receiver() as (url, received):
        ran = shell(f"traces golden --otlp {url}", "--header", value)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", value)
        again = shell(f"traces golden --otlp {url}")
    assert ran.code == again.code == 2 and not received
    assert "hush" not in ran.err + again.err and "nothing was sent" in ran.err


def test_traces_sent_with_json_print_one_object(shell):
    with receiver() as (url, _):
        (printed,) = shell(f"traces golden --otlp {url} --json").json
    assert printed == {"session_id": "golden", "receiver": url, "spans": len(spans("conversation"))}


def test_without_the_extra_spans_are_sent_as_json(shell, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.proto.collector.trace.v1", None)
    with receiver() as (url, received):
        assert shell(f"traces golden --otlp {url}/v1/traces").code == 0
    ((path, headers, body),) = received
    assert path == "/v1/traces" and headers["Content-Type"] == "application/json"
    assert json.loads(body)["resourceSpans"]


def test_bad_input_a_refusing_or_absent_receiver_and_an_unknown_session_are_errors(shell):
    with receiver(401) as (url, _):
        ran = shell(f"traces golden --otlp {url}")
    assert ran.code == 1 and "answered 401" in ran.err and "again" in ran.err
    with receiver(promised=9) as (url, _):
        ran = shell(f"traces golden --otlp {url}")
    assert ran.code == 1 and "cannot be reached" in ran.err and "again" in ran.err
    ran = shell("traces golden --otlp http://127.0.0.1:1")
    assert ran.code == 1 and "cannot be reached" in ran.err and "urlopen" not in ran.err
    for wrong in ("bla", "", "ftp://a.example", "http://", "http://a.example:x"):
        ran = shell("traces golden --otlp", wrong)
        assert ran.code == 2 and "give http(s)://HOST" in ran.err, wrong
    assert shell("traces nobody").code == 1
    assert shell(f"traces golden --otlp {url} --header secret").code == 2


# -- the trace of an event's sender -------------------------------------------------------------


def test_a_turn_is_linked_to_the_span_of_its_sender(tmp_path, capsys):
    shell = make_shell(tmp_path, capsys)
    sessions = Sessions(shell.log, shell.settings)
    sessions.open("s1", agent="shop")
    for value in (PARENT, "nonsense", "00-" + "A" * 32):
        token = TRACEPARENT.set(value)
        sessions.say("s1", "hi")
        TRACEPARENT.reset(token)
    records = shell.log.records(SESSION_EVENTS, partition_for("s1", PARTITIONS))
    assert [r.header("traceparent") for r in records] == [None, PARENT.encode(), None, None]
    link = Link("a1" * 16, "b2" * 8)
    s = PLAYS["conversation"]()
    opened = next(x for x in s.steps if x.views.turn.open)
    turn = [x for x in spans_of(seen_of(s), "log", {opened.entry.offset: link}) if not x.parent_id]
    assert link in turn[0].links


def test_a_request_to_the_gateway_carries_its_trace_into_the_log(tmp_path):
    log = memory_log(threaded=True)
    with served(log, settings_in(tmp_path), tmp_path / "gateway") as running:
        with running.http() as http:
            body = {"session_id": "s1"}
            made = http.post("/v1/sessions", json=body, headers={"traceparent": PARENT})
            assert made.status_code < 300, made.text
    (record,) = log.records(SESSION_EVENTS, partition_for("s1", PARTITIONS))
    assert record.header("traceparent") == PARENT.encode()

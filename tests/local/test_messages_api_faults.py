"""Each kind of fault, and how the real client reacts to it."""

import json
from contextlib import nullcontext

import anthropic
import httpx2
import pytest

from foldlog.local.messages_api import Reply, Rule, ScriptedServer, Stage, fault, text
from foldlog.tests.local.scripted_client import (
    SENTENCE,
    ask,
    by_stage,
    client,
    raw_chunks,
    request,
    serving,
    text_of,
)


def faulted(server):
    return server.wait_count("faulted")[-1]


# before the stream -------------------------------------------------------------------------------

STATUSES = {
    "status": (500, "api_error", anthropic.InternalServerError),
    "rate_limit": (429, "rate_limit_error", anthropic.RateLimitError),
    "rate_limit_ms": (429, "rate_limit_error", anthropic.RateLimitError),
    "rate_limit_bare": (429, "rate_limit_error", anthropic.RateLimitError),
    "rate_limit_huge": (429, "rate_limit_error", anthropic.RateLimitError),
    "enforced_spend_limit": (429, "rate_limit_error", anthropic.RateLimitError),
    "spend_limit": (400, "invalid_request_error", anthropic.BadRequestError),
    "bad_request": (400, "invalid_request_error", anthropic.BadRequestError),
    "unauthorized": (401, "authentication_error", anthropic.AuthenticationError),
    "billing": (402, "billing_error", anthropic.APIStatusError),
    "forbidden": (403, "permission_error", anthropic.PermissionDeniedError),
    "not_found": (404, "not_found_error", anthropic.NotFoundError),
    "timeout": (408, "timeout_error", anthropic.APIStatusError),
    "conflict": (409, "conflict_error", anthropic.ConflictError),
    "too_large": (413, "request_too_large", anthropic.APIStatusError),
    "unprocessable": (422, "invalid_request_error", anthropic.UnprocessableEntityError),
    "server_error": (500, "api_error", anthropic.InternalServerError),
    "server_error_no_retry": (500, "api_error", anthropic.InternalServerError),
    "unavailable": (503, "api_error", anthropic.APIStatusError),
    "gateway_timeout": (504, "timeout_error", anthropic.APIStatusError),
    "overloaded": (529, "overloaded_error", anthropic.APIStatusError),
    "html_error": (502, None, anthropic.InternalServerError),
}


@pytest.mark.parametrize("name", STATUSES)
def test_a_status_replaces_the_stream(name):
    status, kind, error = STATUSES[name]
    with serving(name) as server:
        with pytest.raises(error) as caught:
            ask(server)
        assert (caught.value.status_code, caught.value.type) == (status, kind)
        entry = faulted(server)
        assert (entry["fault"], entry["status"], entry["events"]) == (name, status, 0)
        assert server.calls() == 1


def test_every_fault_before_the_stream_is_tested():
    others = {"accepted_then_lost", "no_answer"}
    assert set(by_stage(Stage.BEFORE)) == set(STATUSES) | others


@pytest.mark.parametrize(
    ("name", "params", "headers"),
    [
        ("rate_limit", {}, {"retry-after": "1"}),
        ("rate_limit", {"retry_after": "Fri, 31 Dec 2100 23:59:59 GMT"}, None),
        ("rate_limit_ms", {}, {"retry-after-ms": "20"}),
        ("rate_limit_bare", {}, {}),
        ("rate_limit_huge", {}, {"retry-after": "1000000"}),
        ("server_error_no_retry", {}, {"x-should-retry": "false"}),
        ("overloaded", {"retry_after": 3}, {"retry-after": "3"}),
    ],
)
def test_retry_headers(name, params, headers):
    with serving(name, **params) as server, pytest.raises(anthropic.APIStatusError) as caught:
        ask(server)
    found = caught.value.response.headers
    sent = {key: found[key] for key in found if key.startswith(("retry-after", "x-should"))}
    expected = headers if headers is not None else {"retry-after": params["retry_after"]}
    assert sent == expected


def test_a_spend_limit_has_a_code():
    with serving("enforced_spend_limit") as server, pytest.raises(anthropic.APIError) as caught:
        ask(server)
    assert caught.value.error_code == "enforced_spend_limit_reached"


def test_a_fault_may_happen_a_number_of_times():
    rules = [
        Rule(reply=Reply(fault=fault("overloaded", retry_after_ms=1)), times=2),
        Reply([text("ok")]),
    ]
    with ScriptedServer(rules) as server:
        retrying = client(server).with_options(max_retries=2)
        raw = retrying.messages.with_raw_response.create(**request())
        assert raw.retries_taken == 2
        assert raw.parse().content[0].text == "ok"
        assert server.calls() == 3


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_accepted_then_lost_is_journalled_and_never_answered(how):
    with serving("accepted_then_lost", how=how) as server:
        with pytest.raises(anthropic.APIConnectionError):
            ask(server)
        assert server.calls() == 1
        assert faulted(server)["fault"] == "accepted_then_lost"


def test_no_answer_lasts_until_the_client_leaves():
    with serving("no_answer") as server:
        impatient = client(server).with_options(timeout=0.6)
        with pytest.raises(anthropic.APITimeoutError):
            impatient.messages.create(**request())
        assert server.wait_count("client_gone")[0]["events"] == 0


# the stream breaks -------------------------------------------------------------------------------


def read(server, **options):
    """Read one streamed answer. Returns (events read, message so far, exception or None)."""
    types, final, error = [], None, None
    try:
        with client(server).with_options(**options).messages.stream(**request()) as stream:
            for event in stream:
                types.append(event.type)
                final = stream.current_message_snapshot
    except Exception as raised:
        error = raised
    return types, final, error


@pytest.mark.parametrize("k", [1, 4, 9, None])
def test_eof_ends_without_an_exception_and_without_a_stop_reason(k):
    with serving("eof", k=k) as server:
        _, message, error = read(server)
        assert error is None
        assert message.stop_reason is None
        assert SENTENCE.startswith(text_of(message))
        assert faulted(server)["events"] == (k or faulted(server)["events"])


def test_eof_at_zero_sends_no_event():
    with serving("eof", k=0) as server:
        types, message, _ = read(server)
    assert (types, message) == ([], None)


def test_eof_before_message_delta_has_the_whole_text_and_no_stop_reason():
    with serving("eof_before_message_delta") as server:
        _, message, error = read(server)
    assert error is None
    assert text_of(message) == SENTENCE
    assert message.stop_reason is None


def test_eof_before_message_stop_has_a_stop_reason():
    with serving("eof_before_message_stop") as server:
        types, message, error = read(server)
    assert error is None
    assert message.stop_reason == "tool_use"
    assert "message_stop" not in types


@pytest.mark.parametrize(
    ("kind", "k"), [("overloaded_error", 0), ("overloaded_error", None), ("api_error", 5)]
)
def test_an_error_event_has_status_200_and_its_own_type(kind, k):
    with serving("error_event", type=kind, k=k) as server:
        types, _, error = read(server, max_retries=2)
        assert isinstance(error, anthropic.APIStatusError)
        assert (error.status_code, error.type) == (200, kind)
        assert (k == 0) == (types == [])
        assert server.calls() == 1


@pytest.mark.parametrize(
    ("name", "kind"), [("cut", httpx2.RemoteProtocolError), ("reset", httpx2.ReadError)]
)
def test_a_cut_socket_raises_the_transports_own_exception(name, kind):
    with serving(name) as server:
        types, message, error = read(server)
        assert type(error) is kind
        assert not isinstance(error, anthropic.AnthropicError)
        assert types
        assert message.stop_reason is None
        assert faulted(server)["fault"] == name


@pytest.mark.parametrize("name", ["stall", "half_open"])
def test_only_the_read_timeout_detects_silence(name):
    with serving(name, k=5) as server:
        types, message, error = read(server, timeout=0.6)
        assert isinstance(error, httpx2.ReadTimeout)
        assert types
        assert message.stop_reason is None
        if name == "stall":
            assert server.wait_count("client_gone")[0]["events"] == 5
        else:
            assert server.journal.count("client_gone") == 0


def test_a_stall_may_be_limited():
    with serving("stall", k=5, s=0.01) as server:
        _, message, error = read(server)
        assert error is None
        assert message.stop_reason is None


def test_the_client_hides_the_pings_of_a_stalled_answer():
    with serving("stall_with_pings", k=5, s=0.05, every_s=0.01) as server:
        types, message, error = read(server)
        assert error is None
        assert "ping" not in types
        assert message.stop_reason is None


def test_a_stalled_answer_still_sends_pings():
    """Pings arrive but the answer does not, and a watchdog must not take the pings for progress."""
    with serving("stall_with_pings", k=5, s=0.05, every_s=0.01) as server:
        whole = b"".join(raw_chunks(server)[1])
    assert whole.count(b"event: ping") == 1 + 5
    assert b"message_delta" not in whole


@pytest.mark.parametrize("how", ["eof", "cut", "reset"])
def test_a_tool_input_that_is_cut_is_not_json(how):
    with serving("cut_in_tool_input", how=how) as server:
        raw = []
        with pytest.raises(httpx2.HTTPError) if how != "eof" else nullcontext():
            for event in client(server).messages.create(stream=True, **request()):
                if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                    raw.append(event.delta.partial_json)
    assert raw
    with pytest.raises(ValueError):
        json.loads("".join(raw))


def test_every_break_is_tested():
    tested = {
        "eof",
        "eof_before_message_delta",
        "eof_before_message_stop",
        "error_event",
        "cut",
        "reset",
        "stall",
        "half_open",
        "stall_with_pings",
        "cut_in_tool_input",
    }
    assert set(by_stage(Stage.BREAK)) == tested


def test_a_k_past_the_end_still_breaks_the_stream():
    with serving("eof", k=10_000) as server:
        _, message, _ = read(server)
    assert text_of(message) == SENTENCE
    assert message.stop_reason is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("eof", anthropic.APIConnectionError),
        ("reset", anthropic.APIConnectionError),
        ("error_event", anthropic.APIStatusError),
    ],
)
def test_an_answer_that_is_not_streamed_breaks_too(name, kind):
    with serving(name) as server, pytest.raises((kind, httpx2.HTTPError)):
        client(server).messages.create(**request())

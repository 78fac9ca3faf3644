"""Every fault of the scripted Messages API ends in one outcome, which has the time of the next
attempt.

Rows: S2.9, P6. Physical calls are counted in the server's journal.
"""

import json
from dataclasses import replace

import pytest

from foldlog.local.messages_api import FAULTS, Reply, Rule, Stage, text
from foldlog.processors.effects.models.call import GenClaim
from foldlog.processors.effects.models.errors import POLICY, wait_ms
from foldlog.processors.effects.slots import Slots
from foldlog.schemas.events import GenComplete, GenFailed
from foldlog.tests.processors.effects.models.attempts import (
    ANSWER,
    CLAIM,
    STALLING,
    run,
    running,
)

# faults -----------------------------------------------------------------------------------------

FAILED = {
    # fault: (class, status)
    "status": ("api_error", 500),
    "rate_limit": ("rate_limit", 429),
    "rate_limit_ms": ("rate_limit", 429),
    "rate_limit_bare": ("rate_limit_bare", 429),
    "rate_limit_huge": ("rate_limit", 429),
    "enforced_spend_limit": ("spend_limit", 429),
    "spend_limit": ("spend_limit", 400),
    "bad_request": ("bad_request", 400),
    "unauthorized": ("authentication", 401),
    "billing": ("billing", 402),
    "forbidden": ("permission", 403),
    "not_found": ("not_found", 404),
    "timeout": ("timeout", 408),
    "conflict": ("conflict", 409),
    "too_large": ("request_too_large", 413),
    "unprocessable": ("bad_request", 422),
    "server_error": ("api_error", 500),
    "server_error_no_retry": ("api_error", 500),
    "unavailable": ("api_error", 503),
    "gateway_timeout": ("timeout", 504),
    "overloaded": ("overloaded", 529),
    "html_error": ("api_error", 502),
    "accepted_then_lost": ("transport", None),
    "no_answer": ("stalled", None),
    "eof": ("truncated", None),
    "eof_before_message_delta": ("truncated", None),
    "error_event": ("overloaded", 200),
    "reset": ("transport", None),
    "cut": ("transport", None),
    "half_open": ("stalled", None),
    "stall": ("stalled", None),
    "stall_with_pings": ("stalled", None),
    "cut_in_tool_input": ("truncated", None),
    "bad_event_json": ("malformed", None),
}
# A process with many streams reads each of them less often.
STREAMS = pytest.mark.parametrize("streams", [1, 100])
SHAPED = [name for name, mode in FAULTS.items() if mode.stage is Stage.SHAPE]
COMPLETED = [
    "eof_before_message_stop",
    *(n for n, m in FAULTS.items() if m.stage is Stage.NOISE and n not in FAILED),
]


def test_every_fault_of_the_server_has_a_row_here():
    assert set(FAILED) | set(COMPLETED) | set(SHAPED) == set(FAULTS)


@STREAMS
@pytest.mark.parametrize("name", FAILED)
def test_S2_9_every_failure_is_one_event_with_a_policy_and_the_content(serve, name, streams):
    # Pings come often enough to prevent a stall, if bytes counted as progress.
    fault = {"name": name, "every_s": 0.02} if name == "stall_with_pings" else name
    server = serve(Reply(ANSWER, fault=fault))
    begun = FAULTS[name].stage is not Stage.BEFORE
    stalls = FAILED[name][0] == "stalled"
    clock_from = ("" if begun else "-") if stalls else None
    limits = replace(STALLING, ping_timeout_ms=STALLING.stall_timeout_ms)
    sink = run(server, stall_after=clock_from, pace=running(streams), stalling=limits)
    failed = sink.only
    assert isinstance(failed, GenFailed), failed
    error, status = FAILED[name]
    assert (failed.error, failed.status) == (error, status), failed.detail
    assert failed.permanent == (POLICY[error].backoff is None) == (failed.retry_at is None)
    assert POLICY[error].advice in failed.detail
    assert server.calls() == 1, "the SDK retried by itself"
    assert (failed.usage is not None) == begun
    blocks = json.loads(failed.content.inline)
    assert bool(sink.chunks) == begun
    assert "".join(b.get("text", "") for b in blocks) == sink.text_of("text")
    assert "".join(b.get("thinking", "") for b in blocks) == sink.text_of("thinking")
    if name == "cut_in_tool_input":
        assert "tool_use" not in [b["type"] for b in blocks] and sink.text_of("tool_input")


@STREAMS
@pytest.mark.parametrize("name", COMPLETED)
def test_noise_does_not_change_the_answer(serve, name, streams):
    sink = run(serve(Reply(ANSWER, fault=name)), pace=running(streams))
    done = sink.only
    assert isinstance(done, GenComplete), done
    blocks = json.loads(done.content.inline)
    assert [b["type"] for b in blocks][:4] == [
        "thinking",
        "redacted_thinking",
        "text",
        "tool_use",
    ]
    assert sink.text_of("text") == blocks[2]["text"] == ANSWER[2]["text"]
    assert [call.args.inline for call in done.calls] == [ANSWER[3]["raw_input"].encode()]
    if name == "unknown_fields":
        assert {b.get("future_field") for b in blocks} == {"kept"}
    if name == "unknown_block":
        assert blocks[4]["payload"] == {"n": 1, "s": "é"}


@STREAMS
@pytest.mark.parametrize("name", SHAPED)
def test_every_unusual_shape_of_an_answer_completes(serve, name, streams):
    done = run(serve(Reply(ANSWER, fault=name)), pace=running(streams)).only
    assert isinstance(done, GenComplete), done
    if name == "invalid_tool_json":
        assert done.calls[0].args.inline == b'{"path": "a", oops' and done.calls[0].args_error
    if name == "parallel_tool_calls":
        assert [call.index for call in done.calls] == list(range(10))
    if name == "empty_content":
        assert done.content.inline == b"[]"


@pytest.mark.parametrize("how", ["cut", "reset", "stall"])
def test_S2_9_a_call_whose_input_is_cut_is_never_kept(serve, how):
    fault = {"name": "cut_in_tool_input", "how": how}
    failed = run(serve(Reply(ANSWER, fault=fault)), stall_after="tool_input").only
    assert isinstance(failed, GenFailed)
    assert [b["type"] for b in json.loads(failed.content.inline)][-1] == "text"


@pytest.mark.parametrize(
    ("type", "error"),
    [
        ("api_error", "api_error"),
        ("rate_limit_error", "rate_limit"),
        ("invalid_request_error", "bad_request"),
        ("odd", "api_error"),
    ],
)
def test_an_error_event_is_classified_by_its_type_not_by_status_200(serve, type, error):
    fault = {"name": "error_event", "type": type, "message": "sent in mid-stream"}
    failed = run(serve(Reply(ANSWER, fault=fault))).only
    assert (failed.error, failed.status) == (error, 200)
    assert "sent in mid-stream" in failed.detail and "req_" in failed.detail


def test_P6_a_cut_attempt_and_its_retry_share_no_chunk(serve):
    answer = "The answer is 42."
    blocks = [text(answer)]
    server = serve([Rule(reply=Reply(blocks, fault="cut"), attempt=1), Reply(blocks)])
    again = GenClaim(session_id="s1", turn=1, step=2, attempt=2, claimed_at=CLAIM.claimed_at)
    cut, whole = run(server), run(server, claim=again)
    assert isinstance(cut.only, GenFailed) and isinstance(whole.only, GenComplete)
    assert answer.startswith(cut.text_of("text")) and whole.text_of("text") == answer
    assert {c.attempt for c in cut.chunks} == {1} and {c.attempt for c in whole.chunks} == {2}
    assert [c.seq for c in whole.chunks] == list(range(len(whole.chunks)))
    assert json.loads(whole.only.content.inline) == [{"type": "text", "text": answer}]


# when to try again ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 5])
def test_retry_at_counts_from_the_claim_and_is_the_same_on_every_worker(serve, number):
    claim = GenClaim(session_id="s1", turn=1, step=2, attempt=number, claimed_at=10**12)
    server = serve(Reply(fault={"name": "rate_limit", "retry_after": 7}))
    passed = iter([100.0, *[102.5] * 1000])
    failed = run(server, claim=claim, clock=lambda: next(passed)).only
    wait = wait_ms(POLICY["rate_limit"], attempt=number, identity=claim.label, retry_after_ms=7000)
    assert failed.retry_at == 10**12 + 2500 + wait


def test_retry_at_counts_the_time_from_the_reading_of_the_claim_to_the_request(serve):
    """Importing the SDK takes seconds: the request was sent 7 s after the claim was read."""
    claim = replace(CLAIM, claimed_at=10**12, read_at=93.0)
    server = serve(Reply(fault={"name": "rate_limit_ms", "retry_after_ms": 300}))
    failed = run(server, claim=claim, clock=lambda: 100.0).only
    wait = wait_ms(POLICY["rate_limit"], attempt=1, identity=claim.label, retry_after_ms=300)
    assert failed.retry_at == 10**12 + 7_000 + wait


def test_only_a_shared_failure_makes_the_whole_key_wait(serve):
    for fault, shared in (("rate_limit", True), ("overloaded", True), ("server_error", False)):
        pace = Slots(1)
        failed = run(serve(Reply(fault=fault)), pace=pace).only
        assert pace.back_off_until_ms == (failed.retry_at if shared else 0)
        assert pace.free(failed.retry_at) and pace.free(failed.retry_at - 1) != shared

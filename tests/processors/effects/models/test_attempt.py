"""One attempt against the scripted Messages API: answers, stop reasons, stops, and bugs each end in
one outcome.

Rows: S1.C, S2.3, constraint 7. Physical calls are counted in the server's journal.
"""

import asyncio
import json
from hashlib import sha256
from itertools import groupby

import pytest

from foldlog.local.messages_api import Reply, Rule, block, text, tool_use
from foldlog.processors.effects.models.call import inline_body, make_client
from foldlog.processors.effects.models.chunks import FLUSH_CHARS
from foldlog.processors.limits import Limits
from foldlog.processors.tools.output_sink import Stop
from foldlog.schemas.events import BlobRef, Body, GenComplete, GenFailed, GenStopped
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.processors.effects.models.attempts import (
    ANSWER,
    CLAIM,
    MODEL,
    Collected,
    generate_with,
    request,
    run,
    running,
)

# an answer --------------------------------------------------------------------------------------


def test_S1_C_an_answer_is_streamed_and_complete(serve):
    server = serve(Reply(ANSWER))
    sink = run(server)
    done = sink.only
    assert isinstance(done, GenComplete)
    assert (done.turn, done.step, done.attempt, done.stop_reason) == (1, 2, 1, "tool_use")
    (accepted,) = server.journal.entries("accepted")
    (answered,) = server.wait_count("answered")
    assert accepted["attempt"] == "s1 1.2.1"
    assert done.response_id == answered["message_id"] and done.model == MODEL
    blocks = json.loads(done.content.inline)
    assert [b["type"] for b in blocks] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert blocks[2]["text"] == ANSWER[2]["text"]
    raw = ANSWER[3]["raw_input"]
    assert b'"input":' + raw.encode() + b"}" in done.content.inline
    (call,) = done.calls
    assert (call.index, call.name, call.args.inline) == (0, "read", raw.encode())
    assert call.call_id == blocks[3]["id"] and call.args_error is None
    assert done.usage.output_tokens > 1 and json.loads(done.usage.raw)["output_tokens_details"]
    assert sink.text_of("text") == ANSWER[2]["text"]
    assert sink.text_of("thinking") == ANSWER[0]["thinking"]
    assert (sink.text_of("tool_name"), sink.text_of("tool_input")) == ("read", raw)
    assert [chunk.seq for chunk in sink.chunks] == list(range(len(sink.chunks)))
    runs = [key for key, _ in groupby((c.block, c.kind) for c in sink.chunks)]
    assert len(runs) == len(set(runs)), "chunks of two places are mixed"


def test_law_11_the_request_is_sent_byte_for_byte(serve):
    server = serve(Reply([text("ok")]))
    body = request({"role": "user", "content": [{"type": "text", "text": "é\u2028 1.0 \\u00e9"}]})
    odd = body[:-1] + b',"metadata":{"user_id":"\\u00e9"},"stop_sequences":[]}'
    run(server, body=odd)
    (accepted,) = server.journal.entries("accepted")
    assert server.body(accepted["n"]) == odd[:-1] + b',"stream":true}'


@pytest.mark.parametrize("streams", [1, 100])
def test_S1_C_the_first_token_does_not_wait_for_the_second(serve, streams):
    server = serve(Reply([text("Hello there")], chunk=5, gate="second", gate_after=4))

    async def go():
        arrived = asyncio.Event()
        sink = Collected()
        record = sink.chunk
        sink.chunk = lambda *event: (record(*event), arrived.set())
        async with make_client("k", server.base_url) as client:
            work = asyncio.create_task(generate_with(client, sink, pace=running(streams)))
            await asyncio.wait_for(arrived.wait(), PATIENCE_S)
            assert sink.chunks[0].delta == "Hello"
            server.open("second")
            await work
        return sink

    assert asyncio.run(go()).text_of("text") == "Hello there"


def test_constraint_7_the_API_accepts_the_stored_content_in_the_next_request(serve):
    """The server checks signatures against the exact prefix, and unknown blocks against a seal."""
    first = Reply([ANSWER[0], ANSWER[2], ANSWER[3]], fault="unknown_block")
    server = serve([Rule(reply=first, ordinal=1), Reply([text("done")])])
    content = run(server).only.content.inline
    user = '{"role":"user","content":"hi"}'
    call_id = json.loads(content)[2]["id"]
    result = {"type": "tool_result", "tool_use_id": call_id, "content": "42"}
    messages = f'[{user},{{"role":"assistant","content":'.encode() + content
    messages += b'},{"role":"user","content":[' + json.dumps(result).encode() + b"]}]"
    body = request()
    assert body.count(f"[{user}]".encode()) == 1
    sink = run(server, body=body.replace(f"[{user}]".encode(), messages))
    assert isinstance(sink.only, GenComplete), sink.only
    assert server.journal.count("refused") == 0 and server.calls() == 2


def test_S2_3_large_content_is_stored_as_a_blob(serve):
    stored = {}

    def store(data, media_type):
        if len(data) < 100_000:
            return inline_body(data, media_type)
        ref = BlobRef(sha256=sha256(data).hexdigest(), bytes=len(data), media_type=media_type)
        stored[ref.sha256] = data
        return Body(inline=b"", ref=ref)

    long_text = "x" * 200_000
    sink = run(serve(Reply([text(long_text)], chunk="whole")), store_body=store)
    ref = sink.only.content.ref
    assert ref.media_type == "application/json" and ref.bytes == len(stored[ref.sha256])
    assert json.loads(stored[ref.sha256]) == [{"type": "text", "text": long_text}]
    assert sink.text_of("text") == long_text


def test_a_body_that_cannot_be_stored_is_a_failure(serve):
    def store(data, media_type):
        raise OSError("disk full")

    failed = run(serve(Reply([text("a")])), store_body=store).only
    assert isinstance(failed, GenFailed) and "disk full" in failed.detail
    assert (failed.error, failed.permanent) == ("internal", False)
    assert failed.usage.output_tokens > 1


# stop reasons -----------------------------------------------------------------------------------

STOP_REASONS = {
    "end_turn": Reply([text("a")]),
    "stop_sequence": Reply([text("a")], stop_reason="stop_sequence", stop_sequence="END"),
    "max_tokens": Reply([text("a b c")], fault="max_tokens"),
    "tool_use": Reply([tool_use("read", {"a": 1}), tool_use("read", {"a": 2})]),
    "pause_turn": Reply([text("a")], fault="pause_turn"),
    "refusal": Reply([text("a")], fault="refusal"),
    "model_context_window_exceeded": Reply([text("a")], fault="context_window_exceeded"),
    "compaction": Reply([], fault="compaction_null"),
    "a_reason_of_the_future": Reply([text("a")], stop_reason="a_reason_of_the_future"),
}


@pytest.mark.parametrize("reason", STOP_REASONS)
def test_every_stop_reason_completes_and_only_tool_use_proposes_calls(serve, reason):
    done = run(serve(STOP_REASONS[reason])).only
    assert isinstance(done, GenComplete), done
    assert done.stop_reason == reason
    assert [call.index for call in done.calls] == ([0, 1] if reason == "tool_use" else [])


def test_a_call_cut_by_max_tokens_is_never_proposed(serve):
    done = run(serve(Reply(ANSWER, fault="max_tokens_in_tool_use"))).only
    assert (done.stop_reason, done.calls) == ("max_tokens", ())
    assert json.loads(done.content.inline)[3]["input"] == {}


# stop -------------------------------------------------------------------------------------------


def stopped_at(server, journal_kind, *, cancel=False):
    """Run an attempt, and stop it once the server reports a fact of this kind."""

    async def go():
        stop, sink = Stop(), Collected()
        async with make_client("k", server.base_url) as client:
            work = asyncio.create_task(generate_with(client, sink, stop))
            await asyncio.to_thread(server.wait_count, journal_kind)
            if cancel:
                work.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await work
            else:
                await asyncio.to_thread(stop.request, "cancelled")
                await work
            # The server notices while the client still exists: the attempt closed its own socket.
            await asyncio.to_thread(server.wait_count, "client_gone")
        return sink

    return asyncio.run(go())


def test_a_stop_in_mid_stream_closes_the_socket_and_keeps_the_content(serve):
    # message_start, ping, the text in 4 events, the call's start and its first, empty, piece
    blocks = [text("one two"), tool_use("read", {"a": 1})]
    sink = stopped_at(serve(Reply(blocks, chunk="word", gate="g", gate_after=8)), "waiting")
    stopped = sink.only
    assert isinstance(stopped, GenStopped)
    assert (stopped.why, stopped.attempt) == ("cancelled", 1)
    assert json.loads(stopped.content.inline) == [{"type": "text", "text": "one two"}]
    assert stopped.usage.output_tokens == 1
    assert sink.text_of("text") == "one two" and sink.text_of("tool_name") == "read"


def test_a_stop_before_the_first_byte_closes_the_socket(serve):
    sink = stopped_at(serve(Reply([text("a")], gate="g")), "waiting")
    stopped = sink.only
    assert isinstance(stopped, GenStopped)
    assert (stopped.content.inline, stopped.usage, sink.chunks) == (b"[]", None, [])


def test_a_stop_before_the_call_sends_nothing():
    async def go():
        stop, sink = Stop(), Collected()
        stop.request("terminated")
        no_client = None  # any call of it raises
        await generate_with(no_client, sink, stop)
        return sink.only

    stopped = asyncio.run(go())
    assert isinstance(stopped, GenStopped) and stopped.why == "terminated"


def test_a_stop_after_the_stop_reason_leaves_the_answer_complete(serve):
    reply = Reply([text("all")], fault="eof_before_message_stop", gate="g", gate_after=99)
    done = stopped_at(serve(reply), "waiting").only
    assert isinstance(done, GenComplete) and done.stop_reason == "end_turn"


def test_a_cancelled_task_closes_the_socket_without_an_outcome(serve):
    sink = stopped_at(serve(Reply([text("a")], gate="g")), "waiting", cancel=True)
    assert sink.outcomes == []


def test_a_malformed_event_closes_the_socket(serve):
    reply = Reply([text("a b c")], fault="bad_event_json", gate="g", gate_after=99)
    server = serve(reply)

    async def go():
        sink = Collected()
        async with make_client("k", server.base_url) as client:
            await generate_with(client, sink)
            await asyncio.to_thread(server.wait_count, "client_gone")
        return sink.only

    assert asyncio.run(go()).error == "malformed"


def test_an_answer_that_progresses_may_take_longer_than_a_stall(serve):
    """Each chunk takes 0.9 of the limit. The watchdog checks only after three chunks, and must not
    report a stall."""
    blocks = [text("a" * FLUSH_CHARS)] * 3  # each a chunk at once, without a timer
    server = serve(Reply(blocks, chunk="whole", gate="g", gate_after=11))
    limit_s = 0.05

    async def go():
        sink, checks, checked = Collected(), [], asyncio.Event()

        def clock():
            if len(sink.chunks) == 3:
                checks.append(1)
                if len(checks) > 3:
                    checked.set()
            return len(sink.chunks) * 0.9 * limit_s

        async with make_client("k", server.base_url) as client:
            limits = Limits(stall_timeout_ms=int(limit_s * 1000))
            work = asyncio.create_task(generate_with(client, sink, limits=limits, clock=clock))
            checking = asyncio.create_task(asyncio.wait_for(checked.wait(), PATIENCE_S))
            await asyncio.wait((work, checking), return_when=asyncio.FIRST_COMPLETED)
            assert checked.is_set() or work.done(), "the clock was not read"
            server.open("g")
            await work
            checking.cancel()
        return sink.only

    done = asyncio.run(go())
    assert isinstance(done, GenComplete), done


def test_a_stall_closes_the_socket(serve):
    server = serve(Reply(ANSWER, fault="stall"))
    assert run(server, stall_after="").only.error == "stalled"
    server.wait_count("client_gone")


# bugs -------------------------------------------------------------------------------------------


class Broken(Collected):
    def chunk(self, session_id, event):
        raise KeyError("a bug in the sink")


@pytest.mark.parametrize("bug", ["sink", "request", "client"])
def test_a_bug_ends_in_one_failure_that_may_be_retried(serve, bug):
    async def go():
        sink = Broken() if bug == "sink" else Collected()
        server = serve(Reply([text("a b c")]))
        async with make_client("k", server.base_url) as client:
            body = b"[]" if bug == "request" else request()
            await generate_with(None if bug == "client" else client, sink, body=body)
        return sink

    failed = asyncio.run(go()).only
    assert isinstance(failed, GenFailed)
    assert (failed.error, failed.permanent) == ("internal", False)
    assert failed.retry_at > CLAIM.claimed_at and failed.content.inline == b"[]"


def test_many_attempts_share_one_client(serve):
    server = serve(lambda request: Reply([text(request.last_user_text)]))

    async def go():
        sinks = [Collected() for _ in range(12)]
        async with make_client("k", server.base_url) as client:
            bodies = [request({"role": "user", "content": f"message {n}"}) for n in range(12)]
            works = zip(sinks, bodies, strict=True)
            await asyncio.gather(*(generate_with(client, s, body=body) for s, body in works))
        return sinks

    for n, sink in enumerate(asyncio.run(go())):
        assert sink.text_of("text") == f"message {n}"
        assert json.loads(sink.only.content.inline) == [{"type": "text", "text": f"message {n}"}]


def test_an_unknown_block_is_kept_unchanged(serve):
    odd = block("web_search_tool_result", tool_use_id="srv_1", content=[{"n": 1.5, "x": None}])
    done = run(serve(Reply([odd, text("ok")]))).only
    assert json.loads(done.content.inline)[0] == odd

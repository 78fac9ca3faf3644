"""One attempt of a delivery to a real HTTP receiver that accepts, refuses, is slow, or is
hostile."""

import asyncio
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import pytest

from foldlog.log.channels import Channel
from foldlog.processors.effects import delivery
from foldlog.processors.effects.background import OutcomeSink
from foldlog.processors.effects.delivery import Delivery, channel_finder, deliver, signature
from foldlog.processors.limits import Limits
from foldlog.schemas import events as ev
from foldlog.tests.kit.waiting import PATIENCE_S

SECRET = "a secret that must not be shown"
LOOPBACK = ("127.0.0.0/8",)
LIMITS = Limits(delivery_attempts=3, delivery_timeout_ms=5_000)
CLAIMED_AT = 1_700_000_000_000
ANSWER = (
    '[{"type":"thinking","thinking":"hm"},'
    '{"type":"text","text":"Grüße"},{"type":"text","text":"!"}]'
)
OK = b"HTTP/1.1 204 No Content\r\n\r\n"


def claimed(attempt: int = 1, **changes) -> Delivery:
    made = Delivery(
        "s1", "ana", 2, 3, "push:crm", attempt, CLAIMED_AT, ANSWER.encode(), "end_turn"
    )
    return made._replace(**changes)


class Receiver:
    """Responds to every connection with the same answer, and records the requests."""

    def __init__(self, answer: bytes | Callable) -> None:
        self.answer = answer
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    async def take(self, reader, writer) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            self.requests.append((first, headers, body))
            if callable(self.answer):
                await self.answer(reader, writer)
            else:
                writer.write(self.answer)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


def channel(port: int, **changes) -> Channel:
    made = Channel(
        name="crm",
        url=f"http://127.0.0.1:{port}/hook?to=me",
        secret_env="CRM",
        secret=SECRET,
        networks=LOOPBACK,
    )
    return replace(made, **changes)


def attempt(answer=OK, *, what: Delivery | None = None, limits: Limits = LIMITS, **changes):
    """Run one attempt. Returns (outcome, the receiver)."""

    async def one():
        receiver, sink = Receiver(answer), OutcomeSink([])
        server = await asyncio.start_server(receiver.take, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            find = channel_finder({"crm": channel(port, **changes)})
            await deliver(what or claimed(), find, sink, limits)
        (outcome,) = sink.outcomes
        return outcome, receiver

    return asyncio.run(one())


def test_S2_4_GEN_SENT_is_written_once_the_channel_accepted_the_answer():
    outcome, receiver = attempt()
    assert outcome == ev.GenSent(turn=2, step=3, channel="push:crm")
    ((first, headers, body),) = receiver.requests
    assert first == "POST /hook?to=me HTTP/1.1"
    assert headers["idempotency-key"] == "s1/2/3/push:crm"
    signed = f"{headers['foldlog-timestamp']}.".encode() + body
    expected = hmac.new(SECRET.encode(), signed, sha256).hexdigest()
    assert headers["foldlog-signature"] == f"v1={expected}"
    assert json.loads(body) == {
        "session_id": "s1", "user_id": "ana", "turn": 2, "step": 3, "channel": "push:crm",
        "stop_reason": "end_turn", "text": "Grüße!",
    }


def test_every_attempt_has_the_same_body_and_key():
    requests = [attempt(what=claimed(number))[1].requests[0] for number in (1, 2)]
    assert requests[0][2] == requests[1][2]
    assert requests[0][1]["idempotency-key"] == requests[1][1]["idempotency-key"]


@pytest.mark.parametrize(
    ("answer", "error", "status"),
    [
        (b"HTTP/1.1 500 Oh\r\n\r\n", "status", 500),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "status", 302),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\n\r\n", "status", 404),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9, "bad_answer", None),
        (b"SSH-2.0-hello\r\n\r\n", "bad_answer", None),
        (b"HTTP/1.1 2\xff0 OK\r\n\r\n", "bad_answer", None),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "bad_answer", None),
        (b"HTTP/1.1 200 OK\r\n", "unreachable", None),
        (b"", "unreachable", None),
    ],
)
def test_any_other_answer_is_retried_later(answer, error, status):
    outcome, _ = attempt(answer)
    assert isinstance(outcome, ev.DeliveryFailed), outcome
    assert (outcome.error, outcome.status, outcome.permanent) == (error, status, False)
    assert outcome.retry_at >= CLAIMED_AT + 1_600


def test_the_body_of_an_answer_is_not_read():
    async def floods(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()

    outcome, _ = attempt(floods)
    assert isinstance(outcome, ev.GenSent)


def test_a_receiver_without_an_answer_costs_one_timeout():
    async def waits(reader, writer):
        await reader.read()

    outcome, receiver = attempt(waits, limits=replace(LIMITS, delivery_timeout_ms=1_000))
    assert outcome.error == "timeout" and len(receiver.requests) == 1


def test_a_refused_connection_is_reported_without_its_address():
    async def one():
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        sink = OutcomeSink([])
        await deliver(claimed(), channel_finder({"crm": channel(port)}), sink, LIMITS)
        return sink.outcomes[0], port

    outcome, port = asyncio.run(one())
    assert outcome.error == "unreachable" and str(port) not in outcome.detail


def test_the_last_attempt_and_status_410_are_permanent():
    last, _ = attempt(b"HTTP/1.1 500 Oh\r\n\r\n", what=claimed(3))
    gone, _ = attempt(b"HTTP/1.1 410 Gone\r\n\r\n")
    for outcome in (last, gone):
        assert outcome.permanent and outcome.retry_at is None


def test_retry_after_is_respected_up_to_an_hour():
    for seconds, wait_s in (("60", 60), ("999999999", 3_600)):
        answer = f"HTTP/1.1 429 Slow\r\nRetry-After: {seconds}\r\n\r\n".encode()
        outcome, _ = attempt(answer)
        assert wait_s * 1000 <= outcome.retry_at - CLAIMED_AT < wait_s * 1000 + 60_000


def test_a_retry_after_may_be_a_date():
    dates = b"Date: Sun, 29 Nov 2026 10:00:00 GMT\r\nRetry-After: Sun, 29 Nov 2026 10:01:00 GMT"
    outcome, _ = attempt(b"HTTP/1.1 503 Later\r\n" + dates + b"\r\n\r\n")
    assert outcome.retry_at >= CLAIMED_AT + 60_000


def test_a_retry_is_timed_from_the_moment_when_the_claim_was_read():
    what = claimed(read_at=time.monotonic() - 100)
    outcome, _ = attempt(b"HTTP/1.1 500 Oh\r\n\r\n", what=what)
    assert outcome.retry_at >= CLAIMED_AT + 100_000 + 1_600


def test_pauses_grow_from_seconds_to_an_hour():
    pauses = [delivery.pause_s(number) for number in range(1, 20)]
    assert pauses[0] < 3 and all(2_880 <= pause <= 4_320 for pause in pauses[7:])


@pytest.mark.parametrize("networks", [(), ("10.0.0.0/8",)])
def test_a_private_address_is_rejected_unless_its_network_is_allowed(networks):
    outcome, receiver = attempt(networks=networks)
    assert outcome.error == "address" and receiver.requests == []


def test_an_unknown_channel_and_a_missing_secret_name_the_remedy():
    unknown, _ = attempt(what=claimed(channel="push:other"))
    assert unknown.error == "unknown_channel" and "[channels.other]" in unknown.detail
    bare, receiver = attempt(secret=None)
    assert bare.error == "no_secret" and "CRM" in bare.detail and receiver.requests == []


def test_an_answer_without_text_is_sent_without_a_request():
    for content in (b"[]", b'[{"type":"tool_use","name":"look"}]', b"not JSON", b'{"a":1}'):
        outcome, receiver = attempt(what=claimed(content=content))
        assert isinstance(outcome, ev.GenSent) and receiver.requests == []


def test_neither_secret_nor_url_is_in_an_outcome_or_a_repr():
    shown = repr(channel(80)) + repr(attempt(b"HTTP/1.1 500 x\r\n\r\n")[0])
    broken = channel(80, url="http://127.0.0.1:80/hook\r\nX: y")
    shown += repr(attempt(b"", what=claimed(), url=broken.url)[0])
    assert SECRET not in shown and "/hook" not in shown


def test_a_bug_ends_in_an_outcome(monkeypatch):
    monkeypatch.setattr(delivery, "_request", lambda *a: 1 / 0)
    outcome, _ = attempt()
    assert outcome.error == "internal" and outcome.detail == "ZeroDivisionError"


def test_the_signature_covers_time_and_body():
    assert signature("k", "1", b"x") != signature("k", "2", b"x") != signature("k", "2", b"y")

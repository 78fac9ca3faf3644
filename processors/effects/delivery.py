"""A delivery of an answer to a push channel, from its claim to its outcome: a signed HTTP POST.

The outcome is GEN_SENT if the channel accepted the request (2xx), else DELIVERY_FAILED with the
time of the next attempt. All attempts of a delivery have the same body and the same
Idempotency-Key, because the receiver may have handled an attempt whose HTTP response was lost.
Redirects are not followed, and no proxy is used: the connection goes to the address that was
checked. Only the status and the headers of the response are read. Events and errors contain only
the status, never a header, the URL or the secret.
"""

import asyncio
import hmac
import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from random import uniform
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...log.channels import Channel
from ...schemas import events as ev
from ...schemas.canonical import compact
from ...schemas.enums import Role
from ...schemas.events.parts import ReadBlob
from ...schemas.ids import PUSH
from ..fold.projections.delivery import Owed, delivery_of, text_of
from ..fold.projections.partition import Holder
from ..fold.projections.turn_view import Claim
from ..fold.views import SessionViews
from ..limits import Limits
from ..outside.addresses import is_allowed, networks
from ..tools.output_sink import Sink
from ..wake.facts import Obligation
from ..wake.table import Action
from .claim_time import claim_clock
from .effect import NOT_BEGUN, Due, Means, Run
from .models.errors import retry_after_ms
from .ports import BeginDelivery, EffectId, Effects
from .start_window import StartWindow

HEAD_BYTES_MAX = 16 * 1024  # limit of a response's status line and headers
PAUSES_S = (2, 8, 32, 128, 512, 2_048, 3_600)  # pauses between attempts; the last one repeats
NEVER_AGAIN = (410,)  # 410 Gone: the receiver reports a permanent failure


class Deliveries:
    """The deliveries of a worker."""

    role = Role.DELIVERY
    claims = frozenset({Action.DELIVERY_STARTED})
    slots = 16  # a channel that is down blocks one slot

    def __init__(self, effects: Effects, read_blob: ReadBlob) -> None:
        self._effects, self._read_blob = effects, read_blob

    def claim(self, due: Due, holder: Holder) -> ev.DeliveryStarted:
        """See `Kind`."""
        owed, limits = _owed(due.views, due.obligation), due.agent.limits
        return ev.DeliveryStarted(
            turn=owed.turn,
            step=owed.step,
            channel=owed.channel,
            attempt=owed.attempt + 1,
            owner=holder.owner,
            epoch=holder.epoch,
            deadline=due.now + limits.delivery_timeout_ms + limits.grace_ms,
        )

    def claimed(self, views: SessionViews, obligation: Obligation) -> Claim:
        """See `Kind`."""
        claim = _owed(views, obligation).claim
        assert claim is not None, f"{obligation} without a claim"
        return claim

    def begin(self, due: Due) -> None:
        """See `Kind`. The content is the body of the answer, which is found in the transcript."""
        owed, lines = _owed(due.views, due.obligation), due.views.transcript.lines
        place = ("answer", owed.turn, owed.step)
        line = next(
            line
            for line in (lines[back] for back in range(len(lines) - 1, -1, -1))
            if (line.kind, line.turn, line.step) == place
        )
        assert line.body is not None, "an answer has a body"
        body = line.body
        content = self._read_blob(body.ref) if body.ref is not None else body.inline or b"[]"
        user_id = due.views.state.user_id or ""
        begin = BeginDelivery(owed, content, line.name, user_id, due.agent, due.now)
        self._effects.begin(due.session_id, begin)

    def not_begun(self, views: SessionViews, obligation: Obligation, why: str) -> ev.DeliveryFailed:
        """See `Kind`. Another attempt follows at once."""
        return delivery_not_begun(_owed(views, obligation), why)

    def abort(self, due: Due) -> None:
        """An abort does not affect the delivery of an earlier answer."""
        raise AssertionError(f"WAKE aborts no delivery: {due.obligation}")

    @staticmethod
    def is_wanted(views: SessionViews, claim_offset: int) -> bool:
        """See `Kind`."""
        return True

    def forget(self, session_id: str) -> None:
        """See `Kind`."""


def _owed(views: SessionViews, obligation: Obligation) -> Owed:
    return delivery_of(views.delivery, obligation.delivery.number)


def delivery_not_begun(owed: Owed, why: str) -> ev.DeliveryFailed:
    """The outcome of a delivery that was claimed but not begun."""
    return ev.DeliveryFailed(
        turn=owed.turn,
        step=owed.step,
        channel=owed.channel,
        attempt=owed.attempt,
        error=NOT_BEGUN,
        detail=why,
        permanent=False,
    )


# -- the run -----------------------------------------------------------------------------------


def run(session_id: str, begin: BeginDelivery, means: Means) -> Run:
    """The run of a claimed delivery. Called when the claim was read."""
    delivery = Delivery(
        session_id,
        begin.user_id,
        begin.owed.turn,
        begin.owed.step,
        begin.owed.channel,
        begin.owed.attempt,
        max(begin.now, begin.claim.at),
        begin.content,
        begin.stop_reason,
        time.monotonic(),
    )
    return Run(
        Role.DELIVERY,
        EffectId(session_id, begin.claim.offset),
        lambda sink, stop: deliver(delivery, means.find_channel, sink, begin.agent.limits),
        window=StartWindow.of(begin.agent, lambda why: delivery_not_begun(begin.owed, why)),
    )


class Delivery(NamedTuple):
    """A claimed delivery.

    `claimed_at`: the time when the claim was read, Unix ms.
    `read_at`: the same moment, monotonic seconds, or None if the delivery begins at once.
    `content`: the content of the answer.
    """

    session_id: str
    user_id: str
    turn: int
    step: int
    channel: str
    attempt: int
    claimed_at: int
    content: bytes
    stop_reason: str
    read_at: float | None = None


class Failed(Exception):
    """The attempt failed. `error` is a code for programs, the message is for people."""

    def __init__(
        self, error: str, detail: str, status: int | None = None, wait_s: float = 0
    ) -> None:
        super().__init__(detail)
        self.error, self.detail, self.status, self.wait_s = error, detail, status, wait_s


class Answer(NamedTuple):
    """The relevant part of the status line and headers of a receiver's response."""

    status: int
    retry_after_s: float


Find = Callable[[str], Channel | None]


def channel_finder(channels: Mapping[str, Channel]) -> Find:
    """Returns a function that maps the name of a channel, as a message has it, to the channel's
    settings, or to None if no push channel has this name."""
    return lambda name: channels.get(name.removeprefix(PUSH)) if name.startswith(PUSH) else None


async def deliver(delivery: Delivery, find: Find, sink: Sink, limits: Limits) -> None:
    """Make one attempt and report its outcome."""
    now = claim_clock(delivery.claimed_at, delivery.read_at)
    place: dict[str, Any] = {
        "turn": delivery.turn, "step": delivery.step, "channel": delivery.channel
    }
    try:
        text = text_of(delivery.content)
        if text:
            async with asyncio.timeout(limits.delivery_timeout_ms / 1000):
                await _post(_usable(find, delivery.channel), delivery, body_of(delivery, text))
    except TimeoutError:
        why = f"no answer within {limits.delivery_timeout_ms} ms"
        failed = Failed("timeout", why)
    except Failed as error:
        failed = error
    except Exception as bug:  # each claim ends in an outcome; the text may contain the URL
        failed = Failed("internal", type(bug).__name__)
    else:
        await sink.outcome(delivery.session_id, ev.GenSent(**place))
        return
    last = delivery.attempt >= limits.delivery_attempts or failed.status in NEVER_AGAIN
    wait_ms = int(1000 * max(pause_s(delivery.attempt), failed.wait_s))
    event = ev.DeliveryFailed(
        **place,
        attempt=delivery.attempt,
        error=failed.error,
        detail=failed.detail[:500],
        status=failed.status,
        retry_at=None if last else now() + wait_ms,
        permanent=last,
    )
    await sink.outcome(delivery.session_id, event)


def pause_s(attempt: int) -> float:
    """The number of seconds between this attempt and the next. It includes jitter, so that retries
    spread."""
    return PAUSES_S[min(attempt, len(PAUSES_S)) - 1] * uniform(0.8, 1.2)


def idempotency_key(delivery: Delivery) -> str:
    """The Idempotency-Key of the delivery, the same in every attempt."""
    return f"{delivery.session_id}/{delivery.turn}/{delivery.step}/{delivery.channel}"


def body_of(delivery: Delivery, text: str) -> bytes:
    """The body of the request: the same bytes in every attempt."""
    members = {
        "session_id": delivery.session_id,
        "user_id": delivery.user_id,
        "turn": delivery.turn,
        "step": delivery.step,
        "channel": delivery.channel,
        "stop_reason": delivery.stop_reason,
        "text": text,
    }
    return compact(members).encode()


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """The signature of a request: `v1=` and the hex HMAC-SHA256 of `TIMESTAMP.BODY`."""
    signed = hmac.new(secret.encode(), timestamp.encode() + b"." + body, sha256)
    return f"v1={signed.hexdigest()}"


def _usable(find: Find, name: str) -> Channel:
    channel = find(name)
    if channel is None:
        known = name.removeprefix(PUSH)
        raise Failed("unknown_channel", f"the worker has no [channels.{known}] in foldlog.toml")
    if channel.secret is None:
        raise Failed("no_secret", f"{channel.secret_env} is not set where the worker runs")
    return channel


async def _post(channel: Channel, delivery: Delivery, body: bytes) -> None:
    """Send the request; returns once the receiver has accepted it. Raises Failed if the receiver
    did not accept it."""
    try:
        reader, writer = await _connected(channel)
        try:
            writer.write(_request(channel, delivery, body))
            await writer.drain()
            answer = await _answer(reader)
        finally:
            writer.transport.abort()
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or error.reason or "the handshake failed"
        raise Failed("tls", f"no secure connection: {why}") from None
    except socket.gaierror:
        raise Failed("unreachable", "the name of its host is not known") from None
    except (OSError, EOFError) as error:
        number = getattr(error, "errno", None)
        why = os.strerror(number) if number else "connection closed"
        raise Failed("unreachable", why) from None
    if not 200 <= answer.status < 300:
        wait_s = min(answer.retry_after_s, PAUSES_S[-1])
        raise Failed("status", f"it answered {answer.status}", answer.status, wait_s)


async def _connected(channel: Channel) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a checked address of the channel's host. Raises Failed if an address of the host
    is not allowed, and OSError if no address responds."""
    parts = urlsplit(channel.url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    inside = networks(channel.networks)
    # One forbidden address rejects the host, since no public name has an address in a private
    # network.
    if not addresses or not all(is_allowed(each, inside) for each in addresses):
        why = "its host is not on the public internet; name its network in `networks`"
        raise Failed("address", why)
    context = ssl.create_default_context() if secure else None
    error: OSError = OSError("no address answers")
    for address in addresses[:3]:
        try:
            return await asyncio.open_connection(
                address,
                port,
                limit=HEAD_BYTES_MAX,
                ssl=context,
                server_hostname=host if secure else None,
            )
        except ssl.SSLError:
            raise
        except OSError as failed:
            error = failed
    raise error


def _request(channel: Channel, delivery: Delivery, body: bytes) -> bytes:
    parts = urlsplit(channel.url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    timestamp = str(int(time.time()))
    headers = {
        "Host": parts.netloc,
        "User-Agent": "foldlog",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        "Idempotency-Key": idempotency_key(delivery),
        "Foldlog-Timestamp": timestamp,
        "Foldlog-Signature": signature(channel.secret or "", timestamp, body),
    }
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def _answer(reader: asyncio.StreamReader) -> Answer:
    """Read the status and headers of the final response. Raises Failed if the response is invalid,
    and OSError or EOFError if the connection breaks."""
    for _ in range(4):  # a few provisional (1xx) responses may come first
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            why = f"the head of its answer is over {HEAD_BYTES_MAX} bytes"
            raise Failed("bad_answer", why) from None
        answer = _parsed(head)
        if answer.status >= 200:
            return answer
    raise Failed("bad_answer", "it sent provisional answers only")


def _parsed(head: bytes) -> Answer:
    first, *lines = head.decode("latin-1").split("\r\n")
    protocol, _, rest = first.partition(" ")
    code = rest[:3]
    if not protocol.startswith("HTTP/1.") or not (code.isascii() and code.isdigit()):
        raise Failed("bad_answer", "its answer is not HTTP")
    named = {name.strip().lower(): value.strip() for name, _, value in
             (line.partition(":") for line in lines)}
    return Answer(int(code), (retry_after_ms(named, datetime.now(UTC)) or 0) / 1000)

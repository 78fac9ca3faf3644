"""Folds a durable stream that clients write: each request that changes it is an item of a session.

This file folds the session's items in log order. The fold decides the outcome of an append,
including whether it was a repetition, had a gap before it, or came too late, so every gateway gets
the same result. A refused item stays in the log and has no effect. Pure.
"""

import base64
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from .reading import is_json

AGENT = "durable-stream"
"""The agent of these sessions. No worker serves this agent, so nothing answers."""

VERDICTS_MAX = 4_096
"""The most verdicts kept for requests that have not read theirs yet."""

MESSAGE_BYTES = 48
"""The memory that a message takes in addition to its bytes."""
APPEND_BYTES = 256
"""The memory that an append takes with its verdict, in bytes."""

Op = dict[str, Any]


class Verdict(NamedTuple):
    """The result of a request: its status, the reason, and fields of the response."""

    status: int
    why: str = ""
    seq: int | None = None  # the producer's highest sequence
    epoch: int | None = None
    gap: tuple[int, int] | None = None  # expected, received
    tail: int | None = None
    closed: bool = False


class StreamState:
    """A stream from its creation to its deletion or expiry."""

    def __init__(self, op: Op, offset: int, at: int) -> None:
        self.content_type: str = op["type"]
        self.ttl: str | None = op["ttl"]
        self.expires: str | None = op["expires"]
        self.expires_ms: int | None = op["expires_ms"]
        self.closed = False
        self.tail = offset
        self.seq: str | None = None
        self.closed_by: list[Any] | None = None
        self.producers: dict[str, tuple[int, int]] = {}
        self._appends: list[tuple[int, list[bytes]]] = []
        self._used_ms = at
        self.size = 0
        """Approximate bytes in memory."""

    def is_over(self, at: int) -> bool:
        """Whether the stream has expired.

        Only writes extend its life, because a read writes no event.
        """
        if self.expires_ms is not None:
            return at >= self.expires_ms
        return self.ttl is not None and at >= self._used_ms + int(self.ttl) * 1000

    def since(self, place: int) -> Iterator[tuple[int, list[bytes]]]:
        """Each append from a place on."""
        return iter(self._appends[bisect_right(self._appends, place, key=itemgetter(0)) :])

    def add(self, op: Op, offset: int, at: int) -> None:
        """Apply an accepted append."""
        self._used_ms = at
        messages = messages_of(op)
        self.size += APPEND_BYTES + sum(MESSAGE_BYTES + len(message) for message in messages)
        if messages:
            self._appends.append((offset + 1, messages))
            self.tail = offset + 1
        if op.get("seq") is not None:
            self.seq = op["seq"]
        if op.get("producer"):
            name, epoch, seq = op["producer"]
            self.size += 0 if name in self.producers else MESSAGE_BYTES + len(name)
            self.producers[name] = (epoch, seq)
        if op.get("close"):
            self.closed, self.closed_by = True, op.get("producer")


class WrittenStream:
    """The fold of one session's items. `life` is None if there is no stream."""

    def __init__(self) -> None:
        self.life: StreamState | None = None
        self.batches = 0
        self.verdicts: OrderedDict[int, Verdict] = OrderedDict()

    @property
    def size(self) -> int:
        """Approximate bytes in memory."""
        life = 0 if self.life is None else self.life.size
        return life + APPEND_BYTES * (1 + len(self.verdicts))

    def alive(self, at: int) -> StreamState | None:
        """The stream that exists at a time (Unix ms), or None."""
        return None if self.life is None or self.life.is_over(at) else self.life

    def take(self, op: Op, offset: int, at: int) -> Verdict:
        """Fold one request and return its verdict."""
        self.batches += 1
        verdict = self.judge(op, at)
        if verdict.status < 300 and verdict.why != "known":
            if op["op"] == "delete":
                self.life = None
            else:
                if op["op"] == "create":
                    self.life = StreamState(op, offset, at)
                assert self.life is not None
                self.life.add(op, offset, at)
                closed = self.life.closed
                verdict = verdict._replace(tail=self.life.tail, closed=closed)
        self.verdicts[offset] = verdict
        if len(self.verdicts) > VERDICTS_MAX:
            self.verdicts.popitem(last=False)
        return verdict

    def judge(self, op: Op, at: int) -> Verdict:
        """The verdict on a request at a time, without applying it.

        The verdict's `why` is `known` if an earlier request already had the same effect.
        """
        life = self.alive(at)
        if op["op"] == "create":
            return _judge_create(life, op)
        if life is None:
            return Verdict(404, "there is no such stream")
        return Verdict(204) if op["op"] == "delete" else _judge_append(life, op)


def _judge_create(life: StreamState | None, op: Op) -> Verdict:
    if life is None:
        return Verdict(201)
    same = (kind_of(life.content_type), life.ttl, life.expires, life.closed)
    if same != (kind_of(op["type"]), op["ttl"], op["expires"], bool(op.get("close"))):
        return Verdict(409, "the stream exists with another type, expiry or closure")
    return Verdict(200, "known", tail=life.tail, closed=life.closed)


def _judge_append(life: StreamState, op: Op) -> Verdict:
    producer = op.get("producer")
    here: dict[str, Any] = {"tail": life.tail, "closed": life.closed}
    if producer and life.closed and life.closed_by == producer:
        return Verdict(204, "known", epoch=producer[1], seq=producer[2], **here)
    stale = _judge_producer(life, producer)
    if stale is not None and (stale.status == 403 or not life.closed):
        return stale._replace(**here) if stale.why == "known" else stale
    if life.closed:
        if op.get("close") and not producer and not messages_of(op):
            return Verdict(204, "known", **here)
        return Verdict(409, "the stream is closed", **here)
    if messages_of(op) and kind_of(op["type"]) != kind_of(life.content_type):
        return Verdict(409, f"the stream is {life.content_type}, not {op['type']}")
    seq = op.get("seq")
    if seq is not None and life.seq is not None and seq.encode() <= life.seq.encode():
        return Verdict(409, f"Stream-Seq {seq!r} does not come after {life.seq!r}")
    if producer:
        return Verdict(200 if messages_of(op) else 204, epoch=producer[1], seq=producer[2])
    return Verdict(204)


def _judge_producer(life: StreamState, producer: list[Any] | None) -> Verdict | None:
    """The verdict on a repeated or refused request of a producer; None if the request is in order.
    """
    if not producer:
        return None
    name, epoch, seq = producer
    known = life.producers.get(name)
    if known is None:
        if seq:
            return Verdict(409, "a new producer must begin with sequence 0", gap=(0, seq))
        return None
    if epoch < known[0]:
        return Verdict(403, "a newer epoch of this producer is writing", epoch=known[0])
    if epoch > known[0]:
        return Verdict(400, "a new epoch must begin with sequence 0") if seq else None
    if seq <= known[1]:
        return Verdict(204, "known", epoch=epoch, seq=known[1])
    if seq > known[1] + 1:
        return Verdict(409, "sequences are missing", gap=(known[1] + 1, seq))
    return None


def kind_of(content_type: str) -> str:
    """A content type in lower case and without parameters, for comparisons."""
    return content_type.partition(";")[0].strip().lower()


def encoded(content_type: str, messages: list[bytes]) -> Op:
    """The messages, encoded for an item."""
    if is_json(content_type):
        return {"json": [message.decode() for message in messages]}
    try:
        return {"text": [message.decode() for message in messages]}
    except UnicodeDecodeError:
        return {"base64": [base64.b64encode(message).decode() for message in messages]}


def messages_of(op: Op) -> list[bytes]:
    """The messages of an item."""
    if "base64" in op:
        return [base64.b64decode(message) for message in op["base64"]]
    return [message.encode() for message in op.get("json") or op.get("text", ())]

"""A model server that only streams, for the benches of streams.

    python stream_server.py DELTAS PER_SECOND

It prints its port. Every POST gets an answer of DELTAS text deltas, PER_SECOND of them a second,
the first at once. A delta's text is "@MS ", the time at which it was sent in ms of the monotonic
clock, so that any process of this machine can compute its delay. GET returns JSON: {deltas: sent
so far, active: streams that run, late_ms: the longest delay of a round since the last GET}. DELETE
ends every stream as if its answer were complete, and returns the same.

It checks nothing and writes the same bytes to all streams of a round, because a strict server
(local/messages_api) would need more CPU time than what is measured.
"""

import asyncio
import json
import sys
import time

ROUNDS = 10  # between two deltas of one stream; the streams are spread over them
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"request-id: req_bench\r\ntransfer-encoding: chunked\r\n\r\n"
)
USAGE = {"input_tokens": 100, "output_tokens": 1}
MESSAGE = {
    "id": "msg_bench", "type": "message", "role": "assistant", "model": "bench", "content": [],
    "stop_reason": None, "stop_sequence": None, "usage": USAGE,
}
END = {"stop_reason": "end_turn", "stop_sequence": None}


def _event(name: str, **fields: object) -> bytes:
    data = json.dumps({"type": name, **fields}, separators=(",", ":"))
    event = f"event: {name}\ndata: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


BEGIN = _event("message_start", message=MESSAGE) + _event(
    "content_block_start", index=0, content_block={"type": "text", "text": ""}
)
FINISH = (
    _event("content_block_stop", index=0)
    + _event("message_delta", delta=END, usage={"output_tokens": 1000})
    + _event("message_stop")
    + b"0\r\n\r\n"
)


def _delta() -> bytes:
    text = f"@{time.monotonic_ns() // 1_000_000} "
    return _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


class Server:
    """All streams, by the round in which they get their deltas."""

    def __init__(self, deltas: int, per_second: int) -> None:
        self.deltas, self.gap_s = deltas, 1 / per_second / ROUNDS
        self.rounds: list[dict[asyncio.Transport, int]] = [{} for _ in range(ROUNDS)]
        self.number = self.sent = 0
        self.late_s = 0.0

    def begin(self, transport: asyncio.Transport) -> None:
        """Answer a request, with the first delta."""
        transport.write(HEAD + BEGIN + _delta())
        self.sent += 1
        self.rounds[self.number % ROUNDS][transport] = self.deltas - 1

    def drop(self, transport: asyncio.Transport) -> None:
        """Forget a closed connection."""
        for streams in self.rounds:
            streams.pop(transport, None)

    def finish(self) -> None:
        """End every stream in its next round."""
        for streams in self.rounds:
            streams.update(dict.fromkeys(streams, 0))

    def report(self) -> bytes:
        """The response to a GET."""
        active, late_ms = sum(map(len, self.rounds)), self.late_s * 1000
        self.late_s = 0.0
        body = json.dumps({"deltas": self.sent, "active": active, "late_ms": late_ms}).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)

    async def run(self) -> None:
        """Send one delta to the streams of a round, then wait for the next round."""
        due = time.monotonic()
        while True:
            due += self.gap_s
            late_s = time.monotonic() - due
            self.late_s = max(self.late_s, late_s)
            await asyncio.sleep(max(0.0, -late_s))
            self.number += 1
            streams = self.rounds[self.number % ROUNDS]
            delta = _delta() if streams else b""
            for transport, left in list(streams.items()):
                if left:
                    transport.write(delta)
                    self.sent += 1
                    streams[transport] = left - 1
                else:
                    transport.write(FINISH)
                    del streams[transport]


class Connection(asyncio.Protocol):
    """One connection, which may be used for several requests."""

    def __init__(self, server: Server) -> None:
        self.server, self.received = server, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, separator, body = self.received.partition(b"\r\n\r\n")
        if not separator:
            return
        lengths = [
            int(line.partition(b":")[2])
            for line in head.lower().splitlines()
            if line.startswith(b"content-length:")
        ]
        if len(body) < sum(lengths):
            return
        self.received = b""
        if head.startswith(b"POST"):
            self.server.begin(self.transport)
        else:
            if head.startswith(b"DELETE"):
                self.server.finish()
            self.transport.write(self.server.report())

    def connection_lost(self, _error: Exception | None) -> None:
        self.server.drop(self.transport)


async def main(deltas: str, per_second: str) -> None:
    server = Server(int(deltas), int(per_second))
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Connection(server), "127.0.0.1", 0, backlog=1000)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await server.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

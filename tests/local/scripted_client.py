"""Helpers for the tests of the scripted Messages API server: the real client, and small
requests."""

import functools
import http.client
import json
import socket

import anthropic
import pytest

from foldlog.local.messages_api import (
    FAULTS,
    Reply,
    ScriptedServer,
    fault,
    text,
    thinking,
    tool_use,
)

MODEL = "claude-opus-5-5"
TOOLS = [
    {"name": "look", "input_schema": {"type": "object", "properties": {"path": {}}}},
    {"name": "touch", "input_schema": {"type": "object"}},
]


@functools.cache
def _shared() -> anthropic.Anthropic:
    # One client, because making its TLS context costs more than a whole test.
    return anthropic.Anthropic(api_key="key", auth_token=None, base_url="http://x", max_retries=0)


def client(server) -> anthropic.Anthropic:
    """The real client with the address of a server, and without retries of its own."""
    return _shared().with_options(base_url=server.base_url)


def request(*messages, **fields):
    """The keyword arguments of a small request; a string becomes a user's message."""
    full = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    fields = {"model": MODEL, "max_tokens": 256, "tools": TOOLS, **fields}
    return {**fields, "messages": full or [{"role": "user", "content": "hi"}]}


def assistant(*blocks):
    return {"role": "assistant", "content": [_plain(block) for block in blocks]}


def _plain(block):
    return block if isinstance(block, dict) else block.to_dict(warnings=False)


def results(*ids, **fields):
    return {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": id, "content": "ok", **fields} for id in ids
        ],
    }


def call(id, name="look"):
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def ask(server, *messages, **fields):
    """The final message of a streamed answer."""
    with client(server).messages.stream(**request(*messages, **fields)) as stream:
        return stream.get_final_message()


def text_of(message):
    """The text of an answer."""
    return "".join(block.text for block in message.content if block.type == "text")


def refused(server, *messages, **fields):
    """The message of the 400 error that the real client raises."""
    with pytest.raises(anthropic.BadRequestError) as caught:
        client(server).messages.create(**request(*messages, **fields))
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id.startswith("req_01")
    return caught.value.api_message


SENTENCE = "one two three four five six seven eight nine ten"
BLOCKS = [thinking("hm"), text(SENTENCE), tool_use("look", {"path": "a" * 40})]


def serving(name, blocks=BLOCKS, **params):
    """A server that puts this fault into every answer."""
    return ScriptedServer(Reply(blocks, chunk=4, fault=fault(name, **params)))


def by_stage(stage):
    """The names of the faults that belong to a stage."""
    return [name for name, mode in FAULTS.items() if mode.stage is stage]


def events(server, *messages, **fields):
    """The raw events of a stream, as dicts."""
    stream = client(server).messages.create(stream=True, **request(*messages, **fields))
    return [event.to_dict(warnings=False) for event in stream]


def post(server, path="/v1/messages", body=None, headers=None):
    """A raw POST without the client. Returns (status, headers, parsed body)."""
    connection = http.client.HTTPConnection(server.base_url.removeprefix("http://"), timeout=20)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    default = {"authorization": "Bearer key", "anthropic-version": "2026-10-21"}
    try:
        connection.request("POST", path, data, default if headers is None else headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def raw_chunks(server):
    """The (headers, HTTP chunks) of a stream, as bytes."""
    body = json.dumps({**request("go"), "stream": True}).encode()
    head = (
        b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\n"
        b"anthropic-version: 2026-10-21\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    )
    port = int(server.base_url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(head % len(body) + body)
        data = b"".join(iter(lambda: sock.recv(65536), b""))
    headers, _, rest = data.partition(b"\r\n\r\n")
    chunks = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        chunks.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return headers, [chunk for chunk in chunks if chunk]

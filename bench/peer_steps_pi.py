"""A peer: pi-durable on SQLite. Times each tool round of a conversation with a scripted model.

A round begins at the end of a model answer that calls a tool which does nothing, and ends at the
next request to the model: the answer, the call's intent and its result are committed in between.
Its default is `PRAGMA synchronous = NORMAL`, with which no commit waits for the disk. Input lines:
{"steps": n, "flush": whether commits wait}. Output lines: the ms of each round. It imports only
pi_durable and the standard library, and runs in bench/.venv (see peers.py).
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from pi_durable import Harness, Model, create_registry
from pi_durable.context import BACKGROUND_CONTEXT
from pi_durable.harness.define import define_extension, define_tool
from pi_durable.storage.sqlite.posix import open_posix_sqlite_database
from pi_durable.storage.sqlite.storage import SqliteStorage

MODEL = Model(provider="bench", model_id="scripted", context_window=1_000_000, max_tokens=1_000)


class Answer:
    """A stream of one complete message."""

    def __init__(self, models: "Scripted", message: dict[str, Any]) -> None:
        self._models, self._message = models, message

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        yield {"type": "start", "partial": self._message}

    async def result(self) -> dict[str, Any]:
        """The message."""
        self._models.answered = time.perf_counter()
        return self._message


class Scripted:
    """A model that calls the tool `left` times, then answers with text."""

    def __init__(self) -> None:
        self.left, self.answered = 0, 0.0
        self.times_ms: list[float] = []
        self.looked = 0

    def get_model(self, provider: str, model_id: str) -> Model:
        """The only model."""
        return MODEL

    def stream_simple(
        self, model: Model, context: Mapping[str, Any], options: Mapping[str, Any] | None = None
    ) -> Answer:
        """Answer a request."""
        if self.answered:
            self.times_ms.append((time.perf_counter() - self.answered) * 1000)
        call = {"type": "toolCall", "id": f"call-{self.left}", "name": "look", "arguments": {}}
        content = [call] if self.left else [{"type": "text", "text": "done"}]
        reason = "toolUse" if self.left else "stop"
        self.left -= 1
        cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
        usage = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2}
        return Answer(
            self,
            {
                "role": "assistant",
                "content": content,
                "api": "bench",
                "provider": MODEL.provider,
                "model": MODEL.model_id,
                "usage": usage | {"cost": cost},
                "stopReason": reason,
                "timestamp": int(time.time() * 1000),
            },
        )


async def rounds(directory: Path, steps: int, *, flush: bool) -> list[float]:
    """Play one conversation, and return the ms of each tool round."""
    models, registry = Scripted(), create_registry()

    async def look(*_args: Any, **_more: Any) -> dict[str, Any]:
        models.looked += 1
        return {"content": [{"type": "text", "text": "ok"}]}

    tool = define_tool(
        name="look",
        description="Do nothing.",
        parameters={"type": "object", "properties": {}},
        execute=look,
        replay="safe",
    )
    registry.install(define_extension(name="bench", tools=[tool]))
    database = await open_posix_sqlite_database(str(directory / f"{time.monotonic_ns()}.db"))
    if flush:
        await database.exec("PRAGMA synchronous = FULL")
    storage = await SqliteStorage.open(database)
    setup = {"models": models, "registry": registry}
    harness = await Harness.open(storage, setup, BACKGROUND_CONTEXT)
    try:
        model = {"provider": MODEL.provider, "modelId": MODEL.model_id}
        agent = {"model": model, "extensions": ["bench"]}
        conversation = await harness.root(BACKGROUND_CONTEXT, {"agent": agent})
        models.left = steps
        asked = {"type": "input", "content": "go"}
        submission = await conversation.submit(asked, BACKGROUND_CONTEXT)
        settled = await submission.wait(BACKGROUND_CONTEXT)
        assert settled["status"] == "done", settled
        assert models.looked == len(models.times_ms) == steps
        return models.times_ms
    finally:
        await harness.close(BACKGROUND_CONTEXT)


with tempfile.TemporaryDirectory(prefix="foldlog-bench-") as scratch:
    for line in sys.stdin:
        asked = json.loads(line)
        found = asyncio.run(rounds(Path(scratch), asked["steps"], flush=asked["flush"]))
        print(json.dumps(found), flush=True)

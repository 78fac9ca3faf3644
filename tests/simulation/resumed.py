"""Answers that are resumed: who resumes, and how a simulated model goes on from what was kept.

The answer is put together by the real code, from the events of a stream. It must not know a fold.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from foldlog.processors.agent import Agent
from foldlog.processors.effects.models.resumed import ResumedAnswer
from foldlog.processors.request.continuation import Kept
from foldlog.schemas import events as ev
from foldlog.schemas.canonical import compact
from foldlog.tests.simulation.answers import Answer

MODELS = ("sim-1", "claude-3-sim")
"""One that is asked to go on, one that takes a last message of the assistant's."""


def recovering(agent: Agent, seed: int, *, always: bool) -> Agent:
    """The agent, which resumes in every second world, or `always`. With a chance of its own, so
    that the worlds that do not are as they were."""
    chance = Random(f"recovery {seed}")
    if not always and chance.random() < 0.5:
        return agent
    return replace(agent, recovery="resume", model=chance.choice(MODELS))


class GoesOn:
    """The answer of a simulated model that goes on."""

    def __init__(self, kept: Kept, answer: Answer, place: dict[str, int]) -> None:
        self._resumed, self._place = ResumedAnswer(kept), place
        self._events, self._seq = list(_events(answer)), kept.prior_seq + 1

    def chunks(self) -> Iterator[list[ev.GenChunk]]:
        """What comes, piece by piece; `so_far` and `content` say what it adds up to by then."""
        return map(self._fed, self._events)

    def _fed(self, event: dict) -> list[ev.GenChunk]:
        chunks = []
        for shown in self._resumed.feed(event["type"], json.dumps(event)):
            if shown.text:
                chunks.append(
                    ev.GenChunk(
                        **self._place,
                        seq=self._seq,
                        block=shown.block,
                        kind=shown.kind,
                        delta=shown.text,
                    )
                )
                self._seq += 1
        return chunks

    def so_far(self) -> bytes:
        """Content of an answer that is cut here."""
        return self._resumed.content_so_far()

    def content(self) -> bytes:
        """Content of the whole."""
        return self._resumed.content()


def _events(answer: Answer) -> Iterator[dict]:
    """The events of a stream, with texts in pieces, of which the first begins with whitespace."""
    for index, block in enumerate(answer.blocks):
        empty = {"text": "", "thinking": ""}
        begun = {key: empty.get(key, value) for key, value in block.items()}
        if block["type"] == "tool_use":
            begun["input"] = {}
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}


def _deltas(block: dict) -> Iterator[dict]:
    match block["type"]:
        case "text":
            text = " " + block["text"]
            for start in range(0, len(text), 5):
                yield {"type": "text_delta", "text": text[start : start + 5]}
        case "thinking":
            yield {"type": "thinking_delta", "thinking": block["thinking"]}
        case "tool_use":
            yield {"type": "input_json_delta", "partial_json": compact(block["input"])}

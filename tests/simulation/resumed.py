"""Resumed answers in the simulator: which worlds resume, and how the simulated model continues."""

from dataclasses import replace
from random import Random

from foldlog.processors.agent import Agent
from foldlog.processors.request.continuation import Kept
from foldlog.schemas.canonical import compact
from foldlog.tests.kit.continued_answer import ContinuedAnswer, StreamedBlock, pieces
from foldlog.tests.simulation.answers import Answer

MODELS = ("sim-1", "claude-3-sim")
"""One that is asked to continue, one that accepts a last message of the assistant's."""
PIECE = 5  # characters of a text delta


def recovering(agent: Agent, seed: int, *, always: bool) -> Agent:
    """The agent, which resumes in every second world, or in each if `always`. A separate random
    draw decides, so that the worlds that do not resume remain the same."""
    chance = Random(f"recovery {seed}")
    if not always and chance.random() < 0.5:
        return agent
    return replace(agent, recovery="resume", model=chance.choice(MODELS))


def continued_answer(kept: Kept, answer: Answer, place: dict[str, int]) -> ContinuedAnswer:
    """A random answer that continues a kept part."""
    return ContinuedAnswer(kept, place, map(_streamed, answer.blocks))


def _streamed(block: dict) -> StreamedBlock:
    match block["type"]:
        case "text":
            deltas = pieces(block["text"], PIECE)
            start = {**block, "text": ""}
            return start, [{"type": "text_delta", "text": text} for text in deltas]
        case "thinking":
            delta = {"type": "thinking_delta", "thinking": block["thinking"]}
            return {**block, "thinking": ""}, [delta]
        case "tool_use":
            delta = {"type": "input_json_delta", "partial_json": compact(block["input"])}
            return {**block, "input": {}}, [delta]
    return block, []

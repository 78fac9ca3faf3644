"""A long job with a tool: the same content for foldlog and for its peers.

This file defines the content of each turn, and an agent for the job. A turn is a question, a step
that calls `look` once, the result, and a step that answers: 4 messages, about 2.4 kB. The words
come from a seeded generator, so that every run has the same content and no text repeats another.
"""

import random
from typing import NamedTuple

from foldlog.processors.agent import Agent
from foldlog.processors.limits import Limits
from foldlog.processors.tools.tool import tool

# Rare and frequent words, so that the text compresses about as well as prose.
WORDS = (
    "the of and to in is for on that with as by it from at are was be this an or which file line "
    "value error index broker offset record session context window budget tokens model answer "
    "result message partition store cursor claim attempt owner deadline retry replay prefix cache "
    "summary schema field reader writer table column query request response header stream"
).split()
RESULT_CHARS = 1_800  # the length of a tool's result: a page of a file
ANSWER_CHARS = 300  # the length of a final answer
MODEL = "claude-sonnet-5"  # cache reads at a tenth of the input price, like most models
SUMMARY_CHARS = 3_500  # about 1,350 tokens
POLICY = 60  # sentences in the system prompt


class Turn(NamedTuple):
    """The content of one turn. `preface`: the text before the call; `args`: its input, as JSON."""

    number: int
    question: str
    preface: str
    args: str
    result: str
    answer: str

    @property
    def content_bytes(self) -> int:
        """The UTF-8 bytes of all texts."""
        return sum(len(text.encode()) for text in self[1:])


def words(chance: random.Random, chars: int) -> str:
    """About `chars` characters of prose."""
    prose, length = [], 0
    while length < chars:
        word = chance.choice(WORDS) if chance.random() < 0.9 else str(chance.randrange(10_000))
        prose.append(word)
        length += len(word) + 1
    return " ".join(prose)


def turn(number: int, *, result_chars: int = RESULT_CHARS) -> Turn:
    """Turn `number` (from 1) of the job."""
    chance = random.Random(f"turn {number}")
    return Turn(
        number,
        f"Question {number}: {words(chance, 80)}?",
        f"I look at part {number}: {words(chance, 60)}.",
        f'{{"path":"src/part_{number}.py","first":{chance.randrange(1, 400)}}}',
        words(chance, result_chars),
        f"{words(chance, ANSWER_CHARS)}.",
    )


def summary(number: int) -> str:
    """A summary as long as a cheap model's, different for each `number`."""
    return words(random.Random(f"summary {number}"), SUMMARY_CHARS)


@tool(effect="pure")
def look(path: str, first: int = 1) -> str:
    """Show a page of a file, from a line on.

    path: relative to the working directory. first: number of the first line, from 1. Gives at
    most 40 lines; ask again with a later line for more.
    """
    raise AssertionError("the bench returns the results of the job instead")


def agent(*, strategy: str = "compacted") -> Agent:
    """The agent of the job; `full` keeps every message and has no budget."""
    chance = random.Random("policy")
    policy = " ".join(f"{n}. {words(chance, 90)}." for n in range(1, POLICY + 1))
    limits = Limits()
    if strategy == "full":
        limits = Limits(soft_tokens=10**9, hard_tokens=10**9)
    return Agent(
        name="bench", model=MODEL, system=policy, tools=(look,), limits=limits, strategy=strategy
    )

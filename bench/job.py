"""A long job with a tool: the same words for foldlog and for what it is compared with.

Owns what a person, a model and a tool say in each turn, and an agent for it. A turn is a question,
a step that calls `look` once, its result, and a step that answers: 4 messages, about 2.4 kB. The
words come from a seeded generator, so that every run says the same and no text repeats another.
"""

import random
from typing import NamedTuple

from foldlog.processors.agent import Agent
from foldlog.processors.limits import Limits
from foldlog.processors.tools.tool import tool

# Seldom and often used words, so that the text compresses about as prose does.
WORDS = (
    "the of and to in is for on that with as by it from at are was be this an or which file line "
    "value error index broker offset record session context window budget tokens model answer "
    "result message partition store cursor claim attempt owner deadline retry replay prefix cache "
    "summary schema field reader writer table column query request response header stream"
).split()
RESULT_CHARS = 1_800  # of a tool's result: a page of a file
ANSWER_CHARS = 300  # of a final answer
MODEL = "claude-sonnet-5"  # reads its cache at a tenth of the input price, as most models do
SUMMARY_CHARS = 3_500  # about 1,350 tokens
POLICY = 60  # sentences of the system prompt


class Turn(NamedTuple):
    """What is said in one turn. `args`: the tool's input, as JSON text."""

    number: int
    question: str
    says: str
    args: str
    result: str
    answer: str

    @property
    def said_bytes(self) -> int:
        """UTF-8 bytes of all of it."""
        return sum(len(text.encode()) for text in self[1:])


def words(chance: random.Random, chars: int) -> str:
    """About so many characters of prose."""
    said, length = [], 0
    while length < chars:
        word = chance.choice(WORDS) if chance.random() < 0.9 else str(chance.randrange(10_000))
        said.append(word)
        length += len(word) + 1
    return " ".join(said)


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
    """A summary as a cheap model writes it; `number` makes it another one."""
    return words(random.Random(f"summary {number}"), SUMMARY_CHARS)


@tool(effect="pure")
def look(path: str, first: int = 1) -> str:
    """Show a page of a file, from a line on.

    path: relative to the working directory. first: number of the first line, from 1. Gives at
    most 40 lines; ask again with a later line for more.
    """
    raise AssertionError("its results are those of the job")


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

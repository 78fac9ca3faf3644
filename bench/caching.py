"""cache_saving: what prompt caching saves of the input cost of a 200-turn tool job, at list prices.

The job goes through the real builder and the real client to the scripted server, which simulates
the cache as it is documented (prefixes up to a mark, 20 positions of look-back, least sizes, 5
minutes that never pass between two steps); its `usage` is what is priced. The other price is that
of the same tokens with no mark at all. Every model call counts, those that compact as well. Output
costs the same with and without a cache and is left out.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from foldlog.bench.job import Turn, agent, turn
from foldlog.bench.measure import Ratio
from foldlog.bench.played import Answer, Outcome, Played
from foldlog.local.messages_api import Reply, Request, Script, ScriptedServer, text, tool_use
from foldlog.processors.effects.models import GenClaim, generate, make_client
from foldlog.processors.effects.sink import Stop
from foldlog.processors.limits import DEFAULT_LIMITS
from foldlog.processors.runtime.actions import BeginGeneration
from foldlog.processors.runtime.store import DictBackend
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of

TURNS = 200
# The list prices of the documentation, as multiples of the price of an input token.
READ, WRITE_5M, WRITE_1H = 0.1, 1.25, 2.0


class Heard:
    """The sink of one attempt."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def chunk(self, session_id: str, event: ev.GenChunk) -> None:
        """A piece of the answer."""
        self.events.append(event)

    async def outcome(self, session_id: str, event: Any) -> None:
        """How it ended."""
        self.events.append(event)


def script(job: list[Turn]) -> Script:
    """What the model says in the steps of the job."""

    def speak(request: Request) -> Reply:
        number, step = map(int, request.generation.split("."))
        turn = job[number - 1]
        if step == 1:
            return Reply([text(turn.says), tool_use("look", turn.args)], chunk="whole")
        return Reply([text(turn.answer)], chunk="whole")

    return Script([speak])


@contextmanager
def asked(server: ScriptedServer) -> Iterator[Answer]:
    """Answers from a server, through the models effect and its client."""
    with asyncio.Runner() as runner:

        async def connect() -> Any:
            return make_client("bench", server.base_url)

        client = runner.run(connect())

        def answer(turn: Turn, begin: BeginGeneration) -> Outcome:
            claim = GenClaim(
                session_id="bench",
                turn=begin.turn,
                step=begin.step,
                attempt=begin.attempt,
                claimed_at=begin.claim.at,
            )
            heard = Heard()
            run = generate(claim, begin.request, heard, Stop(), client, limits=DEFAULT_LIMITS)
            runner.run(run)
            assert isinstance(heard.events[-1], ev.GenComplete), heard.events[-1]
            return Outcome("models", tuple(heard.events))

        yield answer
        runner.run(client.close())


def usages(turns: int) -> list[ev.Usage]:
    """What the server counted for every model call of the job."""
    job = [turn(number) for number in range(1, turns + 1)]
    with ScriptedServer(script=script(job)) as server, asked(server) as answer:
        played = Played(agent(unbounded=True), DictBackend(), answer).play_all(job)
    events = (entry_of(record).event for record in played.records)
    return [event.usage for event in events if getattr(event, "usage", None) is not None]


def priced(usage: ev.Usage) -> float:
    """The input of a call, in tokens' worth of uncached input."""
    return (
        usage.input_tokens
        + READ * usage.cache_read_tokens
        + WRITE_5M * usage.cache_write_5m_tokens
        + WRITE_1H * usage.cache_write_1h_tokens
    )


def tokens(usage: ev.Usage) -> int:
    """All input tokens of a call."""
    return (
        usage.input_tokens
        + usage.cache_read_tokens
        + usage.cache_write_5m_tokens
        + usage.cache_write_1h_tokens
    )


def cache_saving(runs: int = 1, turns: int = TURNS) -> Ratio:
    """The bench. Nothing of it varies, so it runs once."""
    spent = usages(turns)
    cost, uncached = sum(map(priced, spent)), float(sum(map(tokens, spent)))
    read = sum(usage.cache_read_tokens for usage in spent)
    note = (
        f"1 - ours/baseline; input of {len(spent)} calls in thousands of uncached tokens' worth,"
        f" {tokens(spent[-1]):,} tokens in the last, {read / uncached:.1%} of all read from cache"
    )
    aim = "saved: at least 0.72, aim 0.86"
    saved = 1 - cost / uncached
    return Ratio(
        "cache_saving", cost / 1000, uncached / 1000, "k tokens", saved, 1, aim, note
    )

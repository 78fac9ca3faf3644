"""cache_saving: the share of the input cost of a 200-turn tool job that caching saves, at list
prices.

The job goes through the real builder and the real client to the scripted server, which simulates
the documented cache (prefixes up to a mark, 20 positions of look-back, minimum sizes, a 5-minute
lifetime that never expires between two steps). Our price is the price of the server's `usage`, from
the ledger; the baseline is the price of the same tokens without cache marks. Every model call
counts, including the cheap model's summaries. Output is excluded: it costs the same with and
without a cache. With the model of this bench, reading the cache costs a tenth of the input price;
with newer models it costs a twentieth, so caching saves more. The note also has what a second user
of the agent, with other memory, reads from the cache at the first request.
"""

import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from foldlog.bench.job import Turn, agent, look, summary, turn
from foldlog.bench.measure import Ratio
from foldlog.bench.played import SESSION, Models, Outcome, Played
from foldlog.local.messages_api import Reply, Request, Script, ScriptedServer, text, tool_use
from foldlog.local.messages_api.cache import PromptCache
from foldlog.log.blobs import BlobStore
from foldlog.processors.advice.prices import PICO_PER_USD, input_cost, list_prices, total
from foldlog.processors.effects import background
from foldlog.processors.effects.models.call import GenClaim, generate, make_client
from foldlog.processors.effects.ports import BeginGeneration, BeginWork
from foldlog.processors.fold.projections.ledger import ANSWER, Spent
from foldlog.processors.limits import DEFAULT_LIMITS
from foldlog.processors.request.blocks import Message, raw_blocks
from foldlog.processors.request.cache_marks import marked_request
from foldlog.processors.request.layers import Layer, Layers
from foldlog.processors.request.prefix import assemble
from foldlog.processors.store.store import DictBackend
from foldlog.processors.tools.output_sink import Stop
from foldlog.schemas import events as ev

TURNS = 200
PHASE_TURNS = 12  # of the job whose phase changes: it is played twice
TWO_CHANGES = ("start_build", "todo_done_build")
LIMITED_TO = ("chatting", "building", "verifying")  # where the job calls its tool


class RecordingSink:
    """A sink that records the events of one attempt."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def chunk(self, session_id: str, event: ev.GenChunk) -> None:
        """Record a chunk."""
        self.events.append(event)

    async def outcome(self, session_id: str, event: Any) -> None:
        """Record the outcome."""
        self.events.append(event)


def script(job: list[Turn]) -> Script:
    """The script of the model's replies in the job."""

    def reply(request: Request) -> Reply:
        number, step = map(int, request.generation.split("."))
        if not step:
            return Reply([text(summary(request.ordinal))], chunk="whole")
        turn = job[number - 1]
        if step == 1:
            return Reply([text(turn.preface), tool_use("look", turn.args)], chunk="whole")
        return Reply([text(turn.answer)], chunk="whole")

    return Script([reply])


@contextmanager
def served(server: ScriptedServer) -> Iterator[Models]:
    """Yields models that get their answers from a server, through the product's own effects and
    client.
    """
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory() as directory:
        blobs = BlobStore(Path(directory))

        async def connect() -> Any:
            return make_client("bench", server.base_url)

        client = runner.run(connect())

        def answer(turn: Turn, begin: BeginGeneration) -> Outcome:
            claim = GenClaim(
                session_id=SESSION,
                turn=begin.turn,
                step=begin.step,
                attempt=begin.attempt,
                claimed_at=begin.claim.at,
            )
            sink = RecordingSink()
            run = generate(claim, begin.request, sink, Stop(), client, limits=DEFAULT_LIMITS)
            runner.run(run)
            assert isinstance(sink.events[-1], ev.GenComplete), sink.events[-1]
            return Outcome("models", tuple(sink.events))

        def work(begin: BeginWork) -> Outcome:
            claim = background.WorkClaim(
                SESSION, begin.kind, begin.upto, begin.attempt, begin.claim.at
            )

            async def get_client() -> Any:
                return client

            sink, stop = RecordingSink(), Stop()
            run = background.work(
                claim, begin.task, begin.agent, sink, stop, get_client, blobs=blobs
            )
            runner.run(run)
            return Outcome("background", tuple(sink.events))

        yield Models(answer, work)
        runner.run(client.close())


def spent_on(
    turns: int, strategy: str = "compacted", phases: Sequence[str] = ()
) -> list[Spent]:
    """The server's usage for every model call of the job. `phases`: triggers that change the phase
    during the job, at equal distances; the agent's tool is then limited to some phases."""
    job, player = [turn(number) for number in range(1, turns + 1)], agent(strategy=strategy)
    if phases:
        player = replace(player, tools=(replace(look, phases=LIMITED_TO),))
    share = turns // (len(phases) + 1)
    with ScriptedServer(script=script(job)) as server, served(server) as models:
        played = Played(player, DictBackend(), models)
        for trigger in phases:
            played.play_all(job[:share])
            job = job[share:]
            event = ev.PhaseTriggered(command_id=trigger, trigger=trigger, by_user="bench")
            played.append(event, "producer")
        played.play_all(job)
    return list(played.views.ledger.spent)


def saving_with_phases(turns: int = PHASE_TURNS) -> tuple[float, float]:
    """The saving of a job whose phase changes twice, and that of the same job without phases."""
    found = [input_cost(spent_on(turns, phases=p), list_prices()).saved for p in (TWO_CHANGES, ())]
    return found[0] or 0.0, found[1] or 0.0


def read_by_a_second_user() -> tuple[int, int]:
    """The tokens of a user's first request after another user's, read from the cache and in all."""
    cache, found = PromptCache(), []
    for user in ("ana", "bob"):
        memory = Layer("core", "memory", f"user| {user} wants short answers.")
        prefix = assemble(agent(), Layers((memory,)))
        system, tools = ([text for _, text in raw_blocks(part)] for part in prefix)
        said = Message("user", ('{"type":"text","text":"hello"}',))
        head = [f'"model":{json.dumps(agent().model)}']
        use = cache.use(json.loads(marked_request(head, system, tools, [said])))
        cache.store(use)
        found.append((use.read, use.read + use.write_5m + use.write_1h + use.uncached))
    return found[-1]


def cache_saving(runs: int = 1, turns: int = TURNS) -> Ratio:
    """Run the bench, which is deterministic, so one run is enough."""
    spent, table = spent_on(turns), list_prices()
    assert not total(spent, table).unpriced, "every model of the job has a list price"
    whole = input_cost(spent, table)
    steps = [row for row in spent if row.kind == ANSWER]
    read, of = read_by_a_second_user()
    phased, plain = saving_with_phases(min(turns, PHASE_TURNS))
    note = (
        f"1 - ours/baseline, prices of {table.version}; {len(steps)} steps alone save"
        f" {input_cost(steps, table).saved:.3f}, {len(spent) - len(steps)} summaries are not"
        f" cached; the longest prompt has {max(row.read_tokens for row in spent):,} tokens;"
        f" a second user reads {read:,} of {of:,} tokens from the cache; of"
        f" {min(turns, PHASE_TURNS)} turns, {phased:.4f} are saved with two changes of phase,"
        f" {plain:.4f} without phases"
    )
    aim = "at least 0.72, aim 0.86"
    ours, baseline = (picodollars / PICO_PER_USD for picodollars in whole)
    assert whole.saved is not None
    return Ratio("cache_saving", ours, baseline, "USD", whole.saved, 1, aim, note)

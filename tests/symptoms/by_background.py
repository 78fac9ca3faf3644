"""Background work (lane B) in a history: its claim, the real effect, and a scripted cheap model."""

import asyncio
from pathlib import Path

from foldlog.local.messages_api import Reply, Request, ScriptedServer
from foldlog.log.blobs import BlobStore
from foldlog.processors.agent import Agent
from foldlog.processors.effects.background import WorkClaim, work
from foldlog.processors.effects.models.call import make_client
from foldlog.processors.limits import Limits
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.wake.background_tasks import task_of
from foldlog.tests.kit import history as histories
from foldlog.tests.kit.agents import TOOLS
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History
from foldlog.tests.processors.effects.models.attempts import Collected

SHORT, SUMMARY = "short: 7 errors in a.log", "The user wants the bug fixed; b.py was read."
WORDS = "this filler text repeats facts that are already known to all parties, again and again; "
BULK = WORDS * 50  # about 1,000 tokens

LIMITS = Limits(soft_tokens=12_000, resume_tokens=8_000, short_tokens=2_000, hard_tokens=60_000)
AGENT = Agent(
    name="helper", model="claude-test", system="Be brief.", tools=TOOLS, limits=LIMITS
)


def cheap_model(request: Request) -> Reply:
    """Shortens results and writes summaries. The history itself plays the main model."""
    return Reply([SHORT if "shorten the output" in str(request.body["system"]) else SUMMARY])


def opened() -> History:
    """Opens a session of AGENT."""
    return histories.opened(agent=AGENT)


def claimed_kinds(history: History) -> list[str]:
    """Returns the kinds of the background work that is claimed and still running."""
    return [work.kind for work in history.views.background.works]


def run_work(history: History, server: ScriptedServer, directory: Path, remember=None) -> list:
    """Runs the oldest claimed work, and returns the events that it writes. remember: see `work`."""
    claimed = history.views.background.works[0]
    blobs = BlobStore(directory)
    read = lambda ref: history.blobs.held.get(ref.sha256) or blobs.get(ref.sha256)  # noqa: E731
    task = task_of(history.views, claimed, history.agent, read)
    claim = WorkClaim("s1", claimed.kind, claimed.upto, claimed.attempt, claimed.claim.at)
    sink = Collected()

    async def main() -> None:
        async with make_client("test-key", server.base_url) as client:

            async def get_client():
                return client

            more = {"blobs": blobs, "remember": remember}
            await work(claim, task, history.agent, sink, Stop(), get_client, **more)

    asyncio.run(main())
    for event in sink.outcomes:
        assert history.append(event, "background").accepted, event
    return sink.outcomes


def talk(history: History, turns: int, tokens: int = 1_000) -> None:
    """Adds turns of about 1,000 tokens. Turn n reports n times `tokens` as its input."""
    for number in range(1, turns + 1):
        history.say(f"{number}: {BULK}")
        history.answer("I see.", read=tokens * number)


def long_result(history: History, key: str = "1.1.0") -> str:
    """Adds a result that is long enough to be shortened, and returns its text."""
    text = "".join(f"line {n} of a.log: {WORDS}\n" for n in range(200))
    assert history.result(key, text).accepted
    return text


def use(name: str = "look", id: str = "a") -> Use:
    return Use(name, "{}", id)

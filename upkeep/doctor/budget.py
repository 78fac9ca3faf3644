"""Checks the context window: unusable instruction files, and mistakes that waste tokens.

The rules are in `processors/advice/mistakes.py` and `processors/request/`. Findings are merged over
all sessions: each cause has one line.
"""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

from ...client.show import Everything
from ...log.blobs import BlobError
from ...log.settings import Settings
from ...processors.advice.mistakes import Mistake, grown_in, in_sessions, mistakes
from ...processors.advice.prompt_growth import Group, GrownPart, Growth
from ...processors.agent import Agent
from ...processors.fold.views import SessionViews
from ...processors.worker.instruction_files import places_of, read_layers
from ...schemas.events.parts import ReadBlob
from ...schemas.tokens import estimate
from .findings import Code, Finding, found

SHOWN_MAX = 10
"""The most causes printed for people, most expensive first; further causes are only counted."""


def instruction_files(settings: Settings, workdir: Path) -> Iterator[Finding]:
    """Check the instruction files of this installation and of a working directory."""
    agent = Agent(name="doctor", model="none", workdir=workdir)
    layers = read_layers(agent, places=places_of(settings), user_id=settings.user)
    for notice in layers.notices:
        yield found(Code.INSTRUCTIONS_UNUSABLE, notice=notice)
    managed = settings.managed_instructions
    if managed is not None and not managed.exists():  # optional, but configured
        yield found(Code.INSTRUCTIONS_MISSING, file=managed)
    files = [(each.name, each.source, estimate(each.text)) for each in layers.texts]
    yield found(Code.INSTRUCTIONS_READ, files=files, workdir=workdir)


def budget_mistakes(
    everything: Everything, read: ReadBlob, today: date, most: int | None = SHOWN_MAX
) -> Iterator[Finding]:
    """Find mistakes that waste the token budget: each cause once, with the session in which it
    costs most. `most`: how many causes to name; None for all.

    Prefixes that are too large for the log are read from the blob store. If a session cannot be
    checked, this is a finding and not an error, so that the other checks still run.
    """
    worst: dict[tuple[str, str, str], tuple[Mistake, str]] = {}
    where: dict[tuple[str, str, str], set[str]] = {}
    failed: dict[str, list[str]] = {}

    def note(agent: str, name: str, mistake: Mistake) -> None:
        key = (agent, mistake.kind, mistake.culprit)
        where.setdefault(key, set()).add(name)
        if key not in worst or mistake.tokens > worst[key][0].tokens:
            worst[key] = mistake, name

    growth, latest = Growth(), dict[Group, tuple[str, list[GrownPart]]]()
    for name, views in sorted(everything.sessions.items(), key=_opened):
        try:
            wasted = _mistakes(views, read, today)
            grown = _grown(views, growth, read)
        except Exception as error:
            failed.setdefault(type(error).__name__, []).append(name)
            continue
        latest.update((group, (name, parts)) for group, parts in grown.items())
        for mistake in wasted:
            note(views.turn.agent, name, mistake)
    for (agent, *_), (name, parts) in latest.items():  # only the latest state
        for mistake in in_sessions(parts):
            note(agent, name, mistake)
    yield from _unchecked(failed)
    ranked = sorted(worst.items(), key=lambda item: -item[1][0].tokens)
    for (agent, kind, culprit), (mistake, name) in ranked[:most]:
        others = len(where[agent, kind, culprit]) - 1
        yield found(
            Code.BUDGET_MISTAKE, agent=agent, mistake=mistake, session=name, call=mistake.call,
            more=others,
        )
    if more := len(ranked) - len(ranked[:most]):
        yield found(Code.BUDGET_MISTAKES_MORE, count=more)
    elif not ranked and not failed:
        yield found(Code.BUDGET_OK)


def _unchecked(failed: dict[str, list[str]]) -> Iterator[Finding]:
    for error, (first, *others) in failed.items():
        yield found(Code.BUDGET_UNCHECKED, error=error, session=first, more=len(others))


def _mistakes(views: SessionViews, read: ReadBlob, today: date) -> list[Mistake]:
    try:
        return mistakes(views, read, today)
    except BlobError:  # another check reports the blob; check what is available
        return mistakes(views, None, today)


def _grown(views: SessionViews, growth: Growth, read: ReadBlob) -> dict[Group, list[GrownPart]]:
    try:
        return grown_in(views, growth, read)
    except BlobError:
        return {}


def _opened(session: tuple[str, SessionViews]) -> tuple[int, str]:
    """Sort key: when the session began (Unix ms), then its name, for a stable order."""
    name, views = session
    return next((line.at for line in views.transcript.lines), 0), name


__all__ = ["SHOWN_MAX", "budget_mistakes", "instruction_files"]

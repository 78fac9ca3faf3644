"""What doctor says about the window: instruction files that can't be used, and budget mistakes.

The rules are in `processors/advice/mistakes.py` and `processors/request/`. Their findings are
gathered over all sessions, so that one culprit is one line.
"""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

from ...log.blobs import BlobError
from ...log.settings import Settings
from ...processors.advice.mistakes import Mistake, ReadBlob, grown_in, in_sessions, mistakes
from ...processors.advice.prompt_growth import Group, Grown, Growth
from ...processors.agent import Agent
from ...processors.fold.views import SessionViews
from ...processors.worker.instruction_files import places_of, read_layers
from ...schemas.tokens import estimate
from ..show import Everything
from .checks import Finding

SHOWN_MAX = 10
"""Culprits that people are shown, the dearest first; the others are counted."""


def instruction_files(settings: Settings, workdir: Path) -> Iterator[Finding]:
    """The instruction files of this installation and of a working directory."""
    agent = Agent(name="doctor", model="none", workdir=workdir)
    layers = read_layers(agent, places=places_of(settings), user_id=settings.user)
    for notice in layers.notices:
        yield Finding("problem", "instructions", notice, "correct the file, or take it away")
    managed = settings.managed_instructions
    if managed is not None and not managed.exists():  # optional, but somebody wanted it
        text = f"the managed instructions are not there: {managed}"
        yield Finding("note", "instructions", text, "write the file, or correct the setting")
    texts = [(f"{each.name} {each.source}", estimate(each.text)) for each in layers.texts]
    said = ", ".join(f"{name} ({tokens} tokens)" for name, tokens in texts)
    yield Finding("ok", "instructions", said or f"no files for {workdir}")


def budget_mistakes(
    everything: Everything, read: ReadBlob, today: date, most: int | None = SHOWN_MAX
) -> Iterator[Finding]:
    """What blows the token budget (S3.9): each culprit once, with the session that shows it best.
    most: how many are named; None for all.

    Looks into the blob store for prefixes that are kept there. A session that can't be looked at
    is said: this is advice, and takes nothing else away.
    """
    worst: dict[tuple[str, str, str], tuple[Mistake, str]] = {}
    where: dict[tuple[str, str, str], set[str]] = {}
    failed: dict[str, list[str]] = {}

    def note(agent: str, name: str, mistake: Mistake) -> None:
        key = (agent, mistake.kind, mistake.culprit)
        where.setdefault(key, set()).add(name)
        if key not in worst or mistake.tokens > worst[key][0].tokens:
            worst[key] = mistake, name

    growth, latest = Growth(), dict[Group, tuple[str, list[Grown]]]()
    for name, views in sorted(everything.sessions.items(), key=_opened):
        try:
            found = _mistakes(views, read, today)
            grown = _grown(views, growth, read)
        except Exception as error:
            failed.setdefault(type(error).__name__, []).append(name)
            continue
        latest.update((group, (name, parts)) for group, parts in grown.items())
        for mistake in found:
            note(views.turn.agent, name, mistake)
    for (agent, *_), (name, parts) in latest.items():  # how it is now, not how it once was
        for mistake in in_sessions(parts):
            note(agent, name, mistake)
    yield from _not_looked_at(failed)
    ranked = sorted(worst.items(), key=lambda item: -item[1][0].tokens)
    for (agent, kind, culprit), (mistake, name) in ranked[:most]:
        place = f"session {name}" + (f", call {mistake.call}" if mistake.call else "")
        more = len(where[agent, kind, culprit]) - 1
        place += f" and {more} more" if more else ""
        text = f"{culprit} of agent {agent}: {mistake.tokens} tokens, {mistake.text} ({place})"
        yield Finding("note", f"budget {kind}", text, mistake.do)
    if more := len(ranked) - len(ranked[:most]):
        yield Finding("note", "budget", f"{more} more culprits")
    elif not ranked and not failed:
        yield Finding("ok", "budget", "no tool result, schema or prompt stands out")


def _not_looked_at(failed: dict[str, list[str]]) -> Iterator[Finding]:
    for error, (first, *others) in failed.items():
        place = f"session {first}" + (f" and {len(others)} more" if others else "")
        text = f"the advice on tokens failed ({error}): {place} not looked at"
        yield Finding("note", "budget", text, "report it: all else that doctor says holds")


def _mistakes(views: SessionViews, read: ReadBlob, today: date) -> list[Mistake]:
    try:
        return mistakes(views, read, today)
    except BlobError:  # said where the blob is needed; here what is at hand is looked at
        return mistakes(views, None, today)


def _grown(views: SessionViews, growth: Growth, read: ReadBlob) -> dict[Group, list[Grown]]:
    try:
        return grown_in(views, growth, read)
    except BlobError:
        return {}


def _opened(session: tuple[str, SessionViews]) -> tuple[int, str]:
    """When a session began, Unix ms; with its name, so that the order is always the same."""
    name, views = session
    return next((line.at for line in views.transcript.lines), 0), name


__all__ = ["SHOWN_MAX", "budget_mistakes", "instruction_files"]

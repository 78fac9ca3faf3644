"""Checks push channels: deliveries that fail or wait, and channels without address or secret.

A worker reads channels from its own settings, but this check uses the settings of the process that
runs doctor.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ...client.show import Everything
from ...log.channels import Channel
from ...processors.fold.projections.delivery import Owed
from ...schemas.ids import PUSH
from .checks import Finding

SHOWN_MAX = 3
"""The most findings of each kind and channel, since most have the same cause."""


def channels(
    everything: Everything, known: Mapping[str, Channel], wrong: Sequence[str] = ()
) -> Iterator[Finding]:
    """Yield every finding about push channels. wrong: the errors in the settings of channels."""
    for error in wrong:
        yield Finding(
            "problem", "channels", error,
            "correct the setting: until then, workers that deliver do not start",
        )
    pending = _by_channel(everything, "owed")
    for name in sorted({PUSH + name for name in known} | set(pending)):
        channel, answers = known.get(name.removeprefix(PUSH)), pending.get(name, [])
        if channel is None:
            yield Finding(
                "problem", "channels",
                f"{len(answers)} answers are pending for {name}, which is not in foldlog.toml here",
                f"add [channels.{name.removeprefix(PUSH)}] where the workers run, and restart them",
            )
        elif channel.secret is None:
            yield Finding(
                "problem" if answers else "note", "channels",
                f"{name}: {channel.secret_env} is not set here ({len(answers)} answers are "
                f"pending)",
                f"set {channel.secret_env} where the workers run, and restart them",
            )
        else:
            failing = [(session, each) for session, each in answers if each.error]
            level = "note" if failing else "ok"
            yield Finding(level, "channels", f"{name}: {len(answers)} answers are pending")
        yield from _failing(answers)
    for answers in _by_channel(everything, "undelivered").values():
        for session, each in answers[-SHOWN_MAX:]:
            yield Finding(
                "note", "channels",
                f"session {session}: answer {each.turn}.{each.step} was never delivered to "
                f"{each.channel} after {each.attempt} attempts: {each.error}",
                "it is not retried; the answer is kept in the session: foldlog show " + session,
            )
    given_up = Counter(
        {name: views.delivery.given_up for name, views in everything.sessions.items()}
    )
    if more := sum(given_up.values()):
        yield Finding("note", "channels", f"{more} deliveries were given up in total")


def _failing(answers: list[tuple[str, Owed]]) -> Iterator[Finding]:
    failing = [(session, each) for session, each in answers if each.error]
    for session, each in failing[:SHOWN_MAX]:
        yield Finding(
            "note", "channels",
            f"session {session}: answer {each.turn}.{each.step} to {each.channel} failed "
            f"{each.attempt} times; the last error: {each.error}",
            "check that the channel responds; the delivery is retried automatically",
        )
    if len(failing) > SHOWN_MAX:
        yield Finding("note", "channels", f"{len(failing) - SHOWN_MAX} more failing deliveries")


def _by_channel(everything: Everything, kind: str) -> dict[str, list[tuple[str, Owed]]]:
    found: dict[str, list[tuple[str, Owed]]] = {}
    for session, views in sorted(everything.sessions.items()):
        if kind == "owed" and views.turn.terminated and not views.turn.open:
            continue  # an ended session has no pending deliveries
        for each in getattr(views.delivery, kind):
            found.setdefault(each.channel, []).append((session, each))
    return found

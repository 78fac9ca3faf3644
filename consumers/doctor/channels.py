"""Doctor's look at push channels: who is owed answers, which channel has no address or secret
here, what fails, and what never came.

What a worker knows of a channel is in its own settings; this judges by those of whoever asks. It
must not know how anything is printed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ...log.channels import Channel
from ...processors.fold.projections.delivery import Owed
from ...schemas.ids import PUSH
from ..show import Everything
from .checks import Finding

SHOWN_MAX = 3
"""Of each kind and channel; the cause is the same most times."""


def channels(
    everything: Everything, known: Mapping[str, Channel], wrong: Sequence[str] = ()
) -> Iterator[Finding]:
    """Every finding about push channels. wrong: what the settings say of those not known."""
    for what in wrong:
        yield Finding(
            "problem", "channels", what,
            "correct it: workers that deliver don't start with it",
        )
    owed = _by_channel(everything, "owed")
    for name in sorted({PUSH + name for name in known} | set(owed)):
        channel, waits = known.get(name.removeprefix(PUSH)), owed.get(name, [])
        if channel is None:
            yield Finding(
                "problem", "channels",
                f"{len(waits)} answers are owed to {name}, which is not in foldlog.toml here",
                f"add [channels.{name.removeprefix(PUSH)}] where the workers run, start them again",
            )
        elif channel.secret is None:
            yield Finding(
                "problem" if waits else "note", "channels",
                f"{name}: {channel.secret_env} is not set here ({len(waits)} answers are owed)",
                f"set {channel.secret_env} where the workers run, and start them again",
            )
        else:
            failing = [(session, each) for session, each in waits if each.error]
            level = "note" if failing else "ok"
            yield Finding(level, "channels", f"{name}: {len(waits)} answers are owed")
        yield from _failing(waits)
    for waits in _by_channel(everything, "undelivered").values():
        for session, each in waits[-SHOWN_MAX:]:
            yield Finding(
                "note", "channels",
                f"session {session}: answer {each.turn}.{each.step} never came to "
                f"{each.channel}, {each.attempt} attempts: {each.error}",
                "it is not tried again; the answer is in the session: foldlog show " + session,
            )
    given_up = Counter(
        {name: views.delivery.given_up for name, views in everything.sessions.items()}
    )
    if more := sum(given_up.values()):
        yield Finding("note", "channels", f"{more} answers were given up in all")


def _failing(waits: list[tuple[str, Owed]]) -> Iterator[Finding]:
    failing = [(session, each) for session, each in waits if each.error]
    for session, each in failing[:SHOWN_MAX]:
        yield Finding(
            "note", "channels",
            f"session {session}: answer {each.turn}.{each.step} to {each.channel} failed "
            f"{each.attempt} times, the last: {each.error}",
            "see that the channel answers; it is tried again by itself",
        )
    if len(failing) > SHOWN_MAX:
        yield Finding("note", "channels", f"{len(failing) - SHOWN_MAX} more of that kind")


def _by_channel(everything: Everything, what: str) -> dict[str, list[tuple[str, Owed]]]:
    found: dict[str, list[tuple[str, Owed]]] = {}
    for session, views in sorted(everything.sessions.items()):
        if what == "owed" and views.turn.terminated and not views.turn.open:
            continue  # nothing is owed in a session that has ended
        for each in getattr(views.delivery, what):
            found.setdefault(each.channel, []).append((session, each))
    return found

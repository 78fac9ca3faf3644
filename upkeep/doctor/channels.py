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
from .findings import Code, Finding, found

SHOWN_MAX = 3
"""The most findings of each kind and channel, since most have the same cause."""


def channels(
    everything: Everything, known: Mapping[str, Channel], wrong: Sequence[str] = ()
) -> Iterator[Finding]:
    """Yield every finding about push channels. wrong: the errors in the settings of channels."""
    for error in wrong:
        yield found(Code.CHANNEL_SETTING_WRONG, error=error)
    pending = _by_channel(everything, "owed")
    for name in sorted({PUSH + name for name in known} | set(pending)):
        channel, answers = known.get(name.removeprefix(PUSH)), pending.get(name, [])
        if channel is None:
            table = name.removeprefix(PUSH)
            yield found(Code.CHANNEL_UNKNOWN, count=len(answers), name=name, table=table)
        elif channel.secret is None:
            code = Code.CHANNEL_WITHOUT_SECRET
            code = Code.CHANNEL_WITHOUT_SECRET_PENDING if answers else code
            yield found(code, name=name, variable=channel.secret_env, count=len(answers))
        else:
            fails = any(each.error for _, each in answers)
            code = Code.CHANNEL_FAILS if fails else Code.CHANNEL_OK
            yield found(code, name=name, count=len(answers))
        yield from _failing(answers)
    for answers in _by_channel(everything, "undelivered").values():
        for session, each in answers[-SHOWN_MAX:]:
            yield _about_delivery(Code.DELIVERY_GIVEN_UP, session, each)
    given_up = Counter(
        {name: views.delivery.given_up for name, views in everything.sessions.items()}
    )
    if more := sum(given_up.values()):
        yield found(Code.DELIVERIES_GIVEN_UP, count=more)


def _failing(answers: list[tuple[str, Owed]]) -> Iterator[Finding]:
    failing = [(session, each) for session, each in answers if each.error]
    for session, each in failing[:SHOWN_MAX]:
        yield _about_delivery(Code.DELIVERY_FAILS, session, each)
    if len(failing) > SHOWN_MAX:
        yield found(Code.DELIVERIES_MORE_FAIL, count=len(failing) - SHOWN_MAX)


def _about_delivery(code: Code, session: str, owed: Owed) -> Finding:
    return found(
        code, session=session, answer=f"{owed.turn}.{owed.step}", channel=owed.channel,
        times=owed.attempt, error=owed.error,
    )


def _by_channel(everything: Everything, kind: str) -> dict[str, list[tuple[str, Owed]]]:
    of_channels: dict[str, list[tuple[str, Owed]]] = {}
    for session, views in sorted(everything.sessions.items()):
        if kind == "owed" and views.turn.terminated and not views.turn.open:
            continue  # an ended session has no pending deliveries
        for each in getattr(views.delivery, kind):
            of_channels.setdefault(each.channel, []).append((session, each))
    return of_channels

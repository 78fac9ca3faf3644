"""Wakes one session by hand: runs a worker's code on the session's partition until the session is
idle or waits.

It is for machines without a running worker, for example after a power loss; a timer or a person
starts it. If the session waits for a person or for a point in time, it continues only when it is
woken again.
"""

import time
from collections.abc import Iterable

from ...log import Settings, partition_for
from ...log.made import partitions_of
from ...schemas.topics import SESSION_EVENTS
from ..agent import Agent
from ..wake.facts import Obligation, wake
from ..wake.table import Action
from .assemble import ROLES, Parts
from .worker import Worker

POLL_S = 0.1


def wake_session(
    settings: Settings,
    agents: Iterable[Agent],
    session_id: str,
    roles: tuple[str, ...] = ROLES,
    timeout_s: float = 600.0,
) -> tuple[Obligation, ...]:
    """Do a session's pending work in this process, without a worker, until the session is idle or
    waits.

    Returns the obligations that are still pending: waits for a person or for a point in time, and
    after `timeout_s` also unfinished work. Raises StateDirTaken if a worker runs in the state
    directory. This process takes the session's partition. If a worker elsewhere holds the
    partition, it takes it back after a session timeout.
    """
    parts = Parts(settings, agents, roles, None, only=session_id)
    worker = parts.worker
    partition = partition_for(session_id, partitions_of(parts.log))
    try:
        reader = parts.log.reader(SESSION_EVENTS, worker.assigned([partition]))
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            seeks = worker.consume(reader.poll(POLL_S))
            parts.mail.drain()
            for number, offset in (seeks | worker.tick()).items():
                reader.seek(number, offset)
            if worker.holds(partition) and not parts.in_flight():
                pending = _pending(worker, partition, session_id)
                if all(obligation.owed == Action.WAIT for obligation in pending):
                    return pending
        return _pending(worker, partition, session_id)
    finally:
        worker.close()
        parts.close()


def _pending(worker: Worker, partition: int, session_id: str) -> tuple[Obligation, ...]:
    owned = worker.owned[partition]
    views = owned.views(session_id)
    if views is None:
        return ()
    rules = worker.rules.get(views.turn.agent)
    return wake(views, owned.partition, worker.now(owned), rules)

"""Named crash points: places in the code where a test can kill this process.

A point lies between two steps whose order is essential for correctness. Only a hidden option of the
worker arms a point. While no point is armed, `reach` only checks one global variable.
"""

import os
import signal
import threading
from collections.abc import Callable

# A name begins with the role that executes the step: `sessions.wrote` follows a decision,
# `tools.wrote` a claim.
POINTS: dict[str, str] = {
    # a round of the poll loop
    "poll.records": "records came from the log, none is folded",
    "fold.done": "a batch is folded in memory, not written to the store",
    "store.written": "views and cursor are in the store, no session was woken",
    "sessions.wrote": "a decision was handed to the producer",
    "models.wrote": "the claim of a model call was handed to the producer",
    "tools.wrote": "the claim of a tool call was handed to the producer",
    "background.wrote": "the claim of background work was handed to the producer",
    "delivery.wrote": "the claim of a delivery was handed to the producer",
    "facts.sent": "a fact was handed to the producer",
    "facts.confirmed": "a broker has confirmed facts, the store still lists them",
    # partitions and stores
    "partition.opened": "partitions were assigned and their stores are open, none is taken",
    "partition.taking": "PARTITION_TAKEN was handed to the producer",
    "partition.held": "PARTITION_TAKEN was read back, no session was woken",
    "partition.revoked": "a partition was revoked from this worker, its store is still open",
    "store.removed": "a store to be rebuilt was deleted, the new one does not exist",
    "refold.begun": "a store belongs to another log, its partition is not reread yet",
    "refold.written": "a store that is being rebuilt has a part of the log",
    # snapshots of stores
    "snapshot.checkpoint": "a checkpoint of a store is on disk, none of it is stored",
    "snapshot.files": "the files of a snapshot are stored, its manifest is not",
    "snapshot.stored": "a snapshot is stored, its checkpoint is not deleted",
    "snapshot.fetched": "the files of a snapshot are copied, the store is not replaced",
    "snapshot.loaded": "a store from a snapshot is in its place, not opened",
    # a model call
    "models.begin": "the claim of a model call was read back, the call has not begun",
    "models.send": "the request is about to be sent",
    "models.chunk": "a chunk was handed to the producer",
    "models.ended": "the outcome of a model call is known, not yet on disk",
    "models.kept": "the outcome of a model call is in the outbox, not produced",
    "models.sent": "the outcome of a model call was handed to the producer",
    "models.delivered": "the log has the outcome of a model call, the outbox still lists it",
    "models.done": "the outcome of a model call is marked as done",
    # a tool call
    "tools.begin": "the claim of a tool call was read back, the call has not begun",
    "tools.run": "the tool is about to be called",
    "tools.ended": "the outcome of a tool call is known, not yet on disk",
    "tools.kept": "the outcome of a tool call is in the outbox, not produced",
    "tools.sent": "the outcome of a tool call was handed to the producer",
    "tools.delivered": "the log has the outcome of a tool call, the outbox still lists it",
    "tools.done": "the outcome of a tool call is marked as done",
    # background work has two outcomes: its product, and its BACKGROUND_DONE
    "background.begin": "the claim of background work was read back, the work has not begun",
    "background.ended": "an outcome of background work is known, not yet on disk",
    "background.kept": "an outcome of background work is in the outbox, not produced",
    "background.sent": "an outcome of background work was handed to the producer",
    "background.delivered": "the log has an outcome of background work, the outbox still lists it",
    "background.done": "an outcome of background work is marked as done",
    "background.made": "the candidate is in the log, BACKGROUND_DONE is not",
    # a delivery to a push channel
    "delivery.begin": "the claim of a delivery was read back, nothing was sent",
    "delivery.ended": "the outcome of a delivery is known, not yet on disk",
    "delivery.kept": "the outcome of a delivery is in the outbox, not produced",
    "delivery.sent": "the outcome of a delivery was handed to the producer",
    "delivery.delivered": "the log has the outcome of a delivery, the outbox still lists it",
    "delivery.done": "the outcome of a delivery is marked as done",
    # the start of a worker
    "start.locked": "the state directory is locked, nothing else was done",
    "start.outbox": "an outcome stored by an earlier process was handed to the producer",
    "start.emitted": "the outbox is written, no partition is assigned",
}

_lock = threading.Lock()
_left: dict[str, int] | None = None
_act: Callable[[], None] | None = None


def reach(name: str) -> None:
    """Report that the process is at this point."""
    if _left is not None:
        _count(name)


def arm(at: str, act: Callable[[], None] | None = None) -> None:
    """Kill this process with SIGKILL when it reaches a point for the Nth time; `at` is NAME:N.

    `act`: called instead of the kill. At most one point is armed, so this disarms any other. Raises
    ValueError if the name is not in POINTS.
    """
    global _left, _act
    name, _, times = at.partition(":")
    if name not in POINTS:
        raise ValueError(f"no crash point {name!r}; there are: {', '.join(POINTS)}")
    if not (times or "1").isdigit() or int(times or "1") < 1:
        raise ValueError(f"{at!r}: the number after the colon is 1 or more")
    with _lock:
        _left, _act = {name: int(times or "1")}, act or _die


def disarm() -> None:
    """Disarm every point."""
    global _left
    with _lock:
        _left = None


def _count(name: str) -> None:
    global _left
    with _lock:
        if _left is None or name not in _left:
            return
        _left[name] -= 1
        if _left[name]:
            return
        act, _left = _act, None
    assert act is not None
    act()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

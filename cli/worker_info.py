"""What the worker of this state directory says of itself, asked over its web port on loopback.

And whether anybody is there to answer a session: the log tells who took its partition last.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from ..consumers.waiting import who_lacks
from ..processors.fold.projections.partition import ANSWERS, PartitionView, worker_id
from ..processors.store.state_dir import worker_id_of

ASK_S = 2.0
"""A worker answers in milliseconds; one that is stopped or swamped does not at all."""


class WorkerInfo(NamedTuple):
    """pid None: none runs here. `status` None: it is there and does not answer."""

    pid: int | None
    status: dict[str, Any] | None


def worker_info(state_dir: Path) -> WorkerInfo:
    """The worker that works in this directory, as of now."""
    try:
        noted = json.loads((state_dir / "worker.json").read_text("utf-8"))
        pid, web = int(noted["pid"]), str(noted["web"])
    except (OSError, ValueError, KeyError, TypeError):
        return WorkerInfo(None, None)
    import urllib.request  # here: a worker's start needs none of it

    # Never through a proxy of the environment: this is the machine's own loopback.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{web}/status/", timeout=ASK_S) as answer:
            status = json.load(answer)
    except (OSError, ValueError):
        return WorkerInfo(pid if _lives(pid) else None, None)
    return WorkerInfo(pid, status if isinstance(status, dict) else None)


def unserved(state_dir: Path, holders: PartitionView, agent: str) -> str:
    """Why nobody may answer a session, in words; '' if somebody seems to be there.

    The log says who took it, not whether that one still lives; of this machine's own we know that.
    """
    found = [holder for role in ANSWERS if (holder := holders.holder(role)) is not None]
    if len(found) < len(ANSWERS):
        return "no worker has taken its partition yet"
    is_ours = worker_id_of(state_dir) in {worker_id(holder.owner) for holder in found}
    if is_ours and not worker_info(state_dir).pid:
        return "the worker that had its partition does not run"
    return who_lacks(agent, holders)


def _lives(pid: int) -> bool:
    import os

    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

"""Reads the status of this state directory's worker from the worker's web port on loopback.

It also checks whether any worker can answer a session: the log records which worker last took the
session's partition.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from ..client.status import Reason, why_unserved
from ..client.waiting import who_lacks
from ..processors.fold.projections.partition import ANSWERS, PartitionView, worker_id
from ..processors.store.state_dir import worker_id_of

REQUEST_TIMEOUT_S = 2.0
"""A worker responds in milliseconds; a paused or overloaded worker does not respond at all."""


class WorkerInfo(NamedTuple):
    """`pid` is None if no worker runs here. `status` is None if the worker does not respond."""

    pid: int | None
    status: dict[str, Any] | None


def worker_info(state_dir: Path) -> WorkerInfo:
    """The worker that currently runs in this directory."""
    pid, web = _noted(state_dir)
    try:
        status = json.loads(_page(f"{web}/status/"))
    except (OSError, ValueError):
        return WorkerInfo(pid if pid and _lives(pid) else None, None)
    return WorkerInfo(pid, status if isinstance(status, dict) else None)


def is_ready(state_dir: Path) -> bool:
    """Whether the worker of this directory has its partitions, so that it answers sessions."""
    try:
        return bool(_page(f"{_noted(state_dir)[1]}/readyz/"))
    except (OSError, ValueError):  # it is not ready, or there is none
        return False


def _noted(state_dir: Path) -> tuple[int | None, str]:
    """The pid and the address that the last worker of this directory wrote down."""
    try:
        contents = json.loads((state_dir / "worker.json").read_text("utf-8"))
        return int(contents["pid"]), str(contents["web"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, ""


def _page(url: str) -> bytes:
    import urllib.request  # here, so that a worker starts without this import

    # Do not use a proxy from the environment, because the address is this machine's loopback.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=REQUEST_TIMEOUT_S) as answer:
        return bytes(answer.read())


def unserved(state_dir: Path, holders: PartitionView, agent: str) -> str:
    """The reason to assume that no worker serves a session; '' if a worker seems to serve it.

    The log records which worker took the partition, not whether this worker is alive. Only the
    worker of this state directory is checked.
    """
    reason = why_unserved(agent, holders)
    found = {worker_id(holder.owner) for role in ANSWERS if (holder := holders.holder(role))}
    is_ours = worker_id_of(state_dir) in found
    if reason is Reason.NOT_TAKEN:
        return "no worker has taken its partition yet"
    if reason is Reason.WORKER_ENDED or (is_ours and not worker_info(state_dir).pid):
        return "the worker that had its partition is not running"
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

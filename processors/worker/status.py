"""The state of a worker, for people: `/status` and `doctor`."""

from typing import Any

from .worker import Worker


def status_of(worker: Worker) -> dict[str, Any]:
    """The worker's state. This is called in another thread than the worker's."""
    return {
        "owner": worker.identity.owner,
        "roles": list(worker.roles),
        "agents": sorted(worker.agents),
        "rulings": dict(worker.rulings),
        "clock_skew_ms": worker.skew_ms(),
        "session_cache": {
            "bytes": worker.hot_sessions.bytes,
            "bytes_max": worker.hot_sessions.bytes_max,
            "sessions": len(worker.hot_sessions),
            "loaded": worker.hot_sessions.loaded,
        },
        "partitions": {
            number: {
                "offset": owned.next_offset,
                "held": sorted(worker.held(owned)),
                "stuck": dict(owned.stuck),
            }
            for number, owned in list(worker.owned.items())
        },
    }

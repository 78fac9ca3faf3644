"""A child process that folds a history into a store again and again until it is killed.

Each round folds the history of a seed into a new session (s0, s1, ...), a few events per batch. The
process prints one line per written batch.
"""

import sys
from itertools import count
from pathlib import Path

from foldlog.processors.fold.projections.partition import INITIAL
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import SessionViews, initial
from foldlog.processors.store.partition_cache import may_owe
from foldlog.processors.store.store import Cursor, RocksBackend, Store
from foldlog.schemas.value import replace
from foldlog.tests.laws.law import history_of
from foldlog.tests.processors.store.contract import BELONGS

ROUNDS_MAX = 500
BATCH = 3  # events; a batch is written completely or not at all


def steps(seed: int):
    """The (offset, session_id, entry) of every event of every round."""
    entries = [step.entry for step in history_of(seed).steps]
    offset = count()
    for number in range(ROUNDS_MAX):
        for entry in entries:
            yield next(offset), f"s{number}", replace(entry, session_id=f"s{number}")


def session_ids(seed: int) -> list[str]:
    """The ids of all sessions that may be in the store."""
    return [f"s{number}" for number in range(ROUNDS_MAX)]


def views_at(seed: int, session_id: str, cursor: int) -> SessionViews | None:
    """The views of a session after the log was folded up to this cursor."""
    views = None
    length = len(history_of(seed).steps)
    start = int(session_id[1:]) * length
    for number, step in enumerate(history_of(seed).steps, start):
        if number < cursor:
            entry = replace(step.entry, session_id=session_id)
            views, _ = fold(views or initial(session_id), entry)
    return views


def main(directory: Path, seed: int) -> None:
    """Write batches until the process is killed."""
    store = Store(RocksBackend(directory))
    store.claim(BELONGS)
    changed: dict[str, SessionViews] = {}
    views_of: dict[str, SessionViews] = {}
    for offset, session_id, entry in steps(seed):
        views, _ = fold(views_of.get(session_id) or initial(session_id), entry)
        views_of[session_id] = changed[session_id] = views
        if offset % BATCH == BATCH - 1:
            store.write(changed, {}, may_owe, INITIAL, Cursor(offset + 1))
            changed = {}
            print(offset, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

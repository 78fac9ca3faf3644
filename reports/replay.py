"""Replays the log: folds it again from the first offset, and compares the views with a worker's
store.

Every reader that folds the topic gets the same views, byte for byte, so a replay prints the SHA-256
of every view. `verify` folds up to the cursor of a worker's store and compares view by view. A fold
always begins at the first offset; `--from` only limits which events are listed.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from ..client.follow import Follow
from ..client.printable import plain
from ..log.blobs import open_blobs
from ..log.door import Log
from ..log.errors import Corrupt
from ..log.made import partitions_of
from ..log.settings import Settings
from ..processors.fold.projections.partition import PartitionView
from ..processors.fold.sessions import FoldedEvent, FoldedSession, FoldedSessions
from ..processors.fold.views import VIEWS, SessionViews, initial
from ..processors.store import views_codec
from ..processors.store.store import Belongs, Store, fold_version, open_readonly
from ..schemas.events.parts import ReadBlob
from ..schemas.ids import PARTITION_KEY
from ..schemas.topics import SESSION_EVENTS

FIELDS = {view.name: view.field for view in VIEWS}


class Folded(FoldedSession):
    """One session after a replay."""

    @property
    def hashes(self) -> dict[str, str]:
        """Hex SHA-256 of each view."""
        return views_codec.view_hashes(self.views)


class Replay:
    """A fold of the whole log, of one partition or of one session. `ends`: the offset of each
    partition at which the fold stops, by default the present end.

    Iterate over `steps()` once; then `sessions` and `holders` have the result.
    """

    def __init__(
        self,
        log: Log,
        session_id: str | None = None,
        ends: Mapping[int, int] | None = None,
        read: ReadBlob | None = None,
        *,
        partition: int | None = None,
    ) -> None:
        wanted = None if session_id is None else (session_id,)
        self._follow = Follow(
            log,
            wanted,
            chunks=False,
            holders=True,
            folded=True,
            read=read,
            partitions=None if partition is None else (partition,),
        )
        now = self._follow.ends()
        given = ends or {}
        self.ends = {p: min(given.get(p, end), end) for p, end in now.items()}
        self._folded = FoldedSessions(Folded)
        self.sessions, self.holders = self._folded.sessions, self._folded.holders

    def steps(self) -> Iterator[FoldedEvent]:
        """Fold and yield every event of the sessions with its ruling, in log order within a
        partition.
        """
        with self._follow:
            for batch in self._follow.to(self.ends):
                for entry in batch:
                    if entry.offset < self.ends[entry.partition]:
                        folded = self._folded.feed(entry)
                        if folded is not None:
                            yield folded

    def holders_of(self, partition: int) -> PartitionView:
        """The holders of a partition."""
        return self._folded.holders_of(partition)

    def run(self, progress: Callable[[int], None] = lambda _offset: None) -> "Replay":
        """Fold everything, faster than `steps`. progress(offset) is called for each batch."""
        with self._follow as follow:
            for batch in follow.records_to(self.ends):
                for partition, records in groupby(batch, attrgetter("partition")):
                    end = self.ends[partition]
                    wanted = [record for record in records if record.offset < end]
                    self._folded.feed_records(wanted, follow.entry_of)
                if batch:
                    progress(batch[-1].offset)
        return self


class Difference(NamedTuple):
    """A view that differs between a store and the log.

    `where`: the first difference in the view.
    """

    partition: int
    session_id: str
    view: str
    log_sha256: str
    store_sha256: str
    where: str


class Verified(NamedTuple):
    """The result of comparing one partition's store.

    `problem`: why the store could not be compared.
    """

    partition: int
    cursor: int
    sessions: int
    differences: tuple[Difference, ...]
    problem: str = ""


def read_blobs(settings: Settings) -> ReadBlob:
    """A function that reads the blob store of these settings."""
    opened = cache(lambda: open_blobs(settings))  # on first use: most logs have no blobs
    return lambda ref: opened().get(ref.sha256)


def store_directory(settings: Settings, partition: int, state_dir: Path | None = None) -> Path:
    """The directory in which a worker with these settings keeps a partition's store."""
    below = (state_dir or settings.state_dir) / "store"
    return below / settings.topic(SESSION_EVENTS) / str(partition)


def verify(log: Log, settings: Settings, session_id: str | None = None) -> Iterator[Verified]:
    """Compare every store in the worker's state directory with the log, up to the store's cursor.

    A running worker's store is read in its present state. Nothing is changed.
    """
    for partition in range(partitions_of(log)):
        verified = verify_partition(log, settings, partition, session_id)
        if verified is not None:
            yield verified


def verify_partition(
    log: Log,
    settings: Settings,
    partition: int,
    session_id: str | None = None,
    progress: Callable[[int], None] = lambda _offset: None,
) -> Verified | None:
    """Compare one partition's store with the log; None if it has no store.

    progress(offset) is called now and then.
    """
    directory = store_directory(settings, partition)
    if not directory.is_dir():
        return None
    belongs = Belongs(log.identity(), log.topic_id(SESSION_EVENTS), fold_version())
    try:
        store = open_readonly(directory)
    except Exception as broken:  # rocksdict raises plain Exception
        return Verified(partition, 0, 0, (), f"it cannot be opened: {broken}")
    try:
        return _compare(log, partition, store, belongs, session_id, read_blobs(settings), progress)
    except Corrupt as damage:
        why = f"it is damaged ({damage}); the next worker to open it rebuilds it from the log"
        return Verified(partition, store.cursor.offset, 0, (), why)
    finally:
        store.close()


def _compare(
    log: Log,
    partition: int,
    store: Store,
    belongs: Belongs,
    session_id: str | None,
    read: ReadBlob,
    progress: Callable[[int], None],
) -> Verified:
    cursor = store.cursor.offset
    ends = log.end_offsets(SESSION_EVENTS)  # read after the store: a worker may be running
    if store.belongs != belongs:
        why = f"it belongs to another log or version: {plain(store.belongs)}, not {plain(belongs)}"
        return Verified(partition, cursor, 0, (), why)
    if cursor > ends[partition]:
        why = f"its cursor {cursor} is beyond the log's end {ends[partition]}"
        return Verified(partition, cursor, 0, (), why)
    first = log.first_offsets(SESSION_EVENTS)[partition]
    if first > 0:
        why = f"the log begins at offset {first}: earlier records were deleted and cannot be folded"
        return Verified(partition, cursor, 0, (), why)
    replay = Replay(log, None, {partition: cursor}, read, partition=partition)
    replay.run(progress)
    found: list[Difference] = []
    holders = replay.holders_of(partition)
    if holders != store.partition:
        where = first_difference(plain(holders), plain(store.partition))
        found.append(Difference(partition, PARTITION_KEY, "partition", "", "", where))
    folded = {name: f for name, f in replay.sessions.items() if f.views != initial(name)}
    names = sorted({*folded, *store.sessions()})
    names = [name for name in names if session_id in (None, name)]
    for name in names:
        here = folded[name].views if name in folded else initial(name)
        found.extend(_differences(partition, here, store.load(name) or initial(name)))
        store.forget(name)
    return Verified(partition, cursor, len(names), tuple(found))


def _differences(
    partition: int, here: SessionViews, there: SessionViews
) -> Iterator[Difference]:
    ours, theirs = views_codec.view_hashes(here), views_codec.view_hashes(there)
    for view, sha in ours.items():
        if theirs[view] != sha:
            where = first_difference(_as_plain(here, view), _as_plain(there, view))
            yield Difference(partition, here.session_id, view, sha, theirs[view], where)


def _as_plain(views: SessionViews, view: str) -> Any:
    if view == "turn":  # the codec hashes turn, stream and frozen together
        return {"turn": plain(views.turn), "stream": plain(views.stream), "frozen": views.frozen}
    return plain(getattr(views, FIELDS[view]))


def first_difference(ours: Any, theirs: Any, path: str = "") -> str:
    """The first difference of two JSON values, with both sides: `path: log ... store ...`."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for name in ours:
            if ours[name] != theirs[name]:
                return first_difference(ours[name], theirs[name], f"{path}.{name}")
    if isinstance(ours, list) and isinstance(theirs, list):
        for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if one != other:
                return first_difference(one, other, f"{path}[{place}]")
        if len(ours) != len(theirs):
            return f"{path or '.'}: the log has {len(ours)} rows, the store {len(theirs)}"
    return f"{path or '.'}: the log has {_short(ours)}, the store {_short(theirs)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."

"""Opens the stores of a process. A store is opened from its directory, or loaded from a snapshot;
if neither is possible, it begins empty."""

from collections.abc import Callable
from pathlib import Path

from .snapshot_loader import SnapshotLoader
from .snapshots import Snapshots
from .store import NO_SNAPSHOTS, Belongs, Loader, Store, new_store, open_store


class StoreOpener:
    """Opens the stores of one process; see the module docstring.

    directory_of: returns the directory of a partition's store.
    snapshots: None if no snapshots are used.
    behind_max: if a snapshot is more than this many records ahead of a store, the snapshot replaces
        the store.
    """

    def __init__(
        self,
        directory_of: Callable[[int], Path],
        say: Callable[[str], None],
        snapshots: Snapshots | None = None,
        behind_max: int = 0,
    ) -> None:
        self._directory_of, self._say = directory_of, say
        self._snapshots, self._behind_max = snapshots, behind_max
        self._opened_at: dict[int, int] = {}
        self.newest_snapshot: dict[int, int] = {}  # the offset, by partition, when it was opened

    def open(
        self, partition: int, belongs: Belongs, end: int, first: int, *, fresh: bool = False
    ) -> Store:
        """The store of a partition.

        fresh: replace the present store, because it is damaged or disagrees with the log. It is
        replaced by a snapshot whose offset is below the offset that the store had when it was
        opened, or by an empty store. Raises LogCut, OSError; see open_store.
        """
        directory = self._directory_of(partition)
        below = self._opened_at.get(partition) if fresh else None
        loader: Loader = NO_SNAPSHOTS
        found = None
        if self._snapshots is not None:
            found = loader = SnapshotLoader(
                self._snapshots, directory, partition, belongs, end, first, self._say, below
            )
        if not fresh:
            store = open_store(
                directory, belongs, end, self._say, first,
                loader=loader, behind_max=self._behind_max,
            )
        elif (loaded := loader.load(first)) is not None:
            at = loaded.cursor.offset
            self._say(f"the store {partition} was loaded from the snapshot at offset {at}")
            store = loaded
        else:
            store = new_store(directory, belongs, end, first_offset=first)
        usable = () if found is None else found.candidates
        self.newest_snapshot[partition] = max((each.offset for each in usable), default=0)
        self._opened_at[partition] = store.cursor.offset
        return store

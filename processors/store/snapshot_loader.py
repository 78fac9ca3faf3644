"""Replaces a store with a snapshot: copies the snapshot's files to a new directory, checks them,
then renames the directory.

The old store is deleted only after the copy is complete and has been opened once. A snapshot that
cannot be used is reported, and the next older one is tried. As for every store, the reader of the
partition checks whether the log still has the record before the store's cursor.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from .. import crash_points
from .snapshots import Candidate, Manifest, Snapshots, SnapshotUnusable
from .store import Belongs, Store, opened_store

LOADING = ".loading"  # appended to the name of the store's directory


class SnapshotLoader:
    """Loads snapshots of one partition of a log, as store.Loader requires.

    below: only snapshots with a smaller offset are used, because the others were tried before; None
    for no such limit.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        directory: Path,
        partition: int,
        belongs: Belongs,
        end_offset: int,
        first_offset: int,
        say: Callable[[str], None],
        below: int | None = None,
    ) -> None:
        self._snapshots, self._directory, self._partition = snapshots, directory, partition
        self._belongs, self._end, self._first = belongs, end_offset, first_offset
        self._say = say
        self._below = end_offset + 1 if below is None else below

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The snapshots whose cursor lies within the log, the newest first. If the snapshots cannot
        be listed, this is reported and the list is empty."""
        try:
            found = self._snapshots.newest_first(self._belongs, self._partition)
        except OSError as error:
            self._say(
                f"the snapshots of partition {self._partition} cannot be listed ({error}); "
                "continuing without them"
            )
            return []
        limit = min(self._below, self._end + 1)
        return [each for each in found if self._first <= each.offset < limit]

    def has(self, least: int) -> bool:
        """See `Loader.has`."""
        return any(each.offset >= least for each in self.candidates)

    def load(self, least: int, letters_from: int = 0) -> Store | None:
        """See `Loader.load`."""
        for candidate in [each for each in self.candidates if each.offset >= least]:
            try:
                store = self._load(self._snapshots.manifest(candidate))
            except Exception as error:  # rocksdict raises plain Exception; a refold is always right
                self._say(
                    f"the snapshot of partition {self._partition} at offset {candidate.offset} "
                    f"cannot be used: {error or type(error).__name__}"
                )
                self.candidates.remove(candidate)
                continue
            finally:
                shutil.rmtree(self._loading, ignore_errors=True)
            store.letters_from = max(letters_from, store.cursor.offset)
            return store
        return None

    @property
    def _loading(self) -> Path:
        return self._directory.with_name(self._directory.name + LOADING)

    def _load(self, manifest: Manifest) -> Store:
        shutil.rmtree(self._loading, ignore_errors=True)
        self._loading.mkdir(mode=0o700, parents=True)
        self._snapshots.fetch(manifest, self._loading)
        crash_points.reach("snapshot.fetched")
        if self._directory.exists():  # it is usable until the snapshot proves to be so
            self._opened(self._loading, manifest).close()
            shutil.rmtree(self._directory)
            crash_points.reach("store.removed")
        self._loading.rename(self._directory)
        crash_points.reach("snapshot.loaded")
        try:
            return self._opened(self._directory, manifest)
        except Exception:
            with suppress(OSError):
                shutil.rmtree(self._directory)
            raise

    def _opened(self, directory: Path, manifest: Manifest) -> Store:
        store = opened_store(directory, self._end, self._first, is_loaded=True)
        if (store.belongs, store.cursor) != (manifest.belongs, manifest.cursor):
            store.abandon()
            raise SnapshotUnusable("its files are not those of its manifest")
        return store

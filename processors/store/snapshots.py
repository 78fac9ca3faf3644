"""Snapshots of stores, kept beside the blobs: a worker on an empty disk continues from one.

A snapshot is a manifest and the files of a RocksDB checkpoint. A file is stored under its sha256,
so a RocksDB table that several snapshots have in common is stored once. The manifest is stored
last, so a snapshot whose manifest exists is complete. A snapshot is a cache, like the store: every
file is verified when it is read, and without a usable snapshot the log is refolded.

    manifests/TOPIC_ID/PARTITION/OFFSET-FOLDS.json
    files/AB/ABCDEF...

docs/snapshots.md describes the format; FORMAT is its version. The fields `format` and
`files[].sha256` never change, so every version can determine which files are garbage.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from ...log.blobs import objects_beside
from ...log.errors import Corrupt, FoldlogError
from ...log.objects import CHUNK_BYTES, Objects, StoredObject
from ...log.settings import Settings
from .. import crash_points
from .store import Belongs, Cursor, open_readonly

FORMAT = 1
KEPT = 2  # snapshots of a partition, for each version of the folds
OLD_FOLDS_S = 30 * 24 * 3600  # snapshots of other folds are kept this much longer than the newest
GARBAGE_AGE_S = 3600  # a file that no manifest names may belong to a snapshot being stored
MANIFESTS, FILES = "manifests/", "files/"
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_MANIFEST = re.compile(rf"{MANIFESTS}([^/]+)/(\d+)/(\d+)-([0-9a-f]+)\.json")
_UNCHANGING = ".sst"


_Inode = tuple[int, int, int, int]


class SnapshotUnusable(FoldlogError):
    """A snapshot cannot be used: it is damaged, incomplete, or of a newer version.

    The next older snapshot is tried; if there is none, the log is refolded.
    """


class SnapshotFile(msgspec.Struct, frozen=True):
    """A file of the checkpoint, stored under its hash."""

    name: str
    sha256: str
    bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a snapshot: the log from which its store was folded, the cursor of the
    store, and the files.

    offset, checksum: the cursor of the store. epoch: the newest epoch of the partition that the
    store has folded. created_at: Unix ms. sha256: the hash of this manifest as compact JSON, with
    an empty `sha256`.
    """

    format: int
    cluster_id: str
    topic_id: str
    partition: int
    folds: str
    offset: int
    checksum: int
    epoch: int
    created_at: int
    files: tuple[SnapshotFile, ...]
    sha256: str = ""

    @property
    def belongs(self) -> Belongs:
        """The log of the store, and its version of the folds."""
        return Belongs(self.cluster_id, self.topic_id, self.folds)

    @property
    def cursor(self) -> Cursor:
        """The cursor of the store."""
        return Cursor(self.offset, self.checksum)

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for file in self.files)

    def encoded(self) -> bytes:
        """The JSON of the manifest, with its hash."""
        return msgspec.json.encode(msgspec.structs.replace(self, sha256=self._digest()))

    def _digest(self) -> str:
        return sha256(msgspec.json.encode(msgspec.structs.replace(self, sha256=""))).hexdigest()

    @property
    def is_intact(self) -> bool:
        """Whether the hash of the manifest is correct."""
        return self.sha256 == self._digest()


class _FileHash(msgspec.Struct):
    sha256: str


class _AnyManifest(msgspec.Struct):
    """The fields that manifests of all versions have."""

    format: int
    files: tuple[_FileHash, ...]


class Candidate(NamedTuple):
    """A stored snapshot, as its manifest's name describes it. folds: the digest of the version of
    the folds; stored_at: Unix seconds."""

    name: str
    topic: str
    partition: int
    offset: int
    folds: str
    stored_at: float

    def is_of(self, belongs: Belongs) -> bool:
        """Whether the snapshot was made from this log, with any version of the folds."""
        return self.topic == _topic(belongs.topic_id)


class Saved(NamedTuple):
    """The result of `save`. bytes_written: the bytes of the files that had to be stored, because no
    earlier snapshot had them."""

    manifest: Manifest
    bytes_written: int


class Collected(NamedTuple):
    """What `collect` deleted: the number of manifests and files, and the bytes of the files."""

    manifests: int
    files: int
    bytes: int


class Snapshots:
    """The snapshots in one object store, such as a directory. Several processes and threads may use
    them at once.

    Methods raise OSError if the object store is inaccessible.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._hashes: dict[int, dict[_Inode, str]] = {}  # of unchanging files, by partition

    # -- finding -----------------------------------------------------------------------------------

    def newest_first(self, belongs: Belongs, partition: int) -> list[Candidate]:
        """The snapshots of a partition that were made from this log with this version of the folds,
        the greatest offset first."""
        found = self._candidates(f"{MANIFESTS}{_topic(belongs.topic_id)}/{partition}/")
        fitting = [each for each in found if each.folds == _digest_of(belongs.folds)]
        return sorted(fitting, key=attrgetter("offset"), reverse=True)

    def everything(self) -> list[Candidate]:
        """Every snapshot, whatever its log and its version of the folds."""
        return sorted(self._candidates(MANIFESTS))

    def _candidates(self, prefix: str) -> Iterator[Candidate]:
        for stored in self._objects.list(prefix):
            if (match := _MANIFEST.fullmatch(stored.name)) is not None:
                topic, partition, offset, folds = match.groups()
                place = int(partition), int(offset)
                yield Candidate(stored.name, topic, *place, folds, stored.stored_at)

    def manifest(self, candidate: Candidate) -> Manifest:
        """The manifest of a snapshot. Raises SnapshotUnusable if the manifest is missing, damaged
        or of another format."""
        try:
            data = b"".join(self._objects.read(candidate.name))
            version = msgspec.json.decode(data, type=_AnyManifest).format
            if version != FORMAT:
                raise SnapshotUnusable(f"its format is {version}, this version reads {FORMAT}")
            found = msgspec.json.decode(data, type=Manifest)
        except FileNotFoundError as error:
            raise SnapshotUnusable("its manifest was deleted") from error
        except msgspec.MsgspecError as error:
            raise SnapshotUnusable(f"its manifest is damaged ({error})") from error
        place = _topic(found.topic_id), found.partition, found.offset, _digest_of(found.folds)
        if not found.is_intact or place != candidate[1:5]:
            raise SnapshotUnusable("its manifest is damaged (it does not have its sha256)")
        return found

    # -- saving ------------------------------------------------------------------------------------

    def save(self, checkpoint: Path, partition: int, now_ms: int) -> Saved:
        """Store a checkpoint as a snapshot. Raises Corrupt if the checkpoint cannot be opened.

        Only files that are not stored yet are written. The snapshot can be used once its manifest
        is stored.
        """
        paths = sorted(path for path in checkpoint.iterdir() if path.is_file())
        known = self._hashes.get(partition, {})
        now_known = self._hashes[partition] = {}
        files = tuple(_hashed(path, known, now_known) for path in paths)
        store = open_readonly(checkpoint)  # after listing the files: it may add some
        try:
            belongs, cursor, holders = store.belongs, store.cursor, store.partition.holders
        finally:
            store.close()
        if belongs is None:
            raise Corrupt("the checkpoint does not name its log")
        written = sum(map(self._put, files, paths))
        crash_points.reach("snapshot.files")
        manifest = Manifest(
            format=FORMAT,
            cluster_id=belongs.cluster_id,
            topic_id=belongs.topic_id,
            partition=partition,
            folds=belongs.folds,
            offset=cursor.offset,
            checksum=cursor.checksum,
            epoch=max((holder.epoch for holder in holders), default=-1),
            created_at=now_ms,
            files=files,
        )
        self._objects.put(_name_of(manifest), [manifest.encoded()])
        written += sum(map(self._put, files, paths))  # those that garbage collection just deleted
        crash_points.reach("snapshot.stored")
        return Saved(manifest, written)

    def _put(self, file: SnapshotFile, path: Path) -> int:
        """Store a file, unless an earlier snapshot has stored it. Returns the number of bytes
        written."""
        name = _file(file.sha256)
        stored = self._objects.renew(name)
        if stored is not None and stored.bytes == file.bytes:
            return 0
        self._objects.put(name, _chunks(path))
        return file.bytes

    # -- loading -----------------------------------------------------------------------------------

    def fetch(self, manifest: Manifest, directory: Path) -> None:
        """Copy the files of a snapshot to an empty directory. Raises SnapshotUnusable if a file is
        missing or damaged.

        A damaged file is deleted where it is stored, so that the next snapshot stores it again.
        """
        for file in manifest.files:
            name = _file(file.sha256)
            if _FILE_NAME.fullmatch(file.name) is None:
                raise SnapshotUnusable(f"it contains a file of the name {file.name[:80]!r}")
            digest = sha256()
            try:
                with open(directory / file.name, "xb") as copy:
                    for chunk in self._objects.read(name):
                        digest.update(chunk)
                        copy.write(chunk)
            except FileNotFoundError as error:
                raise SnapshotUnusable(f"its file {file.name} is missing") from error
            if digest.hexdigest() != file.sha256:
                self._objects.delete(name)
                raise SnapshotUnusable(f"its file {file.name} is damaged")

    # -- garbage -----------------------------------------------------------------------------------

    def prune(self, manifest: Manifest) -> int:
        """Delete old snapshots of a manifest's partition, and return their number. For each version
        of the folds, the newest KEPT snapshots remain. If the newest snapshot of a version is more
        than OLD_FOLDS_S older than the newest of all versions, every snapshot of that version is
        deleted.
        """
        prefix = f"{MANIFESTS}{_topic(manifest.topic_id)}/{manifest.partition}/"
        return self._prune(list(self._candidates(prefix)))

    def collect(self, now_s: float) -> Collected:
        """Prune every partition, as `prune` does, and delete the files that no snapshot names."""
        partitions: dict[tuple[str, int], list[Candidate]] = {}
        for found in self.everything():
            partitions.setdefault((found.topic, found.partition), []).append(found)
        pruned = sum(map(self._prune, partitions.values()))
        named: set[str] = set()
        old = [file for file in self._objects.list(FILES) if _is_old(file, now_s)]
        for found in self.everything():  # after the files: a manifest is stored after its files
            try:
                data = b"".join(self._objects.read(found.name))
                named |= {f.sha256 for f in msgspec.json.decode(data, type=_AnyManifest).files}
            except FileNotFoundError:
                continue
            except msgspec.MsgspecError:  # damaged: no version can read it
                self._objects.delete(found.name)
                pruned += 1
        files, size = 0, 0
        for file in old:
            if file.name.rpartition("/")[2] in named:
                continue
            now = self._objects.find(file.name)
            if now is not None and _is_old(now, now_s):  # not renewed meanwhile
                self._objects.delete(file.name)
                files, size = files + 1, size + file.bytes
        self._objects.delete_leftovers()
        return Collected(pruned, files, size)

    def delete(self, candidates: Iterable[Candidate]) -> None:
        """Delete the manifests of these snapshots. Files that no other snapshot names are then
        garbage, which `collect` deletes."""
        for candidate in candidates:
            self._objects.delete(candidate.name)

    def _prune(self, found: list[Candidate]) -> int:
        # By the time they were stored: after a log lost its end, the greatest offsets are wrong.
        newest = max((each.stored_at for each in found), default=0.0)
        kept: list[Candidate] = []
        for folds in {each.folds for each in found}:
            by_age = sorted(
                (each for each in found if each.folds == folds),
                key=lambda each: (each.stored_at, each.offset),
                reverse=True,
            )
            if by_age[0].stored_at >= newest - OLD_FOLDS_S:
                kept += by_age[:KEPT]
        dropped = [each for each in found if each not in kept]
        self.delete(dropped)
        return len(dropped)


def staging_of(directory: Path) -> Path:
    """The directory in which the checkpoint of a store is made. It is next to the store's
    directory, because hard links must stay on one file system."""
    return directory.with_name(directory.name + ".checkpoint")


def snapshots_of(settings: Settings) -> Snapshots | None:
    """The snapshots of an installation; None if its settings switch snapshots off."""
    if settings.snapshot_records == 0:
        return None
    return Snapshots(objects_beside(settings, "snapshots", settings.snapshots_dir))


def _is_old(file: StoredObject, now_s: float) -> bool:
    return file.stored_at < now_s - GARBAGE_AGE_S


def _topic(topic_id: str) -> str:
    """A topic's id in a form that file names can contain. The id itself is base64 and may contain a
    slash."""
    return quote(topic_id, safe="")


def _digest_of(folds: str) -> str:
    return sha256(folds.encode()).hexdigest()[:16]


def _name_of(manifest: Manifest) -> str:
    place = f"{_topic(manifest.topic_id)}/{manifest.partition}"
    return f"{MANIFESTS}{place}/{manifest.offset:020}-{_digest_of(manifest.folds)}.json"


def _file(digest: str) -> str:
    return f"{FILES}{digest[:2]}/{digest}"


def _chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _hashed(path: Path, known: dict[_Inode, str], now_known: dict[_Inode, str]) -> SnapshotFile:
    """A file and its hash. RocksDB never changes a table file, so the hash of each is computed once
    and then looked up by the file's inode."""
    found = path.stat()
    inode = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    digest = known.get(inode) or _hash(path)
    if path.suffix == _UNCHANGING:
        now_known[inode] = digest
    return SnapshotFile(path.name, digest, found.st_size)


def _hash(path: Path) -> str:
    digest = sha256()
    for chunk in _chunks(path):
        digest.update(chunk)
    return digest.hexdigest()

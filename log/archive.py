"""The archive: the records that `foldlog retain` removed from the beginning of a partition.

    manifests/TOPIC_ID/PARTITION/UPTO.json   which files have the records before the offset UPTO
    files/AB/ABCDEF...                       bundles, and records of no archived session, by sha256

Each archived session is a bundle (bundle_file.py). A manifest is stored after its files and never
changes, and the log's own first offset says how much was deleted. So there is no second place that
could disagree with the log: the archive is read only below the first offset of the log.
docs/retention.md describes the format; FORMAT is its version.
"""

import heapq
import re
from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import msgspec

from ..schemas.record import Record
from ..schemas.topics import SESSION_EVENTS
from .blobs import objects_beside
from .errors import FoldlogError
from .objects import CHUNK_BYTES, Objects
from .settings import Settings

if TYPE_CHECKING:
    from .bundle_file import Bundle

FORMAT = 1
GARBAGE_AGE_S = 24 * 3600  # a file that no manifest names may belong to one that is being made
MANIFESTS, FILES = "manifests/", "files/"
_MANIFEST = re.compile(rf"{MANIFESTS}([^/]+)/(\d+)/(\d+)\.json")


class ArchiveDamaged(FoldlogError):
    """A part of the archive is missing or was changed. Nothing was skipped."""


class ArchivedSession(msgspec.Struct, frozen=True):
    """A session and its bundle. The archive has its records from `first` to `end` (excluded)."""

    session_id: str
    first: int
    end: int
    sha256: str
    bytes: int


class OtherRecords(msgspec.Struct, frozen=True):
    """The records from `first` to `end` (excluded) that belong to no archived session."""

    first: int
    end: int
    sha256: str
    bytes: int


Part = ArchivedSession | OtherRecords


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Names the files that have the records of a partition before the offset `upto`.

    sha256: of this manifest with an empty `sha256`, as compact JSON.
    """

    format: int
    cluster_id: str
    topic_id: str
    partition: int
    upto: int
    sessions: tuple[ArchivedSession, ...]
    others: tuple[OtherRecords, ...]
    sha256: str = ""

    def encoded(self) -> bytes:
        """The JSON of the manifest, with its hash."""
        return msgspec.json.encode(msgspec.structs.replace(self, sha256=self._digest()))

    def _digest(self) -> str:
        return sha256(msgspec.json.encode(msgspec.structs.replace(self, sha256=""))).hexdigest()

    @property
    def is_intact(self) -> bool:
        """Whether the hash of the manifest is correct."""
        return self.sha256 == self._digest()

    @property
    def files(self) -> set[str]:
        """The hashes of its files."""
        return {part.sha256 for part in self.parts}

    @property
    def parts(self) -> "tuple[Part, ...]":
        """The sessions and the other records."""
        return (*self.sessions, *self.others)


class LogId(NamedTuple):
    """The cluster and the topic of a log."""

    cluster_id: str
    topic_id: str


class Stored(NamedTuple):
    """A file that was stored."""

    sha256: str
    bytes: int


class _Line(msgspec.Struct, frozen=True):
    """A record that need not belong to a session, as JSON, with bytes in base64."""

    offset: int
    at: int
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    value: bytes | None


class Archive:
    """The archive in an object store. Several processes may use it at once.

    Methods raise OSError if the object store is inaccessible, and ArchiveDamaged.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    # -- reading -----------------------------------------------------------------------------------

    def covers(self, log: LogId, partition: int, first: int) -> bool:
        """Whether there is a manifest for a partition whose log begins at the offset `first`."""
        return any(upto >= first for upto, _ in self._uptos(log, partition))

    def covering(self, log: LogId, partition: int, first: int) -> Manifest | None:
        """The manifest for a partition whose log begins at the offset `first`; None if there is
        none that names every record before it.

        If several fit, returns the one with the smallest `upto`, because a greater one belongs to a
        run that has not deleted its records yet.
        """
        for upto, name in self._uptos(log, partition):
            if upto >= first:
                found = self._manifest(name)
                if (found.cluster_id, found.topic_id, found.partition) == (*log, partition):
                    return found
        return None

    def _uptos(self, log: LogId, partition: int) -> list[tuple[int, str]]:
        prefix = f"{MANIFESTS}{_topic(log)}/{partition}/"
        names = (stored.name for stored in self._objects.list(prefix))
        matches = (match for name in names if (match := _MANIFEST.fullmatch(name)) is not None)
        return sorted((int(match[3]), match[0]) for match in matches)

    def _manifest(self, name: str) -> Manifest:
        try:
            data = b"".join(self._objects.read(name))
            version = msgspec.json.decode(data).get("format")
            if version != FORMAT:
                raise ArchiveDamaged(f"{name} has format {version}, this version reads {FORMAT}")
            found = msgspec.json.decode(data, type=Manifest)
        except FileNotFoundError as error:
            raise ArchiveDamaged(f"{name} was deleted") from error
        except (msgspec.MsgspecError, AttributeError, ValueError) as error:
            raise ArchiveDamaged(f"{name} is damaged ({error})") from error
        if not found.is_intact:
            raise ArchiveDamaged(f"{name} is damaged (it does not have its sha256)")
        return found

    def records(
        self, manifest: Manifest, start: int, end: int, keys: Collection[bytes] | None = None
    ) -> Iterator[Record]:
        """The records from `start` to `end` (excluded), in offset order.

        keys: only the bundles of these sessions are read, and all other records. Only the sessions
            that overlap at the current offset are in memory.
        """
        parts: list[tuple[int, int, Part]] = []
        for part in manifest.parts:
            begin, limit = max(part.first, start), min(part.end, end)
            if begin < limit and _is_wanted(part, keys):
                parts.append((begin, limit, part))
        parts.sort(key=lambda each: each[0], reverse=True)
        sessions: dict[bytes | None, ArchivedSession] = {
            each.session_id.encode(): each for each in manifest.sessions
        }
        open_parts: list[tuple[int, int, Record, Iterator[Record]]] = []
        while parts or open_parts:
            while parts and (not open_parts or parts[-1][0] <= open_parts[0][0]):
                begin, limit, part = parts.pop()
                found = self._records_of(manifest.partition, part, sessions)
                records = [record for record in found if begin <= record.offset < limit]
                _push(open_parts, len(parts), iter(records))
            if open_parts:
                _, order, record, rest = heapq.heappop(open_parts)
                yield record
                _push(open_parts, order, rest)

    def _records_of(
        self, partition: int, part: Part, sessions: dict[bytes | None, ArchivedSession]
    ) -> list[Record]:
        if isinstance(part, ArchivedSession):
            key = part.session_id.encode()
            return [record for record in self.bundle(part).records if record.key == key]
        found = []
        for record in self._others(partition, part):
            # A session of this id may have been opened later, so compare the offsets too.
            session = sessions.get(record.key)
            if session is None or not session.first <= record.offset < session.end:
                found.append(record)
        return found

    def bundle(self, session: ArchivedSession) -> "Bundle":
        """The bundle of a session, verified. Its `blob` and `blobs` cannot be read."""
        import tempfile  # here, because every command opens the log, and few read the archive

        from .bundle_file import BadBundle, read_bundle

        with tempfile.NamedTemporaryFile(prefix="foldlog-archive-") as copy:
            copy.writelines(self._read(session.sha256))
            copy.flush()
            try:
                found = read_bundle(Path(copy.name))
            except BadBundle as error:
                raise _damaged(session.sha256) from error
        if found.sha256 != session.sha256 or found.manifest.session_id != session.session_id:
            raise _damaged(session.sha256)
        return found

    def _others(self, partition: int, part: OtherRecords) -> Iterator[Record]:
        data = b"".join(self._read(part.sha256))
        if sha256(data).hexdigest() != part.sha256:
            raise _damaged(part.sha256)
        for line in msgspec.json.Decoder(_Line).decode_lines(data):
            yield Record(SESSION_EVENTS, partition, line.offset, line.at, line.key, line.value,
                         line.headers)

    def _read(self, digest: str) -> Iterator[bytes]:
        try:
            yield from self._objects.read(_file(digest))
        except FileNotFoundError as error:
            raise ArchiveDamaged(f"{_file(digest)} is missing") from error

    # -- writing -----------------------------------------------------------------------------------

    def store_bundle(self, path: Path) -> Stored:
        """Store a bundle file."""
        digest, size = sha256(), path.stat().st_size
        for chunk in _chunks(path):
            digest.update(chunk)
        return self._store(digest.hexdigest(), size, _chunks(path))

    def store_others(self, records: Iterable[Record]) -> Stored:
        """Store records that belong to no archived session."""
        data = b"".join(
            msgspec.json.encode(_Line(r.offset, r.timestamp_ms, r.key, r.headers, r.value)) + b"\n"
            for r in records
        )
        return self._store(sha256(data).hexdigest(), len(data), [data])

    def _store(self, digest: str, size: int, data: Iterable[bytes]) -> Stored:
        stored = self._objects.renew(_file(digest))
        if stored is None or stored.bytes != size:
            self._objects.put(_file(digest), data)
        return Stored(digest, size)

    def store_manifest(self, manifest: Manifest) -> None:
        """Store a manifest. Its files must be stored before."""
        self._objects.put(_name(manifest), [manifest.encoded()])

    def delete_manifest(self, manifest: Manifest) -> None:
        """Delete a manifest; its files become garbage."""
        self._objects.delete(_name(manifest))

    # -- garbage -----------------------------------------------------------------------------------

    def collect(self, log: LogId, firsts: dict[int, int], now_s: float) -> int:
        """Delete the manifests that the first offsets of this log have passed, and old files that
        no manifest names. Returns the number of files deleted."""
        for partition, first in firsts.items():
            for upto, name in self._uptos(log, partition):
                if upto < first:
                    self._objects.delete(name)
        old = [f for f in self._objects.list(FILES) if f.stored_at < now_s - GARBAGE_AGE_S]
        named: set[str] = set()
        for stored in self._objects.list(MANIFESTS):
            try:
                named |= self._manifest(stored.name).files
            except ArchiveDamaged:  # or of a newer version: what it names is unknown
                return 0
        garbage = [file for file in old if file.name.rpartition("/")[2] not in named]
        for file in garbage:
            self._objects.delete(file.name)
        self._objects.delete_leftovers()
        return len(garbage)


def archive_of(settings: Settings) -> Archive:
    """The archive of an installation."""
    return Archive(objects_beside(settings, "archive", settings.archive_dir))




def _is_wanted(part: Part, keys: Collection[bytes] | None) -> bool:
    if keys is None or isinstance(part, OtherRecords):
        return True
    return part.session_id.encode() in keys


def _push(
    open_parts: list[tuple[int, int, Record, Iterator[Record]]],
    order: int,
    records: Iterator[Record],
) -> None:
    record = next(records, None)
    if record is not None:
        heapq.heappush(open_parts, (record.offset, order, record, records))


def _topic(log: LogId) -> str:
    """A topic's id as a part of a name: it is base64 and may contain a slash."""
    return quote(log.topic_id, safe="")


def _name(manifest: Manifest) -> str:
    topic = _topic(LogId(manifest.cluster_id, manifest.topic_id))
    return f"{MANIFESTS}{topic}/{manifest.partition}/{manifest.upto:020}.json"


def _file(digest: str) -> str:
    return f"{FILES}{digest[:2]}/{digest}"


def _damaged(digest: str) -> ArchiveDamaged:
    return ArchiveDamaged(f"{_file(digest)} is damaged")


def _chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk

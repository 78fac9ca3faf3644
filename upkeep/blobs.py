"""Maintains blob stores: verifies blobs, deletes those that nothing names, copies them.

`verify` decodes events to find the blobs that they name. `collect` must not miss a name, so it
searches raw bytes for anything that looks like one: in every topic of every installation on the
cluster, in the archive, and in the blobs that remain (a message in a blob may name an attachment, a
seed has the records of a parent). Snapshots name no blob that events do not name.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ..client.follow import read_before
from ..log.blobs import SHELVES, BlobCorrupt, BlobError, BlobMissing, BlobStore
from ..log.door import Log
from ..log.errors import LogCut, Refused, TopicMissing
from ..log.objects import Objects
from ..processors.entries import level_of
from ..reports.exports.blocks import Contents
from ..reports.exports.bundle import BlobRefs
from ..schemas.codec import entry_of
from ..schemas.events import RecordSkipped, SessionOpened
from ..schemas.events.parts import BlobRef, ReadBlob
from ..schemas.record import Record
from ..schemas.seed import unseal
from ..schemas.topics import SESSION_EVENTS, TOPICS

GRACE_S_MIN = 3600
"""A blob may be stored this long before the event that names it: an upload waits for its message.
"""

NAME_CHARS = 64
_NAMES = re.compile(rb"[0-9a-f]{64,}")

Progress = Callable[[int, int], None]
"""progress(blobs or records done, in total)."""


class WrongStore(Refused):
    """The store has blobs, but this cluster names none of them. Nothing was deleted."""


class Named(NamedTuple):
    """Where the log names a blob first."""

    session_id: str
    partition: int
    offset: int
    bytes: int


class Problem(NamedTuple):
    """A blob that cannot be read.

    what: `missing` or `damaged`.
    named: None if no event names it.
    """

    sha256: str
    what: str
    why: str
    named: Named | None


class Verified(NamedTuple):
    """The result of `verify`.

    named: blobs that events name.
    stored: blobs in the store.
    """

    named: int
    stored: int
    bytes: int
    problems: tuple[Problem, ...]


class Collected(NamedTuple):
    """The result of `collect`.

    garbage: blobs that nothing names.
    young: blobs that were stored too recently to be deleted, named or not.
    """

    stored: int
    young: int
    garbage: int
    garbage_bytes: int
    deleted: int


class Copied(NamedTuple):
    """The result of `copy`. present: blobs that the target had before."""

    stored: int
    present: int
    copied: int
    bytes: int
    problems: tuple[Problem, ...]


# -- verify ----------------------------------------------------------------------------------------


def verify(log: Log, blobs: BlobStore, progress: Progress) -> Verified:
    """Read every blob that an event names or that is in the store. Raises BlobsAway,
    LogUnreachable, LogCut.
    """
    named = _named_by_events(log, blobs)
    stored = {found.name: found.bytes for shelf in SHELVES for found in blobs.list(shelf)}
    names, problems, size = sorted({*named, *stored}), [], 0
    for done, name in enumerate(names):
        progress(done, len(names))
        try:
            size += len(blobs.get_stored(name))
        except (BlobMissing, BlobCorrupt) as error:
            if name in named or (name in stored and blobs.find(name) is not None):
                what = "missing" if isinstance(error, BlobMissing) else "damaged"
                problems.append(Problem(name, what, str(error), named.get(name)))
    progress(len(names), len(names))
    return Verified(len(named), len(stored), size, tuple(problems))


def _named_by_events(log: Log, blobs: BlobStore) -> dict[str, Named]:
    named: dict[str, Named] = {}
    contents = Contents(lambda ref: blobs.get(ref.sha256))
    levels_read = set[str]()
    for record in _session_records(log):
        refs = BlobRefs(contents)
        refs.of_records(_with_seeds(record, refs.read, levels_read))
        for ref in refs.found():
            key = (record.key or b"").decode("utf-8", "replace")
            place = Named(key, record.partition, record.offset, ref.bytes)
            named.setdefault(ref.sha256, place)
    return named


def _with_seeds(record: Record, read: ReadBlob, levels_read: set[str]) -> Iterator[Record]:
    """The record and, if it opens a fork, the records of its seed and of its ancestors' seeds.
    `levels_read`: the seeds whose records were returned before."""
    yield record
    event = entry_of(record).event
    if type(event) not in (SessionOpened, RecordSkipped) or event.seed_ref is None:
        return
    up: BlobRef | None = event.seed_ref
    try:
        while up is not None and up.sha256 not in levels_read:
            levels_read.add(up.sha256)
            _, up, records = unseal(level_of(up, read))
            yield from records
    except (BlobError, ValueError):  # missing or damaged: the blob itself is reported
        return


def _session_records(log: Log) -> Iterator[Record]:
    for partition, end in sorted(log.end_offsets(SESSION_EVENTS).items()):
        yield from read_before(log, SESSION_EVENTS, partition, end)


# -- collect ---------------------------------------------------------------------------------------


def collect(
    logs: Iterable[Log],
    archive: Objects,
    blobs: BlobStore,
    grace_s: float,
    progress: Progress,
    *,
    delete: bool,
    force: bool = False,
) -> Collected:
    """Find the blobs that nothing names and that are older than `grace_s`; delete them if `delete`.

    Safe while workers and gateways run. force: continue even if the logs name no blob of the store.
    Raises WrongStore, LogCut, BlobsAway, BlobError, LogUnreachable.
    """
    assert grace_s >= GRACE_S_MIN, grace_s
    before_s = time.time() - grace_s
    stored = {found.name: found for shelf in SHELVES for found in blobs.list(shelf)}
    old = {name for name, found in stored.items() if found.stored_at < before_s}
    named = set[str]()  # read after the listing, so an event that names a listed blob is seen
    for log in logs:
        named |= _named_in_log(log)
    for found in archive.list(""):
        named |= _names_in(archive.read(found.name))
    if stored and not force and not named & stored.keys():
        raise WrongStore(
            f"the store has {len(stored)} blobs, and the logs on this cluster name none of them: "
            "it seems to be the store of another cluster. Nothing was deleted. Check FOLDLOG_BLOBS "
            "and the broker; --force continues."
        )
    kept = _with_named_in_blobs(blobs, (stored.keys() - old) | (named & stored.keys()),
                                stored.keys(), old, progress)
    garbage = sorted(old - kept)
    deleted = 0
    for done, name in enumerate(garbage if delete else ()):
        progress(done, len(garbage))
        deleted += blobs.delete_unless_young(name, before_s)
    progress(1, 1)
    size = sum(stored[name].bytes for name in garbage)
    return Collected(len(stored), len(stored) - len(old), len(garbage), size, deleted)


def _with_named_in_blobs(
    blobs: BlobStore,
    roots: set[str],
    stored: Iterable[str],
    old: set[str],
    progress: Progress,
) -> set[str]:
    """The blobs that must stay, with the blobs that these name, directly or through other blobs.
    Stops as soon as every old blob is named.
    """
    there, kept, unread = set(stored), set(roots), sorted(roots)
    done = 0
    while unread and old - kept:
        progress(done, done + len(unread))
        name, done = unread.pop(), done + 1
        try:
            found = _names_in([blobs.get(name)]) & there - kept
        except BlobMissing:  # deleted since it was listed: then no event names it
            continue
        except BlobCorrupt as error:
            raise BlobError(
                f"{error} The blobs that it names are unknown, so nothing was deleted. See "
                "`foldlog blobs verify`."
            ) from error
        kept |= found
        unread += sorted(found)
    return kept


def _named_in_log(log: Log) -> set[str]:
    """Everything in any topic of a log that looks like the name of a blob."""
    named = set[str]()
    for spec in TOPICS:
        try:
            ends = log.end_offsets(spec.name)
        except TopicMissing:
            continue
        if spec.name == SESSION_EVENTS:
            for partition, first in log.first_offsets(spec.name).items():
                if first > 0:
                    raise LogCut(partition, 0, first)
        for partition, end in ends.items():
            for record in read_before(log, spec.name, partition, end, kept="Nothing was deleted"):
                named |= _names_in([record.key or b"", b" ", record.value or b"", b" "])
                for _, value in record.headers:
                    named |= _names_in([value])
    return named


def _names_in(chunks: Iterable[bytes]) -> set[str]:
    """Every run of 64 hexadecimal digits, also inside a longer run, because a name may be followed
    by a byte that looks like a digit.
    """
    named, rest = set[str](), b""
    for chunk in chunks:
        data = rest + chunk
        for run in _NAMES.finditer(data):
            text = run[0].decode()
            named.update(
                text[at : at + NAME_CHARS] for at in range(len(text) - NAME_CHARS + 1)
            )
        rest = data[-(NAME_CHARS - 1) :]
    return named


# -- copy ------------------------------------------------------------------------------------------


def copy(source: BlobStore, target: BlobStore, progress: Progress) -> Copied:
    """Copy the blobs that the target does not have. It can be interrupted and repeated. Each blob
    is verified; a damaged one is not copied. Raises BlobsAway, BlobError.
    """
    present, copied, size, problems = 0, 0, 0, list[Problem]()
    for number, shelf in enumerate(SHELVES):
        progress(number, len(SHELVES))
        there = {found.name: found.bytes for found in target.list(shelf)}
        for found in source.list(shelf):
            if there.get(found.name) == found.bytes:
                present += 1
                continue
            try:
                data = source.get_stored(found.name)
            except BlobMissing:  # deleted since it was listed
                continue
            except BlobCorrupt as error:
                problems.append(Problem(found.name, "damaged", str(error), None))
                continue
            target.put(data)
            copied, size = copied + 1, size + len(data)
    progress(len(SHELVES), len(SHELVES))
    return Copied(present + copied + len(problems), present, copied, size, tuple(problems))

"""A session bundle is a complete session in one file that can be replayed anywhere.

The export copies the session's raw records and folds the copy with the same code that later reads
the bundle. It then adds the SHA-256 of every view and of every request to the bundle. `verify`
folds the records again, on any machine, and compares the hashes. A bundle contains no settings, no
names of hosts or clusters and no secrets of foldlog; messages of people and models are included
unchanged.
"""

import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...client.follow import read_before
from ...client.session_fold import SessionFold
from ...client.show import UnknownSession
from ...log.blobs import BlobError
from ...log.bundle_file import FORMAT, Blob, Bundle, Manifest, line_of, write_bundle
from ...log.door import Log
from ...log.errors import LogCut
from ...log.made import partitions_of
from ...log.partition import partition_for
from ...processors.fold.sessions import FoldedEvent
from ...processors.fold.views import SessionViews
from ...processors.request.build import BUILDER, request_bytes, request_sha256
from ...processors.request.continuation import resumed_request
from ...processors.store import views_codec
from ...processors.store.store import fold_version
from ...schemas import events as ev
from ...schemas.codec import entry_of
from ...schemas.enums import Recovery
from ...schemas.events.parts import BlobRef, Body, ReadBlob
from ...schemas.ids import PARTITION_KEY
from ...schemas.record import Record
from ...schemas.topics import SESSION_EVENTS
from ...schemas.value import field_names
from .blocks import Contents, blocks
from .bundle_log import BundleLog
from .reading import Progress


class Replayed(NamedTuple):
    """The result of folding a session: the SHA-256 of every view, and of the request of every step
    (None if a missing blob prevents building it). `claimed`: the SHA-256 of each request as its
    claim recorded it, for claims that were made with this version of the request builder.
    """

    views: SessionViews
    hashes: dict[str, str]
    requests: dict[str, str | None]
    claimed: dict[str, str]


class Difference(NamedTuple):
    """A view or a request whose SHA-256 differs from the manifest or a claim."""

    what: str
    here: str
    there: str


def replay(log: Log, session_id: str, read: ReadBlob) -> Replayed:
    """Fold a session and rebuild each of its requests. Raises UnknownSession."""
    requests: dict[str, str | None] = {}
    claimed: dict[str, str] = {}
    body, chunks = b"", list[ev.GenChunk]()
    with SessionFold(log, session_id, chunks=True, read=read) as folded:
        for seen in folded.upto(folded.end()):
            event = seen.entry.event
            if not seen.ruling.accepted:
                continue
            match event:
                case ev.LlmCalled():
                    try:
                        body, chunks = request_bytes(seen.views, read), []
                        sha = request_sha256(body)
                    except BlobError:
                        body, sha = b"", None
                    requests[f"{event.turn}.{event.step}"] = sha
                case ev.GenChunk():
                    chunks.append(event)
                case ev.GenStart() | ev.GenResumed() if event.builder == BUILDER:
                    if not _is_resumed(seen, body, chunks):
                        claimed[f"{event.turn}.{event.step}"] = event.request_sha256
        views = folded.views
    return Replayed(views, views_codec.view_hashes(views), requests, claimed)


def _is_resumed(seen: FoldedEvent, body: bytes, chunks: list[ev.GenChunk]) -> bool:
    """Whether a claim resumes a lost answer and contains the SHA-256 of the rebuilt request."""
    event = seen.entry.event
    if not body or getattr(event, "strategy", "") != Recovery.RESUME:
        return False
    sent = resumed_request(body, seen.views, chunks)
    return sent is not None and request_sha256(sent) == event.request_sha256


def export_bundle(
    path: Path,
    log: Log,
    session_id: str,
    contents: Contents,
    progress: Progress = lambda _read, _there: None,
) -> Manifest:
    """Write the bundle of a session. Raises UnknownSession, LogUnreachable."""
    records = _records(log, session_id, progress)
    return bundle_records(path, partitions_of(log), session_id, records, contents)


def bundle_records(
    path: Path, partitions: int, session_id: str, records: Iterable[Record], contents: Contents
) -> Manifest:
    """Write the bundle of a session from its records and those about the holders of its partition,
    in offset order. Raises UnknownSession.

    partitions: the number of partitions of the log.
    """
    records = list(records)
    mine = [record for record in records if record.key == session_id.encode()]
    if not mine:
        raise UnknownSession(f"there is no session {session_id}. See `foldlog sessions`.")
    end = mine[-1].offset + 1
    records = [record for record in records if record.offset < end]
    with tempfile.TemporaryFile() as lines:
        digest = sha256()
        for record in records:
            line = line_of(record)
            digest.update(line)
            lines.write(line)
        draft = Manifest(
            format=FORMAT,
            session_id=session_id,
            partition=partition_for(session_id, partitions),
            partitions=partitions,
            end=end,
            records=len(records),
            records_sha256=digest.hexdigest(),
            blobs=(),
            folds=fold_version(),
            builder=BUILDER,
            views={},
            requests={},
        )
        blob_refs = BlobRefs(contents)
        bundle = Bundle(path, draft, tuple(records), "")
        replayed = replay(BundleLog(bundle), session_id, blob_refs.read)
        if not replayed.views.turn.known:
            raise UnknownSession(f"there is no session {session_id}. See `foldlog sessions`.")
        blob_refs.of_records(mine)
        blob_refs.of(views_codec.series_of(replayed.views))
        for row in replayed.views.messages.received:  # in a fork, also messages of the parent
            blob_refs.of_content(row.content)
        blobs = blob_refs.blobs()
        manifest = replace(
            draft, blobs=blobs, views=replayed.hashes, requests=replayed.requests
        )
        lines.seek(0)
        contained = ((b.sha256, blob_refs.bytes_of(b.sha256)) for b in blobs if b.held)
        write_bundle(path, lines, manifest, contained)
    return manifest


def verify(bundle: Bundle, read: ReadBlob) -> tuple[Replayed, list[Difference]]:
    """Replay a bundle, and list its differences from its manifest and from the session's claims."""
    manifest = bundle.manifest
    replayed = replay(BundleLog(bundle), manifest.session_id, read)
    found = [
        Difference(f"view {name}", replayed.hashes.get(name, "none"), there)
        for name, there in manifest.views.items()
        if replayed.hashes.get(name) != there
    ]
    if replayed.requests.keys() != manifest.requests.keys():
        found.append(Difference("steps", " ".join(replayed.requests), " ".join(manifest.requests)))
    for step, here in replayed.requests.items():
        there = manifest.requests.get(step)
        if here != there and manifest.builder == BUILDER:
            found.append(Difference(f"request {step}", str(here), str(there)))
        claim = replayed.claimed.get(step)
        if here is not None and claim is not None and here != claim:
            found.append(Difference(f"request {step} of its claim", here, claim))
    return replayed, found


class BlobRefs:
    """Collects the blobs to which a session's records, messages and requests refer."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._refs: dict[str, BlobRef] = {}

    def read(self, ref: BlobRef) -> bytes:
        """Read a blob from the store, and note that the session refers to it."""
        self._refs.setdefault(ref.sha256, ref)
        return self._contents.read(ref)

    def of_records(self, records: Iterable[Record]) -> None:
        """Collect the references in events, including the attachments of messages."""
        for record in records:
            event = entry_of(record).event
            self.of(event)
            if isinstance(event, ev.MessageReceived):
                self.of_content(event.content)

    def of_content(self, body: Body) -> None:
        """Collect the attachments of a message."""
        for block in blocks(self._contents.whole(body) or b""):
            self.of(block.attachment())

    def of(self, value: Any) -> None:
        """Collect every reference inside a value."""
        match value:
            case BlobRef():
                self._refs.setdefault(value.sha256, value)
            case Body():
                self.of(value.ref)
            case str() | bytes() | int() | float() | None:
                return
            case _ if names := field_names(value):
                for name in names:
                    self.of(getattr(value, name))
            case _ if isinstance(value, Iterable):
                for item in value:
                    self.of(item)

    def found(self) -> Iterable[BlobRef]:
        """The references collected so far."""
        return self._refs.values()

    def blobs(self) -> tuple[Blob, ...]:
        """All collected blobs, sorted by name.

        A blob's size is the number of its stored bytes. If the store lacks the blob, it is the size
        that the reference states.
        """
        found = []
        for name, ref in sorted(self._refs.items()):
            data = self._contents.blob(ref)
            size = ref.bytes if data is None else len(data)
            found.append(Blob(name, size, ref.media_type, data is not None))
        return tuple(found)

    def bytes_of(self, name: str) -> bytes:
        """The bytes of a blob that the store has."""
        return self.read(self._refs[name])


def _records(log: Log, session_id: str, progress: Progress) -> list[Record]:
    """The raw records of the session, and the records that name the workers which held its
    partition.

    Both are read up to the present end of the log.
    """
    partition = partition_for(session_id, partitions_of(log))
    first = log.first_offsets(SESSION_EVENTS)[partition]
    if first > 0:
        raise LogCut(partition, 0, first)
    end = log.end_offsets(SESSION_EVENTS)[partition]
    keys = (session_id.encode(), PARTITION_KEY.encode())
    records = read_before(
        log, SESSION_EVENTS, partition, end,
        kept="Nothing was written", progress=lambda offset: progress(offset, end),
    )
    return [record for record in records if record.key in keys]

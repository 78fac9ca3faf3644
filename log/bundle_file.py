"""Writes bundle files, and reads them with every check.

A bundle is a zip whose members are stored without compression, in a fixed order and with a fixed
date, so the same session gives the same bytes anywhere. The reader does not trust a bundle. The
members must have exactly the names below, and no name in the file is ever used as a path. The
reader reads at most as many bytes as the file has, and stops at any mismatch with the manifest.

    records.jsonl   the session's records as in the log, and those about its partition's holders
    blobs/SHA256    the blobs to which these records refer
    manifest.json   the SHA-256 of the members above, and of the session's views and requests
"""

import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from hashlib import file_digest, sha256
from pathlib import Path
from shutil import copyfileobj
from typing import IO, NamedTuple

import msgspec

from ..schemas.ids import PARTITION_KEY
from ..schemas.record import Record
from ..schemas.topics import SESSION_EVENTS
from .errors import FoldlogError
from .partition import partition_for

FORMAT = "foldlog-bundle/1"
RECORDS, MANIFEST = "records.jsonl", "manifest.json"
MANIFEST_BYTES_MAX = 64 * 1024 * 1024  # 150 bytes for a blob, 90 for a request
LINE_BYTES_MAX = 8 * 1024 * 1024  # a record in base64; the log allows 1 MiB
PARTITIONS_MAX = 100_000
_BLOB = re.compile(r"blobs/([0-9a-f]{64})")
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest date that a zip can have


class BadBundle(FoldlogError):
    """The file is not a bundle, or was changed or truncated. Nothing from the file was used."""


class Blob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A blob to which records refer. `held`: whether the bundle contains the blob."""

    sha256: str
    bytes: int
    media_type: str
    held: bool


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Describes the contents of a bundle.

    `end`: the offset after its last record.
    `views`, `requests`: the SHA-256 of each view by its name, and of each request by TURN.STEP.
    `folds`, `builder`: the versions of the folds and of the request builder that these hashes were
        made with.
    """

    format: str
    session_id: str
    partition: int
    partitions: int
    end: int
    records: int
    records_sha256: str
    blobs: tuple[Blob, ...]
    folds: str
    builder: str
    views: dict[str, str]
    requests: dict[str, str | None]


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record as JSON, with bytes in base64."""

    offset: int
    at: int
    key: str
    headers: tuple[tuple[str, bytes], ...]
    value: bytes | None


class Bundle(NamedTuple):
    """A bundle that was read and verified. `blob(sha256)` returns verified bytes."""

    path: Path
    manifest: Manifest
    records: tuple[Record, ...]
    sha256: str

    def blob(self, name: str) -> bytes:
        """The bytes of a blob that the bundle contains. Raises BadBundle."""
        with _opened(self.path) as archive:
            return _blob(archive, self.path, name)

    def blobs(self) -> Iterator[tuple[str, bytes]]:
        """Every blob that the bundle contains."""
        with _opened(self.path) as archive:
            for blob in self.manifest.blobs:
                if blob.held:
                    yield blob.sha256, _blob(archive, self.path, blob.sha256)


def line_of(record: Record) -> bytes:
    """A record as a line of JSON."""
    key = (record.key or b"").decode()
    line = _Line(record.offset, record.timestamp_ms, key, record.headers, record.value)
    return msgspec.json.encode(line) + b"\n"


def write_bundle(
    path: Path, records: IO[bytes], manifest: Manifest, blobs: Iterable[tuple[str, bytes]]
) -> None:
    """Write a bundle.

    `records`: a file with a line for each record.
    `blobs`: (sha256, bytes), sorted.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        with archive.open(_member(RECORDS), "w", force_zip64=True) as member:
            copyfileobj(records, member)
        for name, data in blobs:
            archive.writestr(_member(f"blobs/{name}"), data)
        pretty = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        archive.writestr(_member(MANIFEST), pretty + b"\n")


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _DATE)
    member.create_system, member.external_attr = 3, 0o644 << 16
    return member


def read_bundle(path: Path) -> Bundle:
    """Read a bundle and verify every part against its manifest. Raises BadBundle."""
    try:
        digest = file_sha256(path)
    except OSError as error:
        raise BadBundle(f"{path} cannot be read: {error.strerror}. No bundle was loaded. Check the "
                        "path") from error
    with _opened(path) as archive:
        manifest = _manifest(archive, path)
        _names(archive, path, manifest)
        records = tuple(_records(archive, path, manifest))
        for blob in manifest.blobs:
            if blob.held and len(_blob(archive, path, blob.sha256)) != blob.bytes:
                raise _bad(path, f"blob {blob.sha256} is not {blob.bytes} bytes long")
    return Bundle(path, manifest, records, digest)


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise _bad(path, f"it is not a bundle ({error})") from error
    room = path.stat().st_size
    for member in archive.infolist():
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x1:
            archive.close()
            raise _bad(path, f"its member {member.filename[:80]!r} is compressed, but members of "
                             "bundles are not")
        room -= member.file_size
    if room < 0:
        archive.close()
        raise _bad(path, "its members claim more bytes than the file has")
    return archive


def _read(archive: zipfile.ZipFile, path: Path, name: str, most: int | None = None) -> bytes:
    try:
        if most is not None and archive.getinfo(name).file_size > most:
            raise _bad(path, f"its {name} is larger than {most} bytes")
        return archive.read(name)
    except KeyError:
        raise _bad(path, f"it has no {name}") from None
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError) as error:
        raise _bad(path, f"its {name} is damaged ({error})") from error


def _manifest(archive: zipfile.ZipFile, path: Path) -> Manifest:
    raw = _read(archive, path, MANIFEST, MANIFEST_BYTES_MAX)
    try:
        form = msgspec.json.decode(raw).get("format")
        if form != FORMAT:
            raise _bad(path, f"its format is {str(form)[:40]!r}, but this version reads {FORMAT}")
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, AttributeError, RecursionError, ValueError) as error:
        raise _bad(path, f"its manifest cannot be read ({error})") from error
    place = range(min(manifest.partitions, PARTITIONS_MAX))
    wanted = manifest.partition in place and partition_for(manifest.session_id, len(place))
    if manifest.partition not in place or wanted != manifest.partition:
        raise _bad(path, f"session {manifest.session_id[:140]!r} does not belong to its partition")
    return manifest


def _names(archive: zipfile.ZipFile, path: Path, manifest: Manifest) -> None:
    """Raise BadBundle unless the zip has exactly the members that the manifest names, each once."""
    present = sorted(archive.namelist())
    wanted = sorted([RECORDS, MANIFEST, *(f"blobs/{b.sha256}" for b in manifest.blobs if b.held)])
    is_valid = all(n in (RECORDS, MANIFEST) or _BLOB.fullmatch(n) for n in present)
    if present != wanted or not is_valid:
        extra = next((name for name in present if name not in wanted), None)
        missing = next((name for name in wanted if name not in present), None)
        raise _bad(path, f"it contains {extra[:80]!r}, which its manifest does not name" if extra
                   else f"it lacks {missing}" if missing else "it contains a member twice")


def _records(archive: zipfile.ZipFile, path: Path, manifest: Manifest) -> Iterator[Record]:
    decoder, digest = msgspec.json.Decoder(_Line), sha256()
    keys, last, count = (manifest.session_id, PARTITION_KEY), -1, 0
    lines = io.BytesIO(_read(archive, path, RECORDS))
    while text := lines.readline(LINE_BYTES_MAX):
        digest.update(text)
        try:
            line = decoder.decode(text)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise _bad(path, f"record {count} cannot be read ({error})") from error
        if line.key not in keys or not last < line.offset < manifest.end:
            raise _bad(path, f"record {count} (offset {line.offset}) does not belong in it")
        last, count = line.offset, count + 1
        yield Record(SESSION_EVENTS, manifest.partition, line.offset, line.at, line.key.encode(),
                     line.value, line.headers)
    if (count, digest.hexdigest()) != (manifest.records, manifest.records_sha256):
        raise _bad(path, "its records are not those that its manifest describes")


def _blob(archive: zipfile.ZipFile, path: Path, name: str) -> bytes:
    data = _read(archive, path, f"blobs/{name}")
    if sha256(data).hexdigest() != name:
        raise _bad(path, f"the bytes of blob {name} were changed")
    return data


def file_sha256(path: Path) -> str:
    """The SHA-256 of a whole file."""
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _bad(path: Path, what: str) -> BadBundle:
    return BadBundle(
        f"{path}: {what}. The file was changed, truncated, or is something else; nothing in it was "
        "used. Get it again from the person who exported it, and compare the SHA-256 that the "
        "export printed."
    )


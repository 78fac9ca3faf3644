"""The outbox stores outcomes of effects on disk before they are produced.

The outcome of an effect must survive an unreachable broker and a crash of the worker. When `put`
returns, the outcome is durable; `done` records that the log has it. At the next start, `pending`
returns every outcome that is not done, and these are produced again (a duplicate is harmless). One
worker owns the file; any of the worker's threads may use it.

The file is a sequence of frames: magic, length and crc32 of the payload, payload. An incomplete
frame at the end, after a crash, was never acknowledged to a caller, so it is discarded. After
damage in the middle, reading continues at the next whole frame, and a copy of the damaged file is
kept.
"""

import os
import struct
import threading
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from ...log.durable_files import fsync_directory
from ...log.errors import FoldlogError
from ...schemas import codec

_HEAD = struct.Struct("<4sII")  # magic, payload length, payload crc32
_BODY = struct.Struct("<BQH")  # kind, token, length of the session id; then session id, event
_MAGIC = b"FLob"
_PUT, _DONE = 1, 2
_COMPACT_BYTES = 1024 * 1024  # a larger file is rewritten once most of it is done
# Enough for hours without a broker, and for all effects that run when the broker becomes
# unreachable.
PENDING_BYTES_MAX = 256 * 1024 * 1024
_PAYLOAD_BYTES_MAX = 16 * 1024 * 1024  # events are far smaller; a greater length means damage


class OutboxFull(FoldlogError):
    """The outbox is full, and this outcome was not stored.
    Begin no more effects until the outbox drains."""


class Pending(NamedTuple):
    """An outcome that the log may lack. Pass `token` to `done` once the log has the outcome."""

    token: int
    session_id: str
    event: Any


class _Kept(NamedTuple):
    session_id: str
    value: bytes  # the event, encoded

    @property
    def bytes(self) -> int:
        return _HEAD.size + _BODY.size + len(self.session_id.encode()) + len(self.value)


class Outbox:
    """A file of outcomes. A disk error raises OSError; the outcome is then not stored."""

    def __init__(self, path: Path | str, *, pending_bytes_max: int = PENDING_BYTES_MAX) -> None:
        self.path = Path(path)
        self.pending_bytes_max = pending_bytes_max
        self.damaged: Path | None = None  # the copy of a damaged file, for `doctor`
        self._write_lock = threading.Lock()  # protects the order of frames and all state in memory
        self._sync_lock = threading.Lock()  # acquired first where both are needed
        self._kept: dict[int, _Kept] = {}
        self._pending_bytes = 0
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = -1
        self._written = self._synced = 0
        self._next = self._load()
        self._rewrite()

    def put(self, session_id: str, event: Any) -> int:
        """Store an outcome on disk. Returns the token for `done`."""
        kept = _Kept(session_id, codec.encode(event))
        with self._write_lock:
            if self._pending_bytes + kept.bytes > self.pending_bytes_max:
                raise OutboxFull(
                    f"{len(self._kept)} outcomes ({self._pending_bytes} bytes) wait in {self.path} "
                    "for the broker. This outcome was not kept. No effect begins until the outbox "
                    "is sent."
                )
            token, self._next = self._next, self._next + 1
            self._append(_put_frame(token, kept))
            self._kept[token] = kept
            self._pending_bytes += kept.bytes
            written = self._written
        self._sync(written)
        return token

    def done(self, token: int) -> None:
        """Record that the log has an outcome. The record is not synced to disk: if it is lost, the
        outcome is produced again.
        """
        with self._write_lock:
            kept = self._kept.pop(token, None)
            if kept is None:
                return
            self._pending_bytes -= kept.bytes
            self._append(_frame(_BODY.pack(_DONE, token, 0)))
            waste = self._size - self._pending_bytes
        if waste > _COMPACT_BYTES and waste > self._size // 2:
            self._rewrite()

    def pending(self) -> list[Pending]:
        """The outcomes that are not done, oldest first.
        Undecodable outcomes are left out, but stay stored."""
        with self._write_lock:
            kept = list(self._kept.items())
        found = []
        for token, item in kept:
            try:
                found.append(Pending(token, item.session_id, codec.decode(item.value)))
            except codec.Undecodable:
                continue
        return found

    def __len__(self) -> int:
        return len(self._kept)

    def close(self) -> None:
        """Close the file, which keeps the pending outcomes."""
        with self._sync_lock, self._write_lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _append(self, frame: bytes) -> None:
        """Append a frame. If this fails, the file is unchanged."""
        try:
            _write_all(self._fd, frame)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(frame)
        self._written += len(frame)

    def _sync(self, written: int) -> None:
        """Sync the file up to `written` bytes. One fsync serves all waiting threads."""
        with self._sync_lock:
            if self._synced >= written:
                return
            with self._write_lock:
                upto = self._written
            os.fdatasync(self._fd)
            self._synced = upto

    def _rewrite(self) -> None:
        """Replace the file with a file of only the pending outcomes."""
        with self._sync_lock, self._write_lock:
            fresh = self.path.with_name(self.path.name + ".new")
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            fd = os.open(fresh, flags, 0o600)
            try:
                frames = [_put_frame(token, kept) for token, kept in self._kept.items()]
                data = b"".join(frames)
                _write_all(fd, data)
                os.fdatasync(fd)
                os.replace(fresh, self.path)
                fsync_directory(self.path.parent)
            except BaseException:
                os.close(fd)
                raise
            old, self._fd = getattr(self, "_fd", -1), fd
            if old >= 0:
                os.close(old)
            self._size = len(data)
            self._written = self._synced = getattr(self, "_written", 0)

    def _load(self) -> int:
        """Read the file into memory and return the next token."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return 1
        payloads, holes = _frames(data)
        if holes:
            self.damaged = self.path.with_name(f"{self.path.name}.damaged")
            self.damaged.write_bytes(data)
        last = 0
        for payload in payloads:
            kind, token, id_bytes = _BODY.unpack_from(payload)
            last = max(last, token)
            if kind == _DONE:
                self._kept.pop(token, None)
                continue
            session = payload[_BODY.size : _BODY.size + id_bytes].decode()
            self._kept[token] = _Kept(session, payload[_BODY.size + id_bytes :])
        self._pending_bytes = sum(kept.bytes for kept in self._kept.values())
        return last + 1


def _put_frame(token: int, kept: _Kept) -> bytes:
    session = kept.session_id.encode()
    return _frame(_BODY.pack(_PUT, token, len(session)) + session + kept.value)


def _frame(payload: bytes) -> bytes:
    assert len(payload) <= _PAYLOAD_BYTES_MAX, "content this large belongs in the blob store"
    return _HEAD.pack(_MAGIC, len(payload), zlib.crc32(payload)) + payload


def _frames(data: bytes) -> tuple[list[bytes], int]:
    """The intact payloads, and the number of damaged places between them. An incomplete frame at
    the end of the file is not counted.
    """
    payloads, holes, at = [], 0, 0
    while at < len(data):
        payload = _payload(data, at)
        if payload is None:
            found = _next_frame(data, at + 1)
            if found < 0:
                break
            holes, at = holes + 1, found
            continue
        payloads.append(payload)
        at += _HEAD.size + len(payload)
    return payloads, holes


def _payload(data: bytes, at: int) -> bytes | None:
    if len(data) - at < _HEAD.size:
        return None
    magic, length, crc = _HEAD.unpack_from(data, at)
    payload = data[at + _HEAD.size : at + _HEAD.size + length]
    whole = magic == _MAGIC and _BODY.size <= length == len(payload) <= _PAYLOAD_BYTES_MAX
    return payload if whole and zlib.crc32(payload) == crc else None


def _next_frame(data: bytes, at: int) -> int:
    """The position of the next whole frame, or -1."""
    while (at := data.find(_MAGIC, at)) >= 0:
        if _payload(data, at) is not None:
            return at
        at += 1
    return -1


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]

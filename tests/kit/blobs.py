"""A blob store in memory, with the methods that the fold, the builder and the effects call."""

from hashlib import sha256

from foldlog.log.blobs import BlobMissing
from foldlog.schemas import events as ev

INLINE_MAX = 200  # bytes; far below the real limit, so that histories have references in them


class MemoryBlobs:
    """`held`: the stored bytes by their hash. A body of more than `inline_max` bytes becomes a
    reference."""

    def __init__(self, inline_max: int = INLINE_MAX) -> None:
        self.inline_max = inline_max
        self.held: dict[str, bytes] = {}

    def body(self, data: bytes, media_type: str = "application/json") -> ev.Body:
        if len(data) <= self.inline_max:
            return ev.Body(inline=data)
        return ev.Body(ref=self.store(data, media_type))

    def store(self, data: bytes, media_type: str) -> ev.BlobRef:
        name = sha256(data).hexdigest()
        self.held[name] = data
        return ev.BlobRef(sha256=name, bytes=len(data), media_type=media_type)

    def read(self, ref: ev.BlobRef) -> bytes:
        if ref.sha256 not in self.held:
            raise BlobMissing(f"no blob {ref.sha256}")
        return self.held[ref.sha256]

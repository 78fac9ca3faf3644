"""The write side: what people and other programs ask of a session, as events with a receipt.

Read `sessions.py` (open, say, cancel, decide and so on), then `checks.py` (what is refused before
anything is produced) and `blobs.py` (where large content goes first). Nothing here folds: whether
an event counted is the fold's word, and waiting for it is the business of `consumers/`.
"""

from ..log.blobs import BlobCorrupt, BlobError, BlobMissing, BlobStore
from .checks import Invalid
from .sessions import Receipt, Sessions, Unacknowledged, new_session_id

__all__ = [
    "BlobCorrupt",
    "BlobError",
    "BlobMissing",
    "BlobStore",
    "Invalid",
    "Receipt",
    "Sessions",
    "Unacknowledged",
    "new_session_id",
]

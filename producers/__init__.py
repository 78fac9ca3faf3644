"""The write side: writes each command of a person or program as an event, and returns a receipt.

Read `sessions.py` (open, say, cancel, decide and so on), then `options.py` (the options of
commands, and how they are read from what a person types), `checks.py` (validation before anything
is produced), `attachments.py` and `log/blobs.py` (where large content is stored first),
`acknowledgement.py` and `tracing.py` (how a record is written, and its trace context), `fork.py`,
`items.py` and `memory.py` (other events). Nothing here folds events: the fold decides whether an
event is accepted, and `client/` waits for that ruling.
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

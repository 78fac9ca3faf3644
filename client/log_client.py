"""The log of one installation, with what its sessions share: the settings, the writer, the blobs.

It reads sessions. `session.py` adds the commands.
"""

from collections.abc import Callable

from ..log import open_log
from ..log.blobs import BlobStore, open_blobs
from ..log.door import Log
from ..log.settings import Settings
from ..processors.fold.sessions import FoldedEvent
from ..processors.fold.views import SessionViews
from ..producers.sessions import Sessions
from ..schemas.events.parts import BlobRef
from ..schemas.origin import Origin
from .branching import Branching
from .closing import Closing
from .session_fold import SessionFold
from .show import Everything, fold_everything, known

CHANNEL = "python"
"""The channel of messages that are sent from Python."""


class LogClient(Closing):
    """Reads the sessions of one installation, and has the writer of their events. `user` acts in
    every command, by default the user of the settings.
    `brief`, `origin`: see `Sessions`. `progress(read, total)` is called while the log is read.

    Opens the log if it is not given. Close the client, or use `with`.
    """

    def __init__(
        self,
        settings: Settings,
        log: Log | None = None,
        *,
        user: str | None = None,
        channel: str = CHANNEL,
        brief: bool = False,
        origin: Origin | None = None,
    ) -> None:
        self.settings = settings
        self.log = log if log is not None else open_log(settings)
        self.user = user or settings.user
        self.channel = channel
        self.progress: Callable[[int, int], None] = lambda _read, _total: None
        self._owns_log = log is None
        self._blobs: BlobStore | None = None
        self.writer = Sessions(self.log, settings, brief=brief, origin=origin)

    def branching(self, user: str | None = None) -> Branching:
        """Forks, regenerates and repairs sessions for a user."""
        return Branching(
            self.log, self.writer, self._blob_store(), self.read_blob, user or self.user
        )

    def fold(
        self,
        session_id: str,
        *,
        chunks: bool = False,
        listen: Callable[[FoldedEvent], None] = lambda _folded: None,
    ) -> SessionFold:
        """A fold of the session, positioned at its first offset."""
        return SessionFold(
            self.log,
            session_id,
            chunks=chunks,
            read=self.read_blob,
            listen=listen,
            progress=self.progress,
        )

    def views(self, session_id: str, at: int | None = None) -> SessionViews:
        """The session's views at the end of the log, or right after offset `at`.

        Raises UnknownSession.
        """
        with self.fold(session_id) as folded:
            return known(folded, at)

    def everything(self) -> Everything:
        """Every session of the installation, folded."""
        return fold_everything(self.log, self.read_blob, self.progress)

    def read_blob(self, ref: BlobRef) -> bytes:
        """The content of a reference. Raises BlobMissing, BlobCorrupt, BlobsAway."""
        return self._blob_store().get(ref.sha256)

    def _blob_store(self) -> BlobStore:
        if self._blobs is None:
            self._blobs = open_blobs(self.settings)
        return self._blobs

    def close(self) -> None:
        """Close the producer, and the log if the client opened it."""
        self.writer.close()
        if self._owns_log:
            self.log.close()

"""Full-text search over the transcripts of all sessions.

The index is a fold of the log: every event goes through the sessions' fold, and each line that the
event adds to a transcript becomes a document. A refused, repeated or superseded message is never
found, because no transcript contains it. The index is updated in batches. Each batch is written in
one transaction, together with the cursor. So if the process is killed, the next run continues after
the last committed batch.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...client.closing import Closing
from ...client.follow import Follow
from ...client.printable import text_of, whole
from ...log.blobs import BlobError
from ...log.door import Log, Offsets
from ...log.settings import Settings
from ...processors.fold.projections.partition import INITIAL
from ...processors.fold.projections.transcript import Line
from ...processors.fold.sessions import fold_event
from ...processors.fold.views import SessionViews
from ...processors.search.snippet import Snippet, Snippets
from ...processors.search.words import query_of
from ...processors.store.store import Cursor, Store, fold_version
from ...schemas.codec import Entry
from ...schemas.events.parts import ReadBlob
from ...schemas.ids import PARTITION_KEY
from ...schemas.topics import SESSION_EVENTS
from .search_file import Document, IndexFile

LAYOUT = 1  # increase it if the same log would give other documents or words
BATCH_EVENTS = 2_000  # events in one transaction, about 50 ms of folding
HOT_SESSIONS_MAX = 500  # sessions kept as objects between batches, about 10 KB each
TEXT_CHARS_MAX = 100_000  # indexed characters of a document
RESULT_CHARS_MAX = 20_000  # of a tool's result: about what a model gets
BEHIND_MIN = 20_000  # with fewer events, catching up is not reported: it takes under 1 s
BEST, BEST_MAX = 10, 1_000

KINDS = {"message": "said", "answer": "answered", "partial": "stopped", "result": "result"}
"""Kinds of transcript lines that become documents, and their names in results."""


class Found(NamedTuple):
    """A document that matches. `score`: the full-text rank, between 0 and 1."""

    document: Document
    score: float
    snippet: Snippet


class Progress(NamedTuple):
    """The progress of catching up, in events of the log."""

    read: int
    behind: int


def index_path(settings: Settings) -> Path:
    """The path of this installation's index."""
    return settings.home / "search" / f"{settings.topic_prefix}transcripts.sqlite"


class TranscriptIndex(Closing):
    """The index of one installation's transcripts, up to date after `catch_up`.

    `read`: resolves content in the blob store.
    `report`: prints messages for people.

    Raises IndexUnusable, LogUnreachable, TopicMissing.
    """

    def __init__(
        self, log: Log, path: Path, read: ReadBlob, report: Callable[[str], None]
    ) -> None:
        self._log, self._read, self._report = log, read, report
        belongs = {
            "cluster": log.identity(),
            "topic": log.topic_id(SESSION_EVENTS),
            "version": f"{LAYOUT}-{fold_version()}",
        }
        self._file = IndexFile(path, belongs, report)
        self._snippets = Snippets(self._file.words.stems)
        self._unread = 0

    # -- catching up -------------------------------------------------------------------------------

    def catch_up(self, progress: Callable[[Progress], None] = lambda _progress: None) -> int:
        """Index the events since the last run, and return the number of new documents.

        `progress` is called after each batch, once it is committed.
        """
        with self._file.errors_as_unusable(), self._file.locked():
            stores = self._stores()
            start = {partition: store.cursor.offset for partition, store in stores.items()}
            indexer = _Indexer(stores, self._read)
            with Follow(
                self._log, start=start, chunks=False, folded=True, read=self._read
            ) as follow:
                ends = follow.ends()
                behind = sum(ends[p] - start[p] for p in ends)
                for entries, cursor in _batches(follow, ends):
                    with self._file.transaction():
                        self._file.claim()
                        self._file.add(indexer.fold(entries))
                        indexer.write(cursor)
                    progress(Progress(sum(cursor[p] - start[p] for p in cursor), behind))
        if indexer.unreadable:
            self._report(
                f"search: {indexer.unreadable} texts are missing from the blob store, and only "
                "their beginnings are indexed. To index them fully, point FOLDLOG_BLOBS at the "
                f"store of this log and delete {self._file.path}"
            )
        return indexer.documents

    def _stores(self) -> dict[int, Store]:
        """Each partition's store at its cursor.

        All are rebuilt if the log no longer has a cursor's offset.
        """
        first, end = self._log.first_offsets(SESSION_EVENTS), self._log.end_offsets(SESSION_EVENTS)
        stores = {partition: self._file.store(partition) for partition in first}
        for partition, store in stores.items():
            at, is_new = store.cursor.offset, store.cursor == Cursor()
            if not is_new and not first[partition] <= at <= end[partition]:
                self._report(
                    f"search: the index is at offset {at} of partition {partition}, but the log "
                    f"has {first[partition]} to {end[partition]}"
                )
                self._file.rebuild()
                return self._stores()
            if is_new:
                store.cursor = Cursor(first[partition])
        return stores

    # -- searching ---------------------------------------------------------------------------------

    def search(
        self,
        words: str,
        user: str | None = None,
        session: str | None = None,
        limit: int = BEST,
    ) -> list[Found]:
        """The best matches in the documents of one user, of one session or of all. The newest of
        equal matches comes first.

        Any text is a valid query; a text without a letter or digit finds nothing.
        """
        assert 1 <= limit <= BEST_MAX
        query = query_of(words)
        with self._file.errors_as_unusable():
            ranks = self._file.words.ranks(query, self._within(user, session))
            best = sorted(ranks, key=lambda rowid: (-ranks[rowid], -rowid))[:limit]
            found = [(rowid, self._document(rowid)) for rowid in best]
            return [
                Found(document, ranks[rowid], self._snippets.cut(document.text, query))
                for rowid, document in found
            ]

    def _within(self, user: str | None, session: str | None) -> set[int] | None:
        wanted = {"user_id": user, "session_id": session}
        filters = {name: value for name, value in wanted.items() if value is not None}
        if not filters:
            return None
        rows = self._file.connection.execute(
            f"SELECT rowid FROM documents WHERE {' AND '.join(f'{name} = ?' for name in filters)}",
            [*filters.values()],
        )
        return {rowid for (rowid,) in rows}

    def _document(self, rowid: int) -> Document:
        row = self._file.connection.execute(
            f"SELECT {','.join(Document._fields)} FROM documents WHERE rowid = ?", (rowid,)
        ).fetchone()
        return Document(*row)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _batches(follow: Follow, ends: Offsets) -> Iterator[tuple[list[Entry], Offsets]]:
    """Yield entries in bounded batches, each with the cursor after the batch."""
    for entries in follow.to(ends):
        after = follow.cursor
        cursor = {**after, **{e.partition: e.offset for e in reversed(entries)}}
        while len(entries) > BATCH_EVENTS:
            batch, entries = entries[:BATCH_EVENTS], entries[BATCH_EVENTS:]
            cursor.update((e.partition, e.offset + 1) for e in batch)
            yield batch, dict(cursor)
        yield entries, after  # `after` includes records that are not events of sessions


class _Indexer:
    """Folds events, turns new transcript lines into documents, and keeps the views."""

    def __init__(self, stores: dict[int, Store], read: ReadBlob) -> None:
        self._stores, self._read = stores, read
        self._hot: OrderedDict[tuple[int, str], SessionViews] = OrderedDict()
        self._changed: dict[tuple[int, str], SessionViews] = {}
        self.documents = self.unreadable = 0

    def fold(self, entries: list[Entry]) -> list[Document]:
        """The documents from these events."""
        found: list[Document] = []
        for entry in entries:
            if entry.session_id == PARTITION_KEY:
                continue
            key = (entry.partition, entry.session_id)
            _, _, before, views = fold_event(self._views(key), entry)
            self._hot[key] = self._changed[key] = views
            for line in views.transcript.lines.since(len(before.transcript.lines)):
                inherited = views.origin is not None and line.offset <= views.origin.opened
                text = "" if inherited else self._text(line)  # the parent's documents have it
                if text.strip():
                    found.append(_document(views, entry.partition, line, text))
        self.documents += len(found)
        return found

    def _views(self, key: tuple[int, str]) -> SessionViews | None:
        if key in self._hot:
            self._hot.move_to_end(key)
            return self._hot[key]
        partition, session_id = key
        return self._stores[partition].load(session_id)

    def write(self, cursor: Offsets) -> None:
        """Store the changed views and the cursor, in the caller's transaction."""
        for partition, store in self._stores.items():
            changed = {name: views for (p, name), views in self._changed.items() if p == partition}
            if changed or cursor[partition] != store.cursor.offset:
                store.write(changed, {}, lambda _views: False, INITIAL, Cursor(cursor[partition]))
        self._changed.clear()
        while len(self._hot) > HOT_SESSIONS_MAX:
            (partition, name), _ = self._hot.popitem(last=False)
            self._stores[partition].forget(name)

    def _text(self, line: Line) -> str:
        """The text of a line to index; '' if it is not a document."""
        if line.kind not in KINDS or line.body is None:
            return ""
        if line.kind == "result":
            shown = (line.body.inline or b"").decode("utf-8", "replace")
            return shown[:RESULT_CHARS_MAX]
        try:
            content = whole(line.body, self._read)
        except BlobError:
            self.unreadable += 1
            return (line.body.inline or b"").decode("utf-8", "replace")[:TEXT_CHARS_MAX]
        text = text_of(content).encode("utf-8", "replace").decode()
        return text[:TEXT_CHARS_MAX]


def _document(views: SessionViews, partition: int, line: Line, text: str) -> Document:
    who = {"message": views.state.user_id, "result": line.name}.get(line.kind, views.turn.agent)
    place = (partition, line.offset, line.at, line.turn, line.step)
    return Document(views.session_id, views.state.user_id, *place, KINDS[line.kind], who, text)

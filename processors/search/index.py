"""SearchIndex: searches documents in SQLite by words, trigrams and vectors.

Two FTS5 tables (words, trigrams) and a table of vectors have the same rowids as a table of
documents. Only the caller begins and commits transactions, so that an index and the cursor of its
source change together. formula.py defines the score. The index is independent of what the documents
are used for and where they come from.
"""

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .embed import Embedder, HashedEmbedder, blobs_of, cosines, distance_max_of
from .formula import Parts, is_candidate, score
from .full_text import FullText
from .snippet import Snippets
from .trigrams import padded, similarity, trigrams
from .words import Query, query_of

LOGGER = logging.getLogger("foldlog.search")
LAYOUT = 1  # increment it when the tables, or the data written into them, change
BEST = 5
BEST_MAX = 100
DOCUMENT_CHARS_MAX = 1_000_000  # 1 MB of text, 0.3 s to index; a longer text is data
QUERY_CHARS_MAX = 2_000  # a longer query, such as a pasted page, is cut
_BATCH = 256  # documents embedded at once: 0.5 MiB of vectors

_TABLES = (
    "CREATE TABLE IF NOT EXISTS search_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS search_documents (rowid INTEGER PRIMARY KEY,"
    " id TEXT NOT NULL UNIQUE, scope TEXT NOT NULL, kind TEXT NOT NULL, title TEXT NOT NULL,"
    " text TEXT NOT NULL, at INTEGER NOT NULL, trigrams INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS search_scope ON search_documents (scope, kind)",
    "CREATE TABLE IF NOT EXISTS search_vectors (rowid INTEGER PRIMARY KEY, vector BLOB NOT NULL)",
    # The index stores which trigrams a document has, but not their positions and counts, which are
    # never queried.
    "CREATE VIRTUAL TABLE IF NOT EXISTS search_trigrams USING"
    " fts5(body, tokenize='trigram case_sensitive 1', detail=none, columnsize=0)",
)


def embedder_in(connection: sqlite3.Connection) -> str | None:
    """The embedder that computed an index's vectors, as NAME/DIMENSIONS; None without vectors."""
    found = connection.execute("SELECT value FROM search_meta WHERE name = 'embedder'").fetchone()
    return None if found is None else str(found[0])


class Hit(NamedTuple):
    """A found document.

    `snippet`: about 200 tokens of the document's text around the match.
    `parts`: the parts of the score.
    """

    id: str
    scope: str
    kind: str
    title: str
    snippet: str
    score: float
    parts: Parts


class Candidate(NamedTuple):
    """A document that at least one rule of formula.py selected. A search returns the best
    candidates. `at`: Unix ms.
    """

    rowid: int
    id: str
    at: int
    parts: Parts


class SearchIndex:
    """The index in the database of `connection`, created if it does not exist.
    The index never commits.

    Several threads may use the index, one at a time, if the connection allows that. `embedder`:
    computes the vectors. If another embedder computed the stored vectors, they are recomputed,
    which `say` reports. A document's scope names the owner, such as `user:ana` or `project:p1`.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        embedder: Embedder | None = None,
        say: Callable[[str], None] = LOGGER.warning,
    ) -> None:
        self._connection, self._say = connection, say
        self._embedder: Embedder = embedder or HashedEmbedder()
        self.distance_max = distance_max_of(self._embedder)
        for statement in _TABLES:
            connection.execute(statement)
        self._words = FullText(connection, "search_words")
        self._snippets = Snippets(self._words.stems)
        self._bring_up_to_date()

    # -- writing -----------------------------------------------------------------------------------

    def vectors_of(self, documents: Iterable[tuple[str, str]]) -> list[bytes]:
        """The vectors of documents, each given as (title, text). This does not use the connection,
        and may take long, because the embedder may call a server. Raises EmbedderFailed."""
        wholes = [_whole(_storable(title), _storable(text)) for title, text in documents]
        return blobs_of(self._embedder, wholes) if wholes else []

    def vector_of(self, query: str) -> bytes:
        """The vector of a query. It may take long, like `vectors_of`."""
        return blobs_of(self._embedder, [_query_text(query)])[0]

    def upsert(
        self,
        id: str,
        scope: str,
        kind: str,
        title: str,
        text: str,
        at: int,
        vector: bytes | None = None,
    ) -> None:
        """Insert a document, or replace the document with this id.

        `at`: the document's time in Unix ms, by which a search sorts equal scores and which it
            compares with `now`.
        `vector`: the result of `vectors_of`; if it is None, this method computes the vector.

        Raises ValueError, and changes nothing, for a text over DOCUMENT_CHARS_MAX characters.
        """
        if len(title) + len(text) > DOCUMENT_CHARS_MAX:
            raise ValueError(
                f"document {id} has {len(text)} characters, at most {DOCUMENT_CHARS_MAX} can be "
                "searched; nothing was changed. Split it."
            )
        title, text = _storable(title), _storable(text)
        whole = _whole(title, text)
        if vector is None:
            (vector,) = blobs_of(self._embedder, [whole])
        self.delete(id)
        rowid = self._connection.execute(
            "INSERT INTO search_documents (id, scope, kind, title, text, at, trigrams)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (id, scope, kind, title, text, at, len(trigrams(whole))),
        ).lastrowid
        assert rowid is not None
        self._index([(rowid, whole)])
        self._connection.execute("INSERT INTO search_vectors VALUES (?, ?)", (rowid, vector))

    def delete(self, id: str) -> bool:
        """Delete a document. Returns whether it existed."""
        row = self._connection.execute(
            "SELECT rowid FROM search_documents WHERE id = ?", (id,)
        ).fetchone()
        if row is None:
            return False
        self._words.drop(row[0])
        for table in ("search_trigrams", "search_vectors", "search_documents"):
            self._connection.execute(f"DELETE FROM {table} WHERE rowid = ?", row)
        return True

    def _index(self, rows: list[tuple[int, str]]) -> None:
        self._words.put(rows)
        self._connection.executemany(
            "INSERT INTO search_trigrams (rowid, body) VALUES (?, ?)",
            ((rowid, padded(whole)) for rowid, whole in rows),
        )

    # -- searching ---------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        scopes: Sequence[str],
        kinds: Sequence[str] | None = None,
        best: int = BEST,
        now: int | None = None,
        vector: bytes | None = None,
    ) -> list[Hit]:
        """The best candidates in these scopes (and of these kinds), at most `best`. The highest
        score comes first; documents with equal scores are in order of time, the newest first.

        `now`: Unix ms; later documents are ignored, so that a search can be repeated for an earlier
            time.
        `vector`: the result of `vector_of`; if it is None, this method computes the vector. Any
            text is a valid query; a query without a letter or digit finds nothing.

        Raises ValueError unless `best` is 1 to BEST_MAX.
        """
        if not 1 <= best <= BEST_MAX:
            raise ValueError(f"best is {best}, it must be 1 to {BEST_MAX}")
        query = _query_text(query)
        found = self.candidates(query, scopes, kinds, now, vector)
        found.sort(key=lambda row: (-score(row.parts), -row.at, row.rowid))
        terms = query_of(query)
        return [self._hit(terms, row) for row in found[:best]]

    def candidates(
        self,
        query: str,
        scopes: Sequence[str],
        kinds: Sequence[str] | None = None,
        now: int | None = None,
        vector: bytes | None = None,
    ) -> list[Candidate]:
        """Every document that at least one rule of formula.py selects, in no order."""
        asked = query_of(query)
        rows = self._within(scopes, kinds, now) if asked.terms else []
        if not rows:
            return []
        ranks = self._words.ranks(asked, {row[0] for row in rows})
        grams = trigrams(query)
        shared = self._shared(grams)
        vector = vector or self.vector_of(query)
        near = cosines(vector, (row[4] for row in rows))
        found = []
        for (rowid, id, at, count, _), cosine in zip(rows, near, strict=True):
            alike = similarity(shared[rowid], len(grams), count)
            parts = Parts(ranks.get(rowid, 0.0), alike, min(max(cosine, 0.0), 1.0))
            if is_candidate(parts, 1 - cosine, self.distance_max):
                found.append(Candidate(rowid, id, at, parts))
        return found

    def _within(
        self, scopes: Sequence[str], kinds: Sequence[str] | None, now: int | None
    ) -> list[tuple[int, str, int, int, bytes]]:
        """(row id, id, at, number of trigrams,
        vector) of every document that the search considers."""
        wanted = [f"scope IN ({_marks(scopes)})"]
        values: list[str | int] = [*scopes]
        if kinds is not None:
            wanted.append(f"kind IN ({_marks(kinds)})")
            values += kinds
        if now is not None:
            wanted.append("at <= ?")
            values.append(now)
        return self._connection.execute(
            "SELECT d.rowid, id, at, trigrams, vector FROM search_documents d"
            f" JOIN search_vectors v ON v.rowid = d.rowid WHERE {' AND '.join(wanted)}",
            values,
        ).fetchall()

    def _shared(self, grams: Iterable[str]) -> Counter[int]:
        """How many of these trigrams each row has."""
        shared: Counter[int] = Counter()
        for gram in grams:
            found = self._connection.execute(
                "SELECT rowid FROM search_trigrams WHERE search_trigrams MATCH ?", (f'"{gram}"',)
            )
            shared.update(rowid for (rowid,) in found.fetchall())
        return shared

    def _hit(self, asked: Query, row: Candidate) -> Hit:
        id, scope, kind, title, text = self._connection.execute(
            "SELECT id, scope, kind, title, text FROM search_documents WHERE rowid = ?",
            (row.rowid,),
        ).fetchone()
        cut = self._snippets.cut(text, asked)
        return Hit(id, scope, kind, title, cut.text, score(row.parts), row.parts)

    # -- versions ----------------------------------------------------------------------------------

    def _bring_up_to_date(self) -> None:
        """Recompute the data that another version or another embedder wrote, and log that this was
        done.
        """
        name = f"{self._embedder.name}/{self._embedder.dimensions}"
        meta = dict(self._connection.execute("SELECT name, value FROM search_meta"))
        (documents,) = self._connection.execute("SELECT count(*) FROM search_documents").fetchone()
        if documents and meta.get("layout") != str(LAYOUT):
            self._say(f"search: {documents} documents are indexed again, for a newer version")
            self._index_again()
        if documents and meta.get("embedder") != name:
            was = meta.get("embedder", "none")
            self._say(
                f"search: the embedder is now {name}, it was {was}: {documents} documents are "
                "embedded again"
            )
            self._embed_again()
        self._connection.executemany(
            "INSERT OR REPLACE INTO search_meta VALUES (?, ?)",
            [("layout", str(LAYOUT)), ("embedder", name)],
        )

    def _index_again(self) -> None:
        for table in ("search_words", "search_trigrams"):
            self._connection.execute(f"DELETE FROM {table}")
        for rows in self._wholes():
            self._index(rows)
            self._connection.executemany(
                "UPDATE search_documents SET trigrams = ? WHERE rowid = ?",
                [(len(trigrams(whole)), rowid) for rowid, whole in rows],
            )

    def _embed_again(self) -> None:
        for rows in self._wholes():
            vectors = blobs_of(self._embedder, [whole for _, whole in rows])
            self._connection.executemany(
                "INSERT OR REPLACE INTO search_vectors VALUES (?, ?)",
                [(rowid, vector) for (rowid, _), vector in zip(rows, vectors, strict=True)],
            )

    def _wholes(self) -> Iterable[list[tuple[int, str]]]:
        ids = [row[0] for row in self._connection.execute("SELECT rowid FROM search_documents")]
        for first in range(0, len(ids), _BATCH):
            rows = self._connection.execute(
                "SELECT rowid, title, text FROM search_documents WHERE rowid IN"
                f" ({_marks(ids[first : first + _BATCH])})",
                ids[first : first + _BATCH],
            )
            yield [(rowid, _whole(title, text)) for rowid, title, text in rows.fetchall()]


def _whole(title: str, text: str) -> str:
    """The text of a document that is searched: title and text."""
    return f"{title}\n{text}" if title else text


def _query_text(query: str) -> str:
    """The first QUERY_CHARS_MAX characters of a query, which are all that a search uses."""
    return _storable(query[:QUERY_CHARS_MAX])


def _storable(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))

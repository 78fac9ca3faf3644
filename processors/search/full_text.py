"""The words of documents in SQLite's FTS5, and the rank of each document for a query.

The rank is BM25 with a weight of words that is never negative (formula.py says how it is made a
number between 0 and 1). FTS5's own bm25() takes a word that half of the documents have for nothing:
in a small collection that is every word. This file must not know what a document is.
"""

import math
import sqlite3
from collections.abc import Iterable, Sequence

from .words import Query, spelled

TOKENIZER = "porter unicode61 remove_diacritics 2 categories ''L* N* Co Mn Mc''"
"""English words by their stem; marks of Indic scripts belong to the word."""

_IDF_MIN = 1e-6  # what FTS5's bm25() puts in the place of a weight that is not positive
_TF_MAX = 2.2  # k1 + 1 with FTS5's k1 of 1.2: what its bm25() multiplies each count by


class FullText:
    """One FTS5 table, made if it is not there, inside the caller's transaction.

    `name`: of the table, never from outside. Rows are known by their rowid alone.
    """

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection, self._name = connection, name
        connection.execute(
            f"CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5(body, tokenize='{TOKENIZER}')"
        )

    def put(self, rows: Iterable[tuple[int, str]]) -> None:
        """Index texts under row ids that are not in the table."""
        self._connection.executemany(
            f"INSERT INTO {self._name} (rowid, body) VALUES (?, ?)",
            ((rowid, spelled(text)) for rowid, text in rows),
        )

    def drop(self, rowid: int) -> None:
        """Forget a row."""
        self._connection.execute(f"DELETE FROM {self._name} WHERE rowid = ?", (rowid,))

    def ranks(self, query: Query) -> dict[int, float]:
        """Row id -> rank, above 0 and below 1, of every row that has a term of the query."""
        (total,) = self._connection.execute(f"SELECT count(*) FROM {self._name}").fetchone()
        ranks: dict[int, float] = {}
        weights = 0.0
        for term in query.terms:
            found = self._frequencies(term, total)
            weight = math.log(1 + (total - len(found) + 0.5) / (len(found) + 0.5))
            weights += weight
            for rowid, frequency in found:
                ranks[rowid] = ranks.get(rowid, 0.0) + weight * frequency
        return {rowid: rank / weights for rowid, rank in ranks.items()}

    def _frequencies(self, term: Sequence[str], total: int) -> list[tuple[int, float]]:
        """(row id, f / (f + k1 * length factor)) of every row that has the term.

        One term a query, so that FTS5's weight of it is known and can be divided out.
        """
        rows = self._connection.execute(
            f"SELECT rowid, bm25({self._name}) FROM {self._name} WHERE {self._name} MATCH ?",
            (f'"{" ".join(term)}"',),
        ).fetchall()
        odds = (total - len(rows) + 0.5) / (len(rows) + 0.5)
        divisor = -_TF_MAX * max(math.log(odds), _IDF_MIN)
        return [(rowid, score / divisor) for rowid, score in rows]

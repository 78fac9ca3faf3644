"""The words of documents in SQLite's FTS5, and the rank of each document for a query.

The rank is BM25 with word weights that are never negative (formula.py describes how it becomes a
number between 0 and 1). FTS5's own bm25() ignores words that half of the documents have, and in a
small collection that may be every word.
"""

import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence, Set
from difflib import SequenceMatcher

from .formula import TRIGRAM_SIMILARITY_MIN
from .trigrams import of_word, similarity
from .words import Query, spelled

TOKENIZER = "porter unicode61 remove_diacritics 2 categories ''L* N* Co Mn Mc''"
"""The configuration of FTS5's tokenizer. It reduces English words to their stems, and treats the
marks of Indic scripts as parts of a word."""

_IDF_MIN = 1e-6  # FTS5's bm25() uses this value for weights that are not positive
_TF_MAX = 2.2  # FTS5's bm25() multiplies each count by k1 + 1, where k1 is 1.2
_STEMS_MAX = 20_000  # stems cached in memory
STAND_INS_MAX = 3  # similar words used for a word that no document has
STAND_IN_CHARS_MIN = 4  # shorter words resemble too many others
STAND_IN_RATIO_MIN = 0.75  # share of characters that match in order: 0.91 for certif, cetif


class Stems:
    """Stems words with the index's own tokenizer, in a database in memory."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        # Like the caller's connection, several threads may use it, one at a time.
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )
        self._connection.execute(
            f"CREATE VIRTUAL TABLE words USING fts5(body, tokenize='{TOKENIZER}')"
        )
        self._connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(words, instance)")

    def of(self, words: Iterable[str]) -> dict[str, str]:
        """The stem of each word; if the tokenizer splits a word, the stem of the first part."""
        wanted = frozenset(words)
        new = sorted(wanted - self._known.keys())
        if len(self._known) + len(new) > _STEMS_MAX:
            self._known.clear()
            new = sorted(wanted)
        if new:
            execute = self._connection.execute
            execute("BEGIN")
            self._connection.executemany(
                "INSERT INTO words (rowid, body) VALUES (?, ?)", enumerate(new)
            )
            rows = execute("SELECT doc, term FROM terms WHERE offset = 0").fetchall()
            execute("ROLLBACK")
            self._known.update(dict.fromkeys(new, ""))
            self._known.update((new[doc], term) for doc, term in rows)
        return {word: self._known[word] for word in wanted}


class FullText:
    """One FTS5 table, created if it does not exist. The caller begins and commits transactions.

    `name`: the table's name, which must never be user input. Rows are identified only by their
    rowid.
    """

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection, self._name = connection, name
        self.stems = Stems()
        connection.execute(
            f"CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5(body, tokenize='{TOKENIZER}')"
        )
        connection.execute(
            f"CREATE VIRTUAL TABLE IF NOT EXISTS {name}_terms USING fts5vocab({name}, row)"
        )

    def put(self, rows: Iterable[tuple[int, str]]) -> None:
        """Index texts under row ids that the table does not have yet."""
        self._connection.executemany(
            f"INSERT INTO {self._name} (rowid, body) VALUES (?, ?)",
            ((rowid, spelled(text)) for rowid, text in rows),
        )

    def drop(self, rowid: int) -> None:
        """Delete a row."""
        self._connection.execute(f"DELETE FROM {self._name} WHERE rowid = ?", (rowid,))

    def ranks(self, query: Query, within: Set[int] | None = None) -> dict[int, float]:
        """The rank (above 0 and below 1) by row id,
        for the rows of `within` that have a term of the query.

        `within` None means every row. The weight of a word depends on how many of these rows have
        it; other rows do not matter. A word that none of these rows has is replaced by a few
        similar words, weighted by their similarity.
        """
        (total,) = self._connection.execute(f"SELECT count(*) FROM {self._name}").fetchone()
        searched = total if within is None else len(within)
        ranks: dict[int, float] = {}
        weights = 0.0
        for term in query.terms:
            found = self._frequencies(term, total, within) or self._resembling(term, total, within)
            weight = math.log(1 + (searched - len(found) + 0.5) / (len(found) + 0.5))
            weights += weight
            for rowid, frequency in found.items():
                ranks[rowid] = ranks.get(rowid, 0.0) + weight * frequency
        return {rowid: rank / weights for rowid, rank in ranks.items()}

    def _frequencies(
        self, term: Sequence[str], total: int, within: Set[int] | None
    ) -> dict[int, float]:
        """The value tf of formula.py by row id, for each row of `within` that has the term.

        The SQL query searches for this term only. So the weight that FTS5 gives to the term is
        known, and FTS5's score divided by it is tf.
        """
        rows = self._connection.execute(
            f"SELECT rowid, bm25({self._name}) FROM {self._name} WHERE {self._name} MATCH ?",
            (f'"{" ".join(term)}"',),
        ).fetchall()
        odds = (total - len(rows) + 0.5) / (len(rows) + 0.5)
        divisor = -_TF_MAX * max(math.log(odds), _IDF_MIN)
        found = {rowid: score / divisor for rowid, score in rows}
        return found if within is None else {row: found[row] for row in found if row in within}

    def _resembling(
        self, term: Sequence[str], total: int, within: Set[int] | None
    ) -> dict[int, float]:
        """Like `_frequencies`, for the words that replace a
        misspelt or unusually inflected word."""
        if len(term) > 1 or len(term[0]) < STAND_IN_CHARS_MIN:
            return {}
        found: dict[int, float] = {}
        for word, alike in self._stand_ins(term[0]):
            for rowid, frequency in self._frequencies((word,), total, within).items():
                found[rowid] = max(found.get(rowid, 0.0), alike * frequency)
        return found

    def _stand_ins(self, word: str) -> Iterator[tuple[str, float]]:
        """The words of the index with a similar spelling, most similar first,
        each with its similarity."""
        stem = self.stems.of([word])[word]
        own = of_word(stem)
        near = []
        # A word with a trigram similarity of 0.3 is at most 1 / 0.3 times as long.
        bounds = (len(stem) * TRIGRAM_SIMILARITY_MIN, len(stem) / TRIGRAM_SIMILARITY_MIN)
        for (other,) in self._connection.execute(
            f"SELECT term FROM {self._name}_terms WHERE length(term) BETWEEN ? AND ?", bounds
        ):
            theirs = of_word(other)
            alike = similarity(len(own & theirs), len(own), len(theirs))
            if alike < TRIGRAM_SIMILARITY_MIN or other == stem:
                continue
            if SequenceMatcher(None, stem, other).ratio() >= STAND_IN_RATIO_MIN:
                near.append((-alike, other))
        yield from ((other, -minus) for minus, other in sorted(near)[:STAND_INS_MAX])

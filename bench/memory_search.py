"""memory_search: how often a document that answers a query is among the best five.

The test set is our own (bench/memory_set): 144 documents written by hand about an invented shop,
150 generated documents that answer no query, and 104 queries of nine kinds, each with the documents
that answer it. The authors of the search wrote the set, and read it while they improved the search.
40 more queries (AFTER) were written when the search was finished, and 30 paraphrased queries
(PARAPHRASED) when the word vectors were finished. The bench shows which kinds of query work; it
does not predict the results on other people's memory. The baseline is SQLite's full-text search
with defaults: one FTS5 table of the texts, `porter unicode61`, any of the words, best bm25() first.
The note also compares each part of our own formula alone.
"""

import random
import re
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from foldlog.bench.measure import Ratio
from foldlog.processors.search.embed import Embedder
from foldlog.processors.search.formula import TRIGRAM_SIMILARITY_MIN, Parts
from foldlog.processors.search.index import BEST, SearchIndex
from foldlog.processors.search.word_vectors import WordVectors, installed

SET = Path(__file__).parent / "memory_set"
SCOPE = "user:bench"
FILLERS = 150
AFTER = "queries_after.txt"
PARAPHRASED = "queries_paraphrased.txt"
MANY = 10_000  # documents, for the latency

_WHO = "Tom Dana Noa Ana Miguel Lea Omar Yuki".split()
_DID = (
    "moved the meeting about {} to {}", "asked for a list of {} by {}",
    "closed the ticket on {} {}", "wrote a page about {} and showed it {}",
    "wants to talk about {} {}", "measured {} again {}",
)
_WHAT = (
    "colors of the banner", "opening hours", "chairs", "the holiday plan", "delivery slots",
    "fonts", "parking", "the coffee machine", "survey answers", "product names", "the team photo",
    "monitors", "travel costs", "the summer party", "keyboard shortcuts", "the new logo",
)
_WHEN = ("Monday", "Tuesday", "next week", "in April", "yesterday", "before lunch", "on the phone")


class LabelledQuery(NamedTuple):
    """A query, its kind, and the ids of the documents that answer it."""

    kind: str
    query: str
    wanted: frozenset[str]


class Found(NamedTuple):
    """Scores over some queries: the share with an answer among the best five (recall at 5, any
    answer counts), and the mean of 1 / rank of the first answer (0 without one)."""

    recall: float
    mrr: float


Search = Callable[[str], Sequence[str]]
"""Takes a query and returns the ids of its best five documents."""


def _rows(name: str) -> Iterator[list[str]]:
    for line in (SET / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield [part.strip() for part in line.split(" | ", 2)]


def documents() -> list[tuple[str, str, str]]:
    """The (id, kind, text) of every document; documents that answer a query come first."""
    found = [(id, kind, text.replace("\\n", "\n")) for id, kind, text in _rows("documents.txt")]
    chance = random.Random(5)
    for number in range(FILLERS):
        did = chance.choice(_DID).format(chance.choice(_WHAT), chance.choice(_WHEN))
        found.append((f"filler{number}", "note", f"{chance.choice(_WHO)} {did}."))
    return found


def queries(name: str = "queries.txt") -> list[LabelledQuery]:
    """The queries in a file of the test set."""
    return [LabelledQuery(k, query, frozenset(ids.split(","))) for k, query, ids in _rows(name)]


def built(connection: sqlite3.Connection, embedder: Embedder | None = None) -> SearchIndex:
    """An index of all documents of the test set. Without `embedder`, it uses the hashing
    embedder."""
    index = SearchIndex(connection, embedder)
    for at, (id, kind, text) in enumerate(documents()):
        index.upsert(id, SCOPE, kind, "", text, at)
    return index


PARTS = ("full_text", "trigram", "vector")


def by_part(index: SearchIndex, part: str, parts: Parts) -> float:
    """The score that one part of the formula gives a document; 0 if that part alone would not find
    the document."""
    least = {"trigram": TRIGRAM_SIMILARITY_MIN, "vector": 1 - index.distance_max}.get(part, 0.0)
    rank = getattr(parts, part)
    return rank if rank >= least else 0.0


def hybrid(index: SearchIndex) -> Search:
    """Search by the whole formula."""
    return lambda query: [hit.id for hit in index.search(query, [SCOPE])]


def alone(index: SearchIndex, part: str) -> Search:
    """Search by one part of the formula."""

    def search(query: str) -> list[str]:
        ranked = [
            (by_part(index, part, row.parts), row) for row in index.candidates(query, [SCOPE])
        ]
        ranked.sort(key=lambda each: (-each[0], -each[1].at, each[1].rowid))
        found = [row for rank, row in ranked if rank]
        return [row.id for row in found[:BEST]]

    return search


def plain(connection: sqlite3.Connection) -> Search:
    """Search by SQLite's full-text search with defaults."""
    connection.execute(
        "CREATE VIRTUAL TABLE plain USING fts5(id UNINDEXED, body, tokenize='porter unicode61')"
    )
    rows = [(id, text) for id, _, text in documents()]
    connection.executemany("INSERT INTO plain (id, body) VALUES (?, ?)", rows)

    def search(query: str) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        found = connection.execute(
            f"SELECT id FROM plain WHERE plain MATCH ? ORDER BY bm25(plain) LIMIT {BEST}", (words,)
        )
        return [id for (id,) in found]

    return search


def ways(
    connection: sqlite3.Connection, embedder: Embedder | None = None
) -> dict[str, Search]:
    """The ways to search that the bench compares, by name."""
    index = built(connection, embedder)
    parts = {part: alone(index, part) for part in PARTS}
    return {"hybrid": hybrid(index), **parts, "plain FTS5": plain(connection)}


def found_by(search: Search, labelled: Sequence[LabelledQuery]) -> Found:
    """The scores of a way to search over these queries."""
    scores = []
    for row in labelled:
        hits = [rank for rank, id in enumerate(search(row.query), 1) if id in row.wanted]
        scores.append(1 / hits[0] if hits else 0.0)
    return Found(sum(score > 0 for score in scores) / len(scores), sum(scores) / len(scores))


def scores_with(embedder: Embedder, name: str = "queries.txt") -> dict[str, tuple[Found, Found]]:
    """The scores of each way to search with this embedder, for all queries of a file and for the
    paraphrased queries alone.
    """
    labelled = queries(name)
    paraphrased = [row for row in labelled if row.kind == "paraphrased"]
    with sqlite3.connect(":memory:") as connection:
        compared = ways(connection, embedder)
        return {
            way: (found_by(search, labelled), found_by(search, paraphrased))
            for way, search in compared.items()
        }


def _recall_text(embedder: Embedder) -> str:
    """Recall at 5 of the hybrid search over all files, as text."""
    shown = []
    for name in ("queries.txt", AFTER, PARAPHRASED):
        whole, paraphrased = scores_with(embedder, name)["hybrid"]
        shown.append(f"{whole.recall:.2f}, paraphrased {paraphrased.recall:.2f}")
    return f"{embedder.name} {shown[0]}; written afterwards {shown[1]}; 30 paraphrased {shown[2]}"


def latency_ms() -> float:
    """The median latency of a search among MANY documents, in memory."""
    chance = random.Random(7)
    texts = [text for _, _, text in documents()]
    words = sorted({word for text in texts for word in text.split()})
    with sqlite3.connect(":memory:") as connection:
        index = SearchIndex(connection)
        for at in range(MANY):
            text = f"{chance.choice(texts)[:300]} {' '.join(chance.choices(words, k=20))}"
            index.upsert(str(at), SCOPE, "note", "", text, at)
        times_ms = []
        for row in queries():
            began = time.perf_counter()
            index.search(row.query, [SCOPE])
            times_ms.append((time.perf_counter() - began) * 1000)
    return statistics.median(times_ms)


def memory_search(runs: int) -> Ratio:
    """Run the bench, which is deterministic, so one run is enough."""
    labelled = queries()
    with sqlite3.connect(":memory:") as connection:
        compared = ways(connection)
        found = {name: found_by(search, labelled) for name, search in compared.items()}
        kinds = sorted({row.kind for row in labelled})
        by_kind = {
            kind: found_by(compared["hybrid"], [row for row in labelled if row.kind == kind]).recall
            for kind in kinds
        }
        unseen = found_by(compared["hybrid"], queries(AFTER))
        unseen_plain = found_by(compared["plain FTS5"], queries(AFTER))
    ours, baseline = found["hybrid"].recall, found["plain FTS5"].recall
    shown = [f"{name} {each.recall:.2f} / {each.mrr:.2f}" for name, each in found.items()]
    with_words = f" (by hybrid: {_recall_text(WordVectors())})" if installed() else ""
    note = (
        f"recall at 5 / MRR over {len(labelled)} queries of our own: {', '.join(shown)}; hybrid by "
        f"kind: {', '.join(f'{kind} {recall:.2f}' for kind, recall in by_kind.items())}. The "
        f"hashing embedder does not understand meaning, hence `paraphrased`{with_words}. 40 "
        f"queries written afterwards: hybrid {unseen.recall:.2f} / {unseen.mrr:.2f}, plain FTS5 "
        f"{unseen_plain.recall:.2f} / {unseen_plain.mrr:.2f}. "
        f"{latency_ms():.0f} ms per search among {MANY:,} documents"
    )
    aim = "at least 1"
    return Ratio("memory_search", ours, baseline, "recall at 5", ours / baseline, 1, aim, note)

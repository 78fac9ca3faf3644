"""memory_search: how often the document that answers a query is among the best five.

The set is our own (bench/memory_set): 144 documents written by hand about an invented shop, 150
more made from sentences that answer nothing, and 104 queries of nine kinds, each with the documents
that answer it. It was written by who wrote the search, and read while the search was improved; 40
queries more (AFTER) were written when it was done, and 30 paraphrased ones (PARAPHRASED) when the
word vectors were. It shows which kinds of query work and which do not, not how a stranger's memory
fares. The baseline is SQLite's full-text search as it comes: one FTS5 table of the texts, `porter
unicode61`, any of the words, best bm25() first. Beside it, each part of our own formula alone.
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


class Asked(NamedTuple):
    """A query, its kind, and the ids of the documents that answer it."""

    kind: str
    query: str
    wanted: frozenset[str]


class Found(NamedTuple):
    """Over some queries: the share with an answer among the best five (recall at 5, where any
    answer counts), and the mean of 1 / place of the first answer (0: none)."""

    recall: float
    mrr: float


Search = Callable[[str], Sequence[str]]
"""A query's best five, as ids."""


def _rows(name: str) -> Iterator[list[str]]:
    for line in (SET / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield [part.strip() for part in line.split(" | ", 2)]


def documents() -> list[tuple[str, str, str]]:
    """(id, kind, text) of every document, the answers first."""
    found = [(id, kind, text.replace("\\n", "\n")) for id, kind, text in _rows("documents.txt")]
    chance = random.Random(5)
    for number in range(FILLERS):
        did = chance.choice(_DID).format(chance.choice(_WHAT), chance.choice(_WHEN))
        found.append((f"filler{number}", "note", f"{chance.choice(_WHO)} {did}."))
    return found


def queries(name: str = "queries.txt") -> list[Asked]:
    """The queries of a file of the set."""
    return [Asked(k, query, frozenset(ids.split(","))) for k, query, ids in _rows(name)]


def built(connection: sqlite3.Connection, embedder: Embedder | None = None) -> SearchIndex:
    """The index of the set; the vectors of hashing, or of another embedder."""
    index = SearchIndex(connection, embedder)
    for at, (id, kind, text) in enumerate(documents()):
        index.upsert(id, SCOPE, kind, "", text, at)
    return index


PARTS = ("full_text", "trigram", "vector")


def by_part(index: SearchIndex, part: str, parts: Parts) -> float:
    """A part alone: what its own rule brings in, by its own rank. 0: not found."""
    least = {"trigram": TRIGRAM_SIMILARITY_MIN, "vector": 1 - index.distance_max}.get(part, 0.0)
    rank = getattr(parts, part)
    return rank if rank >= least else 0.0


def hybrid(index: SearchIndex) -> Search:
    """By the whole formula."""
    return lambda query: [hit.id for hit in index.search(query, [SCOPE])]


def alone(index: SearchIndex, part: str) -> Search:
    """By one part of the formula."""

    def search(query: str) -> list[str]:
        ranked = [
            (by_part(index, part, row.parts), row) for row in index.candidates(query, [SCOPE])
        ]
        ranked.sort(key=lambda each: (-each[0], -each[1].at, each[1].rowid))
        found = [row for rank, row in ranked if rank]
        return [row.id for row in found[:BEST]]

    return search


def plain(connection: sqlite3.Connection) -> Search:
    """By SQLite's full-text search as it comes."""
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
    """Every way to search that is compared, by name, over the set."""
    index = built(connection, embedder)
    parts = {part: alone(index, part) for part in PARTS}
    return {"hybrid": hybrid(index), **parts, "plain FTS5": plain(connection)}


def found_by(search: Search, asked: Sequence[Asked]) -> Found:
    """How a way to search fares over these queries."""
    places = []
    for row in asked:
        hits = [place for place, id in enumerate(search(row.query), 1) if id in row.wanted]
        places.append(1 / hits[0] if hits else 0.0)
    return Found(sum(place > 0 for place in places) / len(places), sum(places) / len(places))


def meant(embedder: Embedder, name: str = "queries.txt") -> dict[str, tuple[Found, Found]]:
    """By way to search, with this embedder: of all queries of a file, of the paraphrased alone."""
    asked = queries(name)
    paraphrased = [row for row in asked if row.kind == "paraphrased"]
    with sqlite3.connect(":memory:") as connection:
        compared = ways(connection, embedder)
        return {
            way: (found_by(search, asked), found_by(search, paraphrased))
            for way, search in compared.items()
        }


def _in_words(embedder: Embedder) -> str:
    """Recall at 5 of the hybrid, of all files, as one clause."""
    shown = []
    for name in ("queries.txt", AFTER, PARAPHRASED):
        whole, paraphrased = meant(embedder, name)["hybrid"]
        shown.append(f"{whole.recall:.2f}, paraphrased {paraphrased.recall:.2f}")
    return f"{embedder.name} {shown[0]}; written afterwards {shown[1]}; 30 paraphrased {shown[2]}"


def latency_ms() -> float:
    """Median of a search among MANY documents, in memory."""
    chance = random.Random(7)
    texts = [text for _, _, text in documents()]
    words = sorted({word for text in texts for word in text.split()})
    with sqlite3.connect(":memory:") as connection:
        index = SearchIndex(connection)
        for at in range(MANY):
            text = f"{chance.choice(texts)[:300]} {' '.join(chance.choices(words, k=20))}"
            index.upsert(str(at), SCOPE, "note", "", text, at)
        taken = []
        for row in queries():
            began = time.perf_counter()
            index.search(row.query, [SCOPE])
            taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def memory_search(runs: int) -> Ratio:
    """The bench. Nothing in it is by chance, so that one run is all of it."""
    asked = queries()
    with sqlite3.connect(":memory:") as connection:
        compared = ways(connection)
        found = {name: found_by(search, asked) for name, search in compared.items()}
        kinds = sorted({row.kind for row in asked})
        by_kind = {
            kind: found_by(compared["hybrid"], [row for row in asked if row.kind == kind]).recall
            for kind in kinds
        }
        unseen = found_by(compared["hybrid"], queries(AFTER))
        unseen_plain = found_by(compared["plain FTS5"], queries(AFTER))
    ours, baseline = found["hybrid"].recall, found["plain FTS5"].recall
    shown = [f"{name} {each.recall:.2f} / {each.mrr:.2f}" for name, each in found.items()]
    words = f" (by hybrid: {_in_words(WordVectors())})" if installed() else ""
    note = (
        f"recall at 5 / MRR over {len(asked)} queries of our own: {', '.join(shown)}; hybrid by "
        f"kind: {', '.join(f'{kind} {recall:.2f}' for kind, recall in by_kind.items())}. The "
        f"hashing embedder does not understand meaning, hence `paraphrased`{words}. 40 queries "
        f"written afterwards: hybrid {unseen.recall:.2f} / {unseen.mrr:.2f}, plain FTS5 "
        f"{unseen_plain.recall:.2f} / {unseen_plain.mrr:.2f}. "
        f"{latency_ms():.0f} ms a search among {MANY:,} documents"
    )
    aim = "above 1"
    return Ratio("memory_search", ours, baseline, "recall at 5", ours / baseline, 1, aim, note)

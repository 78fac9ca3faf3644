"""SearchIndex: the scores equal a calculation by hand; candidates, scopes, transactions,
versions."""

import math
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from foldlog.processors.search import formula
from foldlog.processors.search.embed import EmbedderFailed
from foldlog.processors.search.formula import Parts, is_candidate, score
from foldlog.processors.search.index import BEST, DOCUMENT_CHARS_MAX, SearchIndex
from foldlog.processors.search.trigrams import padded, similarity, trigrams
from foldlog.tests.kit.waiting import PATIENCE_S


class Given:
    """An embedder that has a fixed vector for each given text, and the zero vector for any other
    text."""

    dimensions = 3

    def __init__(self, vectors: dict[str, tuple], name: str = "given-1"):
        self.vectors, self.name = vectors, name

    def embed(self, texts):
        none = (0.0, 0.0, 0.0)
        return np.array([self.vectors.get(text, none) for text in texts], dtype=np.float64)


@pytest.fixture
def connection():
    with sqlite3.connect(":memory:") as opened:
        yield opened


def put(index, *texts, scope="user:ana", kind="note"):
    for number, text in enumerate(texts):
        index.upsert(f"d{number}", scope, kind, "", text, 1000 + number)


def ids(hits):
    return [hit.id for hit in hits]


# ---- the formula ----------------------------------------------------------------------------


def test_S3_3_the_weights_and_thresholds_are_those_of_the_specification():
    assert Parts(full_text=0.5, trigram=0.3, vector=0.2) == formula.WEIGHTS
    assert formula.TRIGRAM_SIMILARITY_MIN == 0.3
    assert formula.VECTOR_DISTANCE_MAX == 0.4
    assert BEST == 5
    assert score(Parts(1, 1, 1)) == pytest.approx(1)
    assert score(Parts(0.4, 0.2, 0.1)) == pytest.approx(0.5 * 0.4 + 0.3 * 0.2 + 0.2 * 0.1)


@pytest.mark.parametrize(
    ("parts", "distance", "expected"),
    [
        (Parts(0.01, 0, 0), 1.0, True),
        (Parts(0, 0.3, 0), 1.0, True),
        (Parts(0, 0.2999, 0), 1.0, False),
        (Parts(0, 0, 0.61), 0.39, True),
        (Parts(0, 0, 0.6), 0.4, False),
        (Parts(0, 0.29, 0.5), 0.5, False),
    ],
)
def test_S3_3_a_document_is_a_candidate_by_any_one_rule(parts, distance, expected):
    assert is_candidate(parts, distance) is expected


def test_S3_3_an_embedder_may_set_the_distance_of_candidates(connection):
    given = Given({"car": (1, 0, 0), "bus": (0.3, 0.954, 0)})
    index = SearchIndex(connection, given)
    put(index, "bus")
    assert index.search("car", ["user:ana"]) == []
    given.distance_max = 0.8
    assert ids(SearchIndex(connection, given).search("car", ["user:ana"])) == ["d0"]


def test_S3_3_a_score_equals_the_one_computed_by_hand(connection):
    texts = ["alpha beta", "alpha gamma delta epsilon"]
    vectors = {"alpha beta": (1, 0, 0), "alpha": (0.6, 0.8, 0)}
    index = SearchIndex(connection, Given(vectors))
    put(index, *texts)
    best, other = index.search("alpha", ["user:ana"])
    # BM25 by hand: one term, so the weight cancels out; 2 and 4 words, 3 on average.
    full_text = 1 / (1 + 1.2 * (0.25 + 0.75 * 2 / 3))
    # "alpha" has 6 trigrams, "beta" 5, none shared.
    assert best.id == "d0"
    assert best.parts == pytest.approx((full_text, 6 / 11, 0.6), abs=1e-6)
    assert best.score == pytest.approx(0.5 * full_text + 0.3 * 6 / 11 + 0.2 * 0.6, abs=1e-6)
    full_text = 1 / (1 + 1.2 * (0.25 + 0.75 * 4 / 3))
    assert other.parts == pytest.approx((full_text, 6 / len(trigrams(texts[1])), 0), abs=1e-6)


def test_rare_words_weigh_more_and_documents_may_match_a_part_of_the_query(connection):
    index = SearchIndex(connection, Given({}))
    put(index, "red one", "red two", "red three", "blue four")
    found = {hit.id: hit.parts.full_text for hit in index.search("red blue", ["user:ana"])}
    red, blue = math.log(1 + 1.5 / 3.5), math.log(1 + 3.5 / 1.5)
    frequency = 1 / (1 + 1.2)
    assert found["d0"] == pytest.approx(red / (red + blue) * frequency)
    assert found["d3"] == pytest.approx(blue / (red + blue) * frequency)


def test_trigrams_and_similarity_equal_those_of_pg_trgm():
    # From the documentation of pg_trgm: the sets of `cat` and of `foo|bar`.
    assert trigrams("cat") == {"  c", " ca", "cat", "at "}
    assert trigrams("foo|bar") == {"  f", " fo", "foo", "oo ", "  b", " ba", "bar", "ar "}
    # Its example: similarity('word', 'two words') = 0.36363637.
    one, two = trigrams("word"), trigrams("two words")
    assert similarity(len(one & two), len(one), len(two)) == pytest.approx(0.36363637)
    assert trigrams("... !") == frozenset() and similarity(0, 0, 0) == 0


def test_the_trigram_table_finds_every_text_by_itself(connection):
    index = SearchIndex(connection, Given({}))
    texts = ["a b", "cat hat", "Über straße", "x", "שלום עולם", "東京都", "ab_cd"]
    put(index, *texts)
    for text in texts:
        spelled = padded(text)
        assert trigrams(text) <= {spelled[at : at + 3] for at in range(len(spelled) - 2)}
        (hit,) = [h for h in index.search(text, ["user:ana"]) if h.parts.trigram == 1]
        assert hit.snippet == text


# ---- each rule alone ------------------------------------------------------------------------


def test_S3_3_a_document_is_found_by_its_words_alone(connection):
    index = SearchIndex(connection, Given({}))
    put(index, "tests " + "of something else entirely, with many other words " * 5)
    connection.execute("DELETE FROM search_trigrams")
    (hit,) = index.search("testing quickly", ["user:ana"])  # the stem is the same
    assert hit.parts.full_text > 0 and hit.parts.trigram == 0 and hit.parts.vector == 0


def test_S3_3_a_document_is_found_by_its_trigrams_alone(connection):
    index = SearchIndex(connection, Given({}))
    put(index, "migrations")
    connection.execute("DELETE FROM search_words")
    (hit,) = index.search("migratoins", ["user:ana"])
    assert hit.parts.full_text == 0 and hit.parts.trigram >= 0.3 and hit.parts.vector == 0
    assert index.search("imagination", ["user:ana"]) == []


def test_S3_3_a_document_is_found_by_its_vector_alone(connection):
    vectors = {"car": (1, 0, 0), "automobile": (0.61, 0.79, 0), "bicycle": (0.59, 0.81, 0)}
    index = SearchIndex(connection, Given(vectors))
    put(index, "automobile", "bicycle")
    (hit,) = index.search("car", ["user:ana"])
    assert hit.id == "d0" and hit.parts.full_text == hit.parts.trigram == 0
    assert hit.score == pytest.approx(0.2 * 0.61, abs=1e-3)


def test_an_opposite_vector_counts_as_zero(connection):
    index = SearchIndex(connection, Given({"word": (-1, 0, 0), "word up": (1, 0, 0)}))
    put(index, "word up")
    (hit,) = index.search("word", ["user:ana"])
    assert hit.parts.vector == 0 and hit.score > 0


# ---- what is found --------------------------------------------------------------------------


def test_a_search_filters_by_scope_kind_and_time_and_returns_the_newest_of_equals(connection):
    index = SearchIndex(connection)
    for number in range(8):
        index.upsert(f"n{number}", "user:ana", "note", "", "the plan", number)
    index.upsert("p", "project:p1", "decision", "", "the plan", 100)
    assert ids(index.search("plan", ["user:ana"])) == ["n7", "n6", "n5", "n4", "n3"]
    assert ids(index.search("plan", ["user:ana"], best=2, now=3)) == ["n3", "n2"]
    assert ids(index.search("plan", ["project:p1", "user:bob"])) == ["p"]
    assert ids(index.search("plan", ["user:ana", "project:p1"], kinds=["decision"])) == ["p"]
    assert index.search("plan", ["user:ana"], kinds=[]) == index.search("plan", []) == []
    with pytest.raises(ValueError, match="best is 0"):
        index.search("plan", ["user:ana"], best=0)


def test_title_and_text_are_searched(connection):
    index = SearchIndex(connection)
    index.upsert("a", "user:ana", "note", "Holidays", "Closed on Monday.", 1)
    (hit,) = index.search("holiday", ["user:ana"])
    assert (hit.title, hit.snippet) == ("Holidays", "Closed on Monday.")


def test_upsert_replaces_a_document_and_delete_removes_it(connection):
    index = SearchIndex(connection)
    index.upsert("a", "user:ana", "note", "", "walrus", 1)
    index.upsert("a", "user:bob", "note", "", "penguin", 2)
    assert index.search("walrus", ["user:ana", "user:bob"]) == []
    assert ids(index.search("penguin", ["user:bob"])) == ["a"]
    assert index.delete("a") and not index.delete("a")
    assert index.search("penguin", ["user:bob"]) == []
    for table in ("documents", "words", "trigrams", "vectors"):
        assert connection.execute(f"SELECT count(*) FROM search_{table}").fetchone() == (0,)


def test_a_document_that_is_too_large_is_refused_and_changes_nothing(connection):
    index = SearchIndex(connection)
    index.upsert("a", "user:ana", "note", "", "walrus", 1)
    with pytest.raises(ValueError, match="Split it"):
        index.upsert("a", "user:ana", "note", "", "x" * (DOCUMENT_CHARS_MAX + 1), 2)
    assert ids(index.search("walrus", ["user:ana"])) == ["a"]


# ---- transactions and versions --------------------------------------------------------------


def contents(connection):
    tables = ("documents", "words", "trigrams", "vectors", "meta")
    return [connection.execute(f"SELECT * FROM search_{name}").fetchall() for name in tables]


def test_a_rolled_back_transaction_leaves_nothing(tmp_path):
    connection = sqlite3.connect(tmp_path / "index.db")
    index = SearchIndex(connection)
    index.upsert("a", "user:ana", "note", "", "walrus", 1)
    connection.commit()
    before = contents(connection)
    index.upsert("a", "user:ana", "note", "", "penguin", 1)
    index.upsert("b", "user:ana", "note", "", "penguin", 1)
    index.delete("a")
    assert ids(index.search("penguin", ["user:ana"])) == ["b"]
    connection.rollback()
    assert contents(connection) == before
    assert ids(index.search("walrus penguin", ["user:ana"])) == ["a"]
    other = sqlite3.connect(tmp_path / "index.db")
    assert ids(SearchIndex(other).search("walrus", ["user:ana"])) == ["a"]


def test_the_index_never_commits(tmp_path):
    connection = sqlite3.connect(tmp_path / "index.db", isolation_level=None)
    connection.execute("BEGIN")
    SearchIndex(connection).upsert("a", "user:ana", "note", "", "walrus", 1)
    assert connection.in_transaction
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


def test_another_thread_may_search():
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    index = SearchIndex(connection)
    index.upsert("a", "user:ana", "note", "", "walrus", 1)
    with ThreadPoolExecutor(1) as pool:
        for query in ("walrus", "wallrus"):
            assert ids(pool.submit(index.search, query, ["user:ana"]).result(PATIENCE_S)) == ["a"]


def test_after_a_change_of_the_embedder_vectors_are_recomputed_and_that_is_reported(connection):
    reports = []
    put(SearchIndex(connection, Given({"car": (1, 0, 0)}), reports.append), "car", "bus")
    SearchIndex(connection, Given({"car": (1, 0, 0)}), reports.append)
    assert reports == []
    newer = Given({"bus": (0, 1, 0), "tram": (0, 1, 0.1)}, "given-2")
    index = SearchIndex(connection, newer, reports.append)
    (line,) = reports
    assert "given-2/3" in line and "given-1/3" in line and "2 documents" in line
    assert ids(index.search("tram", ["user:ana"])) == ["d1"]


def test_after_a_change_of_the_layout_documents_are_indexed_again_and_that_is_reported(connection):
    reports = []
    put(SearchIndex(connection, say=reports.append), "walrus")
    connection.execute("DELETE FROM search_words")
    connection.execute("DELETE FROM search_trigrams")
    connection.execute("UPDATE search_meta SET value = '0' WHERE name = 'layout'")
    index = SearchIndex(connection, say=reports.append)
    assert "1 documents are indexed again" in reports[0]
    (hit,) = index.search("walrus", ["user:ana"])
    assert hit.parts.full_text > 0 and hit.parts.trigram == 1


@pytest.mark.parametrize("array", [np.zeros((1, 2)), np.full((1, 3), np.nan)])
def test_the_error_for_an_embedder_that_breaks_its_protocol_names_it(connection, array):
    broken = Given({})
    broken.embed = lambda _texts: array
    with pytest.raises(EmbedderFailed, match="the embedder given-1"):
        SearchIndex(connection, broken).upsert("a", "user:ana", "note", "", "walrus", 1)
    assert contents(connection)[0] == []

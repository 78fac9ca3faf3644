"""Embedders: the default embedder, an embedder that a setting names, and the rules for both."""

import sys

import numpy as np
import pytest

from foldlog.log.errors import SettingsError
from foldlog.processors.search.embed import (
    HashedEmbedder,
    blobs_of,
    cosines,
    distance_max_of,
    load_embedder,
)
from foldlog.processors.search.word_vectors import WordVectors, installed
from foldlog.tests.kit.programs import run

extra = pytest.mark.skipif(not installed(), reason="the extra `embeddings` is not installed")


class Custom:
    name, dimensions = "custom-1", 2

    def embed(self, texts):
        return np.array([[3, 4]] * len(texts))


class NoEmbedder:
    name = "none"


class Far(Custom):
    distance_max = 3


def near(one, other):
    first, second = blobs_of(HashedEmbedder(), [one, other])
    return cosines(first, [second])[0]


def test_texts_of_similar_spelling_are_near_and_of_similar_meaning_are_not():
    assert near("running the migrations", "run a migration") > 0.2
    assert near("certificate", "cetificate") > 0.3
    assert near("東京都の天気", "京都の天気") > 0.5
    assert near("car", "automobile") < 0.2
    assert near("getUserName", "get_user_name") == pytest.approx(1)
    assert near("walrus", "") == 0


def test_vectors_have_length_one_and_are_equal_in_every_process():
    texts = ["the walrus swims", "המחסן בחיפה", "京都", "", "?!"]
    vectors = np.array([np.frombuffer(blob, "f") for blob in blobs_of(HashedEmbedder(), texts)])
    assert vectors.shape == (5, HashedEmbedder.dimensions)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1, 0, 0])
    program = (
        "from foldlog.processors.search.embed import HashedEmbedder as H, blobs_of;"
        f"print(blobs_of(H(), {texts!r})[1].hex())"
    )
    result = run([sys.executable, "-c", program], check=True)
    assert result.stdout.strip() == blobs_of(HashedEmbedder(), texts)[1].hex()


def test_numpy_is_imported_by_the_first_comparison_and_changes_no_cosine(monkeypatch):
    program = (
        "import sys; from foldlog.processors.search.index import HashedEmbedder, blobs_of;"
        "blobs_of(HashedEmbedder(), ['a walrus']); print('numpy' in sys.modules)"
    )
    result = run([sys.executable, "-c", program], check=True)
    assert result.stdout.strip() == "False"
    query, *stored = blobs_of(HashedEmbedder(), ["a walrus", "walruses", "an invoice", ""])
    fast = cosines(query, stored)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert cosines(query, stored) == pytest.approx(fast, abs=1e-6)
    assert cosines(query, []) == []


@extra
def test_S3_3_word_vectors_are_the_default_with_the_extra_and_put_related_words_near():
    embedder = load_embedder(None)
    assert isinstance(embedder, WordVectors) and distance_max_of(embedder) == 0.8
    texts = ["car", "my automobile is red", "the invoice is due", "", "\u6771\u4eac"]
    car, automobile, invoice, nothing, tokyo = blobs_of(embedder, texts)
    near, far, none, _ = cosines(car, [automobile, invoice, nothing, tokyo])
    assert near > 0.45 and far < 0.2 and none == 0
    assert blobs_of(WordVectors(), ["car"]) == [car]


def test_without_the_extra_the_default_is_hashing(monkeypatch):
    monkeypatch.setattr("foldlog.processors.search.word_vectors._NEEDED", ("no_such_module",))
    assert load_embedder(None).name == HashedEmbedder.name
    assert distance_max_of(load_embedder(None)) == 0.4


def test_nothing_of_the_extra_is_imported_before_the_first_text():
    program = (
        "import sys; from foldlog.processors.search.embed import load_embedder;"
        "load_embedder(None);"
        "print({'numpy', 'tokenizers', 'safetensors', 'wordllama'} & set(sys.modules))"
    )
    result = run([sys.executable, "-c", program], check=True)
    assert result.stdout.strip() == "set()"


def test_vectors_of_a_configured_embedder_are_normalized():
    embedder = load_embedder(f"{__name__}:Custom")
    assert np.frombuffer(blobs_of(embedder, ["x"])[0], np.float32) == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:x", "cannot be loaded (ModuleNotFoundError"),
        ("json", "write it as MODULE:ATTR"),
        ("json:nothing", "cannot be loaded (AttributeError"),
        (f"{__name__}:NoEmbedder", "it lacks dimensions, embed"),
        (f"{__name__}:Far", "distance_max is 3, it must be 0 to 2"),
    ],
)
def test_the_error_for_an_invalid_setting_names_it(name, message):
    with pytest.raises(SettingsError) as refused:
        load_embedder(name)
    assert name in str(refused.value) and message in str(refused.value)

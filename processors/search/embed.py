"""Texts as vectors: the interface of embedders, an embedder without dependencies, and distances.

HashedEmbedder hashes words and parts of words, so that inflected, misspelt and compound words get
similar vectors. It does not know meanings: `car` and `automobile` are as far apart as any two
words. With the extra `embeddings` the default is word_vectors.py, which knows related words. Only
this file imports numpy, which the extra installs: it compares vectors faster.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import chain
from operator import mul
from typing import Any, Protocol
from zlib import crc32

from ...log.errors import FoldlogError, SettingsError
from .formula import VECTOR_DISTANCE_MAX
from .word_vectors import WordVectors, installed
from .words import STOP_WORDS, is_unspaced, pieces

DIMENSIONS = 512  # 2 KiB a document; the cosine of an unrelated pair is about 1 / sqrt(512) = 0.04
_GRAMS = (3, 4)  # characters; with spaces around the word, so that its start and end matter
_WORD_WEIGHT = 1.0  # of a whole word
_GRAMS_WEIGHT = 1.0  # of all parts of a word together
_WORDS_CACHED = 50_000  # about 250 bytes each, 12 MiB at most


class EmbedderFailed(FoldlogError):
    """The configured embedder raised an error or violated its protocol. Nothing was stored; the
    work that needed the vectors is retried. Correct the embedder or remove the setting."""


class Embedder(Protocol):
    """Computes vectors of texts. With the same `name`, equal texts must give equal vectors.

    `name` identifies the method and its version: stored vectors with another name are recomputed.
    `embed` returns an array of floats of shape (number of texts, dimensions); the vectors need not
    have length 1. An embedder may also have `distance_max`: the maximum cosine distance (0 to 2) at
    which a text is a candidate by its vector alone. The default is VECTOR_DISTANCE_MAX.
    """

    name: str
    dimensions: int

    def embed(self, texts: list[str]) -> Any: ...


def distance_max_of(embedder: Embedder) -> float:
    """The `distance_max` of an embedder, or the default if the embedder has none. Embedders have
    different limits, because their cosines are not comparable."""
    return float(getattr(embedder, "distance_max", VECTOR_DISTANCE_MAX))


class HashedEmbedder:
    """Hashes words and character n-grams, with a sign, into DIMENSIONS buckets. Deterministic."""

    name = "hashed-1"
    dimensions = DIMENSIONS

    def embed(self, texts: list[str]) -> list[list[float]]:
        """A vector of DIMENSIONS numbers per text, of any length; zeros for a text without words.
        """
        return [_hashed(text) for text in texts]


def _hashed(text: str) -> list[float]:
    words = pieces(text)
    words = [word for word in words if word not in STOP_WORDS] or words
    vector = [0.0] * DIMENSIONS
    for word, count in Counter(words).items():
        times = 1 + math.log(count)
        for place, weight in _features(word):
            vector[place] += weight * times
    return vector


def load_embedder(name: str | None) -> Embedder:
    """The embedder for a setting MODULE:ATTR, which names an instance or a class without arguments.

    If `name` is None, the embedder is WordVectors with the extra `embeddings`, and HashedEmbedder
    without this extra. Raises SettingsError with the reason.
    """
    if name is None:
        return WordVectors() if installed() else HashedEmbedder()
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise SettingsError(f"embedder {name}: write it as MODULE:ATTR, as in my_app:embedder")
    try:
        found = getattr(import_module(module), attribute)
        found = found() if isinstance(found, type) else found
    except Exception as error:
        raise SettingsError(
            f"embedder {name}: it cannot be loaded ({type(error).__name__}: {error}). Nothing was "
            "embedded. Correct the setting, or leave it out for the embedder of foldlog."
        ) from error
    name_, size, embed = (getattr(found, what, None) for what in ("name", "dimensions", "embed"))
    has = {"name": isinstance(name_, str), "dimensions": isinstance(size, int),
           "embed": callable(embed)}
    missing = [what for what, there in has.items() if not there]
    if missing:
        lacks = ", ".join(missing)
        raise SettingsError(f"embedder {name}: it lacks {lacks}, see docs/search.md")
    near = getattr(found, "distance_max", VECTOR_DISTANCE_MAX)
    if not isinstance(near, int | float) or not 0 <= near <= 2:
        raise SettingsError(f"embedder {name}: distance_max is {near!r}, it must be 0 to 2")
    return found


@lru_cache(_WORDS_CACHED)
def _features(word: str) -> tuple[tuple[int, float], ...]:
    """The buckets of a word and its parts, and the weight that each adds to its bucket."""
    padded = f" {word} "
    grams = [
        padded[at : at + size]
        for size in _GRAMS
        for at in range(len(padded) - size + 1)
        if not is_unspaced(word)
    ]
    each = _GRAMS_WEIGHT / math.sqrt(len(grams)) if grams else 0.0
    weighed = [(f"w:{word}", _WORD_WEIGHT), *((f"g:{gram}", each) for gram in grams)]
    return tuple(_bucket(crc32(name.encode()), weight) for name, weight in weighed)


def _bucket(hashed: int, weight: float) -> tuple[int, float]:
    return (hashed & 0x7FFFFFFF) % DIMENSIONS, weight if hashed >> 31 else -weight


def blobs_of(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """The vectors of texts in the stored form: float32, length 1.

    Raises EmbedderFailed if the embedder raises an error or violates its protocol.
    """
    try:
        made = [array("d", vector) for vector in embedder.embed(list(texts))]
    except Exception as error:  # third-party code, which may call a server
        raise EmbedderFailed(
            f"the embedder {embedder.name} failed ({type(error).__name__}: {error}). Nothing was "
            "stored."
        ) from error
    sizes = {len(vector) for vector in made} - {embedder.dimensions}
    if len(made) != len(texts) or sizes or not all(map(math.isfinite, chain(*made))):
        raise EmbedderFailed(
            f"the embedder {embedder.name} returned {len(made)} vectors of "
            f"{', '.join(map(str, sorted(sizes))) or embedder.dimensions} numbers, or numbers that "
            f"are not finite; its protocol requires {len(texts)} of {embedder.dimensions}. Nothing "
            "was stored."
        )
    return [_unit(vector).tobytes() for vector in made]


def _unit(vector: "array[float]") -> "array[float]":
    """Scales a vector to length 1, as float32; a vector of length 0 stays unchanged."""
    length = math.hypot(*vector) or 1.0
    return array("f", [number / length for number in vector])


def cosines(query: bytes, stored: Iterable[bytes]) -> list[float]:
    """The cosine of the query's vector with each stored vector."""
    try:
        import numpy as np
    except ImportError:
        one = memoryview(query).cast("f").tolist()
        return [sum(map(mul, one, memoryview(other).cast("f"))) for other in stored]
    vector = np.frombuffer(query, dtype=np.float32)
    matrix = np.frombuffer(b"".join(stored), dtype=np.float32).reshape(-1, len(vector))
    return (matrix @ vector).tolist()

"""The score of a search, as data: three parts, each between 0 and 1.

full_text   How well the words match. BM25 of the whole query over the highest BM25 that any
            document could have for it: sum(idf(t) * tf(t, d)) / sum(idf(t)) over the terms t of the
            query, where tf(t, d) = f / (f + 1.2 * (0.25 + 0.75 * length(d) / mean length)) is below
            1 and f counts t in d. idf(t) = ln(1 + (N - n + 0.5) / (n + 0.5)) with n of N documents
            having t: never negative, so that a word that most documents share still counts.
            0 exactly where no term matches. A document of mean length that has every word once
            gets 1 / 2.2 = 0.45.
trigram     pg_trgm's similarity(document, query): the trigrams both have over those either has.
vector      1 - cosine distance = the cosine; a negative one counts as 0 (a distance above 1 means
            no less relevance than a distance of 1).

A document is a candidate if it has a term of the query (full_text > 0), or its trigram similarity
is TRIGRAM_SIMILARITY_MIN or more, or its cosine distance is below VECTOR_DISTANCE_MAX or the limit
of its embedder: the distance of related texts is a property of the embedder. Each part is counted
for every candidate, whichever rule selected it.
"""

from typing import NamedTuple


class Parts(NamedTuple):
    """The three parts of a score; in WEIGHTS, the weights of the parts."""

    full_text: float
    trigram: float
    vector: float


WEIGHTS = Parts(full_text=0.5, trigram=0.3, vector=0.2)
TRIGRAM_SIMILARITY_MIN = 0.3  # pg_trgm's default threshold for its operator %
VECTOR_DISTANCE_MAX = 0.4  # cosine distance, for an embedder without `distance_max`


def score(parts: Parts) -> float:
    """The weighted sum of the parts, 0 to 1."""
    return sum(weight * part for weight, part in zip(WEIGHTS, parts, strict=True))


def is_candidate(
    parts: Parts, distance: float, distance_max: float = VECTOR_DISTANCE_MAX
) -> bool:
    """Whether any of the three rules selects the document.
    `distance`: the cosine distance, 0 to 2."""
    return (
        parts.full_text > 0
        or parts.trigram >= TRIGRAM_SIMILARITY_MIN
        or distance < distance_max
    )

"""The score of a search, as data: three parts, each between 0 and 1.

full_text   How well the words match. BM25 of the whole query, divided by the highest BM25 that any
            document could have for the query: sum(idf(t) * tf(t, d)) / sum(idf(t)) over the terms t
            of the query, where tf(t, d) = f / (f + 1.2 * (0.25 + 0.75 * length(d) / mean length))
            is below 1 and f counts t in d. idf(t) = ln(1 + (N - n + 0.5) / (n + 0.5)), where n of N
            documents have t, is never negative, so that a word that most documents share still
            counts. full_text is 0 exactly if no term matches. A document of mean length that has
            every word once gets 1 / 2.2 = 0.45.
trigram     pg_trgm's similarity(document, query): the number of trigrams that both have, divided by
            the number of trigrams that at least one of the two has.
vector      1 - cosine distance = the cosine; a negative cosine counts as 0 (a distance above 1
            means no less relevance than a distance of 1).

A document is a candidate if it has a term of the query (full_text > 0), or its trigram similarity
is TRIGRAM_SIMILARITY_MIN or more, or its cosine distance is below the limit of the embedder. The
default of this limit is VECTOR_DISTANCE_MAX; an embedder may set another limit, because the
distance of related texts depends on the embedder. All three parts are computed for every candidate,
whichever rule selected it.
"""

from typing import NamedTuple


class Parts(NamedTuple):
    """The three parts of a score. In WEIGHTS, each field is the weight of that part."""

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

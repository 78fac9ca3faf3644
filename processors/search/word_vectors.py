"""An embedder that knows related words,
with the static vectors of the package `wordllama` (an extra).

The vector of a text is the mean of its tokens' vectors, so `car` is close to `automobile`; word
order does not matter. The package's files are read directly, because importing wordllama loads much
that is not needed and configures logging. Nothing is imported or read before the first text.
"""

from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = "wordllama"
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_DIMENSIONS = 256
_NEEDED = ("safetensors", "tokenizers")


class _Vectors(NamedTuple):
    """The vectors of tokens. `table`: a row of float16 per token. `tokenizer`: returns the row
    numbers of a text's tokens."""

    table: Any
    tokenizer: Any


class WordVectors:
    """The mean of static token vectors, 256 numbers. Deterministic. Works only if `installed()`."""

    dimensions = _DIMENSIONS
    # Measured (docs/search.md): of the labelled set, 95 % of the unrelated pairs are farther apart
    # than 0.81, and nearly 90 % of the paraphrases are within 0.8 of their answers. At 0.4 no
    # paraphrase is found.
    distance_max = 0.8

    def __init__(self) -> None:
        self.name = f"{PACKAGE}-{version(PACKAGE)}-mean-1"

    def embed(self, texts: list[str]) -> Any:
        """Vectors of shape (len(texts), dimensions), float32; zeros for a text without tokens."""
        table, tokenizer = _vectors()
        found = []
        for text in texts:
            # One text per call, because a batch would start threads in a process that forks.
            rows = tokenizer.encode(text, add_special_tokens=False).ids
            rows = [row for row in rows if row < len(table)]
            found.append(table[rows].mean(axis=0, dtype="float32") if rows else [0.0] * _DIMENSIONS)
        return found


def installed() -> bool:
    """Whether the extra is installed with the expected files. Imports nothing of it."""
    directory = _directory()
    return (
        directory is not None
        and all((directory / file).is_file() for file in (_WEIGHTS, _TOKENIZER))
        and all(find_spec(name) is not None for name in _NEEDED)
    )


def _directory() -> Path | None:
    found = find_spec(PACKAGE)
    places = found.submodule_search_locations if found is not None else None
    return Path(places[0]) if places else None


@lru_cache(maxsize=1)
def _vectors() -> _Vectors:
    """Read the token vectors and the tokenizer from their files: 16 MiB in 0.1 s."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    directory = _directory()
    assert directory is not None, "WordVectors needs the extra `embeddings`"
    (table,) = load_file(directory / _WEIGHTS).values()
    assert table.shape[1] == _DIMENSIONS, table.shape
    tokenizer = Tokenizer.from_file(str(directory / _TOKENIZER))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return _Vectors(table, tokenizer)

"""Checks memory: whether a user's core.md is too long to fit into prompts, and which embedder is
used to search memory.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ...log.door import Log
from ...log.errors import SettingsError, TopicMissing
from ...processors.memory.framing import core_left_out
from ...processors.memory.service import FILE
from ...processors.search.embed import HashedEmbedder, load_embedder
from ...processors.search.index import embedder_in
from ..memory import read_memory
from .checks import Finding

EXTRA = "pip install 'foldlog[embeddings]' also finds related words (docs/search.md)"


def vectors(state_dir: Path, embedder: str | None) -> Iterator[Finding]:
    """Report which embedder made the vectors of a worker's memory file, if there is a file, and
    whether the next start rebuilds the vectors. `embedder`: the setting.
    """
    file = state_dir / FILE
    if not file.exists():
        return
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            made_by = embedder_in(database)
    except sqlite3.Error as broken:
        do = "nothing: a worker rebuilds it from the log"
        yield Finding("note", "memory", f"{file} cannot be read: {broken}", do)
        return
    try:
        wanted = load_embedder(embedder)
    except SettingsError as wrong:
        yield Finding("problem", "memory", str(wrong), "correct the setting `embedder`")
        return
    do = EXTRA if wanted.name == HashedEmbedder.name else ""
    if made_by not in (None, f"{wanted.name}/{wanted.dimensions}"):
        do = f"nothing: the next start of the worker embeds it again with {wanted.name}"
    yield Finding("ok", "memory", f"its vectors were made by {made_by or wanted.name}", do)


def core_in_prompts(log: Log, scope: str) -> Iterator[Finding]:
    """Report a core.md that is too long, so that prompts leave out a part of it."""
    try:
        left_out = core_left_out(read_memory(log, scope).now)
    except TopicMissing:
        return  # the check of the topics reports this
    if left_out:
        yield Finding(
            "note", "memory", f"of {scope}, {left_out}", "run foldlog memory --sync and shorten "
            "core.md"
        )

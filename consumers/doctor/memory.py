"""Doctor's look at memory: what of a user's core.md enters no prompt, and how it is searched."""

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

EXTRA = "pip install 'foldlog[embeddings]' finds related words too (docs/search.md)"


def vectors(state_dir: Path, embedder: str | None) -> Iterator[Finding]:
    """Which embedder made the vectors of a worker's memory, where it has one, and whether the next
    start makes them anew. `embedder`: the setting."""
    file = state_dir / FILE
    if not file.exists():
        return
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            has = embedder_in(database)
    except sqlite3.Error as broken:
        do = "nothing: a worker makes it anew from the log"
        yield Finding("note", "memory", f"{file} can't be read: {broken}", do)
        return
    try:
        wanted = load_embedder(embedder)
    except SettingsError as wrong:
        yield Finding("problem", "memory", str(wrong), "correct the setting `embedder`")
        return
    do = EXTRA if wanted.name == HashedEmbedder.name else ""
    if has not in (None, f"{wanted.name}/{wanted.dimensions}"):
        do = f"nothing: the next start of the worker embeds it anew by {wanted.name}"
    yield Finding("ok", "memory", f"its vectors were made by {has or wanted.name}", do)


def core_in_prompts(log: Log, scope: str) -> Iterator[Finding]:
    """A finding where a limit leaves something out; nothing where all of it enters."""
    try:
        left_out = core_left_out(read_memory(log, scope).now)
    except TopicMissing:
        return  # told with the topics
    if left_out:
        yield Finding(
            "note", "memory", f"of {scope}, {left_out}", "foldlog memory --sync, and edit core.md"
        )

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
from .findings import Code, Finding, found


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
        yield found(Code.MEMORY_FILE_DAMAGED, file=file, error=broken)
        return
    try:
        wanted = load_embedder(embedder)
    except SettingsError as wrong:
        yield found(Code.EMBEDDER_WRONG, error=wrong)
        return
    code = Code.EMBEDDER_HASHED if wanted.name == HashedEmbedder.name else Code.EMBEDDER_OK
    if made_by not in (None, f"{wanted.name}/{wanted.dimensions}"):
        code = Code.EMBEDDER_REPLACED
    yield found(code, made_by=made_by or wanted.name, wanted=wanted.name)


def core_in_prompts(log: Log, scope: str) -> Iterator[Finding]:
    """Report a core.md that is too long, so that prompts leave out a part of it."""
    try:
        left_out = core_left_out(read_memory(log, scope).now)
    except TopicMissing:
        return  # the check of the topics reports this
    if left_out:
        yield found(Code.CORE_TOO_LONG, scope=scope, left_out=left_out)

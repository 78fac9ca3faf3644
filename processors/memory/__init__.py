"""Memory that outlives sessions: entries in three tiers, preferences per user, todos per project.

Read in this order: fold.py (the view of one scope), framing.py (memory as text for a model, quoted
and with its source), store.py (views, search index and cursors in one SQLite file), reader.py
(queries by prompts and tools), service.py (keeps the store current in a worker), extraction.py (the
entries that a model extracted from a turn), files.py (the text of the files that people edit;
`upkeep/memory_files.py` writes these files and turns edits into events). An agent's memory tools
are in tools/memory.py.
"""

__all__: list[str] = []

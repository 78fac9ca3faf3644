"""What outlives sessions: memory in three tiers, preferences per user, todos per project.

Read in this order: fold.py (the view of one scope), framing.py (memory as a model is shown it:
quoted, with where it came from), store.py (views, search index and cursors in one SQLite file),
reader.py (what prompts and tools ask), service.py (keeps the store current in a worker), tools.py
(what an agent may call), extraction.py (what a model is asked to remember of a turn), files.py and
directory.py (memory as files that people edit).
"""

__all__: list[str] = []

"""Hybrid search: words, trigrams and vectors over documents in one SQLite file.

Read in this order: formula.py (the score, as data), words.py (what a word is in each script),
full_text.py, trigrams.py, embed.py (vectors), word_vectors.py, snippet.py, index.py (SearchIndex,
which joins them). All of it is independent of what the documents are used for:
memory and transcripts are searched by the same code.
"""

__all__: list[str] = []

"""Hybrid search: words, trigrams and vectors over documents in one SQLite file.

Read in this order: formula.py (the score), words.py (the words of a text in any writing system),
full_text.py, trigrams.py, embed.py (vectors), word_vectors.py, snippet.py, index.py (SearchIndex,
which combines these). The package is independent of what documents are used for: memory and
transcripts are searched by the same code.
"""

__all__: list[str] = []

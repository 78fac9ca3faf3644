"""Full-text and vector search over the messages of many sessions.

Read in this order: `search_index.py`, then `search_file.py` (where it is kept).
"""

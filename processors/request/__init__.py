"""Requests to the model, built from views: the same views give the same bytes. Pure.

Read in this order: layers.py and prefix.py (the static prefix), frames.py (third-party text),
build.py (a whole request), blocks.py, legal.py, summary.py and left_out.py (its parts),
cache_marks.py, continuation.py (requests that resume an answer), rendered.py (a faster build.py),
strategies.py (the next request under any strategy), extraction.py (the request that extracts memory
from a turn).
"""

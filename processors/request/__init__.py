"""Requests to the model, built from views: the same views give the same bytes. Pure.

Read in this order: layers.py and prefix.py (the static prefix), build.py (a whole request),
cache_marks.py, continuation.py (requests that resume an answer), rendered.py (a faster build.py),
strategies.py (the next request under any strategy).
"""

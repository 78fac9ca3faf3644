"""WAKE: what a session needs next. Pure.

facts.py computes the facts of a session's views, table.py lists the obligation for each combination
of facts, and decide.py builds the events that discharge it, with budget.py and background_tasks.py.
matrix.py lists which point of a turn reads and writes which state; only docs and tests use it.
"""

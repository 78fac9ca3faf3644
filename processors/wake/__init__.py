"""WAKE: the pending work of a session. Pure.

facts.py computes facts from a session's views, table.py lists the obligation for each combination
of facts, and decide.py builds the events that discharge an obligation, with the help of budget.py,
background_tasks.py and phase_limits.py (which calls a phase forbids). work_ends.py has the reasons
why background work has no result. matrix.py lists which state each point of a turn reads and
writes; only docs and tests use it.
"""

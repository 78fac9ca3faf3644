"""The folds: events in, views out. Pure.

Read in this order: session.py (the fold of one session), rulings/ (whether an event counts),
projections/ (the views), views.py (all views as one value), calls.py (the life of a tool call),
sessions.py (the loop over many sessions), forks.py and inherited.py (how a fork begins).
"""

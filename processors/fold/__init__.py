"""The folds: they compute views from events. Pure.

Read in this order: session.py (the fold of one session), ruling.py and rulings/ (whether an event
counts), projections/ (the views), views.py (all views as one value), rows.py and references.py
(parts of views), calls.py and call_facts.py (the life of a tool call), grants.py, transitions.py
and field_writers.py (tables of approvals, phases and fields), partial_answer.py, cut_points.py and
refused_content.py (rules about content), sessions.py (the loop over many sessions),
forks.py, inherited.py and seeds.py (how a fork begins).
"""

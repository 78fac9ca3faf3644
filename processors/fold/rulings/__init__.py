"""Rulings: whether the fold accepts an event, decided before any view changes.

producers.py and workers.py each have a table JUDGES, from event type to ruling function. The tables
include the functions of items.py, background.py and delivery.py. judges.py has the type of the
tables.
"""

"""Rulings: whether the fold accepts an event, decided before any view changes.

producers.py and workers.py have a table JUDGES from event type to ruling function; they include
those of items.py, background.py and delivery.py. judges.py has the type of these tables.
"""

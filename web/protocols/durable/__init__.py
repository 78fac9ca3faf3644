"""Durable Streams: serves sessions as read-only streams.

Read in this order: `reading.py` (offsets and pages), `session.py` (a session as a stream).
"""

"""Durable Streams: serves sessions as read-only streams.

Read `reading.py` (a session as a stream, its offsets and pages).
"""

"""Traces for operators, without the content of sessions.

Read in this order: `spans.py` (from events to spans), `traces.py` (read from the log), `otlp.py`
(as bytes for others).
"""

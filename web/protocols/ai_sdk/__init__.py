"""Vercel AI SDK: encodes sessions as UI message streams.

Read in this order: `input.py`, `stream.py` (one turn), `messages.py` (a whole history), `parts.py`.
"""

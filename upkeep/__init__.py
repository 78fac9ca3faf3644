"""What an operator does to keep an installation in order.

Read in this order: `doctor/` (what is wrong, and its fix), `retention.py` (archive, then delete),
`moving.py` (all sessions to a new log), `snapshots.py`, `blobs.py`, `memory.py` and
`memory_files.py` (memory as files).
"""

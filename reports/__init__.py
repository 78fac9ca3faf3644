"""What is made from the log of many sessions. Nothing here writes to the log.

Read in this order: `replay.py` (fold again and compare; `replay_many.py` in several processes),
`exports/` (rows, tables, bundles, audit reports, SQL), `search/` (full text and vectors over
transcripts), `traces/` (OpenTelemetry spans).
"""

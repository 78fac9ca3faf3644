"""The interpreter: folds, the WAKE table, effects, the worker. Imports schemas, log and producers.

Read in this order: `entries.py` (records to events), fold/ (events to views), wake/ (the pending
work), request/ (the requests to the model); then what an operator declares (`agent.py`,
`limits.py`, `mcp_server.py`, `agent_digest.py`, `default_agent.py`), tools/, effects/, store/ and
worker/, which use these three. Every part may use `crash_points.py` (the places where tests kill a
worker), `token_count.py` (exact counts) and `sqlite_errors.py` (which errors mean a damaged file).
"""

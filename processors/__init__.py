"""The interpreter: folds, the WAKE table, effects, the worker. Imports schemas, log and producers.

Read in this order: fold/ (events to views), wake/ (the pending work), request/ (the requests to the
model); then `agent.py`, `limits.py`, `mcp_server.py` and `agent_digest.py` (what an operator
declares), tools/, effects/, store/ and worker/, which use these three. `crash_points.py` names the
places where tests kill a worker.
"""

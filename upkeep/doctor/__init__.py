"""The checks of `foldlog doctor`.

Read `checks.py` first, which runs the others: `agents.py`, `blobs.py`, `budget.py`, `channels.py`,
`memory.py`, `snapshots.py`, `usage.py`. A new check is a function there and a row in its list.
"""

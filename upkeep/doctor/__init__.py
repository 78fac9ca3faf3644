"""The checks of `foldlog doctor`.

Read `findings.py` first, which has the codes and texts of all findings, then the checks:
`checks.py`, `agents.py`, `blobs.py`, `budget.py`, `channels.py`, `memory.py`, `snapshots.py`,
`usage.py`. A new finding is a code and a row of the table in `findings.py`; a new check is also
called in cli/commands/doctor.py.
"""

"""The commands: one file per group. `foldlog.cli.__main__` lists which file has which command.

Talk: `chat.py`, `session.py`, `fork.py`. Decide: `decide.py`. Inspect: `inspect.py`,
`session_list.py`, `search.py`, `memory.py`, `context.py`, `replay.py`, `replay_bundle.py`,
`sql.py`, `export.py`, `traces.py`, `looks.py`, `doctor.py`. Run: `init.py`, `run.py`, `reload.py`,
`gateway.py`, `fleet.py`, `demo.py`, `kafka.py`, `snapshots.py`, `blobs.py`, `retain.py`, `move.py`.
"""

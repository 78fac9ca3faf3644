"""The `foldlog` command: a thin layer over `client/`, `reports/`, `web/` and `upkeep/`.

Read `__main__.py` (the list of commands, exit codes), `edge.py` (settings, choice of the broker,
options that commands share), `agents.py`, `worker_info.py`, then `commands/` and `terminal/`.
docs/contributing.md lists what a new command needs.
"""

"""The `foldlog` command: a thin layer over the client in `consumers/`.

Read `__main__.py` (the list of commands, exit codes), `edge.py` (settings, choice of the broker,
options that commands share), `printing.py` (output), then one file per group of commands.
docs/contributing.md lists what a new command needs.
"""

"""The `foldlog` command: thin, over the client of `consumers/`.

Read `__main__.py` (the list of commands, exit codes), `edge.py` (settings, which broker, what every
command gets), `printing.py` (how things are printed), then one file per group of commands.
"""

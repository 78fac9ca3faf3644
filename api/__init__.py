"""The Python API: connect to an installation, talk to sessions, run a worker, serve over ASGI.

`connection.py` and `session.py` are the blocking API, `aio.py` is the same for asyncio, `events.py`
has what a session yields. `installation.py` finds the settings and the broker, also for the command
line.
"""

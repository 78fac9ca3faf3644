"""The Python API: connect to an installation, use sessions, run a worker, serve over ASGI.

`connection.py` and `session.py` are the blocking API, `aio.py` is the same API for asyncio, and
`events.py` has the events that a session yields. `installation.py` finds the settings and the
broker, also for the command line.
"""

"""The fleet: answers questions about all sessions, from tables that Faust keeps.

An ordinary Faust application in its own process (`foldlog fleet`). It reads `session-facts`, which
workers write, and keeps three tables, each with a changelog. No worker and no gateway needs it.
Only this room imports faust. Reading order: `rows.py` (what a fact changes), `book.py` (which
facts are done), `tables.py` (stores and their restore), `consumer.py` (the Kafka clients),
`member.py` (the application), `order.py` (lists), `answers.py` and `routes.py` (HTTP),
`same_log.py` (refuses another log), `serve.py` (the process), `crash_points.py`, `credentials.py`
and `logs.py` (small parts).
"""

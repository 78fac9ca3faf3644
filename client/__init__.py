"""What a program uses: connections, sessions, commands, and everything read from one session.

Read in this order: `connection.py` and `session.py` (the blocking API; `aio.py` is the same API for
asyncio), `log_client.py` (what the sessions of a log share), `events.py` (what a session yields),
`installation.py` (finds the settings and the broker, also for the command line), `worker.py` (a
worker inside a program); then what they stand on: `commands.py` and `branching.py` (write an event
for the present views), `follow.py` (entries from a cursor on), `session_fold.py` (one session,
folded as its worker does), `status.py` (what a session is doing, and why), `outcomes.py` and
`waiting.py` (the ruling on a command, the answer, what a session waits for),
`transcript_stream.py` and `history.py` (a live viewer, a late viewer), `printable.py`, `show.py`,
`context_view.py`, `spending.py` and `session_state.py` (views, requests and costs for people),
`calls.py`, `gen_sent.py`, `visible.py`, `closing.py` and `awaited.py` (small parts); `fleet.py`
(asks the fleet about all sessions) and `holders.py` (who holds the partitions).
"""

__all__: list[str] = []

"""The read side: it reads the log, and returns views, the rulings on events, and streams for
viewers.

Read in this order: `follow.py` (entries from a cursor on), `session_fold.py` (one session, folded
as its worker does), `outcomes.py` and `waiting.py` (the ruling on a command, the answer to a
message, the reason why a session waits), `transcript_stream.py` (the fold for a live viewer),
`contents.py` and `show.py` (views as JSON), `replay.py` (refold and compare), `client.py` (the API
for Python users).
"""

__all__: list[str] = []

"""The read side: what became of an event, what a viewer sees, what a session is.

Read in this order: `follow.py` (entries from a cursor on), `session_fold.py` (one session, folded
as its worker does), `outcomes.py` and `waiting.py` (was it accepted, what is the answer, what is
waited for), `transcript_stream.py` (a viewer's fold), `contents.py` and `show.py` (views as JSON),
`replay.py` (refold and compare), `client.py` (one door for Python users).
"""

__all__: list[str] = []

"""The read side: the ruling on an event, the stream of a viewer, the views of a session.

Read in this order: `follow.py` (entries from a cursor on), `session_fold.py` (one session, folded
as its worker does), `outcomes.py` and `waiting.py` (the decision, the answer, the reason for
waiting), `transcript_stream.py` (a viewer's fold), `contents.py` and `show.py` (views as JSON),
`replay.py` (refold and compare), `client.py` (the API for Python users).
"""

__all__: list[str] = []

"""GEN_SENT: that a streaming viewer really has an answer (mission row S2.4).

GEN_COMPLETE says that the model finished; this says that somebody has it. A viewer owes nobody
anything, so it is written after the last part was flushed, without a claim and without waiting,
and a repetition changes nothing.
"""

from ..log.door import Producer
from ..processors.fold.views import SessionViews
from ..schemas.codec import encode, headers_for
from ..schemas.events import GenSent
from ..schemas.topics import SESSION_EVENTS


def note_sent(producer: Producer, views: SessionViews, turn: int, channel: str) -> bool:
    """Note that `channel` has the last answer of a turn; False if there is none or it is known."""
    steps = [
        line.step
        for line in views.transcript.lines
        if line.turn == turn and line.kind in ("answer", "partial")
    ]
    if not steps or views.transcript.sent.last((turn, steps[-1], channel)) is not None:
        return False
    event = GenSent(turn=turn, step=steps[-1], channel=channel)
    producer.append(
        SESSION_EVENTS, views.session_id, encode(event), headers_for(event, "consumers")
    )
    return True

"""Writes GEN_SENT, which records that a streaming viewer received an answer.

GEN_COMPLETE means that the model finished, GEN_SENT that a viewer has the answer. GEN_SENT is
written after the last part was flushed. It is written without a claim, and nothing waits for it,
because no other work depends on it. A second GEN_SENT has no effect.
"""

from ..log.door import Producer
from ..processors.fold.views import SessionViews
from ..schemas.codec import encode, headers_for
from ..schemas.events import GenSent
from ..schemas.topics import SESSION_EVENTS


def note_sent(producer: Producer, views: SessionViews, turn: int, channel: str) -> bool:
    """Record that `channel` received a turn's last answer. False if the turn has no answer or this
    was recorded before.
    """
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

"""Rulings on deliveries to push channels, and on GEN_SENT.

As with all events of workers, an event that does not fit the views is ignored, and WAKE decides
again. The first GEN_SENT for an answer and channel counts, from any worker.
"""

from typing import assert_never

from ....schemas import events as ev
from ..projections.delivery import DeliveryStatus, find_owed
from ..ruling import ACCEPTED, DUPLICATE, LATE, SUPERSEDED, Ruling
from ..views import SessionViews
from .judges import Judges


def delivery_started(views: SessionViews, event: ev.DeliveryStarted) -> Ruling:
    """Rules on a claim of a pending delivery's next attempt, or on a takeover under a newer
    epoch."""
    owed = find_owed(views.delivery, event.turn, event.step, event.channel)
    if owed is None:
        return LATE
    if event.attempt != owed.attempt + 1:
        return DUPLICATE
    if owed.claim is None or owed.status is not DeliveryStatus.RUNNING:
        return ACCEPTED
    return ACCEPTED if event.epoch > owed.claim.epoch else SUPERSEDED


def delivery_failed(views: SessionViews, event: ev.DeliveryFailed) -> Ruling:
    """Rules on a failure. Only a failure of the newest attempt counts. A second failure of the same
    attempt counts only if it gives the delivery up."""
    owed = find_owed(views.delivery, event.turn, event.step, event.channel)
    if owed is None:
        return LATE
    if event.attempt != owed.attempt:
        return SUPERSEDED
    match owed.status:
        case DeliveryStatus.OWED:
            return DUPLICATE
        case DeliveryStatus.RUNNING:
            return ACCEPTED
        case DeliveryStatus.FAILED:
            return ACCEPTED if event.permanent else DUPLICATE
        case _:
            assert_never(owed.status)


def gen_sent(views: SessionViews, event: ev.GenSent) -> Ruling:
    """Rules on the report that an answer was delivered. It counts once per answer and channel."""
    key = (event.turn, event.step, event.channel)
    return DUPLICATE if views.transcript.sent.last(key) is not None else ACCEPTED


JUDGES: Judges = {
    ev.DeliveryStarted: delivery_started,
    ev.DeliveryFailed: delivery_failed,
    ev.GenSent: gen_sent,
}

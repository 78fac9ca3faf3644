"""Invariants of deliveries to push channels (lane D): they arrive, in order, with a limited number
of attempts."""

from collections import Counter
from typing import Any

from foldlog.processors.fold.projections import delivery
from foldlog.processors.wake.decide import rules_of
from foldlog.processors.wake.facts import wake
from foldlog.schemas import events as ev
from foldlog.schemas.value import replace
from foldlog.tests.simulation.invariant import Invariant

Place = tuple[str, int, int, str]


class SentMeansReceived(Invariant):
    """S2.4: GEN_SENT is accepted once, after the channel received the answer. Each answer for a
    channel is sent in the end, or is given up after all its attempts."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.sent: Counter[Place] = Counter()
        self.owed: dict[Place, int] = {}  # -> attempts

    def on_seen(self, seen: Any) -> None:
        event, session = seen.entry.event, seen.entry.session_id
        if not seen.ruling.accepted:
            return
        for owed in seen.views.delivery.owed:
            self.owed[session, owed.turn, owed.step, owed.channel] = owed.attempt
        if isinstance(event, ev.DeliveryStarted):
            most = self.world.agent.limits.delivery_attempts
            self.demand(event.attempt <= most, f"{event} is one attempt too many, of {most}")
        if isinstance(event, ev.GenSent):
            place = (session, event.turn, event.step, event.channel)
            self.sent[place] += 1
            self.demand(self.sent[place] == 1, f"{place} is sent twice")
            self.demand(place in self.world.received, f"{place} is sent, but was never received")

    def at_end(self) -> None:
        for place, tried in self.owed.items():
            views = self.world.witness.views[place[0]]
            known = views.turn.agent == self.world.agent.name and views.frozen is None
            if known and not views.turn.terminated and not self.sent[place]:
                most = self.world.agent.limits.delivery_attempts
                self.demand(tried == most, f"{place} was never received, after {tried} attempts")


class AnswersArriveInOrder(Invariant):
    """A channel receives the answers of a session in order, and may receive an answer more than
    once. An answer that was given up may arrive at any time, because a paused worker may still send
    it."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.given_up: set[Place] = set()

    def on_seen(self, seen: Any) -> None:
        event = seen.entry.event
        if isinstance(event, ev.DeliveryFailed) and event.permanent and seen.ruling.accepted:
            place = (seen.entry.session_id, event.turn, event.step, event.channel)
            self.given_up.add(place)

    def at_end(self) -> None:
        newest: dict[tuple[str, str], tuple[int, int]] = {}
        for place in dict.fromkeys(self.world.received):
            session, turn, step, channel = place
            if place in self.given_up:
                continue
            before = newest.get((session, channel), (0, 0))
            self.demand((turn, step) > before, f"{session} {channel}: {turn}.{step} after {before}")
            newest[session, channel] = (turn, step)


class DeliveriesDelayNothing(Invariant):
    """A pending delivery changes no row of another lane."""

    def on_seen(self, seen: Any) -> None:
        views = seen.views
        if not views.delivery.owed or views.turn.agent != self.world.agent.name:
            return
        rules, now = rules_of(self.world.agent), self.world.now
        alone = wake(replace(views, delivery=delivery.INITIAL), seen.holders, now, rules)
        others = [o for o in wake(views, seen.holders, now, rules) if o.lane != "D"]
        self.demand(others == list(alone), f"{seen.entry.session_id}: {others} and not {alone}")


DELIVERY = (SentMeansReceived, AnswersArriveInOrder, DeliveriesDelayNothing)

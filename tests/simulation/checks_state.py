"""Invariants of the session state, turns and messages, which clients rely on."""

from collections import Counter, defaultdict
from typing import Any

from foldlog.processors.fold.projections.session_state import refusals_of
from foldlog.schemas import events as ev
from foldlog.schemas.codec import ChunkSeen, Unreadable
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.simulation.invariant import Invariant

SLACK_MS = 1_000  # for the rounds and records between the end of the grace and TURN_ENDED
NEVER_LATE = (
    ev.LlmCalled,
    ev.GenStart,
    ev.GenResumed,
    ev.GenComplete,
    ev.GenFailed,
    ev.GenStopped,
    ev.ToolInvoked,
    ev.ToolStarted,
)


class AcknowledgedIsInTheLog(Invariant):
    """I1: no event is lost once its producer has received an acknowledgement."""

    def at_end(self) -> None:
        topic = self.world.log.topic(SESSION_EVENTS)
        for place, value in self.world.users.acknowledged:
            record = topic.partitions[place.partition].records[place.offset]
            self.demand(record.value == value, f"{place} holds another record")


class CancelEndsInTime(Invariant):
    """Constraint 3: without faults, a closing turn ends within the grace period."""

    def on_seen(self, seen: Any) -> None:
        closing = seen.before.turn.closing
        if self.world.scenario.faults or closing is None:
            return
        if isinstance(seen.entry.event, ev.TurnEnded) and seen.ruling.accepted:
            took = seen.entry.at - closing.since
            most = self.world.agent.limits.grace_ms + SLACK_MS
            self.demand(took <= most, f"{seen.entry.session_id} took {took} ms to end")


class EndedTurnsAreClosed(Invariant):
    """Constraint 3: after TURN_ENDED, no event of that turn changes the context or the answer."""

    def on_seen(self, seen: Any) -> None:
        event, before = seen.entry.event, seen.before
        if isinstance(event, ChunkSeen | Unreadable | ev.TurnEnded):
            return
        number = getattr(event, "turn", None)
        if number is None or isinstance(event, ev.CancelRequested):
            return
        over = number < before.turn.number or not before.turn.open
        if not over:
            return
        context = seen.views.context
        if context is not before.context and context != before.context:
            self.fail(f"{event} changed the context after its turn {number}")
        if seen.ruling.accepted and type(event) in NEVER_LATE:
            self.fail(f"{event} was accepted after its turn")


class EveryRefusalIsAnsweredOnce(Invariant):
    """Row R: each refused event, and each result with a refused trigger, gets exactly one accepted
    REFUSED; no other event gets one."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.refused: dict[tuple[str, int], str] = {}
        self.answered: Counter[tuple[str, int]] = Counter()

    def on_seen(self, seen: Any) -> None:
        session = seen.entry.session_id
        if seen.ruling.verdict == "refused":
            self.demand(seen.entry.writer == "producer", f"a worker was refused: {seen.entry}")
            self.refused[session, seen.entry.offset] = seen.ruling.code
        elif isinstance(seen.entry.event, ev.ToolInvoked | ev.ToolResult) and seen.ruling.accepted:
            refusals = refusals_of(seen.before.state, seen.before.turn, seen.entry.event)
            if refusals:
                self.refused[session, seen.entry.offset] = refusals[0].code
        elif isinstance(seen.entry.event, ev.Refused) and seen.ruling.accepted:
            place = (session, seen.entry.event.offset)
            self.answered[place] += 1
            self.demand(place in self.refused, f"{place} was not refused")
            self.demand(self.answered[place] == 1, f"{place} was answered twice")

    def at_end(self) -> None:
        for session, offset in self.refused:
            if not self.world.witness.views[session].turn.refusals_dropped:
                self.demand(self.answered[session, offset], f"{session}: {offset} got no answer")


class MessagesEndOnce(Invariant):
    """S0.10, I2: every accepted message ends in exactly one turn, with one reason."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.accepted: dict[str, list[str]] = defaultdict(list)

    def on_seen(self, seen: Any) -> None:
        event = seen.entry.event
        if isinstance(event, ev.MessageReceived) and seen.ruling.accepted:
            known = self.accepted[seen.entry.session_id]
            self.demand(event.message_id not in known, f"{event.message_id} accepted twice")
            known.append(event.message_id)

    def at_end(self) -> None:
        for session, ids in self.accepted.items():
            views = self.world.witness.views[session]
            if views.frozen is not None or views.turn.agent != self.world.agent.name:
                continue
            for message_id in ids:
                rows = [r for r in views.messages.progress if r.message_id == message_id]
                ends = [row for row in rows if row.reason]
                self.demand(len(ends) == 1, f"{session} {message_id} ended as {rows}")
                self.demand(rows[-1] is ends[0], f"{session} {message_id} continued: {rows}")
                turns = {row.turn for row in rows}
                self.demand(len(turns) == 1, f"{session} {message_id} in several turns: {rows}")


STATE = (
    AcknowledgedIsInTheLog,
    CancelEndsInTime,
    EndedTurnsAreClosed,
    EveryRefusalIsAnsweredOnce,
    MessagesEndOnce,
)

"""Invariants of limits and of other promises: attempts, steps, stops, locks, transcript."""

from collections import Counter
from typing import Any

from foldlog.schemas import events as ev
from foldlog.schemas.codec import digest
from foldlog.tests.kit.invariants import attempts_and_steps_are_bounded
from foldlog.tests.simulation.invariant import Invariant


class AttemptsAndStepsAreBounded(Invariant):
    """S1.F, with the limits of the one agent."""

    def on_seen(self, seen: Any) -> None:
        attempts_and_steps_are_bounded.demand(seen, self.world.agent.limits)


class ShouldStopStops(Invariant):
    """N1: after a cancel with mode `after_step`, no further step of that turn is decided."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.stopped: set[tuple[str, int]] = set()

    def on_seen(self, seen: Any) -> None:
        if not seen.ruling.accepted:
            return
        session, event = seen.entry.session_id, seen.entry.event
        if isinstance(event, ev.CancelRequested) and event.mode == "after_step":
            self.stopped.add((session, seen.before.turn.number))
        elif isinstance(event, ev.LlmCalled) and event.step > 1:
            self.demand((session, event.turn) not in self.stopped, f"{session} continues: {event}")


class StateIsTrue(Invariant):
    """S0.1: the project is locked once. The cancel token belongs to a binding cancel and ends with
    the turn. The pending tool is the oldest tool that may be running."""

    def on_seen(self, seen: Any) -> None:
        before, after, turn = seen.before.state, seen.views.state, seen.views.turn
        if after is before and turn is seen.before.turn:
            return
        if before.project_id is not None and after.project_id != before.project_id:
            self.fail(f"{before.project_id} became {after.project_id}")
        cancelled = turn.closing is not None and turn.closing.reason == "cancelled"
        self.demand(after.cancel_token is not None or not cancelled, "a cancel without its token")
        self.demand(after.cancel_token is None or turn.open, "a token without a turn")
        begun = sorted(
            (call.turn, call.step, call.index, call.attempt)
            for call in (*turn.calls, *turn.doubts)
            if call.status in ("started", "doubt")
        )
        pending = after.pending_tool
        have = pending and (*map(int, pending.call.split(".")), pending.attempt, pending.open)
        want = (*begun[0], len(begun)) if begun else None
        self.demand(have == want, f"{seen.entry.session_id}: {pending}, and {begun} may be running")


class TurnEndsNameTheState(Invariant):
    """TURN_ENDED has the digest of session_state at its basis, and replays check this digest."""

    def on_seen(self, seen: Any) -> None:
        event = seen.entry.event
        if isinstance(event, ev.TurnEnded) and seen.ruling.accepted:
            place = seen.entry.partition, event.basis
            state = self.world.witness.seen[place].views.state
            named = digest(state)
            self.demand(event.views_sha == named, f"{event} names another state")


class TranscriptIsComplete(Invariant):
    """S2.11: every accepted message, answer and end is one line of the transcript."""

    LINES = {ev.MessageReceived: "message", ev.GenComplete: "answer", ev.TurnEnded: "ended"}

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.accepted: Counter[tuple[str, str]] = Counter()

    def on_seen(self, seen: Any) -> None:
        kind = self.LINES.get(type(seen.entry.event))
        if kind is not None and seen.ruling.accepted:
            self.accepted[seen.entry.session_id, kind] += 1

    def at_end(self) -> None:
        for session, views in self.world.witness.views.items():
            lines = Counter(line.kind for line in views.transcript.lines)
            for kind in self.LINES.values():
                want = self.accepted[session, kind]
                self.demand(lines[kind] == want, f"{session}: {lines[kind]} {kind}s of {want}")


LIMITS = (
    AttemptsAndStepsAreBounded,
    ShouldStopStops,
    StateIsTrue,
    TurnEndsNameTheState,
    TranscriptIsComplete,
)

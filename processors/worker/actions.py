"""Discharges obligations, which are the actions that WAKE requires: writes decisions and claims,
begins and stops effects.

It remembers only what is in flight: the produced records that it has not read back (for at most 15
seconds), and the claims whose effects have begun. If a process dies and loses this memory, no harm
is done, because WAKE requires the pending actions again.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from ...schemas.codec import Entry, encode, headers_for
from ...schemas.enums import Role
from ...schemas.events.parts import ReadBlob
from ...schemas.record import Record
from ...schemas.topics import DEAD_LETTERS, SESSION_EVENTS
from ..agent import Agent
from ..effects.effect import Begun, Due
from ..effects.kinds import CLAIMED_BY, SLOTS, Kinds
from ..effects.ports import EffectId, Effects
from ..effects.slots import Slots
from ..effects.start_window import ClaimTimes
from ..fold.projections.turn_view import Claim, TurnView
from ..fold.references import Subject
from ..fold.ruling import Ruling
from ..fold.views import SessionViews
from ..store.clocks import Clock, reading
from ..store.partition_cache import PartitionCache
from ..wake.decide import ReadLayers, ReadTodos, Sources, StoreBody, decide, no_layers, no_todos
from ..wake.facts import Obligation
from ..wake.table import Action
from .slot_queue import Place, SlotQueue

AWAITED_MS = 15_000  # after this time a produced record counts as lost
SLOT_WAIT_MS = 50  # between two polls for a free slot
EXPECTED = ("", "duplicate", "frozen")  # rulings on our own records that indicate no bug in WAKE
REJECTIONS_MAX = 2  # the second rejection at the same views is a bug, not a race


class Append(Protocol):
    """Produces a record to a partition without waiting; calls `failed` if the record was lost."""

    def __call__(
        self,
        topic: str,
        partition: int,
        key: str,
        value: bytes,
        headers: list[tuple[str, bytes]],
        failed: Callable[[str], None],
    ) -> None: ...


class ObligationKey(NamedTuple):
    """Identifies an obligation, independently of the views from which it was computed."""

    partition: int
    session_id: str
    lane: str
    subject: Subject
    owed: Action


class InFlight(NamedTuple):
    """The records that were produced for an obligation and are not read back yet."""

    values: frozenset[bytes]
    until_ms: int
    turn: TurnView


class DischargeResult(NamedTuple):
    """When to check the session again (Unix ms, or None), and the events just written."""

    check_at: int | None
    written: tuple[Any, ...] = ()


def left_alone(session_id: str, turn: int, why: str) -> str:
    """The log line about a session that this worker cannot continue."""
    return (
        f"session {session_id} is left alone: turn {turn} cannot continue: {why}. Cancel the turn "
        f"(foldlog cancel {session_id}) or fork the session; the next turn is tried again"
    )


class Actions:
    """Discharges obligations; see the module docstring."""

    def __init__(
        self,
        owner: str,
        append: Append,
        effects: Effects,
        store_body: StoreBody,
        read_blob: ReadBlob,
        model_slots: Slots,
        tool_slots: Slots,
        clock: Clock,
        say: Callable[[str], None],
        read_layers: ReadLayers | None = None,
        read_todos: ReadTodos = no_todos,
    ) -> None:
        self.owner = owner
        self._append = append
        self._effects = effects
        self.read_blob = read_blob
        self._sources = Sources(store_body, read_blob, read_layers or no_layers, read_todos)
        self._slots = {role: Slots(size) for role, size in SLOTS.items()}
        self._slots |= {Role.MODELS: model_slots, Role.TOOLS: tool_slots}
        self.kinds = Kinds(effects, read_blob)
        self._clock = clock
        self._say = say
        self.slot_queue = SlotQueue()
        self._awaited: dict[ObligationKey, InFlight] = {}
        self._keys_by_session: dict[str, set[ObligationKey]] = {}
        self._claims_back: set[ObligationKey] = set()
        self._begun = Begun()
        self._claim_times = ClaimTimes()
        self._rejections: dict[str, tuple[TurnView, int]] = {}

    @property
    def in_flight_count(self) -> int:
        """The number of decisions and claims that were produced and are not read back yet."""
        return len(self._awaited)

    # -- writing ---------------------------------------------------------------------------------

    def write(
        self, partition: int, key: str, event: Any, role: str, *more: tuple[str, bytes]
    ) -> bytes:
        """Produce an event without waiting. `more`: headers besides those of the event. Returns the
        value of the record, by which `read_back` recognizes the record.
        """
        value, headers = encode(event), [*headers_for(event, role), *more]
        self._append(SESSION_EVENTS, partition, key, value, headers, self._lost(key))
        return value

    def _lost(self, session_id: str) -> Callable[[str], None]:
        def failed(why: str) -> None:
            self._say(f"a record of {session_id} was not written; it will be produced again: {why}")
            for key in self._keys_by_session.pop(session_id, ()):
                self._awaited.pop(key, None)

        return failed

    def dead_letter(self, record: Record, why: str) -> None:
        """Copy an undecodable record to the dead letters, with its position and the reason."""
        place = f"{record.topic}/{record.partition}/{record.offset}"
        headers = [
            *record.headers,
            ("__dlq.errors.topic", record.topic.encode()),
            ("__dlq.errors.partition", str(record.partition).encode()),
            ("__dlq.errors.offset", str(record.offset).encode()),
            ("__dlq.errors.message", why[:500].encode()),
        ]
        key = (record.key or b"").decode("utf-8", "replace")
        self._append(DEAD_LETTERS, record.partition, key, record.value or b"", headers, self._say)
        self._say(f"{place} was copied to the dead letters: {why}")

    def read_back(
        self,
        owned: PartitionCache,
        entry: Entry,
        record: Record,
        before: SessionViews,
        ruling: Ruling,
    ) -> None:
        """Handle a record of this process that was read back: it is no longer in flight. If the
        fold repeatedly rejects records that WAKE required, this worker leaves the session alone: it
        only ends the turn, if it is cancelled."""
        keys = self._keys_by_session.get(entry.session_id)
        if not keys:
            return
        for key in list(keys):
            awaited = self._awaited[key]
            if record.value not in awaited.values:
                continue
            if ruling.code not in EXPECTED and awaited.turn == before.turn:
                self._rejected(owned, entry, before.turn, ruling)
            left = awaited.values - {record.value}
            if left:
                self._awaited[key] = awaited._replace(values=left)
            else:
                self._forget(entry.session_id, key)
                if key.owed in CLAIMED_BY:  # this record, or our earlier claim for the key
                    self._claims_back.add(key)

    def _rejected(
        self, owned: PartitionCache, entry: Entry, turn: TurnView, ruling: Ruling
    ) -> None:
        session_id = entry.session_id
        at, count = self._rejections.get(session_id, (turn, 0))
        count = count + 1 if at == turn else 1
        self._rejections[session_id] = (turn, count)
        if count >= REJECTIONS_MAX:
            why = f"offset {entry.offset}: {type(entry.event).__name__} was {ruling.code} twice"
            if owned.stuck.get(session_id) != why:
                self._say(left_alone(session_id, turn.number, why))
            owned.leave_alone(session_id, turn.number, why)

    def is_rejected(self, session_id: str, turn: TurnView) -> bool:
        """Whether the fold repeatedly rejected what this worker wrote at this view."""
        at, count = self._rejections.get(session_id, (turn, 0))
        return count >= REJECTIONS_MAX and at == turn

    def _forget(self, session_id: str, key: ObligationKey) -> None:
        self._awaited.pop(key, None)
        keys = self._keys_by_session.get(session_id, set())
        keys.discard(key)
        if not keys:
            self._keys_by_session.pop(session_id, None)

    def drop_partition(self, number: int) -> None:
        """Forget the records in flight of a partition that was revoked. Effects that have begun
        continue.
        """
        for key in [key for key in self._awaited if key.partition == number]:
            self._forget(key.session_id, key)
        self.slot_queue.remove_partition(number)

    # -- discharging -----------------------------------------------------------------------------

    def discharge(
        self,
        owned: PartitionCache,
        views: SessionViews,
        obligation: Obligation,
        agent: Agent | None,
        now: int,
    ) -> DischargeResult:
        """Discharge an obligation, unless its records are in flight."""
        key = ObligationKey(
            owned.number, views.session_id, obligation.lane, obligation.subject, obligation.owed
        )
        awaited = self._awaited.get(key)
        if awaited is not None:
            if self._clock.monotonic_ms() < awaited.until_ms:
                return DischargeResult(now + AWAITED_MS)
            self._forget(views.session_id, key)
        due = Due(views, obligation, agent, owned.number, now)
        match obligation.owed:
            case Action.BEGIN | Action.ABORT:
                self._on_claim(owned, due)
                return DischargeResult(None)
            case Action.GEN_STOPPED:
                self.kinds.models.recover(due, self._begun)
                return DischargeResult(None)
            case Action.TOOL_RESULT | Action.TOOL_FAILED_UNCERTAIN:
                return DischargeResult(self.kinds.tools.recover(due, self._begun))
            case claim if claim in CLAIMED_BY:
                role = CLAIMED_BY[claim]
                if not self._has_slot(role, now):
                    place = (owned.number, views.session_id)
                    self.slot_queue.enqueue(role, place, self._slot_at(role, now))
                    return DischargeResult(None)
                event = self._claim(owned, due)
                if event is None:
                    return DischargeResult(now + SLOT_WAIT_MS)
                events = [event]
            case _:
                events = decide(obligation, views, agent, self._sources)
        values = frozenset(
            self.write(owned.number, views.session_id, event, obligation.role) for event in events
        )
        until = self._clock.monotonic_ms() + AWAITED_MS
        self._awaited[key] = InFlight(values, until, views.turn)
        self._keys_by_session.setdefault(views.session_id, set()).add(key)
        return DischargeResult(now + AWAITED_MS, tuple(events))

    def _has_slot(self, role: Role, now: int) -> bool:
        """Whether one more effect may be claimed. Running effects and claims in flight take slots.

        Claims that were read back in the current batch take slots too, until their sessions are
        woken.
        """
        slots = self._slots[role]
        keys = (*self._awaited, *self._claims_back)
        in_flight = sum(1 for key in keys if CLAIMED_BY.get(key.owed) == role)
        return slots.free(now) and self._effects.running(role) + in_flight < slots.size

    def _slot_at(self, role: Role, now: int) -> int:
        return max(now + SLOT_WAIT_MS, self._slots[role].back_off_until_ms)

    def sessions_to_retry(self, now: int) -> Iterator[Place]:
        """Pop sessions from the queues that are due, as long as a slot is free. The caller wakes
        each session, which then may claim an effect.
        """
        self._claims_back.clear()  # the batch has ended, so every claim that could begin has begun
        for role in self.slot_queue.due(now):
            # Try each session once, because its partition's clock may say that it is still too
            # early.
            for _ in range(self.slot_queue.count(role)):
                if not self._has_slot(role, now):
                    break
                yield self.slot_queue.pop_oldest(role)
            self.slot_queue.set_next_check(role, self._slot_at(role, now))

    def _claim(self, owned: PartitionCache, due: Due) -> Any | None:
        """The event that claims the next attempt of an effect; None to ask again soon."""
        role = due.obligation.role
        holder = owned.partition.holder(role)
        assert holder is not None and holder.owner == self.owner
        claim = self.kinds.of(role).claim(due, holder)
        if claim is not None:
            now_ms = self._clock.monotonic_ms()
            self._claim_times.record(due.session_id, due.obligation, claim, now_ms)
        return claim

    # -- claims read back ------------------------------------------------------------------------

    def _on_claim(self, owned: PartitionCache, due: Due) -> None:
        """Begin the effect of a claim that was read back. This is done once per claim. If the claim
        came back too late, report that the effect never began. If the turn is ending, stop the
        effect."""
        session_id, obligation = due.session_id, due.obligation
        self._claims_back -= {
            key
            for key in self._claims_back
            if (key.session_id, key.subject) == (session_id, obligation.subject)
        }
        claim = self.kinds.of(obligation.role).claimed(due.views, obligation)
        effect = EffectId(session_id, claim.offset)
        if obligation.owed == Action.ABORT and effect in self._begun:
            self._effects.stop(effect, "the turn is ending")
            return
        now = reading(self._clock, owned.anchor, owned.newest_at).now
        self._begun.once(effect, lambda: self._begin(due._replace(now=now), claim))

    def _begin(self, due: Due, claim: Claim) -> None:
        kind = self.kinds.of(due.obligation.role)
        if due.obligation.owed == Action.ABORT:
            kind.abort(due)
            return
        late = self._claim_times.too_late(
            due.session_id, due.obligation, claim, due.agent, self._clock.monotonic_ms()
        )
        if late is None:
            kind.begin(due)
        else:
            event = kind.not_begun(due.views, due.obligation, late)
            self._effects.report(due.session_id, event)

    def prerender(self, views: SessionViews) -> None:
        """Called after a turn has ended: renders the conversation so far, so that the next request,
        which begins with it, is built faster."""
        self.kinds.models.prerender(views)

    def forget_session(self, session_id: str) -> None:
        """Forget a session that has no obligations, and stop the effects that still run for it,
        because nothing needs their outcomes.
        """
        for effect in self._begun.forget(session_id):
            self._effects.stop(effect, "its session owes nothing any more")
        self.kinds.forget(session_id)
        self._claim_times.forget(session_id)
        self._rejections.pop(session_id, None)

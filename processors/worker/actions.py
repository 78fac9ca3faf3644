"""Discharges obligations, which are the actions that WAKE requires: writes decisions and claims,
begins and stops effects.

It remembers only what is in flight: the produced records that it has not read back (for at most 15
seconds), and the claims whose effects have begun. If a process dies and loses this memory, no harm
is done, because WAKE requires the pending actions again.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from ...log.blobs import BlobCorrupt, BlobMissing, BlobsAway
from ...schemas.codec import Entry, encode, headers_for
from ...schemas.events.parts import ReadBlob
from ...schemas.record import Record
from ...schemas.topics import DEAD_LETTERS, SESSION_EVENTS
from ..agent import Agent
from ..effects.slots import Slots
from ..fold.projections.turn_view import Call, TurnView, find_call
from ..fold.references import Subject
from ..fold.ruling import Ruling
from ..fold.views import SessionViews
from ..request.rendered import Built, Renderings
from ..store.clocks import Clock, reading
from ..store.partition_cache import PartitionCache
from ..wake.decide import Desk, ReadLayers, ReadTodos, StoreBody, decide, no_layers, no_todos
from ..wake.facts import Obligation
from .claims import (
    claim_of,
    delivery_claim,
    generation_claim,
    tool_claim,
    work_claim,
)
from .early_asks import EarlyAsks
from .not_begun import generation_stopped, outcome_of_late_claim, tool_not_begun
from .ports import (
    Append,
    BeginGeneration,
    BeginTool,
    BeginWork,
    EffectId,
    Effects,
    begin_delivery,
    begin_tool,
    begin_work,
)
from .resumption import PartialAnswers
from .slot_queue import Place, SlotQueue
from .start_window import ClaimTimes

AWAITED_MS = 15_000  # after this time a produced record counts as lost
SLOT_WAIT_MS = 50  # between two polls for a free slot
BACKGROUND_SLOTS = 4  # concurrent background work per process; it may wait
DELIVERY_SLOTS = 16  # concurrent deliveries per process: a channel that is down blocks one slot
CLAIMS = {
    "tools": ("TOOL_STARTED",),
    "models": ("GEN_START", "GEN_RESUMED"),
    "background": ("BACKGROUND_STARTED",),
    "delivery": ("DELIVERY_STARTED",),
}
CLAIMED = frozenset(name for names in CLAIMS.values() for name in names)
EXPECTED = ("", "duplicate", "frozen")  # rulings on our own records that indicate no bug in WAKE
REJECTIONS_MAX = 2  # the second rejection at the same views is a bug, not a race


class ObligationKey(NamedTuple):
    """Identifies an obligation, independently of the views from which it was computed."""

    partition: int
    session_id: str
    lane: str
    subject: Subject
    owed: str


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
        self._desk = Desk(store_body, read_blob, read_layers or no_layers, read_todos)
        slots = {"models": model_slots, "tools": tool_slots}
        self._slots = {**slots, "background": Slots(BACKGROUND_SLOTS)}
        self._slots["delivery"] = Slots(DELIVERY_SLOTS)
        self._clock = clock
        self._say = say
        self.slot_queue = SlotQueue()
        self._awaited: dict[ObligationKey, InFlight] = {}
        self._keys_by_session: dict[str, set[ObligationKey]] = {}
        self._claims_back: set[ObligationKey] = set()
        self._begun: dict[str, set[EffectId]] = {}
        self._renderings = Renderings()
        self._built: dict[str, tuple[tuple, Built]] = {}
        self._partial_answers = PartialAnswers()
        self._claim_times = ClaimTimes()
        self._early_asks = EarlyAsks()
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
                if key.owed in CLAIMED:  # this record, or our earlier claim for the key
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
        match obligation.owed:
            case "begin" | "abort":
                return DischargeResult(self._on_claim(owned, views, obligation, agent))
            case "GEN_STOPPED" | "TOOL_RESULT" | "TOOL_FAILED_UNCERTAIN":
                return DischargeResult(self._recover(owned, views, obligation, agent, now))
            case name if name in CLAIMED:
                role, number = obligation.role, owned.number
                if not self._has_slot(role, now):
                    place = (number, views.session_id)
                    self.slot_queue.enqueue(role, place, self._slot_at(role, now))
                    return DischargeResult(None)
                partial = self._partial_answers
                if partial.is_reading(views, obligation, agent, number, self._effects):
                    return DischargeResult(now + SLOT_WAIT_MS)
                events = [self._claim(views, obligation, agent, owned, now)]
            case _:
                events = decide(obligation, views, agent, self._desk)
        values = frozenset(
            self.write(owned.number, views.session_id, event, obligation.role) for event in events
        )
        until = self._clock.monotonic_ms() + AWAITED_MS
        self._awaited[key] = InFlight(values, until, views.turn)
        self._keys_by_session.setdefault(views.session_id, set()).add(key)
        return DischargeResult(now + AWAITED_MS, tuple(events))

    def _has_slot(self, role: str, now: int) -> bool:
        """Whether one more effect may be claimed. Running effects and claims in flight take slots.

        Claims that were read back in the current batch take slots too, until their sessions are
        woken.
        """
        slots = self._slots[role]
        keys = (*self._awaited, *self._claims_back)
        in_flight = sum(1 for key in keys if key.owed in CLAIMS[role])
        return slots.free(now) and self._effects.running(role) + in_flight < slots.size

    def _slot_at(self, role: str, now: int) -> int:
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

    def _claim(
        self,
        views: SessionViews,
        obligation: Obligation,
        agent: Agent | None,
        owned: PartitionCache,
        now: int,
    ) -> Any:
        assert agent is not None
        holder = owned.partition.holder(obligation.role)
        assert holder is not None and holder.owner == self.owner
        claim: Any
        match obligation.owed:
            case "BACKGROUND_STARTED":
                claim = work_claim(views, obligation, agent, holder, now)
            case "DELIVERY_STARTED":
                claim = delivery_claim(views, obligation, agent, holder, now)
            case "TOOL_STARTED":
                self._demand_args(views, obligation)
                claim = tool_claim(views, obligation, agent, holder, now)
            case _:
                sha256, kept = self._partial_answers.claim(views, obligation, self._request(views))
                claim = generation_claim(views, obligation, agent, holder, now, sha256, kept)
        self._claim_times.record(views.session_id, obligation, claim, self._clock.monotonic_ms())
        return claim

    # -- claims read back ------------------------------------------------------------------------

    def _on_claim(
        self,
        owned: PartitionCache,
        views: SessionViews,
        obligation: Obligation,
        agent: Agent | None,
    ) -> int | None:
        """Begin the effect of a claim that was read back. This is done once per claim. If the claim
        came back too late, report that the effect never began. If the turn is ending, stop the
        effect."""
        claim = claim_of(views, obligation)
        begun = self._begun.setdefault(views.session_id, set())
        self._claims_back -= {
            key
            for key in self._claims_back
            if (key.session_id, key.subject) == (views.session_id, obligation.subject)
        }
        effect = EffectId(views.session_id, claim.offset)
        if effect in begun:
            if obligation.owed == "abort":
                self._effects.stop(effect, "the turn is ending")
            return None
        begun.add(effect)
        try:
            self._begin(owned, views, obligation, agent, claim)
        except BlobsAway:
            begun.discard(effect)  # it begins when the blob store is back
            raise
        return None

    def _begin(
        self,
        owned: PartitionCache,
        views: SessionViews,
        obligation: Obligation,
        agent: Agent | None,
        claim: Any,
    ) -> None:
        assert agent is not None
        now = reading(self._clock, owned.anchor, owned.newest_at).now
        now_ms = self._clock.monotonic_ms()
        late = self._claim_times.too_late(views.session_id, obligation, claim, agent, now_ms)
        if obligation.owed == "begin" and late is not None:
            self._effects.report(views.session_id, outcome_of_late_claim(views, obligation, late))
        elif obligation.role == "background":
            self._begin_work(views, obligation, agent, now)
        elif obligation.role == "delivery":
            delivery = begin_delivery(views, obligation.delivery.number, agent, self.read_blob)
            self._effects.deliver(views.session_id, delivery._replace(now=now))
        elif obligation.role == "tools":
            self._begin_tool(views, obligation, agent)
        else:
            begin = self._generation(views, agent)
            if obligation.owed == "abort" and begin.chain:  # the text it would resume is in the log
                self._effects.recover_chunks(views.session_id, owned.number, begin)
            elif obligation.owed == "abort" or (begin.chain and begin.kept is None):  # text lost
                self._effects.report(views.session_id, generation_stopped(views.turn))
            else:
                self._effects.generate(views.session_id, begin._replace(now=now))

    def _generation(self, views: SessionViews, agent: Agent) -> BeginGeneration:
        return self._partial_answers.begin(views, agent, self._request(views))

    def _request(self, views: SessionViews) -> Built:
        """Build the request of the step to be claimed.
        The request is cached until the effect begins."""
        generation, request = views.turn.generation, views.context.request
        assert generation is not None and request is not None
        covers = (generation.called, request.fragments, request.prefixes)
        built = self._built.pop(views.session_id, None)
        if built is not None and built[0] == covers:
            return built[1]
        made = self._renderings.request(views, self.read_blob)
        self._built[views.session_id] = (covers, made)
        return made

    def prerender(self, views: SessionViews) -> None:
        """Called after a turn has ended: renders the conversation so far, so that the next request,
        which begins with it, is built faster."""
        self._renderings.render_ahead(views, self.read_blob)

    def _begin_tool(self, views: SessionViews, obligation: Obligation, agent: Agent) -> None:
        call = find_call(views.turn, *obligation.call)
        assert call is not None and call.claim is not None
        if obligation.owed == "abort":
            self._effects.report(views.session_id, tool_not_begun(call, "the turn ended first"))
            return
        begin = begin_tool(views, call, self._args(call), call.claim, agent)
        self._effects.run_tool(views.session_id, begin)

    def _begin_work(
        self, views: SessionViews, obligation: Obligation, agent: Agent, now: int
    ) -> None:
        begin = begin_work(views, obligation, agent, self.read_blob)
        if isinstance(begin, BeginWork):
            self._effects.work(views.session_id, begin._replace(now=now))
        else:
            self._effects.report(views.session_id, begin)

    def _demand_args(self, views: SessionViews, obligation: Obligation) -> None:
        """Raise BlobsAway if the call's arguments cannot be read at present: with a claim, the call
        would end as not run when its start window has passed.
        """
        call = find_call(views.turn, *obligation.call)
        with suppress(BlobMissing, BlobCorrupt):  # reported when the call begins
            if call is not None:
                self._args(call)

    def _args(self, call: Call) -> bytes:
        args = call.args
        return self.read_blob(args.ref) if args.ref is not None else args.inline or b""

    # -- effects of dead owners ------------------------------------------------------------------

    def _recover(
        self,
        owned: PartitionCache,
        views: SessionViews,
        obligation: Obligation,
        agent: Agent | None,
        now: int,
    ) -> int | None:
        """Report the outcome of an effect whose owner is dead, once per claim (rows A2, T6, T8). A
        reconciler is asked early too, because it may know already that the call happened."""
        assert agent is not None
        begun = self._begun.setdefault(views.session_id, set())
        if obligation.owed == "GEN_STOPPED":
            begin = self._generation(views, agent)
            effect = EffectId(views.session_id, begin.claim.offset, recovers=True)
            if effect not in begun:
                begun.add(effect)
                self._effects.recover_chunks(views.session_id, owned.number, begin)
            return None
        call = find_call(views.turn, *obligation.call)
        assert call is not None and call.claim is not None
        effect = EffectId(views.session_id, call.claim.offset, recovers=True)
        if effect in begun:
            return None
        tool = agent.tool(call.name)
        has_reconciler = tool is not None and tool.reconciler is not None
        reconciles = obligation.row in ("T6", "T8") and has_reconciler
        ended_at = call.claim.deadline + agent.limits.margin_ms
        if reconciles and now < ended_at:
            return self._ask_early(views, call, agent, now, ended_at)
        if obligation.owed == "TOOL_RESULT":
            begun.add(effect)
            why, may_have_run = "its attempts are used up", obligation.row == "T6r"
            event = tool_not_begun(call, why, may_have_run=may_have_run)
            self._effects.report(views.session_id, event)
        else:
            args = self._args(call)  # raises BlobsAway before the effect counts as begun
            begun.add(effect)
            tool_begin = begin_tool(views, call, args, call.claim, agent)
            self._effects.reconcile(views.session_id, tool_begin)
        return None

    def _ask_early(
        self, views: SessionViews, call: Call, agent: Agent, now: int, ended_at: int
    ) -> int:
        """Ask the reconciler of a call that may still happen until `ended_at`, unless it was asked
        just now. Returns when to check the call again."""
        assert call.claim is not None
        effect = EffectId(views.session_id, call.claim.offset, recovers=True, early=True)
        if self._early_asks.is_due(effect, now):
            args = self._args(call)  # raises BlobsAway before the question counts as asked
            self._early_asks.record(effect, now, ended_at)
            self._begun.setdefault(views.session_id, set()).add(effect)
            begin = begin_tool(views, call, args, call.claim, agent)
            self._effects.reconcile(views.session_id, begin._replace(early=True))
        return self._early_asks.due_at(effect)

    def forget_session(self, session_id: str) -> None:
        """Forget a session that has no obligations, and stop the effects that still run for it,
        because nothing needs their outcomes.
        """
        for effect in self._begun.pop(session_id, ()):
            self._effects.stop(effect, "its session owes nothing any more")
        self._built.pop(session_id, None)
        self._partial_answers.forget(session_id)
        self._claim_times.forget(session_id)
        self._early_asks.forget(session_id)
        self._rejections.pop(session_id, None)


__all__ = ["Actions", "BeginGeneration", "BeginTool", "Effects", "tool_not_begun"]

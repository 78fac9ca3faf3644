"""Invariants of the stores: a worker's stored views equal the log's views, byte for byte."""

from typing import Any

from foldlog.processors.entries import foldable_entry
from foldlog.processors.fold.projections.partition import INITIAL
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.sessions import is_foldable
from foldlog.processors.fold.views import initial
from foldlog.processors.store.store import DictBackend, Store
from foldlog.processors.store.views_codec import view_parts
from foldlog.schemas.codec import Unreadable, entry_of
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import DEAD_LETTERS, SESSION_EVENTS
from foldlog.tests.simulation.invariant import Invariant

SAMPLED = 0.05  # of the rounds: comparing every view in every round would cost most of the time


class StoresAgree(Invariant):
    """I6, I7, constraint 4: a store equals a fold from offset 0 to the store's cursor."""

    def on_round(self, process: Any) -> None:
        if self.world.rng_checks.random() < SAMPLED:
            for number in process.worker.owned:
                self._compare(process.node, number)

    def on_assigned(self, process: Any, partitions: list[int]) -> None:
        for number in partitions:
            if number in process.disk.stores and self.world.rng_checks.random() < 0.5:
                self._compare(process.node, number)

    def at_end(self) -> None:
        for node in self.world.nodes:
            for number in node.disk.stores:
                self._compare(node, number)

    def _compare(self, node: Any, number: int) -> None:
        witness = self.world.witness
        store = Store(DictBackend(dict(node.disk.stores[number])))
        end = store.cursor.offset
        if end > witness.next_offset(number):
            return
        known = set()
        for session in store.sessions():
            known.add(session)
            views, truth = store.load(session), witness.views_at(session, end)
            self.demand(truth is not None, f"{node.name} has {session} at {end}, the log has not")
            for (name, ours), (_, theirs) in zip(view_parts(views), view_parts(truth), strict=True):
                if ours != theirs:
                    self.fail(f"{node.name} {session} at {end}: {name} differs\n{views}\n{truth}")
        for session, history in witness.history.items():
            if witness.partition_of[session] == number and history[0][0] < end:
                changed = witness.views_at(session, end) != initial(session)
                self.demand(session in known or not changed, f"{node.name} lost {session} at {end}")
        holders = witness.holders_at(number, end)
        self.demand(store.partition == holders, f"{store.partition} is not {holders} at {end}")


class FoldsAgree(Invariant):
    """I24, law 2: a fold from the first offset results in the same bytes, whatever else is folded
    with it."""

    def at_end(self) -> None:
        witness = self.world.witness
        for session, truth in witness.views.items():
            views = initial(session)
            number = witness.partition_of[session]
            for record in self.world.log.topic(SESSION_EVENTS).partitions[number].records:
                if (record.key or b"").decode("utf-8", "replace") == session:
                    entry = foldable_entry(record, self.world.blobs.read, chunks=True)
                    views, _ = fold(views, entry)
            if dict(view_parts(views)) != dict(view_parts(truth)):
                self.fail(f"{session}: a second fold differs\n{views}\n{truth}")


class TakesAreNoSession(Invariant):
    """Law 6: a PARTITION_TAKEN belongs to no session."""

    def at_end(self) -> None:
        self.demand(PARTITION_KEY not in self.world.witness.views, "a take became a session")
        self.demand(INITIAL.holders == (), "the initial view was changed")


class DeadLettersAreKept(Invariant):
    """I18: every unreadable record becomes a dead letter that names its offset, and no other record
    does.

    A dead letter is only a notice: if it was in flight when its worker died, it is not written
    again.
    """

    def at_end(self) -> None:
        log = self.world.log
        letters = {
            (
                int(record.header("__dlq.errors.partition")),
                int(record.header("__dlq.errors.offset")),
            )
            for record in log.records(DEAD_LETTERS, 0)
        }
        unread = {
            (record.partition, record.offset)
            for partition in log.topic(SESSION_EVENTS).partitions
            for record in partition.records
            if not is_foldable(record.key) or isinstance(entry_of(record).event, Unreadable)
        }
        self.demand(letters <= unread, f"letters of {sorted(letters)}, unread {sorted(unread)}")
        if not self.world.scenario.delays:
            self.demand(letters == unread, f"no letters of {sorted(unread - letters)}")


STORES = (StoresAgree, FoldsAgree, TakesAreNoSession, DeadLettersAreKept)

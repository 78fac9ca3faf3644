"""Retention: archives old sessions as bundles, then deletes their records from the log.

A partition is deleted as a prefix. The trim point is the first record that is younger than the
limit, or that belongs to a session which must stay in the log. Per partition, in this order:

    1  plan: find the trim point, and the sessions with records before it
    2  store the bundle of each of these sessions, and the other records before the trim point
    3  store the manifest
    4  compare what the archive returns with the log, record by record
    5  delete the records from the log

At the end, manifests and files that are no longer needed are deleted.

Until step 5 nothing is deleted, and readers use the archive only for what the log no longer has. So
a run that dies at any point loses nothing, and the next run does the rest.
"""

import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from ..client.follow import Follow, read_before
from ..client.status import situation_of
from ..log.archive import (
    FORMAT,
    ArchiveDamaged,
    ArchivedSession,
    Manifest,
    OtherRecords,
    Stored,
)
from ..log.archived import ArchivedLog
from ..log.bundle_file import read_bundle
from ..log.errors import LogCut, OffsetGone, Refused
from ..log.made import demand_as_made
from ..log.partition import partition_for
from ..processors.fold.sessions import FoldedSession, FoldedSessions, is_foldable
from ..processors.fold.views import SessionViews
from ..processors.store.partition_cache import may_owe
from ..reports.exports.blocks import Contents
from ..reports.exports.bundle import bundle_records, verify
from ..schemas.events.parts import ReadBlob
from ..schemas.ids import PARTITION_KEY
from ..schemas.record import Record
from ..schemas.topics import SESSION_EVENTS

Progress = Callable[[int, int], None]
"""progress(records read, records in total), of one pass over a partition."""

NOTHING = "Nothing was deleted"
MAY_BE_ARCHIVED = ("idle", "terminated")
WHY = {
    "frozen": "it is frozen",
    "doubt": "one of its calls is in doubt",
    "asks": "one of its calls waits for approval",
    "busy": "it has an open turn",
}
"""Why a session with this status stays in the log."""


class HeldBy(NamedTuple):
    """What keeps the trim point from moving on: a session, or '' for a record of no session.
    `offset`: the first of its records in the log."""

    offset: int
    session_id: str
    why: str


class Planned(NamedTuple):
    """A session to archive. `first`, `last`: the offsets of its records that are in the log."""

    session_id: str
    first: int
    last: int


class Plan(NamedTuple):
    """What can be deleted of a partition: the records from `first` to `trim_to` (excluded).

    sessions: those with such records.
    held_by: what keeps the trim point from moving on; None at the end of the partition.
    """

    partition: int
    first: int
    end: int
    trim_to: int
    sessions: tuple[Planned, ...]
    held_by: HeldBy | None


class Retained(NamedTuple):
    """What was deleted of a partition. bytes: the size of the files of its new bundles."""

    plan: Plan
    bytes: int


class _InLog:
    """The records of one key that are in the log. `young`: the first one that is too young."""

    def __init__(self, first: int) -> None:
        self.first = self.last = first
        self.young: int | None = None


class Retention:
    """Archives and deletes the records of one log. Its constructor makes the check that writers
    make.

    before_ms: only sessions whose last record is older are archived, Unix ms.
    read: reads blobs.

    Raises LogGrown, LogMoved, LogUnreachable.
    """

    def __init__(
        self, log: ArchivedLog, before_ms: int, read: ReadBlob, progress: Progress
    ) -> None:
        self._log, self._live, self._archive = log, log.live, log.archive
        self._before_ms, self._read, self._progress = before_ms, read, progress
        self._partitions = demand_as_made(log)
        self._id = log.log_id()

    def partitions(self) -> range:
        """The partitions of the log."""
        return range(self._partitions)

    # -- step 1 ------------------------------------------------------------------------------------

    def plan(self, partition: int) -> Plan:
        """What can be deleted now. Raises LogCut if records are missing that no archive has."""
        first = self._live.first_offsets(SESSION_EVENTS)[partition]
        end = self._live.end_offsets(SESSION_EVENTS)[partition]
        if self._log.first_offsets(SESSION_EVENTS)[partition] > 0:
            raise LogCut(partition, 0, first)
        keys = self._in_log(partition, first, end)
        holding: list[HeldBy] = []
        for key, found in keys.items():
            if found.young is not None:
                is_session = self._is_session(key, partition)
                name, at = (key.decode(), found.first) if is_session else ("", found.young)
                holding.append(HeldBy(at, name, "it has records younger than the limit"))
        limit = min((held.offset for held in holding), default=end)
        names = [
            key.decode()
            for key, found in keys.items()
            if found.first < limit and self._is_session(key, partition)
        ]
        planned = []
        for folded in self._folded(partition, names, end):
            name = folded.session_id
            found = keys[name.encode()]
            why = why_not(folded.views)
            if why is not None:
                holding.append(HeldBy(found.first, name, why))
            elif folded.views.turn.known:  # else its records belong to no session
                planned.append(Planned(name, found.first, found.last))
        held_by = min(holding, default=None)
        trim_to = end if held_by is None else held_by.offset
        mine = tuple(sorted(each for each in planned if each.first < trim_to))
        return Plan(partition, first, end, trim_to, mine, held_by)

    def _in_log(self, partition: int, first: int, end: int) -> dict[bytes, _InLog]:
        """The keys that have records in the log."""
        keys: dict[bytes, _InLog] = {}
        for record in self._read_live(partition, first, end):
            key = record.key or b""
            found = keys.setdefault(key, _InLog(record.offset))
            found.last = record.offset
            if found.young is None and record.timestamp_ms >= self._before_ms:
                found.young = record.offset
        return keys

    def _is_session(self, key: bytes, partition: int) -> bool:
        if key == PARTITION_KEY.encode() or not is_foldable(key):
            return False
        return partition_for(key.decode(), self._partitions) == partition

    def _folded(self, partition: int, names: list[str], end: int) -> Iterator[FoldedSession]:
        if not names:
            return
        folded: FoldedSessions[FoldedSession] = FoldedSessions()
        with Follow(self._log, names, chunks=False, folded=True, read=self._read) as follow:
            for batch in follow.records_to({partition: end}, self._progress):
                wanted = [record for record in batch if record.offset < end]
                folded.feed_records(wanted, follow.entry_of)
        yield from folded.sessions.values()

    def _read_live(self, partition: int, start: int, end: int) -> Iterator[Record]:
        return read_before(
            self._live, SESSION_EVENTS, partition, end, start=start, kept=NOTHING,
            progress=lambda offset: self._progress(offset - start, end - start),
        )

    # -- steps 2 to 5 ------------------------------------------------------------------------------

    def run(self, partition: int) -> Retained:
        """Archive and delete what can be deleted of a partition. Raises Refused."""
        try:
            return self._run(partition)
        except OffsetGone as gone:
            raise Refused(
                f"partition {partition}: records were deleted while they were read, for example by "
                "another run of this command. This run deleted nothing from the partition. Run it "
                "again."
            ) from gone

    def _run(self, partition: int) -> Retained:
        plan = self.plan(partition)
        bundles, refused = self._bundles(plan)
        if refused:
            plan = _held(plan, min(refused))
        if plan.trim_to <= plan.first:
            return Retained(plan, 0)
        manifest = self._manifest(plan, bundles)
        self._archive.store_manifest(manifest)
        try:
            self._demand_same(plan)
        except (ArchiveDamaged, OffsetGone, Refused):
            self._archive.delete_manifest(manifest)
            raise
        self._live.delete_before(SESSION_EVENTS, {partition: plan.trim_to})
        return Retained(plan, sum(bundles[each.session_id].bytes for each in plan.sessions))

    def collect(self) -> int:
        """Delete manifests and old files that are no longer needed; returns how many files."""
        firsts = self._live.first_offsets(SESSION_EVENTS)
        return self._archive.collect(self._id, firsts, time.time())

    def _bundles(self, plan: Plan) -> tuple[dict[str, ArchivedSession], list[HeldBy]]:
        """Store the bundles of the planned sessions. Returns them, and those that do not replay."""
        planned = {each.session_id.encode(): each for each in plan.sessions}
        holders: list[Record] = []
        open_sessions: dict[bytes, list[Record]] = {}
        stored, refused = {}, []
        for record in self._all_records(plan, planned.keys()):
            key = record.key or b""
            if key == PARTITION_KEY.encode():
                holders.append(record)
            if key not in planned:
                continue
            mine = open_sessions.setdefault(key, [])
            mine.append(record)
            if record.offset != planned[key].last:
                continue
            del open_sessions[key]
            name, first, end = key.decode(), mine[0].offset, record.offset + 1
            lived = [holder for holder in holders if first < holder.offset]
            file = self._bundle(name, sorted([*mine, *lived], key=attrgetter("offset")))
            if file is not None:
                stored[name] = ArchivedSession(name, first, end, *file)
            else:
                why = "its bundle does not replay as recorded"
                refused.append(HeldBy(planned[key].first, name, why))
        return stored, refused

    def _all_records(self, plan: Plan, wanted: Collection[bytes]) -> Iterator[Record]:
        """The records of these sessions and of the holders, from the archive and from the log."""
        if not wanted:
            return iter(())
        keys = {*wanted, PARTITION_KEY.encode()}
        archived = read_before(
            self._log, SESSION_EVENTS, plan.partition, plan.first, start=0, kept=NOTHING, keys=keys
        )
        return chain(archived, self._read_live(plan.partition, plan.first, plan.end))

    def _bundle(self, name: str, records: list[Record]) -> Stored | None:
        """Store the bundle of a session; None if it does not replay as it was recorded."""
        contents = Contents(self._read)
        with tempfile.TemporaryDirectory(prefix="foldlog-retain-") as directory:
            path = Path(directory, "bundle")
            bundle_records(path, self._partitions, name, records, contents)
            _, differences = verify(read_bundle(path), contents.read)
            return None if differences else self._archive.store_bundle(path)

    def _manifest(self, plan: Plan, bundles: dict[str, ArchivedSession]) -> Manifest:
        """The manifest with all records before the trim point; stores those of no session."""
        new = [bundles[each.session_id] for each in plan.sessions]
        mine = {each.session_id.encode() for each in plan.sessions}
        others = [
            record
            for record in self._read_live(plan.partition, plan.first, plan.trim_to)
            if record.key not in mine
        ]
        parts = []
        if others:
            file = self._archive.store_others(others)
            parts.append(OtherRecords(plan.first, plan.trim_to, *file))
        replaced = {each.session_id for each in plan.sessions}
        old = self._archived_before(plan)
        kept = () if old is None else [s for s in old.sessions if s.session_id not in replaced]
        return Manifest(
            format=FORMAT,
            cluster_id=self._id.cluster_id,
            topic_id=self._id.topic_id,
            partition=plan.partition,
            upto=plan.trim_to,
            sessions=(*kept, *new),
            others=(*(() if old is None else old.others), *parts),
        )

    def _archived_before(self, plan: Plan) -> Manifest | None:
        """What the archive has of the records that were deleted already."""
        if plan.first == 0:
            return None
        found = self._archive.covering(self._id, plan.partition, plan.first)
        if found is None:
            raise LogCut(plan.partition, 0, plan.first)
        # A manifest may cover records that are still in the log.
        sessions = [replace(s, end=min(s.end, plan.first)) for s in found.sessions]
        others = [replace(o, end=min(o.end, plan.first)) for o in found.others]
        return replace(
            found,
            sessions=tuple(s for s in sessions if s.first < s.end),
            others=tuple(o for o in others if o.first < o.end),
        )

    def _demand_same(self, plan: Plan) -> None:
        """Compare the archive, read as every reader reads it, with the log; and compare records
        that were archived twice. Raises Refused, ArchiveDamaged."""
        manifest = self._archive.covering(self._id, plan.partition, plan.trim_to)
        assert manifest is not None, "it was just stored"
        old, keys = self._archived_before(plan), {s.session_id.encode() for s in plan.sessions}
        stored = self._archive.records
        archived = chain(
            stored(manifest, 0, plan.first, keys), stored(manifest, plan.first, plan.trim_to)
        )
        before = iter(()) if old is None else stored(old, 0, plan.first, keys)
        for record in chain(before, self._read_live(plan.partition, plan.first, plan.trim_to)):
            if next(archived, None) != record:
                raise _differs(plan.partition, record.offset)
        extra = next(archived, None)
        if extra is not None:
            raise _differs(plan.partition, extra.offset)


def why_not(views: SessionViews) -> str | None:
    """Why a session has to stay in the log; None if it can be archived."""
    status = situation_of(views).status
    if status not in MAY_BE_ARCHIVED:
        return WHY[status]
    if may_owe(views) or views.background.works or views.delivery.owed:
        return "work for it is pending"
    return None


def _held(plan: Plan, by: HeldBy) -> Plan:
    """The plan with an earlier trim point. Bundles that are then not needed become garbage."""
    left = tuple(each for each in plan.sessions if each.first < by.offset)
    return plan._replace(trim_to=by.offset, sessions=left, held_by=by)


def _differs(partition: int, offset: int) -> Refused:
    return Refused(
        f"partition {partition}: the archive differs from the log at offset {offset}. {NOTHING} of "
        "this partition. Run the command again; if it fails again, check the disk of the archive."
    )

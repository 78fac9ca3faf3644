"""Retention: what was archived and deleted from the log reads as before, byte for byte.

The oracle is the log as it was: every record, with its offset, its time and its headers.
"""

import pytest

from foldlog.client.follow import Follow, read_before
from foldlog.log import (
    Clock,
    LogCut,
    LogUnreachable,
    MemoryLog,
    OffsetGone,
    Refused,
    archive as of_archive,
)
from foldlog.log.archive import Archive, archive_of
from foldlog.log.archived import ArchivedLog
from foldlog.log.objects import DirectoryObjects
from foldlog.log.partition import partition_for
from foldlog.producers import Sessions
from foldlog.reports.exports.blocks import Contents
from foldlog.reports.exports.bundle import export_bundle
from foldlog.reports.replay import Replay, verify
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit.played import PARTITIONS, Played, settings_in
from foldlog.tests.kit.waiting import until
from foldlog.tests.reports.test_replay import stored
from foldlog.upkeep.retention import Retention

PARTITION = 3  # a second member of a group gets it
DAY_MS = 24 * 3600 * 1000
NAMES = [n for n in (f"s{i}" for i in range(99)) if partition_for(n, PARTITIONS) == PARTITION]
ONE, TWO, THREE, FOUR = NAMES[:4]


class House:
    """A log in memory with an archive, and a clock. `said`: records that were written, in order."""

    def __init__(self, place) -> None:
        self.clock = Clock()
        self.settings = settings_in(place)
        self.live = MemoryLog(topics(PARTITIONS), clock_ms=self.clock)
        self.archive = archive_of(self.settings)
        self.log = ArchivedLog(self.live, self.archive)
        self.sessions = Sessions(self.log, self.settings)
        self.seen: list = []

    def turn(self, name: str, text: str = "hello") -> Played:
        """A session with one more turn that ended."""
        if not Played(self.log, name).views.turn.known:
            self.sessions.open(name, agent="shop")
        played = Played(self.log, name).take()
        self.sessions.say(name, f"hi, {text}?")
        played.answer(text)
        return played

    def days(self, days: int) -> None:
        self.clock.advance(days * DAY_MS)

    def retention(self, days: int = 90) -> Retention:
        before_ms = self.clock() - days * DAY_MS
        return Retention(self.log, before_ms, self.blob, lambda _read, _total: None)

    def retain(self, days: int = 90):
        retention = self.retention(days)
        done = retention.run(PARTITION)
        retention.collect()
        return done

    def blob(self, ref):
        raise AssertionError("these sessions have no blobs")

    def first(self) -> int:
        return self.live.first_offsets(SESSION_EVENTS)[PARTITION]

    def records(self) -> list:
        """Every record of the partition, as any reader of the log gets it."""
        end = self.log.end_offsets(SESSION_EVENTS)[PARTITION]
        return list(read_before(self.log, SESSION_EVENTS, PARTITION, end))

    def remember(self) -> None:
        """Note the records that are in the log now."""
        known = self.seen[-1].offset + 1 if self.seen else 0
        self.seen += [r for r in self.live.records(SESSION_EVENTS, PARTITION) if r.offset >= known]

    def files(self):
        return sorted((self.settings.blobs_dir / "archive").rglob("*"))


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


@pytest.fixture
def old(house):
    """Two old sessions that are interleaved, and a young one."""
    house.turn(ONE)
    house.turn(TWO)
    house.turn(ONE, "again")
    house.days(100)
    house.turn(THREE)
    house.remember()
    return house


# -- what is archived ------------------------------------------------------------------------------


def test_old_sessions_are_deleted_from_the_log_and_every_record_reads_as_before(old):
    hashes = {name: f.hashes for name, f in Replay(old.log).run().sessions.items()}
    done = old.retain()
    young = next(r.offset for r in old.seen if r.key == THREE.encode())
    assert old.first() == done.plan.trim_to == young > 0
    assert [each.session_id for each in done.plan.sessions] == sorted([ONE, TWO])
    assert (done.plan.held_by.session_id, done.plan.held_by.offset) == (THREE, young)
    assert old.records() == old.seen
    assert {name: f.hashes for name, f in Replay(old.log).run().sessions.items()} == hashes
    for name in (ONE, TWO, THREE):
        assert Replay(old.log, name).run().sessions[name].hashes == hashes[name]


def test_an_archived_session_continues_with_a_message(old):
    old.retain()
    played = old.turn(ONE, "after all")
    assert played.views.turn.number == 3
    old.remember()
    assert old.records() == old.seen
    held = old.retention().plan(PARTITION).held_by
    assert held.offset == old.first(), "what is young is not archived again"
    old.days(100)
    old.turn(FOUR)
    old.remember()
    done = old.retain()
    assert [each.session_id for each in done.plan.sessions] == sorted([ONE, THREE])
    assert old.records() == old.seen
    assert old.retain().plan.sessions == ()


def test_a_message_sent_again_to_an_archived_session_is_known(old):
    old.sessions.say(ONE, "once", message_id="m1")
    Played(old.log, ONE).take().answer("yes")
    old.days(100)
    old.retain()
    assert old.first() > 0
    old.sessions.say(ONE, "once", message_id="m1")
    assert not Played(old.log, ONE).views.turn.open


def test_a_store_of_before_agrees_with_the_log_of_after(old):
    stored(old.log, old.settings, ONE)
    old.retain()
    (verified,) = verify(old.log, old.settings)
    assert verified.sessions == 3 and not verified.differences and not verified.problem


def test_a_reader_continues_while_its_records_are_deleted(old):
    with Follow(old.log, partitions=[PARTITION]) as follow:
        (record,) = follow._reader.poll(0, 1)
        old.retain()
        old.turn(THREE, "more")
        old.remember()
        seen = [record]

        def has_read_all():
            more = follow._reader.poll(0, 3)
            assert more, "the reader stopped"
            seen.extend(more)
            return len(seen) >= len(old.seen)

        until("every record is read", has_read_all)
        assert seen == old.seen
        assert follow.cursor == {PARTITION: old.seen[-1].offset + 1}


def test_one_session_is_read_without_the_bundles_of_others(old):
    old.retain()
    manifest = old.archive.covering(old.log.log_id(), PARTITION, old.first())
    other = next(each for each in manifest.sessions if each.session_id == TWO)
    for path in old.files():
        if path.name == other.sha256:
            path.unlink()
    assert Played(old.log, ONE).views.turn.number == 2
    with pytest.raises(LogCut, match=f"{other.sha256} is missing.*Nothing was changed"):
        Played(old.log, TWO)
        Replay(old.log, TWO).run()


def test_times_find_archived_records(old):
    begin = old.seen[0].timestamp_ms
    before = [old.log.offsets_at(SESSION_EVENTS, begin + each * DAY_MS) for each in (0, 50, 200)]
    old.retain()
    assert [
        old.log.offsets_at(SESSION_EVENTS, begin + each * DAY_MS) for each in (0, 50, 200)
    ] == before


# -- what stays ------------------------------------------------------------------------------------


def _turn_open(house):
    house.sessions.open(ONE, agent="shop")
    house.sessions.say(ONE, "hi")


def _approval_pending(house):
    _turn_open(house)
    played = Played(house.log, ONE).take()
    played.propose("", ("charge", {}))
    played.invoke(approval="ask")


def _in_doubt(house):
    _turn_open(house)
    played = Played(house.log, ONE).take()
    played.propose("", ("charge", {}))
    played.invoke()
    played.tool_start()
    played.uncertain()


def _frozen(house):
    house.turn(ONE)
    producer = house.log.producer()
    producer.append(SESSION_EVENTS, ONE, b"x", [("t", b"NEW"), ("w", b"producer"), ("m", b"1")])
    producer.flush(1)


def _refused(house):
    house.turn(ONE)
    house.sessions.trigger(ONE, "publish")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_turn_open, "it has an open turn"),
        (_approval_pending, "waits for approval"),
        (_in_doubt, "is in doubt"),
        (_frozen, "it is frozen"),
        (_refused, "work for it is pending"),
    ],
)
def test_a_session_with_pending_work_stays_with_all_that_follows(house, make, why):
    house.turn(TWO)
    make(house)
    house.turn(TWO)
    house.days(100)
    house.remember()
    done = house.retain()
    at = next(record.offset for record in house.seen if record.key == ONE.encode())
    assert done.plan.held_by.offset == at == house.first()
    assert done.plan.held_by.session_id == ONE and why in done.plan.held_by.why
    assert [each.session_id for each in done.plan.sessions] == [TWO]
    assert house.records() == house.seen


def test_a_session_that_is_old_and_young_stays_whole(house):
    house.turn(TWO)
    house.turn(ONE)
    house.days(100)
    house.turn(ONE)
    house.remember()
    done = house.retain()
    at = next(record.offset for record in house.seen if record.key == ONE.encode())
    assert done.plan.held_by.offset == house.first() == at > 0
    assert "younger than the limit" in done.plan.held_by.why


def test_everything_is_deleted_when_everything_is_old(house):
    house.turn(ONE)
    house.days(100)
    house.remember()
    assert house.retain().plan.held_by is None
    assert house.live.records(SESSION_EVENTS, PARTITION) == []
    assert house.records() == house.seen
    house.turn(ONE)
    house.remember()
    assert house.records() == house.seen


def test_records_of_no_session_are_archived_too(house):
    producer = house.log.producer()
    for key in (b"\xff\0 no text", None, "ghost", NAMES[9]):
        producer.append(SESSION_EVENTS, key, b"junk", [("t", b"NEW")], partition=PARTITION)
    other = next(n for n in map(str, range(99)) if partition_for(n, PARTITIONS) != PARTITION)
    producer.append(SESSION_EVENTS, other, None, [("t", b"")], partition=PARTITION)
    house.turn(ONE)
    house.days(100)
    house.remember()
    house.retain()
    assert house.first() == len(house.seen) and house.records() == house.seen


def test_a_session_that_was_opened_after_its_first_record_was_archived(house):
    """A message to a session that does not exist is a record of no session, until it is opened."""
    house.sessions.say(ONE, "is anybody there?", message_id="early")
    played = Played(house.log, ONE)
    for refusal in played.views.turn.refusals:
        refused = ev.Refused(offset=refusal.offset, code=refusal.code, detail=refusal.detail)
        played.append(refused, "sessions")
    house.days(100)
    house.turn(TWO)
    house.remember()
    assert house.retain().plan.sessions == () and house.first() > 0
    house.turn(ONE)
    house.days(100)
    house.turn(THREE)
    house.remember()
    assert ONE in [each.session_id for each in house.retain().plan.sessions]
    assert house.records() == house.seen


# -- cuts that the archive does not explain --------------------------------------------------------


def test_a_cut_beyond_the_archive_is_refused(old):
    old.retain()
    old.live.trim(SESSION_EVENTS, PARTITION, old.first() + 1)
    assert old.log.first_offsets(SESSION_EVENTS)[PARTITION] == old.first()
    with pytest.raises(LogCut, match="no archive that this process can read"):
        old.retain()
    with pytest.raises(LogCut, match="no archive that this process can read"):
        export_bundle(old.settings.home / "b", old.log, ONE, Contents(old.blob))


def test_another_log_has_another_archive(old, tmp_path):
    old.retain()
    other = MemoryLog(topics(PARTITIONS), cluster_id="other")
    producer = other.producer()
    for _ in range(50):
        producer.append(SESSION_EVENTS, ONE, b"x", partition=PARTITION)
    other.trim(SESSION_EVENTS, PARTITION, 5)
    assert ArchivedLog(other, old.archive).first_offsets(SESSION_EVENTS)[PARTITION] == 5


def test_a_manifest_in_the_place_of_another_is_not_used(old):
    old.retain()
    (manifest,) = [path for path in old.files() if path.suffix == ".json"]
    other = manifest.parent.with_name("1") / manifest.name
    other.parent.mkdir()
    manifest.rename(other)
    producer = old.live.producer()
    for _ in range(old.first()):
        producer.append(SESSION_EVENTS, b"x", b"x", partition=1)
    old.live.trim(SESSION_EVENTS, 1, old.first())
    with pytest.raises(OffsetGone):
        old.log.reader(SESSION_EVENTS, {1: 0}).poll(0)


def test_a_damaged_bundle_is_reported_and_nothing_is_skipped(old):
    old.retain()
    for path in old.files():
        if path.is_file() and path.suffix != ".json":
            path.write_bytes(path.read_bytes()[:-1])
    reader = old.log.reader(SESSION_EVENTS, {PARTITION: 0})
    with pytest.raises(LogCut, match="the archive is damaged: files/.*is damaged"):
        for _ in old.seen:
            reader.poll(0, 1)
    assert reader.poll(0) == [] and reader.positions() == {PARTITION: 0}


def test_an_inaccessible_archive_is_unreachable(old, monkeypatch):
    old.retain()

    def denied(*_args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(DirectoryObjects, "list", denied)
    with pytest.raises(LogUnreachable, match="FOLDLOG_ARCHIVE"):
        old.log.first_offsets(SESSION_EVENTS)
    with pytest.raises(LogUnreachable, match="Permission denied"):
        old.log.reader(SESSION_EVENTS, {PARTITION: 0}).poll(0)


# -- runs that die ---------------------------------------------------------------------------------


class Died(BaseException):
    """The process died."""


class Mortal(DirectoryObjects):
    """Objects that let the process die before its nth write."""

    left = 99

    def put(self, name, data):
        self._live_on()
        super().put(name, data)

    def delete(self, name):
        self._live_on()
        super().delete(name)

    def _live_on(self):
        type(self).left -= 1
        if type(self).left < 0:
            raise Died


def test_a_run_that_dies_at_any_write_loses_nothing_and_is_repeated(tmp_path, monkeypatch):
    for writes in range(99):
        house = House(tmp_path / str(writes))
        for name in (ONE, TWO, ONE):
            house.turn(name)
        house.days(100)
        house.turn(THREE)
        house.remember()
        house.retain()  # so that an older manifest is replaced
        house.turn(ONE)
        house.days(100)
        house.turn(FOUR)
        house.remember()
        mortal = Mortal(house.settings.blobs_dir / "archive")
        house.log = ArchivedLog(house.live, Archive(mortal))
        monkeypatch.setattr(Mortal, "left", writes)
        try:
            house.retain()
        except Died:
            has_died = True
        else:
            has_died = False
        monkeypatch.setattr(Mortal, "left", 99)
        assert house.records() == house.seen
        house.retain()
        assert house.records() == house.seen
        four = next(r.offset for r in house.seen if r.key == FOUR.encode())
        assert house.first() == four
        if not has_died:
            assert writes > 3
            return
    raise AssertionError("a run never ended")


def test_a_run_that_dies_around_the_deletion_is_repeated(old, monkeypatch):
    delete = MemoryLog.delete_before
    for is_deleted in (False, True):

        def die(log, *args, is_deleted=is_deleted):
            if is_deleted:
                delete(log, *args)
            raise LogUnreachable("no broker answered")

        monkeypatch.setattr(MemoryLog, "delete_before", die)
        with pytest.raises(LogUnreachable):
            old.retain()
        assert (old.first() > 0) == is_deleted and old.records() == old.seen
    monkeypatch.undo()
    assert old.retain().plan.sessions == () and old.records() == old.seen


@pytest.mark.parametrize("days", [90, 1])
def test_two_runs_at_once_lose_nothing(old, monkeypatch, days):
    """The other run has another limit, and deletes less or more than this one has planned."""
    old.days(30)
    old.turn(FOUR)
    old.days(2)
    old.remember()
    store = Archive.store_manifest

    def store_after_another_run(archive, manifest):
        monkeypatch.setattr(Archive, "store_manifest", store)
        old.retain(days)
        store(archive, manifest)

    monkeypatch.setattr(Archive, "store_manifest", store_after_another_run)
    with pytest.raises(Refused, match="another run"):
        old.retain(20)
    assert old.first() > 0 and old.records() == old.seen
    old.retain(20)
    assert old.records() == old.seen


def test_what_is_not_archived_is_not_deleted(old, monkeypatch):
    """The comparison with the log is the last step before the deletion."""
    store = Archive.store_others

    def forgetful(archive, records):
        return store(archive, list(records)[:-1])

    monkeypatch.setattr(Archive, "store_others", forgetful)
    with pytest.raises(Refused, match="the archive differs from the log at offset"):
        old.retain()
    assert old.first() == 0 and old.records() == old.seen
    monkeypatch.undo()
    old.retain()
    assert old.first() > 0 and old.records() == old.seen


def test_a_session_that_does_not_replay_stays_in_the_log(old, monkeypatch):
    """For example because its requests were built by another program of the same name."""
    from foldlog.upkeep import retention

    verify_bundle = retention.verify

    def differs(bundle, read):
        replayed, found = verify_bundle(bundle, read)
        return replayed, [*found, *([object()] if bundle.manifest.session_id == TWO else [])]

    monkeypatch.setattr(retention, "verify", differs)
    done = old.retain()
    at = next(record.offset for record in old.seen if record.key == TWO.encode())
    assert old.first() == at and "does not replay" in done.plan.held_by.why
    assert [each.session_id for each in done.plan.sessions] == [ONE]
    assert old.records() == old.seen


def test_files_that_no_manifest_names_are_deleted_when_they_are_old(old, monkeypatch):
    def stored_files():
        return {path.name for path in old.files() if path.is_file() and len(path.name) == 64}

    old.retain()
    before = stored_files()
    old.turn(ONE, "back")
    old.days(100)
    old.turn(FOUR)
    old.remember()
    old.retain()
    assert before < stored_files(), "a reader may still read them"
    monkeypatch.setattr(of_archive, "GARBAGE_AGE_S", -1)
    old.days(100)
    old.retain()
    assert not before <= stored_files() and old.records() == old.seen


# -- workers and gateways --------------------------------------------------------------------------


def test_a_member_of_a_group_reads_the_archive_and_then_the_log(old):
    old.retain()
    seen, revoked = [], []
    joining = ("workers", "w1", lambda ps: dict.fromkeys(ps, 0), revoked.extend)
    member = old.log.group_reader(SESSION_EVENTS, *joining)

    def has_read_all():
        seen.extend(record for record in member.poll(0, 4) if record.partition == PARTITION)
        assert member.positions()[PARTITION] <= old.seen[-1].offset + 1
        return len(seen) >= len(old.seen)

    until("every record is read", has_read_all)
    assert seen == old.seen
    member.seek(PARTITION, 2)
    assert member.poll(0, 4) == old.seen[2:6]


def test_a_partition_that_moves_is_read_from_the_archive_by_its_new_member_only(old):
    old.retain()
    joining = ("workers", "w1", lambda ps: dict.fromkeys(ps, 0), lambda _ps: None)
    first = old.log.group_reader(SESSION_EVENTS, *joining)
    assert first.poll(0, 2) == old.seen[:2]
    second = old.log.group_reader(SESSION_EVENTS, joining[0], "w2", *joining[2:])
    seen = []

    def has_read_all():
        first.poll(0, 1)
        if PARTITION in second.positions():
            assert PARTITION not in first.positions() and first.poll(0, 1) == []
        seen.extend(second.poll(0, 3))
        return len(seen) >= len(old.seen)

    until("every record is read", has_read_all)
    assert seen == old.seen

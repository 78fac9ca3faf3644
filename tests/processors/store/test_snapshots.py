"""Snapshots: a store from one equals a refold; whatever is wrong with one only costs time."""

import json
import os
import shutil
import threading
import time
from pathlib import Path

import msgspec
import pytest

from foldlog.log import LogCut
from foldlog.log.objects import DirectoryObjects
from foldlog.processors import crash_points
from foldlog.processors.agent import Agent
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.store import snapshots as of_snapshots
from foldlog.processors.store.opener import StoreOpener
from foldlog.processors.store.rocks import RocksBackend
from foldlog.processors.store.snapshots import (
    FILES,
    KEPT,
    MANIFESTS,
    Snapshots,
    SnapshotUnusable,
)
from foldlog.processors.store.store import Belongs, Store
from foldlog.processors.store.views_codec import view_hashes
from foldlog.processors.worker.snapshot_maker import SnapshotMaker
from foldlog.schemas.codec import entry_of
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.manual_worker import SESSION, ManualWorker, answered, message, opened
from foldlog.tests.kit.waiting import PATIENCE_S, joined
from foldlog.tests.processors.worker.test_damage import run_until_idle

AGENT = Agent(name="a", model="m")
BEHIND_MAX = 3


class SnapshotWorker(ManualWorker):
    """A worker whose stores are in RocksDB and come from snapshots where it has none."""

    def __init__(self, place: Path, name: str = "one", incarnation: str = "1", log=None) -> None:
        self.directory = place / name / "0"
        self.snapshots = Snapshots(DirectoryObjects(place / "snapshots"))
        self.folds = "folds"
        super().__init__(AGENT, incarnation, log=log)
        self.opener = StoreOpener(
            lambda _partition: self.directory, self.lines.append, self.snapshots, BEHIND_MAX
        )
        self.outcomes: list[str] = []
        self.maker = SnapshotMaker(
            self.snapshots, lambda _partition: self.directory, 10, 60_000, self,
            self.lines.append, self.outcomes.append,
        )

    @property
    def belongs(self) -> Belongs:
        return Belongs(self.log.identity(), self.log.topic_id(SESSION_EVENTS), self.folds)

    def _open(self, partition: int, *, fresh: bool) -> Store:
        end = self.log.end_offsets(SESSION_EVENTS)[partition]
        first = self.log.first_offsets(SESSION_EVENTS)[partition]
        return self.opener.open(partition, self.belongs, end, first, fresh=fresh)

    def snapshot(self) -> int:
        """Make a snapshot now; its offset."""
        self.maker.begin(self.worker.owned[0])
        self.maker.close()
        assert not self.maker.is_busy
        assert self.outcomes[-1:] == ["made"], self.lines
        return self.worker.owned[0].next_offset

    def talk(self, name: str) -> None:
        """A turn: a message and its answer."""
        self.write("producer", message(name))
        self.settle()
        turn = self.worker.owned[0].views(SESSION).turn
        self.write("models", answered(turn=turn.number, step=1))
        self.settle()

    @property
    def complaints(self) -> list[str]:
        return [line for line in self.lines if "cannot be used" in line]

    @property
    def loaded(self) -> list[str]:
        return [line for line in self.lines if "loaded from the snapshot" in line]


def next_worker(first: SnapshotWorker, place: Path, name: str = "two") -> SnapshotWorker:
    """A worker with another directory, on the same log, run until it is idle."""
    rig = SnapshotWorker(place, name, "2", log=first.log)
    rig.ms = first.ms
    rig.assign()
    run_until_idle(rig)
    return rig


def is_the_fold(rig: SnapshotWorker) -> bool:
    """Whether the stored views are those of the log, byte for byte."""
    views = initial(SESSION)
    for entry in map(entry_of, rig.log.records(SESSION_EVENTS, 0)):
        if entry.session_id == SESSION:
            views, _ = fold(views, entry)
    stored = rig.worker.owned[0].store.load(SESSION)
    return view_hashes(stored) == view_hashes(views) and rig.worker.holds(0)


def contents(directory: Path) -> dict[bytes, bytes]:
    backend = RocksBackend(directory)
    try:
        return dict(backend.scan(b""))
    finally:
        backend.close()


@pytest.fixture
def first(tmp_path) -> SnapshotWorker:
    """A worker that has made two snapshots and continued."""
    rig = SnapshotWorker(tmp_path)
    rig.write("producer", opened("a"))
    rig.assign()
    rig.settle()
    rig.talk("m1")
    rig.snapshot()
    rig.talk("m2")
    rig.snapshot()
    rig.talk("m3")
    yield rig
    rig.revoke()


def manifests(place: Path) -> list[Path]:
    """The newest last."""
    return sorted((place / "snapshots" / MANIFESTS).rglob("*.json"))


def files_of(manifest: Path, place: Path) -> list[Path]:
    named = json.loads(manifest.read_bytes())["files"]
    return [place / "snapshots" / FILES / f["sha256"][:2] / f["sha256"] for f in named]


# -- a store from a snapshot -----------------------------------------------------------------------


def test_a_worker_without_a_store_continues_from_the_newest_snapshot(first, tmp_path):
    two = next_worker(first, tmp_path)
    newest = json.loads(manifests(tmp_path)[-1].read_bytes())["offset"]
    assert two.lines == [
        f"the store 0 was loaded from the snapshot at offset {newest}: there was none here"
    ]
    assert is_the_fold(two)
    two.talk("m4")
    assert is_the_fold(two)
    two.revoke()


def test_a_store_from_a_snapshot_and_the_tail_has_the_bytes_of_a_refold(first, tmp_path):
    two = next_worker(first, tmp_path)
    two.revoke()
    shutil.rmtree(tmp_path / "snapshots")
    records = first.log.records(SESSION_EVENTS, 0)
    refolded = SnapshotWorker(tmp_path, "three", "3", log=first.log)
    refolded.worker.assigned([0])
    refolded.worker.consume(records)
    refolded.worker.revoked([0])
    mine, theirs = contents(two.directory), contents(refolded.directory)
    pages = [key for key in mine.keys() ^ theirs.keys()]
    assert all(key[:1] == b"r" for key in pages), "a page ends where a batch ended"
    for key in mine.keys() & theirs.keys():
        assert key[:1] == b"r" or mine[key] == theirs[key], key
    assert {key[:1] for key in mine} >= {b"h", b"c", b"r", b"\0"}


def test_only_what_came_after_the_snapshot_is_folded(first, tmp_path):
    two = SnapshotWorker(tmp_path, "two", "2", log=first.log)
    starts = two.worker.assigned([0])
    newest = json.loads(manifests(tmp_path)[-1].read_bytes())["offset"]
    assert starts == {0: newest - 1}, "and the record before it, to verify the log"
    store = two.worker.owned[0].store
    assert store.letters_from == newest, "dead letters before it were written"
    two.revoke()


def test_a_store_far_behind_is_replaced_and_a_near_one_is_kept(first, tmp_path):
    near, far = (SnapshotWorker(tmp_path, name, "2", log=first.log) for name in ("near", "far"))
    newest = json.loads(manifests(tmp_path)[-1].read_bytes())["offset"]
    for rig, back in ((near, BEHIND_MAX), (far, BEHIND_MAX + 1)):
        shutil.copytree(first.directory, rig.directory)
        backend = RocksBackend(rig.directory)
        cursor = msgspec.msgpack.decode(backend.get(b"\0cursor"))
        backend.write([(b"\0cursor", msgspec.msgpack.encode([newest - back, cursor[1]]))], [])
        backend.close()
        rig._open(0, fresh=False).close()
    assert near.lines == []
    assert far.lines == [f"the store 0 was loaded from the snapshot at offset {newest}: "
                         f"it was {BEHIND_MAX + 1} records behind"]


def test_a_damaged_store_is_replaced_by_a_snapshot(first, tmp_path):
    two = next_worker(first, tmp_path)
    two.revoke()
    (two.directory / "CURRENT").write_bytes(b"nonsense\n")
    again = next_worker(first, tmp_path)
    assert ["it is damaged" in line for line in again.loaded] == [True] and is_the_fold(again)
    again.revoke()


def test_a_log_without_its_first_records_is_continued_from_a_snapshot(first, tmp_path):
    offsets = [json.loads(path.read_bytes())["offset"] for path in manifests(tmp_path)]
    first.log.trim(SESSION_EVENTS, 0, offsets[-1])
    two = next_worker(first, tmp_path)
    assert len(two.loaded) == 1 and two.worker.holds(0)
    two.revoke()
    first.log.trim(SESSION_EVENTS, 0, offsets[-1] + 1)
    with pytest.raises(LogCut):
        SnapshotWorker(tmp_path, "three", "3", log=first.log).assign()


# -- snapshots that cannot be used -----------------------------------------------------------------


def rewrite(**changes):
    """Change fields of the newest manifest; its hash is correct again."""

    def change(place: Path) -> None:
        path = manifests(place)[-1]
        found = msgspec.json.decode(path.read_bytes(), type=of_snapshots.Manifest)
        path.write_bytes(msgspec.structs.replace(found, **changes).encoded())

    return change


def damage_manifest(place: Path) -> None:
    path = manifests(place)[-1]
    path.write_bytes(path.read_bytes().replace(b'"checksum":', b'"checksum":1'))


def truncate_manifest(place: Path) -> None:
    path = manifests(place)[-1]
    path.write_bytes(path.read_bytes()[:-9])


def newest_table(place: Path) -> Path:
    older = set(files_of(manifests(place)[-2], place))
    new = [path for path in files_of(manifests(place)[-1], place) if path not in older]
    return max(new, key=lambda path: path.stat().st_size)


def flip_bit(place: Path) -> None:
    path = newest_table(place)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate_file(place: Path) -> None:
    path = newest_table(place)
    path.write_bytes(path.read_bytes()[:-1])


def lose_file(place: Path) -> None:
    newest_table(place).unlink()


def escape(place: Path) -> None:
    path = manifests(place)[-1]
    found = msgspec.json.decode(path.read_bytes(), type=of_snapshots.Manifest)
    file = msgspec.structs.replace(found.files[0], name="../../escaped")
    path.write_bytes(msgspec.structs.replace(found, files=(file, *found.files[1:])).encoded())


def other_folds_inside(place: Path) -> None:
    """A manifest that names other files than its own."""
    path = manifests(place)[-1]
    found = msgspec.json.decode(path.read_bytes(), type=of_snapshots.Manifest)
    older = msgspec.json.decode(manifests(place)[-2].read_bytes(), type=of_snapshots.Manifest)
    path.write_bytes(msgspec.structs.replace(found, files=older.files).encoded())


DAMAGES = {
    "a manifest with a flipped bit": (damage_manifest, "its manifest is damaged"),
    "a truncated manifest": (truncate_manifest, "its manifest is damaged"),
    "a newer format": (rewrite(format=2), "its format is 2, this version reads 1"),
    "a manifest of another topic": (rewrite(topic_id="other"), "its manifest is damaged"),
    "a manifest of other folds": (rewrite(folds="other"), "its manifest is damaged"),
    "a flipped bit": (flip_bit, "is damaged"),
    "a truncated file": (truncate_file, "is damaged"),
    "a missing file": (lose_file, "is missing"),
    "a file name that leads outside": (escape, "it contains a file of the name"),
    "files of another snapshot": (other_folds_inside, "are not those of its manifest"),
}


@pytest.mark.parametrize("had", ["no store", "an old store"])
@pytest.mark.parametrize(("damage", "why"), DAMAGES.values(), ids=DAMAGES)
def test_an_unusable_snapshot_is_reported_and_an_older_one_is_used(
    first, tmp_path, damage, why, had
):
    if had == "an old store":
        fresh = SnapshotWorker(tmp_path, "two", "2", log=first.log)
        fresh.opener = StoreOpener(lambda _: fresh.directory, print)
        fresh._open(0, fresh=False).close()
    damage(tmp_path)
    two = next_worker(first, tmp_path)
    assert len(two.complaints) == 1 and why in two.complaints[0]
    assert len(two.loaded) == 1 and is_the_fold(two)
    older = [json.loads(path.read_bytes())["offset"] for path in manifests(tmp_path)[:1]]
    assert [two.opener.newest_snapshot[0]] == older, "from which the next one is due"
    assert not (tmp_path / "escaped").exists() and not (tmp_path / "two" / "escaped").exists()
    assert os.listdir(two.directory.parent) == ["0"], "nothing is left over"
    two.revoke()


@pytest.mark.parametrize(("damage", "why"), [DAMAGES["a flipped bit"], DAMAGES["a newer format"]])
def test_without_any_usable_snapshot_the_log_is_refolded(first, tmp_path, damage, why):
    damage(tmp_path)
    manifests(tmp_path)[0].unlink()
    two = next_worker(first, tmp_path)
    assert len(two.complaints) == 1 and why in two.complaints[0]
    assert two.loaded == [] and is_the_fold(two)
    two.revoke()


def test_a_damaged_file_is_stored_again_by_the_next_snapshot(first, tmp_path):
    flip_bit(tmp_path)
    next_worker(first, tmp_path).revoke()
    first.snapshot()
    three = next_worker(first, tmp_path, "three")
    assert three.complaints == [] and len(three.loaded) == 1 and is_the_fold(three)
    three.revoke()


def test_snapshots_of_other_folds_topics_and_places_in_the_log_are_not_used(first, tmp_path):
    other = SnapshotWorker(tmp_path, "two", "2", log=first.log)
    other.folds = "newer"
    other._open(0, fresh=False).close()
    assert other.lines == []
    found = first.snapshots
    belongs, end = first.belongs, first.log.end_offsets(SESSION_EVENTS)[0]
    assert found.newest_first(belongs._replace(topic_id="t"), 0) == []
    assert found.newest_first(belongs, 1) == []
    newest = found.newest_first(belongs, 0)[0].offset
    short = StoreOpener(lambda _: tmp_path / "short" / "0", first.lines.append, found)
    store = short.open(0, belongs, newest - 1, 0)
    assert store.cursor.offset < newest <= end, "its cursor would be beyond the end of the log"
    store.close()


def test_a_snapshot_of_a_log_that_lost_its_end_is_not_used(first, tmp_path):
    """The record before its cursor is another one now; an older snapshot may still fit."""
    newest = manifests(tmp_path)[-1]
    found = msgspec.json.decode(newest.read_bytes(), type=of_snapshots.Manifest)
    store = tmp_path / "changed"
    first.snapshots.fetch(found, _made(store))
    backend = RocksBackend(store)
    cursor = [found.offset, found.checksum ^ 1]
    backend.write([(b"\0cursor", msgspec.msgpack.encode(cursor))], [])
    backend.close()
    checkpoint = RocksBackend(store)
    checkpoint.checkpoint(tmp_path / "saved")
    checkpoint.close()
    older = json.loads(manifests(tmp_path)[0].read_bytes())["offset"]
    first.snapshots.save(tmp_path / "saved", 0, 1)
    two, seeks = SnapshotWorker(tmp_path, "two", "2", log=first.log), []
    two.assign()
    seek = two.reader.seek
    two.reader.seek = lambda *place: (seeks.append(place), seek(*place))
    run_until_idle(two)
    assert any("the log is not the one" in line for line in two.lines)
    assert len(two.loaded) == 2 and is_the_fold(two), "the older one"
    assert seeks == [(0, older - 1)], "and only what came after it is folded"
    two.revoke()


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


@pytest.mark.parametrize("key", [b"h\0" + SESSION.encode(), b"c\0" + SESSION.encode()])
def test_a_snapshot_of_a_damaged_store_leads_to_an_older_one(first, tmp_path, key):
    """Its hashes are correct: the damage is found when a session is loaded."""
    store = first.worker.owned[0].store
    store._backend.write([(key, b"\xc1 not msgpack")], [])
    first.snapshot()
    first.write("producer", message("m4"))
    two = next_worker(first, tmp_path)
    assert any("its store is damaged (session" in line for line in two.lines)
    assert len(two.loaded) == 2 and is_the_fold(two)
    two.revoke()


def test_an_inaccessible_place_is_reported_and_the_log_refolded(first, tmp_path):
    place = tmp_path / "snapshots"
    place.rename(tmp_path / "away")
    place.write_bytes(b"a file")
    two = next_worker(first, tmp_path)
    assert len(two.lines) == 1 and "cannot be listed" in two.lines[0] and is_the_fold(two)
    two.maker.begin(two.worker.owned[0])
    two.maker.close()
    two.maker.begin(two.worker.owned[0])
    two.maker.close()
    assert two.outcomes == ["failed", "failed"] and len(two.lines) == 2, "reported once"
    assert "the worker continues" in two.lines[1]
    two.revoke()


# -- crashes ---------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


def _kill() -> None:
    raise Killed


@pytest.fixture
def armed():
    yield lambda at: crash_points.arm(at, _kill)
    crash_points.disarm()


@pytest.mark.parametrize("had", ["no store", "an old store"])
@pytest.mark.parametrize("at", ["snapshot.fetched", "store.removed", "snapshot.loaded"])
def test_a_crash_while_a_snapshot_is_loaded_is_harmless(first, tmp_path, armed, at, had):
    two = SnapshotWorker(tmp_path, "two", "2", log=first.log)
    if had == "an old store":
        two.opener = StoreOpener(lambda _: two.directory, print)
        two._open(0, fresh=False).close()
        two = SnapshotWorker(tmp_path, "two", "2", log=first.log)
    elif at == "store.removed":
        pytest.skip("there is nothing to remove")
    armed(at)
    with pytest.raises(Killed):
        two.assign()
    three = next_worker(first, tmp_path)
    assert is_the_fold(three) and three.complaints == []
    assert os.listdir(three.directory.parent) == ["0"]
    three.revoke()


@pytest.mark.parametrize("at", ["snapshot.checkpoint", "snapshot.files", "snapshot.stored"])
def test_a_crash_while_a_snapshot_is_made_is_harmless(first, tmp_path, armed, at, monkeypatch):
    monkeypatch.setattr(shutil, "rmtree", lambda *_args, **_options: None)  # as if it were dead
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    before = len(manifests(tmp_path))
    armed(at)
    first.maker.begin(first.worker.owned[0])
    first.maker.close()
    monkeypatch.undo()
    assert len(manifests(tmp_path)) == before + (at == "snapshot.stored")
    two = next_worker(first, tmp_path)
    assert is_the_fold(two) and two.complaints == []
    two.revoke()
    again = SnapshotWorker(tmp_path, "one", "3", log=first.log)
    again.maker.opened(0, 0)
    assert os.listdir(again.directory.parent) == ["0"], "the next process deletes the checkpoint"
    first.snapshot()


# -- making ----------------------------------------------------------------------------------------


def test_a_snapshot_stores_only_the_files_that_changed(tmp_path):
    rig = SnapshotWorker(tmp_path)
    rig.write("producer", opened("a"))
    for number in range(40):
        rig.write("producer", message(f"m{number}", words=os.urandom(3_000).hex()))
    rig.assign()
    rig.settle()
    saved = []
    save = rig.snapshots.save
    rig.snapshots.save = lambda *args: saved.append(save(*args)) or saved[-1]
    rig.snapshot()
    rig.talk("one more")
    rig.snapshot()
    first, second = saved
    assert first.bytes_written == first.manifest.size_bytes > 100_000
    assert second.bytes_written < 40_000 < second.manifest.size_bytes
    shared = {f.sha256 for f in first.manifest.files} & {f.sha256 for f in second.manifest.files}
    assert shared
    two = next_worker(rig, tmp_path)
    assert is_the_fold(two)
    two.revoke()
    rig.revoke()


def test_a_store_is_written_while_its_snapshot_is_made(first, tmp_path):
    """The cursor of the snapshot is that of its views, whatever is written meanwhile."""
    halt, failures = threading.Event(), []

    def make() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not halt.is_set() and time.monotonic() < deadline:
            staging = tmp_path / "staging"
            shutil.rmtree(staging, ignore_errors=True)
            try:
                first.worker.owned[0].store.checkpoint(staging)
                first.snapshots.save(staging, 0, 1)
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    for number in range(30):
        first.talk(f"busy{number}")
    halt.set()
    joined(thread)
    assert failures == []
    for candidate in first.snapshots.newest_first(first.belongs, 0)[::5]:
        directory = _made(tmp_path / f"at{candidate.offset}")
        first.snapshots.fetch(first.snapshots.manifest(candidate), directory)
        store = Store(RocksBackend(directory, read_only=True))
        views = initial(SESSION)
        for entry in map(entry_of, first.log.records(SESSION_EVENTS, 0)):
            if entry.session_id == SESSION and entry.offset < store.cursor.offset:
                views, _ = fold(views, entry)
        assert view_hashes(store.load(SESSION)) == view_hashes(views)
        store.close()


def test_two_workers_make_snapshots_of_one_partition_at_once(first, tmp_path):
    two = next_worker(first, tmp_path)
    first.settle()
    for _ in range(3):
        first.maker.begin(first.worker.owned[0])
        two.maker.begin(two.worker.owned[0])
        first.maker.close()
        two.maker.close()
    assert set(first.outcomes + two.outcomes) == {"made"}
    three = next_worker(first, tmp_path, "three")
    assert is_the_fold(three) and three.complaints == []
    three.revoke()
    two.revoke()


def test_a_closed_store_makes_no_snapshot(first, tmp_path):
    owned = first.worker.owned[0]
    before = manifests(tmp_path)
    owned.store.close()
    first.maker.begin(owned)
    first.maker.close()
    assert manifests(tmp_path) == before and "failed" not in first.outcomes
    del first.worker.owned[0]


def test_a_snapshot_is_due_by_records_or_by_time_and_only_for_a_held_partition(first, tmp_path):
    made = []
    first.maker.begin = lambda owned: made.append(owned.next_offset)
    newest = json.loads(manifests(tmp_path)[-1].read_bytes())["offset"]

    def check(*, after_ms: int) -> list[int]:
        made.clear()
        first.ms += after_ms
        first.maker.check(first.worker)
        return list(made)

    records = first.worker.owned[0].next_offset - newest
    first.maker._records = records + 1
    assert check(after_ms=2_000) == []
    first.maker._records = records
    assert check(after_ms=100) == [], "at most one check a second"
    assert check(after_ms=1_000) != []
    first.maker._records = 1_000
    assert check(after_ms=2_000) == []
    assert check(after_ms=60_000) != [], "new records, and a minute since the last"
    first.worker.owned[0].takes_from = 10**9
    assert check(after_ms=60_000) == [], "it does not hold the partition"


# -- garbage ---------------------------------------------------------------------------------------


def age(place: Path, seconds: float) -> None:
    for path in (place / "snapshots").rglob("*"):
        if path.is_file():
            at = path.stat().st_mtime - seconds
            os.utime(path, (at, at))


def test_the_newest_snapshots_are_kept_with_every_file_that_they_name(first, tmp_path):
    for number in range(4):
        first.talk(f"g{number}")
        first.snapshot()
        age(tmp_path, 10)
    assert len(manifests(tmp_path)) == KEPT, "each snapshot deletes those that it replaces"
    age(tmp_path, 7_200)
    stored = list((tmp_path / "snapshots" / FILES).rglob("?" * 64))
    leftover = tmp_path / "snapshots" / "incoming" / "of-a-dead-process"
    leftover.write_bytes(b"half")
    os.utime(leftover, (1, 1))
    collected = first.snapshots.collect(time.time())
    named = {path for manifest in manifests(tmp_path) for path in files_of(manifest, tmp_path)}
    left = set((tmp_path / "snapshots" / FILES).rglob("?" * 64))
    assert left == named and collected.files == len(stored) - len(named) > 0
    assert not leftover.exists()
    two = next_worker(first, tmp_path)
    assert is_the_fold(two) and two.complaints == []
    two.revoke()


def test_a_young_file_is_kept_since_its_manifest_may_follow(first, tmp_path):
    for manifest in manifests(tmp_path):
        manifest.unlink()
    assert first.snapshots.collect(time.time()).files == 0
    age(tmp_path, 7_200)
    assert first.snapshots.collect(time.time()).files > 0


def test_a_file_that_a_snapshot_uses_again_is_young_again(first, tmp_path):
    """Another worker collects garbage before the manifest is stored."""
    for manifest in manifests(tmp_path):
        manifest.unlink()
    age(tmp_path, 7_200)
    left = []

    def collect() -> None:
        first.snapshots.collect(time.time())
        left.extend((tmp_path / "snapshots" / FILES).rglob("?" * 64))

    crash_points.arm("snapshot.files", collect)
    first.snapshot()
    assert set(files_of(manifests(tmp_path)[-1], tmp_path)) <= set(left)


def test_a_file_that_is_used_again_while_garbage_is_collected_is_kept(first, tmp_path):
    for manifest in manifests(tmp_path):
        manifest.unlink()
    age(tmp_path, 7_200)
    objects = first.snapshots._objects

    class Overtaken(DirectoryObjects):
        def list(self, prefix):
            found = list(super().list(prefix))
            for file in found if prefix == FILES else ():
                objects.renew(file.name)  # by a worker that is about to store its manifest
            return iter(found)

    assert Snapshots(Overtaken(objects.directory)).collect(time.time()).files == 0


def test_a_file_that_is_collected_while_it_is_used_again_is_stored_again(first, tmp_path):
    """Another worker's collection began before this snapshot and ends before its manifest."""

    def lose_files() -> None:
        for path in (tmp_path / "snapshots" / FILES).rglob("?" * 64):
            path.unlink()

    crash_points.arm("snapshot.files", lose_files)
    first.snapshot()
    two = next_worker(first, tmp_path)
    assert is_the_fold(two) and two.complaints == []
    two.revoke()


def test_the_files_of_a_newer_format_are_kept(first, tmp_path):
    rewrite(format=2, epoch=7)(tmp_path)
    path = manifests(tmp_path)[-1]
    kept = files_of(path, tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"checksum"', b'"unknown"'))
    age(tmp_path, 7_200)
    first.snapshots.collect(time.time())
    assert all(map(Path.exists, kept))


def test_each_version_of_the_folds_keeps_its_own_until_it_is_old(first, tmp_path):
    older = manifests(tmp_path)[-1]
    found = msgspec.json.decode(older.read_bytes(), type=of_snapshots.Manifest)
    other = msgspec.structs.replace(found, folds="another version", files=())
    name = of_snapshots._name_of(other)
    (tmp_path / "snapshots" / name).write_bytes(other.encoded())
    first.snapshot()
    assert (tmp_path / "snapshots" / name).exists()
    month_ago = time.time() - of_snapshots.OLD_FOLDS_S - 60
    os.utime(tmp_path / "snapshots" / name, (month_ago, month_ago))
    first.snapshot()
    assert not (tmp_path / "snapshots" / name).exists()


def test_snapshots_are_readable_by_their_user_alone(first, tmp_path):
    place = tmp_path / "snapshots"
    assert place.stat().st_mode & 0o777 == 0o700
    modes = {path.stat().st_mode & 0o777 for path in place.rglob("*") if path.is_file()}
    assert modes == {0o600}


def test_a_manifest_names_what_its_reader_needs(first, tmp_path):
    """A change here is a new FORMAT: other versions read these files."""
    found = json.loads(manifests(tmp_path)[-1].read_bytes())
    assert list(found) == [
        "format", "cluster_id", "topic_id", "partition", "folds", "offset", "checksum", "epoch",
        "created_at", "files", "sha256",
    ]
    assert found["format"] == 1 and list(found["files"][0]) == ["name", "sha256", "bytes"]
    holders = first.worker.owned[0].partition.holders
    assert found["epoch"] == max(holder.epoch for holder in holders)


def test_a_deleted_snapshot_is_unusable(first):
    candidates = first.snapshots.newest_first(first.belongs, 0)
    first.snapshots.delete(candidates)
    assert first.snapshots.newest_first(first.belongs, 0) == []
    with pytest.raises(SnapshotUnusable, match="its manifest was deleted"):
        first.snapshots.manifest(candidates[0])

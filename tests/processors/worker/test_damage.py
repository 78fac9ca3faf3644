"""Stores that RocksDB can open but whose rows cannot be decoded, and logs without their first
records."""

import errno
import sqlite3
from time import monotonic

import pytest

from foldlog.log import Corrupt, LogCut, MemoryLog, OffsetGone
from foldlog.log.archive import Archive
from foldlog.log.archived import ArchivedLog
from foldlog.log.blobs import BlobError
from foldlog.log.objects import DirectoryObjects
from foldlog.processors.agent import Agent
from foldlog.processors.store.rocks import DiskFailed
from foldlog.processors.store.store import (
    Belongs,
    Cursor,
    DictBackend,
    Store,
    new_store,
    open_store,
)
from foldlog.processors.store.views_codec import view_hashes
from foldlog.processors.worker.host import exit_code
from foldlog.processors.worker.loop import Loop, Mailbox
from foldlog.processors.worker.supervise import DISK_FULL, MISUSE
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.manual_worker import (
    ROLES,
    SESSION,
    ManualWorker,
    answered,
    message,
    opened,
)
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.upkeep.retention import Retention

AGENT = Agent(name="a", model="m")


def sqlite_error(name: str) -> sqlite3.Error:
    """An error of SQLite as it raises it."""
    error = sqlite3.OperationalError(name)
    error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{name}")
    return error


BELONGS = Belongs("cluster", "topic", "folds")
NONSENSE = b"\xc1 not msgpack"
HEAD, STREAM, PAGE = (kind + b"\0" + SESSION.encode() for kind in (b"h", b"c", b"r"))


def a_page(disk) -> bytes:
    return next(key for key in disk if key.startswith(PAGE))


def overwrite(place):
    def damage(disk) -> None:
        disk[place(disk) if callable(place) else place] = NONSENSE

    return damage


def lose_page(disk) -> None:
    del disk[a_page(disk)]


def cut_head(disk) -> None:
    disk[HEAD] = disk[HEAD][:-3]


def break_text(disk) -> None:
    disk[HEAD] = disk[HEAD].replace(b"chatting", b"\xff\xfe\xfdtting")


DAMAGES = {
    "head": overwrite(HEAD),
    "stream": overwrite(STREAM),
    "page": overwrite(a_page),
    "a lost page": lose_page,
    "a cut head": cut_head,
    "invalid text": break_text,
}


def restarted(damage, first: ManualWorker) -> tuple[ManualWorker, list[str]]:
    """The next worker, with the same log and a damaged store, and the worker's output."""
    rig, output = ManualWorker(AGENT, "2", log=first.log), []
    rig.worker._say = output.append
    rig.disk.update(first.disk)
    rig.ms = first.ms
    damage(rig.disk)
    rig.assign()
    return rig, output


def run_until_idle(rig: ManualWorker) -> None:
    """Run rounds as the poll loop does, until the worker writes nothing more."""
    end, deadline = -1, monotonic() + PATIENCE_S
    while end != rig.log.end_offsets(SESSION_EVENTS)[0]:
        assert monotonic() < deadline, "the worker does not become idle"
        end = rig.log.end_offsets(SESSION_EVENTS)[0]
        seeks = rig.worker.consume(rig.reader.poll(0, 3))
        for partition, offset in (seeks | rig.worker.tick()).items():
            rig.reader.seek(partition, offset)
            end = -1
        if rig.reader.positions()[0] < rig.log.end_offsets(SESSION_EVENTS)[0]:
            end = -1


@pytest.fixture
def first() -> ManualWorker:
    """A dead worker that had begun a turn."""
    rig = ManualWorker(AGENT)
    rig.write("producer", opened("a"))
    rig.write("producer", message())
    rig.assign()
    rig.settle()
    assert rig.events(ev.GenStart)
    return rig


@pytest.mark.parametrize("found_by", ["an event", "waking"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_S2_11_an_unreadable_store_is_rebuilt_and_the_worker_continues(
    first, damage, found_by
):
    """The defect: one row that could not be decoded ended the worker, and every worker after it."""
    rig, output = restarted(damage, first)
    if found_by == "an event":
        rig.write("producer", ev.CancelRequested(
            cancel_id="c", mode="now", turn=1, seen_phase=None, reason="", by_user="u"
        ))
    run_until_idle(rig)
    assert [text for text in output if "damaged" in text and "rebuilt" in text] == output
    assert len(output) == 1
    assert rig.worker.holds(0), "it took the partition again, and read that back"
    fresh = ManualWorker(AGENT, "3", log=first.log)
    fresh.worker.assigned([0])
    fresh.worker.consume(fresh.log.records(SESSION_EVENTS, 0))
    stored = Store(type(rig.worker.owned[0].store._backend)(rig.disk)).load(SESSION)
    assert view_hashes(stored) == view_hashes(fresh.worker.owned[0].views(SESSION))


def test_law6_no_past_obligation_is_discharged_while_a_damaged_store_is_rebuilt(first):
    """A later record of the log may already have discharged an obligation that existed at an
    earlier offset."""
    rig, _ = restarted(DAMAGES["head"], first)
    before = first.log.end_offsets(SESSION_EVENTS)[0]
    run_until_idle(rig)
    new = [entry for entry in rig.entries(object) if entry.offset >= before]
    takes = [entry.offset for entry in new if isinstance(entry.event, ev.PartitionTaken)]
    assert len(takes) == len(ROLES), "it takes the partition again"
    assert all(entry.offset > takes[-1] for entry in new if entry.offset not in takes)
    starts = [(e.event.attempt, type(e.event)) for e in new if hasattr(e.event, "attempt")]
    assert starts in ([], [(2, ev.GenResumed)]), "the first worker's call is not begun again"


def test_damage_in_a_rebuilt_store_ends_the_worker(first):
    """The cause is a broken disk or a bug, and to rebuild the store again and again would be an
    endless, silent loop."""
    rig, output = restarted(DAMAGES["head"], first)
    make = rig._open

    def marked(partition: int, *, fresh: bool) -> Store:
        store = make(partition, fresh=fresh)
        store.is_new = fresh
        return store

    rig.worker._open_store = marked
    run_until_idle(rig)
    rig.worker.owned[0].reset(rig.worker.owned[0].store)  # empties the cache
    rig.disk[HEAD] = NONSENSE
    rig.write("producer", message("m2"))
    with pytest.raises(Corrupt):
        run_until_idle(rig)
    assert len(output) == 1


# -- a log without its first records ---------------------------------------------------------------


def cut_store(directory, *, folded: int) -> None:
    store = new_store(directory, BELONGS, 100)
    store.write({}, {}, bool, store.partition, Cursor(folded, 0))
    store.close()


def test_a_store_that_folded_the_deleted_records_is_kept(tmp_path):
    cut_store(tmp_path / "0", folded=50)
    store = open_store(tmp_path / "0", BELONGS, 100, pytest.fail, first_offset=50)
    assert store.cursor.offset == 50 and store.log_first == 50
    store.close()


def test_deleted_records_that_were_not_folded_end_the_worker_and_keep_the_store(tmp_path):
    """The defect: the store was rebuilt, or the worker restarted for ever, and the loss was never
    reported."""
    cut_store(tmp_path / "0", folded=49)
    with pytest.raises(LogCut, match="start at offset 49.* begins at 50.*Nothing was changed"):
        open_store(tmp_path / "0", BELONGS, 100, pytest.fail, first_offset=50)
    with pytest.raises(LogCut):
        open_store(tmp_path / "0", BELONGS._replace(folds="new"), 100, pytest.fail, 50)
    assert open_store(tmp_path / "0", BELONGS, 100, pytest.fail).cursor.offset == 49, "it is kept"
    with pytest.raises(LogCut):
        open_store(tmp_path / "1", BELONGS, 100, pytest.fail, first_offset=1)
    assert exit_code([LogCut("0", 0, 1)]) == MISUSE, "no supervisor retries it"


class _TrimmedWorker(ManualWorker):
    """A worker whose stores know the first offset of the log."""

    def _open(self, partition: int, *, fresh: bool) -> Store:
        store = super()._open(partition, fresh=fresh)
        store.log_first = self.log.first_offsets(SESSION_EVENTS)[partition]
        if store.cursor.offset < store.log_first:
            raise LogCut(partition, store.cursor.offset, store.log_first)
        return store


@pytest.fixture
def trimmed(first) -> tuple[_TrimmedWorker, Loop, list[str]]:
    rig, output = _TrimmedWorker(AGENT, "2", log=first.log), []
    rig.worker._say = output.append
    loop = Loop(rig.log, rig.worker, "group", Mailbox())
    return rig, loop, output


def _end(log: MemoryLog) -> int:
    return log.end_offsets(SESSION_EVENTS)[0]


def test_an_offset_deleted_before_it_was_folded_ends_the_worker(trimmed):
    rig, loop, output = trimmed
    rig.assign()
    rig.log.trim(SESSION_EVENTS, 0, 2)
    with pytest.raises(LogCut):
        loop.round(rig.reader)
    assert "is no longer in the log" in output[0]


def test_records_that_the_archive_has_are_folded_from_it(first, tmp_path):
    """A worker on an empty disk, and one that is behind while records are deleted."""
    first.write("models", answered())
    first.settle()
    assert not first.worker.owned[0].views(SESSION).turn.open
    expected = view_hashes(first.worker.owned[0].views(SESSION))
    log = ArchivedLog(first.log, Archive(DirectoryObjects(tmp_path / "archive")))
    behind = _TrimmedWorker(AGENT, "2", log=log)
    running = Loop(log, behind.worker, "one", Mailbox())
    behind.reader = running.reader()
    behind.read(1)
    retention = Retention(log, first.ms + 1, lambda ref: b"", lambda _read, _total: None)
    retention.run(0)
    assert first.log.records(SESSION_EVENTS, 0) == []
    new = _TrimmedWorker(AGENT, "3", log=log)
    loop = Loop(log, new.worker, "two", Mailbox())
    new.reader = loop.reader()
    for rig, one in ((behind, running), (new, loop)):
        for _ in range(5 - one.rounds):
            one.round(rig.reader)
        assert view_hashes(rig.worker.owned[0].views(SESSION)) == expected
        assert rig.worker.holds(0) and not rig.lines
    first.write("producer", message("m2"))
    loop.round(new.reader)
    loop.round(new.reader)
    assert new.worker.owned[0].views(SESSION).turn.number == 2


def test_an_offset_deleted_after_it_was_folded_changes_nothing(trimmed):
    """At its start, a worker reads the record before the cursor again, but that record may have
    been deleted."""
    rig, loop, output = trimmed
    rig.assign()
    rig.settle()
    views = view_hashes(rig.worker.owned[0].views(SESSION))
    rig.reader.seek(0, 0)
    rig.log.trim(SESSION_EVENTS, 0, _end(rig.log))
    loop.round(rig.reader)
    rig.write("producer", message("m2"))
    loop.round(rig.reader)
    loop.round(rig.reader)
    assert len(output) == 1 and "is no longer in the log" in output[0]
    now = rig.worker.owned[0].views(SESSION)
    assert now.messages != () and view_hashes(now) != views and rig.worker.holds(0)


def test_the_error_names_the_first_offset_of_the_log(trimmed):
    rig, _, _ = trimmed
    rig.log.trim(SESSION_EVENTS, 0, 3)
    reader = rig.log.reader(SESSION_EVENTS, {0: 1})
    with pytest.raises(OffsetGone, match="has 3 to"):
        reader.poll(0)


class FailingDisk(DictBackend):
    """A backend that returns I/O errors until it has returned as many as it was given."""

    def __init__(self, disk: dict[bytes, bytes], errors: list[str]) -> None:
        super().__init__(disk)
        self._errors = errors

    def write(self, puts, deletes) -> None:
        if self._errors:
            raise DiskFailed(errno.EIO, self._errors.pop())
        super().write(puts, deletes)


def on_a_failing_disk(monkeypatch, first: ManualWorker, errors: list[str]):
    def open_store(rig, partition: int, *, fresh: bool) -> Store:
        if fresh:
            rig.disk.clear()
        end = rig.log.end_offsets(SESSION_EVENTS)[partition]
        return Store(FailingDisk(rig.disk, errors), 0 if fresh else None, log_end=end)

    monkeypatch.setattr(ManualWorker, "_open", open_store)
    return restarted(lambda _disk: None, first)


def test_S2_11_a_store_whose_disk_fails_once_is_rebuilt(first, monkeypatch):
    """The defect: the worker ended, and the next one used the same files again."""
    rig, output = on_a_failing_disk(monkeypatch, first, ["pread"])
    rig.write("models", answered())
    run_until_idle(rig)
    assert not rig.worker.owned[0].views(SESSION).turn.open
    assert len([line for line in output if "pread" in line and "rebuilt" in line]) == 1


def test_S2_11_a_disk_that_fails_under_a_rebuilt_store_ends_the_worker(first, monkeypatch):
    rig, _ = on_a_failing_disk(monkeypatch, first, ["pread"] * 2)
    with pytest.raises(DiskFailed) as failed:
        run_until_idle(rig)
    assert exit_code([failed.value]) == MISUSE, "a supervisor does not restart it"


def full_blobs() -> BlobError:
    """The error of a blob store on a full disk."""
    error = BlobError("blob x cannot be stored")
    error.__cause__ = OSError(errno.EDQUOT, "quota")
    return error


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "full"), full_blobs(), sqlite_error("FULL")],
    ids=["a store", "a blob", "SQLite"],
)
def test_S2_11_a_worker_without_space_ends_with_the_code_that_is_retried(error):
    assert exit_code([error]) == DISK_FULL

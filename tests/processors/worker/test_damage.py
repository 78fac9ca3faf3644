"""A store that RocksDB gives without complaint and nobody can read; a log that lost records."""

import pytest

from foldlog.log import Corrupt, LogCut, MemoryLog, OffsetGone
from foldlog.processors.agent import Agent
from foldlog.processors.store.store import Belongs, Cursor, Store, new_store, open_store
from foldlog.processors.store.views_codec import view_hashes
from foldlog.processors.worker.host import exit_code
from foldlog.processors.worker.loop import Loop, Mailbox
from foldlog.processors.worker.supervise import MISUSE
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.laws.manual_worker import ROLES, SESSION, ManualWorker, message, opened

AGENT = Agent(name="a", model="m")
BELONGS = Belongs("cluster", "topic", "folds")
NONSENSE = b"\xc1 not msgpack"
HEAD, STREAM, PAGE = (kind + b"\0" + SESSION.encode() for kind in (b"h", b"c", b"r"))


def a_page(disk) -> bytes:
    return next(key for key in disk if key.startswith(PAGE))


def nonsense_in(place):
    def damage(disk) -> None:
        disk[place(disk) if callable(place) else place] = NONSENSE

    return damage


def a_lost_page(disk) -> None:
    del disk[a_page(disk)]


def a_cut_head(disk) -> None:
    disk[HEAD] = disk[HEAD][:-3]


def no_text_inside(disk) -> None:
    disk[HEAD] = disk[HEAD].replace(b"chatting", b"\xff\xfe\xfdtting")


DAMAGES = {
    "head": nonsense_in(HEAD),
    "stream": nonsense_in(STREAM),
    "page": nonsense_in(a_page),
    "a lost page": a_lost_page,
    "a cut head": a_cut_head,
    "no text": no_text_inside,
}


def restarted(damage, first: ManualWorker) -> tuple[ManualWorker, list[str]]:
    """The next worker, on the same log and a damaged store; what it says."""
    rig, told = ManualWorker(AGENT, "2", log=first.log), []
    rig.worker._say = told.append
    rig.disk.update(first.disk)
    rig.ms = first.ms
    damage(rig.disk)
    rig.assign()
    return rig, told


def work(rig: ManualWorker) -> None:
    """As the loop does, until nothing new comes of it."""
    end = -1
    while end != rig.log.end_offsets(SESSION_EVENTS)[0]:
        end = rig.log.end_offsets(SESSION_EVENTS)[0]
        seeks = rig.worker.consume(rig.reader.poll(0, 3))
        for partition, offset in (seeks | rig.worker.tick()).items():
            rig.reader.seek(partition, offset)
            end = -1
        if rig.reader.positions()[0] < rig.log.end_offsets(SESSION_EVENTS)[0]:
            end = -1


@pytest.fixture
def first() -> ManualWorker:
    """A worker that has begun a turn and is gone."""
    rig = ManualWorker(AGENT)
    rig.write("producer", opened("a"))
    rig.write("producer", message())
    rig.assign()
    rig.settle()
    assert rig.events(ev.GenStart)
    return rig


@pytest.mark.parametrize("found_by", ["an event", "waking"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_S2_11_a_store_that_nobody_can_read_is_made_anew_and_the_work_goes_on(
    first, damage, found_by
):
    """One row that could not be decoded ended the worker, and the next one, and the next."""
    rig, told = restarted(damage, first)
    if found_by == "an event":
        rig.write("producer", ev.CancelRequested(
            cancel_id="c", mode="now", turn=1, seen_phase=None, reason="", by_user="u"
        ))
    work(rig)
    assert [text for text in told if "damaged" in text and "rebuilt" in text] == told
    assert len(told) == 1
    assert rig.worker.holds(0), "it took the partition anew, and has read that"
    fresh = ManualWorker(AGENT, "3", log=first.log)
    fresh.worker.assigned([0])
    fresh.worker.consume(fresh.log.records(SESSION_EVENTS, 0))
    stored = Store(type(rig.worker.owned[0].store._backend)(rig.disk)).load(SESSION)
    assert view_hashes(stored) == view_hashes(fresh.worker.owned[0].views(SESSION))


def test_law6_nothing_is_done_of_the_past_while_a_damaged_store_is_folded_again(first):
    """What the log owed at some offset of the past is no longer owed at its end."""
    rig, _ = restarted(DAMAGES["head"], first)
    before = first.log.end_offsets(SESSION_EVENTS)[0]
    work(rig)
    done = [entry for entry in rig.entries(object) if entry.offset >= before]
    takes = [entry.offset for entry in done if isinstance(entry.event, ev.PartitionTaken)]
    assert len(takes) == len(ROLES), "it takes the partition anew"
    assert all(entry.offset > takes[-1] for entry in done if entry.offset not in takes)
    starts = [(e.event.attempt, type(e.event)) for e in done if hasattr(e.event, "attempt")]
    assert starts in ([], [(2, ev.GenResumed)]), "the first one's call is not begun anew"


def test_a_store_that_is_damaged_as_soon_as_it_was_made_ends_the_worker(first):
    """No disk, or a bug of ours: made anew for ever, it would be a loop that nobody sees."""
    rig, told = restarted(DAMAGES["head"], first)
    make = rig._open

    def marked(partition: int, *, fresh: bool) -> Store:
        store = make(partition, fresh=fresh)
        store.is_new = fresh
        return store

    rig.worker._open_store = marked
    work(rig)
    rig.worker.owned[0].reset(rig.worker.owned[0].store)  # nothing is in memory any more
    rig.disk[HEAD] = NONSENSE
    rig.write("producer", message("m2"))
    with pytest.raises(Corrupt):
        work(rig)
    assert len(told) == 1


# -- a log without its first records ---------------------------------------------------------------


def cut_store(directory, *, folded: int) -> None:
    store = new_store(directory, BELONGS, 100)
    store.write({}, {}, bool, store.partition, Cursor(folded, 0))
    store.close()


def test_a_store_that_has_folded_what_was_deleted_is_kept_and_goes_on(tmp_path):
    cut_store(tmp_path / "0", folded=50)
    store = open_store(tmp_path / "0", BELONGS, 100, pytest.fail, first_offset=50)
    assert store.cursor.offset == 50 and store.log_first == 50
    store.close()


def test_deleted_records_that_were_not_folded_end_the_worker_and_keep_the_store(tmp_path):
    """It was a store made anew, or a restart for ever; either way nobody was told of the loss."""
    cut_store(tmp_path / "0", folded=49)
    with pytest.raises(LogCut, match="start at offset 49.* begins at 50.*Nothing was changed"):
        open_store(tmp_path / "0", BELONGS, 100, pytest.fail, first_offset=50)
    with pytest.raises(LogCut):
        open_store(tmp_path / "0", BELONGS._replace(folds="new"), 100, pytest.fail, 50)
    assert open_store(tmp_path / "0", BELONGS, 100, pytest.fail).cursor.offset == 49, "it is kept"
    with pytest.raises(LogCut):
        open_store(tmp_path / "1", BELONGS, 100, pytest.fail, first_offset=1)
    assert exit_code([LogCut("0", 0, 1)]) == MISUSE, "no supervisor tries it again"


class _Cuts(ManualWorker):
    """A rig whose stores know where the log begins."""

    def _open(self, partition: int, *, fresh: bool) -> Store:
        store = super()._open(partition, fresh=fresh)
        store.log_first = self.log.first_offsets(SESSION_EVENTS)[partition]
        if store.cursor.offset < store.log_first:
            raise LogCut(partition, store.cursor.offset, store.log_first)
        return store


@pytest.fixture
def cuts(first) -> tuple[_Cuts, Loop, list[str]]:
    rig, told = _Cuts(AGENT, "2", log=first.log), []
    rig.worker._say = told.append
    loop = Loop(rig.log, rig.worker, "group", Mailbox())
    return rig, loop, told


def _all(log: MemoryLog) -> int:
    return log.end_offsets(SESSION_EVENTS)[0]


def test_an_offset_that_is_gone_before_it_was_folded_ends_the_worker(cuts):
    rig, loop, told = cuts
    rig.assign()
    rig.log.trim(SESSION_EVENTS, 0, 2)
    with pytest.raises(LogCut):
        loop.round(rig.reader)
    assert "is no longer in the log" in told[0]


def test_an_offset_that_is_gone_after_it_was_folded_changes_nothing(cuts):
    """The record before the cursor is read again at a start: that one may be gone."""
    rig, loop, told = cuts
    rig.assign()
    rig.settle()
    views = view_hashes(rig.worker.owned[0].views(SESSION))
    rig.reader.seek(0, 0)
    rig.log.trim(SESSION_EVENTS, 0, _all(rig.log))
    loop.round(rig.reader)
    rig.write("producer", message("m2"))
    loop.round(rig.reader)
    loop.round(rig.reader)
    assert len(told) == 1 and "is no longer in the log" in told[0]
    now = rig.worker.owned[0].views(SESSION)
    assert now.messages != () and view_hashes(now) != views and rig.worker.holds(0)


def test_the_reader_says_where_the_log_begins(cuts):
    rig, _, _ = cuts
    rig.log.trim(SESSION_EVENTS, 0, 3)
    reader = rig.log.reader(SESSION_EVENTS, {0: 1})
    with pytest.raises(OffsetGone, match="has 3 to"):
        reader.poll(0)

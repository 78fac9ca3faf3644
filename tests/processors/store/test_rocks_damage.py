"""A store with damaged files of RocksDB is rebuilt; a store that the system cannot open is kept."""

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from itertools import count, filterfalse, islice
from pathlib import Path

import pytest

from foldlog.log import Corrupt
from foldlog.processors.agent import Agent
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.store.rocks import RocksBackend, _Errors, classified
from foldlog.processors.store.store import Belongs, Store, new_store, open_readonly, open_store
from foldlog.processors.store.views_codec import view_hashes
from foldlog.schemas.codec import entry_of
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.manual_worker import SESSION, ManualWorker, answered, message, opened
from foldlog.tests.kit.programs import line_of, output_of
from foldlog.tests.processors.worker.test_damage import run_until_idle

AGENT = Agent(name="a", model="m")
BELONGS = Belongs("cluster", "topic", "folds")
FLIPS = 60  # of single bits, spread over all files of a store
UNUSED = ("LOCK", "LOG", "IDENTITY")


class RocksWorker(ManualWorker):
    """A worker that a test runs by hand, whose store is in RocksDB."""

    def __init__(self, directory: Path, incarnation: str = "1", log=None) -> None:
        super().__init__(AGENT, incarnation, log=log)
        self.directory = directory

    def _open(self, partition: int, *, fresh: bool) -> Store:
        end = self.log.end_offsets(SESSION_EVENTS)[partition]
        if fresh:
            return new_store(self.directory, BELONGS, end)
        return open_store(self.directory, BELONGS, end, self.lines.append)


@pytest.fixture(scope="module")
def killed_store(tmp_path_factory):
    """A log, and its store as a killed worker leaves it: with tables and a write-ahead log."""
    place = tmp_path_factory.mktemp("rocks")
    rig = RocksWorker(place / "live")
    rig.write("producer", opened("a"))
    rig.write("producer", message())
    rig.assign()
    rig.settle()
    rig.worker.owned[0].store._backend._db.flush()
    rig.write("models", answered())
    rig.write("producer", message("m2"))
    rig.settle()
    killed = place / "killed"
    shutil.copytree(place / "live", killed)
    rig.revoke()
    sizes = {path.name: path.stat().st_size for path in killed.iterdir()}
    assert any(name.endswith(".sst") for name in sizes)
    assert all(sizes[name] for name in sizes if name.endswith(".log")), "with the last batches"
    return rig.log, killed


def restart(log, directory: Path) -> RocksWorker:
    """Run the next worker with this log and this store, until it is idle."""
    rig = RocksWorker(directory, "2", log)
    rig.assign()
    run_until_idle(rig)
    return rig


def is_correct(rig: RocksWorker) -> bool:
    """Whether the stored views equal those of the log."""
    views = initial(SESSION)
    for entry in map(entry_of, rig.log.records(SESSION_EVENTS, 0)):
        if entry.session_id == SESSION:
            views, _ = fold(views, entry)
    stored = rig.worker.owned[0].store.load(SESSION)
    return view_hashes(stored) == view_hashes(views) and rig.worker.holds(0)


def copied(directory: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(directory, to)
    return to


def test_S2_11_any_flipped_bit_is_harmless_or_causes_a_rebuild(killed_store, tmp_path):
    """The defect: RocksDB's error about a "block checksum" was taken for a held lock, which ended
    every worker."""
    log, killed = killed_store
    dice, rebuilt = random.Random(7), 0
    files = sorted(path for path in killed.iterdir() if path.name not in UNUSED)
    for number in range(FLIPS):
        directory = copied(killed, tmp_path / "store")
        path = directory / files[number % len(files)].name
        data = bytearray(path.read_bytes())
        place, bit = dice.randrange(len(data)), dice.randrange(8)
        data[place] ^= 1 << bit
        path.write_bytes(data)
        rig = restart(log, directory)
        assert is_correct(rig), f"bit {bit} of byte {place} of {path.name}: {rig.lines}"
        rebuilt += any("rebuilt" in line for line in rig.lines)
        rig.revoke()
    assert rebuilt > FLIPS // 4


@pytest.mark.parametrize("how", ["truncated", "missing"])
def test_S2_11_a_truncated_or_missing_file_is_harmless_or_causes_a_rebuild(
    killed_store, tmp_path, how
):
    log, killed = killed_store
    for path in sorted(killed.iterdir()):
        if path.name in UNUSED:
            continue
        directory = copied(killed, tmp_path / "store")
        path_of_copy = directory / path.name
        if how == "truncated":
            path_of_copy.write_bytes(path_of_copy.read_bytes()[: path_of_copy.stat().st_size // 2])
        else:
            path_of_copy.unlink()
        rig = restart(log, directory)
        assert is_correct(rig), f"{path.name}: {rig.lines}"
        rig.revoke()


def test_opening_a_damaged_store_for_reading_raises_Corrupt(killed_store, tmp_path):
    directory = copied(killed_store[1], tmp_path / "store")
    (directory / "CURRENT").write_bytes(b"nonsense\n")
    with pytest.raises(Corrupt, match="CURRENT"):
        open_readonly(directory)


# -- errors of the system --------------------------------------------------------------------------


def assert_refused(directory: Path, code: int) -> None:
    """Assert that opening the store raises this error of the system, and deletes nothing."""
    before = {path.name for path in directory.iterdir()} - set(UNUSED)
    with pytest.raises(OSError) as raised:
        open_store(directory, BELONGS, 10**6, pytest.fail)
    assert raised.value.errno == code
    tables = {name for name in before if name.endswith(".sst")}
    assert tables <= {path.name for path in directory.iterdir()}, "nothing was deleted"


def stored_views(directory: Path) -> dict[str, str]:
    store = open_store(directory, BELONGS, 10**6, pytest.fail)
    try:
        return view_hashes(store.load(SESSION))
    finally:
        store.close()


def limit_with_free(descriptors: int) -> int:
    """The limit on descriptors that leaves this many free. The limit bounds the numbers of
    descriptors, so numbers of closed descriptors below it are free too."""
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    return next(islice(filterfalse(used.__contains__, count()), descriptors, None))


def test_too_few_descriptors_are_not_damage(killed_store, tmp_path):
    directory = copied(killed_store[1], tmp_path / "store")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    outcomes = []
    for more in range(0, 16, 2):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit_with_free(more), hard))
        try:
            open_store(directory, BELONGS, 10**6, pytest.fail).close()
            outcomes.append(0)
        except OSError as error:
            outcomes.append(error.errno)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert set(outcomes) <= {0, errno.EMFILE} and errno.EMFILE in outcomes
    assert stored_views(directory)


def test_an_error_of_the_clients_own_files_gets_its_errno():
    with pytest.raises(OSError) as raised, _Errors():
        raise OSError("Too many open files (os error 24)")  # as rocksdict raises it
    assert raised.value.errno == errno.EMFILE


def test_a_full_disk_is_not_damage(killed_store, tmp_path):
    """The test limits the size of files, which causes the same failures as a full disk."""
    directory = copied(killed_store[1], tmp_path / "store")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for most in (1, 100, 5_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
            try:
                open_store(directory, BELONGS, 10**6, pytest.fail).close()
            except OSError as error:
                assert error.errno == errno.EFBIG
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    finally:
        signal.signal(signal.SIGXFSZ, handler)
    assert stored_views(directory)


def test_a_held_lock_is_not_damage(killed_store, tmp_path):
    directory = copied(killed_store[1], tmp_path / "store")
    code = (
        "import sys; from pathlib import Path;"
        "from foldlog.processors.store.store import RocksBackend;"
        "held = RocksBackend(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    try:
        assert line_of(child.stdout, "the lock is held") == "held\n"
        assert_refused(directory, errno.EAGAIN)
    finally:
        output_of(child)
    held = RocksBackend(directory)
    assert_refused(directory, errno.ENOLCK)
    held.close()
    assert stored_views(directory)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("IO error: No space left on device: While appending to file: D/000016.log", errno.ENOSPC),
        ("Corruption: IO error: While open a file: D/CURRENT: Too many open files", errno.EMFILE),
        ("IO error: While open a file for appending: D/LOG: Permission denied", errno.EACCES),
        ("IO error: While open a file: D/MANIFEST-000005: Read-only file system", errno.EROFS),
        ("IO error: While pread offset 0 len 4096: D/000009.sst: Input/output error", errno.EIO),
    ],
)
def test_an_error_of_the_system_is_not_damage_even_if_RocksDB_reports_corruption(text, code):
    error = classified(Exception(text))
    assert isinstance(error, OSError) and error.errno == code


def test_an_unknown_error_is_not_damage():
    unknown = Exception("Not implemented: block format of the future")
    assert classified(unknown) is unknown

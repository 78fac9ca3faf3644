"""Forks of long sessions share the segments of their seeds, and are folded like short ones."""

from dataclasses import replace

import pytest

from foldlog.client.branching import Branching
from foldlog.client.log_client import LogClient
from foldlog.log import MemoryLog
from foldlog.log.blobs import BlobStore
from foldlog.log.object_store import RemoteObjects
from foldlog.processors.store.views_codec import view_hashes
from foldlog.producers.fork import open_fork
from foldlog.schemas.seed import MEDIA_TYPE
from foldlog.schemas.topics import topics
from foldlog.tests.client.branching.branched import views_of
from foldlog.tests.client.branching.long_sessions import USER, LongSession, sealed_in_format_1
from foldlog.tests.client.branching.test_skip import poison
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.played import PARTITIONS, settings_in
from foldlog.upkeep import moving
from foldlog.upkeep.blobs import verify

READS_MAX = 32
SHARE_MAX = 1.5


class CountedObjects(RemoteObjects):
    """An object store in memory that counts the bytes sent to it."""

    sent = 0

    def put(self, name, data):
        whole = b"".join(data)
        self.sent += len(whole)
        super().put(name, [whole])


@pytest.fixture
def client(log, tmp_path):
    with LogClient(settings_in(tmp_path, USER), log) as client:
        yield client


@pytest.fixture
def long(client):
    return LongSession(client.log)


@pytest.fixture(params=["directory", "objects"])
def place(request, client):
    """The branching of a client, and a function that returns how many bytes were stored so far."""
    if request.param == "directory":
        return client.branching(), lambda: sum(written(client).values())
    objects = CountedObjects(f"memory://{unique_name()}")
    blobs = BlobStore(objects)
    read = lambda ref: blobs.get(ref.sha256)  # noqa: E731
    branching = Branching(client.log, client.writer, blobs, read, USER)
    return branching, lambda: objects.sent


def written(client) -> dict[str, int]:
    """The bytes in files, by the name of the blob and the number of the file, which changes if it
    is written again."""
    paths = client.settings.blobs_dir.glob("??/*")
    return {f"{path.name} {path.stat().st_ino}": path.stat().st_size for path in paths}


@pytest.mark.parametrize("more", [-1, 0, 1, 7])
def test_beyond_2_a_fork_at_turn_400_writes_no_more_than_one_at_turn_40(place, long, more):
    """After a fork one turn earlier. Before: ten times as much."""
    branching, stored = place
    bytes_of = {}
    for turn in (40, 400):
        long.grow_to(turn + more)
        branching.fork("s1", long.ended(turn + more - 1), name=f"before{turn}")
        before = stored()
        branching.fork("s1", long.ended(turn + more), name=f"at{turn}")
        bytes_of[turn] = stored() - before
    assert 0 < bytes_of[400] <= SHARE_MAX * bytes_of[40], bytes_of


@pytest.mark.parametrize("turns", [400, 2_000])
def test_beyond_2_a_fork_of_a_long_session_is_read_with_at_most_32_reads(client, long, turns):
    long.grow_to(turns)
    client.branching().fork("s1", name="f1")
    reads = []

    def counted(ref):
        reads.append(ref.sha256)
        return client.read_blob(ref)

    with LogClient(client.settings, client.log) as reader:
        reader.read_blob = counted
        with reader.fold("f1") as folded:
            assert folded.to_end().turn.number == turns
    assert 1 < len(reads) <= READS_MAX


def test_beyond_2_a_fold_of_a_fork_reads_no_other_partition(client, long, monkeypatch):
    long.grow_to(100)
    name = elsewhere(client, long)
    client.branching().fork("s1", name=name)
    partitions = set()
    records = client.log.reader

    def noted(topic, places, **more):
        partitions.update(places)
        return records(topic, places, **more)

    monkeypatch.setattr(client.log, "reader", noted)
    with client.fold(name) as folded:
        assert folded.to_end().turn.number == 100
    assert partitions == {folded.partition}


@pytest.mark.parametrize("turn", [1, 9, 88, 95])
def test_beyond_2_a_fork_of_a_seed_of_format_1_has_the_same_views(client, long, turn):
    long.grow_to(95)
    at = long.ended(turn)
    records = [record for record in long.records() if record.offset <= at]
    old = client._blob_store().store(sealed_in_format_1("s1", records), MEDIA_TYPE)
    open_fork(client.writer, "old", "s1", at, old, agent="default", user=USER)
    client.branching().fork("s1", at, name="new")
    client.branching().fork("old", name="old-again")
    old_views, new_views = views_of(client, "old"), views_of(client, "new")
    assert old_views.frozen is None and old_views.turn.number == turn
    assert old_views.transcript.lines == new_views.transcript.lines
    assert old_views.context.fragments == new_views.context.fragments
    assert views_of(client, "old-again").frozen is None


def test_beyond_2_a_skip_and_a_move_share_the_segments_of_a_fork(client, long):
    long.grow_to(100)
    client.branching().fork("s1", name="f1")
    segments = names(client) - {views_of(client, "f1").origin.seed}
    assert len(segments) == 2
    before = written(client)
    poison(client)
    client.branching().skip("s1")
    assert len(names(client)) == len(before) and before.items() <= written(client).items()
    new = MemoryLog(topics(PARTITIONS + 1))
    settings = replace(client.settings, partitions=PARTITIONS + 1)
    moving.move(client.log, new, settings, client.read_blob)
    with LogClient(settings, new) as moved:
        assert views_of(moved, "s1").turn.number == 100
    assert before.items() <= written(client).items()
    assert sum(written(client).values()) < 1.5 * sum(before.values())


def test_beyond_2_verify_finds_the_segments_of_a_moved_fork(client, long):
    """In the new log only its seed names the seed of its parent."""
    long.grow_to(50)
    name = elsewhere(client, long)
    client.branching().fork("s1", name=name)
    long.grow_to(100)
    new = MemoryLog(topics(PARTITIONS + 1))
    settings = replace(client.settings, partitions=PARTITIONS + 1)
    moving.move(client.log, new, settings, client.read_blob)
    verified = verify(new, client._blob_store(), lambda _done, _there: None)
    assert verified.named == verified.stored == len(names(client)) > 6
    assert verified.problems == ()


@pytest.mark.parametrize("what", ["BlobMissing", "BlobCorrupt"])
def test_law_13_a_lost_segment_freezes_only_the_fork_and_is_named(client, long, what):
    long.grow_to(100)
    client.branching().fork("s1", name="f1")
    whole = views_of(client, "f1")
    for name in sorted(names(client)):
        path = client.settings.blobs_dir / name[:2] / name
        data = path.read_bytes()
        path.unlink() if what == "BlobMissing" else path.write_bytes(data[1:])
        with client.fold("f1") as folded:
            frozen = folded.to_end().frozen
        assert frozen is not None and f"{what}: {name}" in frozen.why
        assert views_of(client, "s1").frozen is None
        path.write_bytes(data)
    assert view_hashes(views_of(client, "f1")) == view_hashes(whole)


def elsewhere(client, long) -> str:
    """The name of a session in another partition."""
    return next(f"f{n}" for n in range(9) if client.fold(f"f{n}").partition != long.partition)


def names(client) -> set[str]:
    return {path.name for path in client.settings.blobs_dir.glob("??/*")}

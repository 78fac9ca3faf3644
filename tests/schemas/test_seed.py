"""Seeds: a history that was cut into segments is the same history when it is read."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from foldlog.processors.entries import level_of, seed_of
from foldlog.schemas import events as ev, seed
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.schemas.value import replace
from foldlog.tests.client.branching.long_sessions import sealed_in_format_1
from foldlog.tests.kit.blobs import MemoryBlobs
from foldlog.tests.laws.law import histories

READS_MAX = 32
KINDS = st.lists(st.sampled_from([b"TURN_ENDED", b"TURN_ENDED", b"LLM_CALLED"]), max_size=60)


def records_of(kinds: list[bytes]) -> list[Record]:
    return [
        Record(SESSION_EVENTS, 3, at, at * 7, b"s1", b"%d" % at if at % 5 else None, (("t", kind),))
        for at, kind in enumerate(kinds)
    ]


def stored(blobs: MemoryBlobs, data: bytes) -> ev.BlobRef:
    return blobs.store(data, seed.MEDIA_TYPE)


def stored_pieces(blobs: MemoryBlobs, records, up=None, name: str = "s1") -> ev.BlobRef:
    return [stored(blobs, data) for data in seed.pieces(name, records, up)][-1]


@given(KINDS, st.integers(1, 40), st.integers(0, 200))
def test_beyond_2_a_seed_of_segments_is_read_as_the_same_bytes_as_one_of_format_1(
    kinds, repeated, more
):
    records = records_of(kinds * repeated + [b"GEN_CHUNK"] * more)
    blobs = MemoryBlobs()
    up = ev.BlobRef(sha256="5" * 64, bytes=1, media_type="x/x")
    ref = stored_pieces(blobs, records, up)
    assert level_of(ref, blobs.read) == sealed_in_format_1("s1", records, up)


@given(KINDS, st.integers(1, 40), st.data())
def test_beyond_2_seeds_with_one_beginning_have_the_same_segments(kinds, repeated, data):
    """Except those that became part of a larger one."""
    records = records_of(kinds * repeated)
    fewer = records[: data.draw(st.integers(0, len(records)))]
    *short, _ = seed.pieces("s1", fewer)
    *whole, _ = seed.pieces("other", records)
    ends = {seed.piece(blob).records[-1].offset: blob for blob in whole}
    for blob in short:
        assert ends.get(seed.piece(blob).records[-1].offset, blob) == blob


@pytest.mark.parametrize("turns", [0, 7, 8, 87, 88, 400, 967, 968, 2_000, 10_647])
def test_beyond_2_a_seed_is_read_with_at_most_32_reads(turns):
    blobs, reads = MemoryBlobs(), []
    ref = stored_pieces(blobs, records_of([b"LLM_CALLED", b"TURN_ENDED"] * turns))

    def counted(one: ev.BlobRef) -> bytes:
        reads.append(one.sha256)
        return blobs.read(one)

    assert seed_of(ref, counted).why == ""
    assert len(reads) == len(blobs.held) <= READS_MAX


def test_beyond_2_a_turn_of_many_records_is_cut_too():
    blobs = MemoryBlobs()
    stored_pieces(blobs, records_of([b"LLM_CALLED"] * 64 * 8 * 3))
    assert len(blobs.held) == 4
    assert max(len(seed.piece(data).records) for data in blobs.held.values()) == 64 * 8


def test_beyond_2_a_short_seed_is_one_blob_that_older_versions_read():
    records = records_of([b"LLM_CALLED", b"TURN_ENDED"] * 7)
    assert list(seed.pieces("s1", records)) == [sealed_in_format_1("s1", records)]


@given(histories(), st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 9))
def test_beyond_2_a_fork_at_any_offset_is_folded_from_the_bytes_of_format_1(
    history, upto, group, leaf
):
    """Random histories are short, so here a segment has few records."""
    mine = [record for record in history.records if record.key == history.session_id.encode()]
    records, blobs = mine[: upto % (len(mine) + 1)], MemoryBlobs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seed, "GROUP_LEAVES", group)
        patch.setattr(seed, "LEAF_RECORDS_MAX", leaf)
        new = stored_pieces(blobs, records)
    assert len(blobs.held) > 1 or len(records) < group * leaf
    old = stored(blobs, sealed_in_format_1("s1", records))
    assert seed_of(new, blobs.read) == seed_of(old, blobs.read)


def damaged(blobs: MemoryBlobs, records) -> list[ev.BlobRef]:
    """A segment in the place of a head, and a head that names a seed as its segment."""
    *_, segment, head = map(seed.piece, seed.pieces("s1", records))
    whole = stored(blobs, seed.seal("s1", records))
    forged = replace(head, before=(whole.sha256, whole.bytes, whole.media_type))
    return [stored(blobs, msgspec.msgpack.encode(wrong)) for wrong in (segment, forged)]


def test_bad_input_a_segment_is_no_seed_and_a_seed_is_no_segment():
    blobs = MemoryBlobs()
    records = records_of([b"LLM_CALLED", b"TURN_ENDED"] * 20)
    stored_pieces(blobs, records)
    for ref in damaged(blobs, records):
        assert "in the place of a" in seed_of(ref, blobs.read).why


def test_bad_input_a_seed_of_a_later_format_is_refused_by_its_number():
    data = sealed_in_format_1("s1", []).replace(b"\x95\x01", b"\x95\x03", 1)
    blobs = MemoryBlobs()
    why = seed_of(stored(blobs, data), blobs.read).why
    assert why == "ValueError: a seed of format 3: this version reads 1 and 2"


def test_bad_input_a_head_is_not_folded_without_its_segments():
    *_, head = seed.pieces("s1", records_of([b"TURN_ENDED"] * 9))
    with pytest.raises(ValueError, match="not joined"):
        seed.unseal(head)

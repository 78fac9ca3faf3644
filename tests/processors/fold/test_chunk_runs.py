"""A refold by runs gives the same views and rulings as one event after the other."""

from hypothesis import given, settings, strategies as st

from foldlog.processors.fold.sessions import FoldedSessions, chunk_runs
from foldlog.processors.store.views_codec import view_hashes
from foldlog.schemas.codec import CHUNK, entry_of
from foldlog.schemas.record import Record
from foldlog.tests.golden import golden

FORGED = (
    (CHUNK, ("w", b"tools"), ("g", b"1.1.1")),  # not the writer of chunks
    (CHUNK, ("w", b"models"), ("g", b"9.9.9")),  # no such attempt
    (CHUNK, ("w", b"models"), ("g", b"one")),  # unreadable
    (CHUNK,),
)
ALL = {name: golden.records(name) for name in golden.names()}


@st.composite
def interleaved(draw) -> list[Record]:
    """Recorded sessions, interleaved event by event, with some chunks forged or written twice."""
    names = draw(st.lists(st.sampled_from(sorted(ALL)), min_size=1, max_size=3, unique=True))
    left = {name: [r for r in ALL[name] if r.key == golden.SESSION_ID.encode()] for name in names}
    chance = draw(st.randoms(use_true_random=False))
    found: list[Record] = []
    while left:
        name = chance.choice(sorted(left))
        for _ in range(chance.randrange(1, 5)):
            record = left[name].pop(0)._replace(key=name.encode())
            found.append(record)
            if record.headers[:1] == (CHUNK,) and chance.random() < 0.3:
                headers = chance.choice((*FORGED, record.headers))
                found += [record._replace(headers=headers)] * chance.randrange(1, 3)
            if not left[name]:
                del left[name]
                break
    return found


def outcome(folded: FoldedSessions) -> dict:
    """Everything that a reader knows of each session afterwards."""
    return {
        name: (view_hashes(s.views), s.views, s.first, s.next, s.last_at, +s.rulings)
        for name, s in folded.sessions.items()
    }


@settings(max_examples=30, deadline=None)
@given(interleaved(), st.integers(1, 400))
def test_runs_fold_as_single_events_do(records, batch):
    one_by_one, by_runs = FoldedSessions(), FoldedSessions()
    events = sum(one_by_one.feed(entry_of(record)) is not None for record in records)
    count = sum(
        by_runs.feed_records(records[at : at + batch], entry_of)
        for at in range(0, len(records), batch)
    )
    assert outcome(by_runs) == outcome(one_by_one)
    assert (count, by_runs.newest_ms) == (events, one_by_one.newest_ms)


@settings(max_examples=30, deadline=None)
@given(interleaved())
def test_runs_contain_every_record_in_the_order_of_its_session(records):
    runs = chunk_runs(records)
    again = [record for first, more in runs for record in (first, *more)]
    for key in {record.key for record in records}:
        assert [r for r in again if r.key == key] == [r for r in records if r.key == key]


def test_chunks_of_concurrent_answers_are_grouped():
    """Grouping only neighbours left every chunk alone as soon as two sessions streamed."""
    headers = (CHUNK, ("w", b"models"), ("g", b"1.1.1"))
    records = [
        Record("t", 0, n, n, b"one" if n % 2 else b"two", b"", headers) for n in range(10)
    ]
    assert [len(more) for _, more in chunk_runs(records)] == [4, 4]

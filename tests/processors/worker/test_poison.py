"""Law 13: whatever a session's records contain, all other sessions continue in every reader."""

import io
import json
import random
from dataclasses import replace as with_fields

import msgspec
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import example, given, settings, strategies as st

from foldlog.log.memory import MemoryLog
from foldlog.processors.agent import Agent
from foldlog.processors.effects.models.answer import Answer
from foldlog.processors.fold.projections.context import estimated_tokens
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.store.partition_cache import may_owe
from foldlog.processors.store.store import Cursor, DictBackend, Store
from foldlog.processors.store.views_codec import view_hashes
from foldlog.schemas import bounds, codec, events as ev
from foldlog.schemas.topics import SESSION_EVENTS, USER_SESSIONS, topics
from foldlog.schemas.value import replace
from foldlog.tests.kit.history import opened as opened_history
from foldlog.tests.kit.manual_worker import ManualWorker, answered, message, opened
from foldlog.tests.laws.law import history_of
from foldlog.web.gateway.tabs import Tabs
from foldlog.web.gateway.tail import Tail

AGENT = Agent(name="a", model="m")
POISONED, NEIGHBOUR = "poisoned", "neighbour"
FULL = 2**62


def usage(tokens: int) -> ev.Usage:
    """A Usage whose five counts are equal."""
    return ev.Usage(
        input_tokens=tokens,
        cache_read_tokens=tokens,
        cache_write_5m_tokens=tokens,
        cache_write_1h_tokens=tokens,
        output_tokens=tokens,
        raw=b"{}",
    )


def spent(tokens: int, upto: int = 1) -> ev.BackgroundDone:
    """An outcome of background work without a claim. It is a duplicate, but its usage counts."""
    return ev.BackgroundDone(kind="memory", upto=upto, attempt=1, ok=True, usage=usage(tokens))


def unbounded(event: object) -> bytes:
    """The bytes of an event without foldlog's limits on numbers, as another program could write
    them."""
    row = codec.BY_CLASS[type(event)]
    schema, out = codec.schema_of(row.name), io.BytesIO()
    out.write(codec.MAGIC + codec.fingerprint_of(schema))
    fields = msgspec.to_builtins(event, builtin_types=(bytes,))
    schemaless_writer(out, parse_schema(schema), fields)
    return out.getvalue()


def two_sessions() -> ManualWorker:
    """A worker that holds a partition with two sessions, each with an open turn."""
    rig = ManualWorker(AGENT)
    for name in (POISONED, NEIGHBOUR):
        rig.write("producer", opened("a"), key=name)
        rig.write("producer", message(), key=name)
    rig.assign()
    rig.settle()
    return rig


def write_unchecked(rig: ManualWorker, writer: str, event: object, key: str = POISONED) -> int:
    """Write an event without a check of its numbers. Returns the offset."""
    headers = tuple(codec.headers_for(event, writer))
    return rig.log.store(SESSION_EVENTS, 0, key.encode(), unbounded(event), headers).offset


def neighbour_answers(rig: ManualWorker) -> bool:
    """Whether the neighbour session's turn ends when its model answers."""
    rig.write("models", answered(), key=NEIGHBOUR)
    rig.settle()
    return not rig.worker.owned[0].views(NEIGHBOUR).turn.open


def folded(rig: ManualWorker, name: str):
    """The views of a session at the worker's offset, from a fold of the log alone."""
    views, end = initial(name), rig.worker.owned[0].next_offset
    for entry in map(codec.entry_of, rig.log.records(SESSION_EVENTS, 0)[:end]):
        if entry.session_id == name:
            views, _ = fold(views, entry)
    return views


def stored(rig: ManualWorker, name: str):
    """The views of a session in the worker's store."""
    return Store(DictBackend(rig.disk)).load(name)


# -- numbers ---------------------------------------------------------------------------------------


def test_law_13_usage_whose_sum_exceeds_64_bits_ends_no_worker_and_costs_nothing():
    """The defect: two such records of 79 bytes ended every worker and every gateway, and did so
    again at each restart."""
    rig = two_sessions()
    for upto in (1, 2):
        write_unchecked(rig, "background", spent(FULL, upto))
    rig.settle()
    assert neighbour_answers(rig)
    views = stored(rig, POISONED)
    assert views.frozen is None and len(views.ledger.spent) == 2, "each is counted as an attempt"
    assert views.ledger.input_tokens == 0
    assert view_hashes(views) == view_hashes(folded(rig, POISONED))


def test_law_13_the_gateway_continues_after_usage_that_exceeds_64_bits(tmp_path):
    rig = two_sessions()
    for upto in (1, 2):
        write_unchecked(rig, "background", spent(FULL, upto))
    rig.settle()
    tail = Tail(rig.log, tmp_path, pytest.fail)
    while not tail.caught_up:
        reader = rig.log.reader(SESSION_EVENTS, tail.places())
        tail._poll(reader)
        reader.close()
    assert view_hashes(tail.views(POISONED)) == view_hashes(folded(rig, POISONED))
    assert tail.views(NEIGHBOUR).turn.open
    tail.close()


OUT_OF_BOUNDS = {
    "tokens of a message": ("producer", message("m2"), {"tokens": FULL}),
    "fewer tokens than any text": ("producer", message("m2"), {"tokens": -FULL}),
    "items of a blob": (
        "producer",
        ev.ItemAdded(item_id="i", content=ev.Body(inline=b"[]")),
        {"items": FULL},
    ),
    "a time": (
        "models",
        ev.GenFailed(
            turn=1, step=1, attempt=1, content=ev.Body(), error="x", detail="", permanent=False
        ),
        {"retry_at": FULL},
    ),
}


@pytest.mark.parametrize(("writer", "event", "fields"), OUT_OF_BOUNDS.values(), ids=OUT_OF_BOUNDS)
def test_law_13_a_number_out_of_bounds_freezes_its_session_in_every_reader(
    writer, event, fields
):
    rig = two_sessions()
    offset = write_unchecked(rig, writer, with_fields(event, **fields))
    rig.write("producer", message("later"), key=POISONED)
    rig.settle()
    assert neighbour_answers(rig)
    views = stored(rig, POISONED)
    assert views.frozen.offset == offset and "int" in views.frozen.why
    assert view_hashes(views) == view_hashes(folded(rig, POISONED))


@pytest.mark.parametrize(("_writer", "event", "fields"), OUT_OF_BOUNDS.values(), ids=OUT_OF_BOUNDS)
def test_the_codec_refuses_to_encode_a_number_out_of_bounds(_writer, event, fields):
    with pytest.raises(ValueError, match="int"):
        codec.encode(with_fields(event, **fields))


@pytest.mark.parametrize("tokens", [FULL, 10**9, bounds.REQUEST_TOKENS_MAX, -5])
def test_an_impossible_usage_does_not_exceed_the_budget_of_its_session(tokens):
    """The defect: the usage counted in the estimate of the next request, so every later turn ended
    as budget_exceeded."""
    rig = two_sessions()
    write_unchecked(rig, "models", with_fields(answered(), usage=usage(tokens)))
    rig.settle()
    views = stored(rig, POISONED)
    assert not views.turn.open and estimated_tokens(views.context) < 1_000
    rig.write("producer", message("m2"), key=POISONED)
    rig.settle()
    views = stored(rig, POISONED)
    assert views.turn.open and views.turn.generation.status in ("owed", "running")


@pytest.mark.parametrize("tokens", [2**63, 10**30, bounds.USAGE_TOKENS_MAX + 1])
def test_an_impossible_usage_counts_no_tokens_and_its_bytes_are_kept(tokens, caplog):
    """The defect: the usage was written as 2**63 - 1, or the sum of two counts prevented the answer
    from being written."""
    compacted = {"type": "compaction", "input_tokens": tokens, "output_tokens": 1}
    raw_usage = {"input_tokens": tokens, "output_tokens": 7, "iterations": [compacted]}
    answer = Answer()
    delta = {"type": "message_delta", "delta": {}, "usage": raw_usage}
    answer.feed("message_delta", json.dumps(delta))
    usage = answer.usage()
    assert usage.counts == (0, 0, 0, 0, 0) and usage.input_tokens == usage.output_tokens == 0
    assert str(tokens).encode() in usage.raw
    assert "impossible usage" in caplog.text


def test_views_that_cannot_be_stored_freeze_only_their_session():
    """This is the last line of defence: no event is known that makes views impossible to store."""
    backend = DictBackend()
    store = Store(backend)
    good, other = opened_history().views, opened_history("s2").views
    store.write({"s1": good, "s2": other}, {}, may_owe, store.partition, Cursor(6))
    bad = replace(good, ledger=replace(good.ledger, input_tokens=2**70))
    moved = replace(other, state=replace(other.state, phase="building"))
    frozen = store.write(
        {"s1": bad, "s2": moved}, {}, may_owe, store.partition, Cursor(9), {"s1": 7, "s2": 8}
    )
    again = Store(backend)
    assert again.cursor == Cursor(9) and again.load("s2") == moved
    assert again.load("s1") == frozen["s1"]
    assert replace(frozen["s1"], frozen=None) == good and frozen["s1"].frozen.offset == 7


# -- any bytes -------------------------------------------------------------------------------------

# Varints of ten bytes: the least and the greatest long, and an overlong one.
EXTREMES = (b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\x80" * 9 + b"\x01")


@settings(max_examples=40)
@given(st.integers(0, 9), st.randoms(use_true_random=False))
@example(0, random.Random(1))
def test_law_13_fold_and_store_never_raise_for_any_bytes(seed, random):
    """The test cuts, flips and overwrites bytes of records; the neighbour session must fold as if
    it were alone."""
    rig, steps = ManualWorker(AGENT), history_of(seed).records
    for number, record in enumerate(steps[:150]):
        value = bytearray(record.value or b"")
        if value and random.random() < 0.2:
            place = random.randrange(len(value))
            if random.random() < 0.5:
                value[place] ^= 1 << random.randrange(8)
            else:
                wide = random.choice(EXTREMES)
                value[place : place + random.choice((0, 1, len(wide)))] = wide
        key = record.key if record.key == b"#partition" else POISONED.encode()
        rig.log.store(SESSION_EVENTS, 0, key, bytes(value), record.headers)
        if number == 3:
            rig.write("producer", opened("a"), key=NEIGHBOUR)
            rig.write("producer", message(), key=NEIGHBOUR)
    end = rig.log.end_offsets(SESSION_EVENTS)[0]
    rig.assign()
    rig.read(end)
    for name in (POISONED, NEIGHBOUR):
        assert view_hashes(stored(rig, name)) == view_hashes(folded(rig, name))
    assert stored(rig, NEIGHBOUR).turn.open


# -- user-sessions ---------------------------------------------------------------------------------

HOSTILE = (
    b"[" * 100_000,
    b'{"phase":' + b"[" * 5_000 + b"]" * 5_000 + b',"project_id":null,"opened_at":1}',
    b'{"phase":"chatting","project_id":null,"opened_at":1e400}',
    b'{"phase":"chatting","project_id":null,"opened_at":NaN}',
    b'{"phase":"chatting","project_id":null,"opened_at":' + b"9" * 5_000 + b"}",
    b'{"phase":"chatting","project_id":{"a":[1]},"opened_at":1}',
    b'{"phase":"\xff","project_id":null,"opened_at":1}',
    b"null",
    b"",
)


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_law_13_no_record_of_user_sessions_ends_the_tabs_reader(value):
    """The defect: deeply nested JSON ended the reading thread, and /api/tabs responded 503 until a
    restart."""
    log = MemoryLog(topics(1))
    good = b'{"phase":"chatting","project_id":null,"opened_at":5}'
    log.store(USER_SESSIONS, 0, b"ana/s1", value, ())
    log.store(USER_SESSIONS, 0, b"ana/s2", good, ())
    tabs = Tabs(log)
    tabs.look()
    assert [tab.session_id for tab in tabs.open_sessions("ana")] == ["s2"]
    assert tabs.caught_up.is_set()
    tabs.close()

"""The write side of sessions: each call is validated, writes one event, and is idempotent by id."""

import json

import pytest
from hypothesis import given, strategies as st

from foldlog.log import LOST_ACK, Faults, MemoryLog, RecordTooLarge, TopicMissing
from foldlog.processors.fold.rulings.producers import RULES, content_error
from foldlog.producers import (
    BlobStore,
    Invalid,
    Receipt,
    Sessions,
    Unacknowledged,
    checks,
    sessions as module,
)
from foldlog.schemas import events as ev
from foldlog.schemas.attachments import reference
from foldlog.schemas.codec import decode
from foldlog.schemas.events.parts import BlobRef
from foldlog.schemas.ids import is_id
from foldlog.schemas.tokens import estimate
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit.played import PARTITIONS, settings_in


@pytest.fixture
def sessions(log, tmp_path):
    return Sessions(log, settings_in(tmp_path))


def stored(log, receipt):
    """The record that a receipt names, and the record's event."""
    record = log.records(SESSION_EVENTS, receipt.partition)[receipt.offset]
    return record, decode(record.value)


def produced(log):
    return sum(len(log.records(SESSION_EVENTS, p)) for p in range(PARTITIONS))


def test_producers_and_folds_have_the_same_version_of_the_rules():
    assert module.RULES == RULES


def test_S2_1_each_call_writes_its_event_with_the_session_as_the_key(log, sessions):
    calls = {
        "SESSION_OPENED": sessions.open("s1", agent="shop"),
        "MESSAGE_RECEIVED": sessions.say("s1", "hi"),
        "PHASE_TRIGGERED": sessions.trigger("s1", "start_build"),
        "PROJECT_LOCKED": sessions.lock("s1", "p1"),
        "CANCEL_REQUESTED": sessions.cancel("s1", turn=1, seen_phase="building"),
        "APPROVAL_DECIDED": sessions.decide("s1", "1.1.0", "allow", args_sha256="ab"),
        "HUMAN_RESOLVED": sessions.resolve("s1", "1.1.0", "happened", report="seen"),
        "SESSION_TERMINATED": sessions.terminate("s1", reason="enough"),
    }
    partitions = {receipt.partition for receipt in calls.values()}
    assert len(partitions) == 1
    for name, receipt in calls.items():
        record, event = stored(log, receipt)
        assert ev.BY_CLASS[type(event)].name == name
        assert record.key == b"s1" and record.header("w") == b"producer"
        assert record.header("t") == name.encode() and record.header("m") == b"1"
        assert getattr(event, "by_user", "ana") == "ana"


def test_a_receipt_has_the_position_of_the_event_and_its_id(log, sessions):
    receipt = sessions.say("s1", "hi", message_id="m1")
    assert isinstance(receipt, Receipt)
    assert receipt == ("s1", receipt.partition, 0, "m1")
    assert sessions.say("s1", "hi", message_id="m1").offset == 1


def test_S0_10_an_omitted_id_is_generated_and_returned(log, sessions):
    first, second = sessions.say("s1", "hi"), sessions.say("s1", "hi")
    assert first.id != second.id and is_id(first.id)
    assert stored(log, first)[1].message_id == first.id
    assert stored(log, sessions.cancel("s1"))[1].cancel_id
    assert stored(log, sessions.trigger("s1", "publish"))[1].command_id


def test_a_message_is_a_json_array_of_blocks_with_estimated_tokens(log, sessions):
    _, event = stored(log, sessions.say("s1", "grüße"))
    assert event.content.inline == '[{"type":"text","text":"grüße"}]'.encode()
    assert event.role == "user" and event.channel == "python" and event.when_busy == "queue"
    assert event.tokens == estimate('[{"type":"text","text":"grüße"}]')
    image = BlobRef(sha256="ab" * 32, bytes=9, media_type="image/png")
    blocks = [{"type": "text", "text": "a"}, reference(image, 3)]
    _, event = stored(log, sessions.say("s1", blocks, when_busy="steer"))
    assert json.loads(event.content.inline) == blocks and event.when_busy == "steer"


def test_S2_3_content_over_the_inline_limit_is_in_the_blob_store_before_its_event(log, tmp_path):
    blobs = BlobStore(tmp_path / "blobs")
    blobs_at_append = []

    class WatchedLog:
        """Records the content of the blob store at the moment an event is produced."""

        def __getattr__(self, name):
            return getattr(log, name)

        def producer(self, *, brief):
            producer = log.producer()
            append = producer.append

            def append_and_record(topic, key, value, headers=(), **more):
                ref = decode(value).content.ref
                blobs_at_append.append(ref is not None and blobs.get(ref.sha256))
                append(topic, key, value, headers, **more)

            producer.append = append_and_record
            return producer

    sessions = Sessions(WatchedLog(), settings_in(tmp_path, inline_limit_bytes=1024), blobs)
    text = "x" * 5000
    receipt = sessions.say("s1", text)
    _, event = stored(log, receipt)
    whole = json.dumps([{"type": "text", "text": text}], separators=(",", ":")).encode()
    assert event.content.inline is None and event.content.ref.bytes == len(whole)
    assert blobs_at_append == [whole] and content_error(event.content) is None
    assert stored(log, receipt)[0].value.__sizeof__() < 1024


BAD_IDS = ["", " ", "a b", "ä", "x" * 129, "a/b", "a\nb", "\x1b[2J", "#partition"]


@pytest.mark.parametrize("bad", BAD_IDS)
def test_invalid_ids_are_refused_before_anything_is_produced(log, sessions, bad):
    attempts = [
        lambda: sessions.open(bad, agent="shop"),
        lambda: sessions.open("s1", agent=bad),
        lambda: sessions.open("s1", agent="shop", user=bad),
        lambda: sessions.say(bad, "hi"),
        lambda: sessions.say("s1", "hi", message_id=bad),
        lambda: sessions.say("s1", "hi", user=bad),
        lambda: sessions.trigger("s1", bad),
        lambda: sessions.trigger("s1", "publish", command_id=bad),
        lambda: sessions.lock("s1", bad),
        lambda: sessions.cancel("s1", cancel_id=bad),
        lambda: sessions.cancel("s1", seen_phase=bad),
        lambda: sessions.decide("s1", bad, "allow", args_sha256="ab"),
        lambda: sessions.decide("s1", "1.1.0", "allow", args_sha256=bad),
        lambda: sessions.resolve("s1", bad, "happened"),
        lambda: sessions.terminate(bad),
    ]
    for attempt in attempts:
        with pytest.raises(Invalid) as refused:
            attempt()
        assert len(str(refused.value)) < 300
    assert produced(log) == 0


LONG = {"type": "text", "text": "x" * 100_000}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "empty_message"),
        ("  \n\t ", "empty_message"),
        ([], "empty_message"),
        ([{"type": "text", "text": " "}], "empty_message"),
        ({"type": "text", "text": "a"}, "invalid_content"),
        ([{"text": "a"}], "invalid_content"),
        (["a"], "invalid_content"),
        ([{"type": "text", "text": 1}], "invalid_content"),
        ([{"type": "x", "n": float("nan")}], "invalid_content"),
        ([{"type": "x", "n": {1, 2}}], "invalid_content"),
        (None, "invalid_content"),
        # Stored as a blob, these would pass every fold and be in every later request.
        ([LONG, {"type": "tool_result", "tool_use_id": "x", "content": ""}], "invalid_content"),
        ([LONG | {"cache_control": {"type": "ephemeral"}}], "invalid_content"),
        ([LONG, {"type": "image", "source": {"type": "url", "url": "x"}}], "invalid_content"),
        ("half \ud83d", "invalid_text"),
        ("x" * checks.MESSAGE_BYTES_MAX, "too_large"),
    ],
)
def test_invalid_messages_are_refused_before_anything_is_produced(log, sessions, content, code):
    with pytest.raises(Invalid) as refused:
        sessions.say("s1", content)
    assert refused.value.code == code and produced(log) == 0
    if code == "invalid_text":
        assert "at character 5" in refused.value.detail, "the position in the text, not in its JSON"


@pytest.mark.parametrize(
    "attempt",
    [
        lambda s: s.say("s1", "hi", when_busy="later"),
        lambda s: s.cancel("s1", mode="soon"),
        lambda s: s.cancel("s1", turn=0),
        lambda s: s.cancel("s1", reason="x" * 1001),
        lambda s: s.decide("s1", "1.1.0", "maybe", args_sha256="ab"),
        lambda s: s.decide("s1", "toolu_1", "allow", args_sha256="ab"),
        lambda s: s.resolve("s1", "1.1.0", "perhaps"),
        lambda s: s.resolve("s1", "1.1.0", "happened", report="x" * 20_000),
        lambda s: s.terminate("s1", reason="\ud83d"),
    ],
)
def test_invalid_words_and_sizes_are_refused_before_anything_is_produced(log, sessions, attempt):
    with pytest.raises(Invalid):
        attempt(sessions)
    assert produced(log) == 0


@given(content=st.text(max_size=200))
def test_the_fold_accepts_every_text_that_the_producer_accepts(content):
    try:
        data = checks.content_json(content)
    except Invalid:
        return
    assert content_error(ev.Body(inline=data)) is None


def test_a_lost_acknowledgement_raises_with_the_id_to_repeat(tmp_path):
    log = MemoryLog(topics(PARTITIONS), faults=Faults([LOST_ACK]))
    sessions = Sessions(log, settings_in(tmp_path))
    with pytest.raises(Unacknowledged, match=r"may or may not be in the log.*the id m1.*once"):
        sessions.say("s1", "hi", message_id="m1")
    assert produced(log) == 1
    assert sessions.say("s1", "hi", message_id="m1").offset == 1


def test_a_call_without_acknowledgement_ends_in_time(tmp_path):
    log = MemoryLog(topics(PARTITIONS), immediate=False)
    sessions = Sessions(log, settings_in(tmp_path), ack_s=0.01)
    with pytest.raises(Unacknowledged, match="no broker answered within 0.01 s") as lost:
        sessions.say("s1", "hi")
    assert is_id(lost.value.id)


def test_a_missing_topic_raises_with_the_command_that_creates_it(tmp_path):
    with pytest.raises(TopicMissing, match="topics apply"):
        Sessions(MemoryLog(), settings_in(tmp_path)).say("s1", "hi")


def test_a_message_larger_than_a_record_is_refused_by_the_log(log, tmp_path):
    settings = settings_in(tmp_path, inline_limit_bytes=2 * 1024 * 1024)
    with pytest.raises(RecordTooLarge):
        Sessions(log, settings).say("s1", "x" * 1_100_000)
    assert produced(log) == 0

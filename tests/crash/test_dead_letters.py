"""Poison records in the topic: each gets one dead letter, and other records are unaffected."""

import time

import pytest

from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.events import SessionOpened
from foldlog.schemas.topics import DEAD_LETTERS, SESSION_EVENTS
from foldlog.tests.crash import damage, witnesses
from foldlog.tests.crash.rig import replay_differs
from foldlog.tests.crash.rounds import Play

pytestmark = [pytest.mark.broker, pytest.mark.crash]

OPENED = SessionOpened(user_id="tester", agent="helper", rules=1)
WHOLE, NAMED = encode(OPENED), headers_for(OPENED, "producer")
FOREIGN = [("t", b"FROM_THE_FUTURE"), ("w", b"producer")]
# Name -> key, value, headers. The keys name other sessions, so the people are unaffected.
POISON: dict[str, tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = {
    "random bytes": (b"poison", bytes(range(256)), NAMED),
    "no bytes": (b"poison", b"", NAMED),
    "no value": (b"poison", None, NAMED),
    "cut": (b"poison", WHOLE[:-3], NAMED),
    "too long": (b"poison", WHOLE + b"more", NAMED),
    "a giant varint": (b"poison", WHOLE[:10] + b"\xff" * 12, NAMED),
    "of an unknown schema": (b"poison", b"\xc3\x01" + b"\0" * 8 + b"x", FOREIGN),
    "mandatory": (b"frozen", b"\xc3\x01" + b"\1" * 8 + b"x", [*FOREIGN, ("m", b"1")]),
    "under another name": (b"poison", WHOLE, FOREIGN),
    "without headers": (b"poison", WHOLE, []),
    "a key that is no text": (b"\xff\xfe\xfd", WHOLE, NAMED),
    "a key too long": (b"k" * 500, WHOLE, NAMED),
    "no key": (None, WHOLE, NAMED),
}


def _letters(stage) -> list[tuple[int, int, str]]:
    """(partition, offset, reason) of every dead letter that was written so far."""
    ends = stage.log.end_offsets(DEAD_LETTERS)
    reader = stage.log.reader(DEAD_LETTERS, dict.fromkeys(ends, 0))
    records = []
    deadline = time.monotonic() + 60
    # A letter may arrive after `ends` was read, so a position may pass its end.
    while any(at < ends[partition] for partition, at in reader.positions().items()):
        assert time.monotonic() < deadline, f"{reader.positions()} of {ends} after 60 s"
        records += reader.poll(1.0)
    reader.close()
    found = []
    for record in records:
        named = dict(record.headers)
        place = (named["__dlq.errors.partition"], named["__dlq.errors.offset"])
        assert named["__dlq.errors.topic"] == SESSION_EVENTS.encode()
        found.append((*map(int, place), named["__dlq.errors.message"].decode()))
    return found


def test_S2_4_poison_gets_one_dead_letter_and_affects_no_other_session(stage):
    handle = stage.handle()
    handle.start()
    play = Play(stage, handle, cast=("tools", "talk", "approve"))
    play.await_taken("")
    pid = handle.pid
    placed = {}
    producer = stage.log.producer()
    for person in play.people:
        person.begin()
    play.until("something streams", play.streams)
    for what, (key, value, headers) in POISON.items():
        producer.append(
            SESSION_EVENTS,
            key,
            value,
            headers,
            partition=len(placed) % stage.settings.partitions,
            on_delivery=lambda at, what=what: placed.update({what: tuple(at)}),
        )
        assert producer.flush(60) == 0
    producer.close()
    play.until("every poison has a dead letter", lambda: len(_letters(stage)) >= len(POISON))
    play.until("everybody has an answer and nothing is pending", play.all_at_rest)
    assert witnesses.violations(stage, play.people) == []
    letters = _letters(stage)
    assert sorted(letter[:2] for letter in letters) == sorted(placed.values())
    assert all(why for *_, why in letters)
    frozen = stage.watch("frozen").views.frozen
    assert frozen is not None and frozen.offset == placed["mandatory"][1]

    assert handle.status()["dead_letters"] == len(letters), "the worker counts its dead letters"
    assert (handle.pid, play.ends) == (pid, [])

    # A worker with a rebuilt store reads all records again, but repeats no dead letter.
    handle.kill()
    for partition in range(stage.settings.partitions):
        damage.of_other_folds(damage.store_of(stage, "w1", partition))
    assert Play(stage, handle, "models.chunk:1", ("tools",)).run().wrong == []
    assert sorted(_letters(stage)) == sorted(letters)
    assert replay_differs(stage) == []

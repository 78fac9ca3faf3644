"""The outbox keeps every outcome until it is in the log, through crashes, damage and a full
disk."""

import os
import random
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.worker import outbox as module
from foldlog.processors.worker.outbox import Outbox, OutboxFull
from foldlog.schemas.events import ToolFailedUncertain
from foldlog.tests.kit.programs import END_S
from foldlog.tests.kit.waiting import PATIENCE_S, joined, within


def an_outcome(n, reason="the worker died"):
    return ToolFailedUncertain(turn=n, step=1, index=0, attempt=1, reason=reason)


def turns(box):
    return [item.event.turn for item in box.pending()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "worker" / "outbox"


def test_outcomes_not_done_are_pending_at_the_next_start(path):
    box = Outbox(path)
    tokens = [box.put(f"session-{n}", an_outcome(n)) for n in range(5)]
    box.done(tokens[1])
    box.done(tokens[3])
    box.close()
    again = Outbox(path)
    assert [(p.session_id, p.event) for p in again.pending()] == [
        (f"session-{n}", an_outcome(n)) for n in (0, 2, 4)
    ]
    for item in again.pending():
        again.done(item.token)
    again.close()
    assert len(Outbox(path)) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.booleans()), max_size=40))
def test_any_sequence_of_puts_dones_and_restarts_keeps_the_pending(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("outbox") / "outbox"
    box, expected, count = Outbox(path), {}, 0
    for is_put, which, restart in steps:
        if is_put or not expected:
            count += 1
            expected[box.put("s", an_outcome(count))] = count
        else:
            token = list(expected)[which % len(expected)]
            del expected[token]
            box.done(token)
        if restart:
            box.close()
            box = Outbox(path)
    assert turns(box) == list(expected.values())
    box.close()


_CHILD = """
import sys
from foldlog.processors.worker.outbox import Outbox
from foldlog.schemas.events import ToolFailedUncertain
box = Outbox(sys.argv[1])
for n in range(1, 1000000):
    token = box.put("s", ToolFailedUncertain(turn=n, step=1, index=0, attempt=1, reason="x" * 300))
    if n % 3 == 0:
        box.done(token)
    print(n, flush=True)
"""


def test_F1_a_killed_worker_loses_no_outcome(path):
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        begun = within("57 outcomes", lambda: [child.stdout.readline() for _ in range(57)])
        last = int(begun[-1])
    finally:
        child.kill()
        rest = within("the end of its output", child.stdout.read).split()
        child.wait(END_S)
    last = int(rest[-1]) if rest else last
    pending = turns(Outbox(path))
    assert set(pending) >= {n for n in range(1, last + 1) if n % 3}
    assert not {n for n in pending if n % 3 == 0 and n < last}, "no outcome that is done comes back"


def test_put_returns_after_its_bytes_are_synced(path, monkeypatch):
    box = Outbox(path)
    synced = []
    real = os.fdatasync

    def record(fd):
        real(fd)
        synced.append(os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fdatasync", record)
    for n in range(3):
        box.put("s", an_outcome(n))
        assert synced[-1] == os.stat(path).st_size, "everything written so far was synced"
    box.done(1)
    assert len(synced) == 3, "done is not synced"


@given(cut=st.integers(1, 400))
def test_a_torn_tail_is_cut_off_and_the_rest_is_kept(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("outbox") / "outbox"
    box, sizes = Outbox(path), []
    for n in range(5):
        box.put("s", an_outcome(n))
        sizes.append(os.stat(path).st_size)
    box.close()
    with open(path, "r+b") as file:
        file.truncate(max(0, sizes[-1] - cut))
    again = Outbox(path)
    assert turns(again) == [n for n in range(5) if sizes[n] <= sizes[-1] - cut]
    again.put("s", an_outcome(99))
    again.close()
    assert turns(Outbox(path))[-1] == 99
    assert Outbox(path).damaged is None


@given(seed=st.integers(0, 10**6))
def test_F15_a_flipped_byte_loses_only_its_own_frame(tmp_path_factory, seed):
    path = tmp_path_factory.mktemp("outbox") / "outbox"
    box = Outbox(path)
    for n in range(6):
        box.put("s", an_outcome(n))
    box.close()
    data = bytearray(path.read_bytes())
    at = random.Random(seed).randrange(len(data))
    data[at] ^= 0xFF
    path.write_bytes(data)
    again = Outbox(path)
    lost = set(range(6)) - set(turns(again))
    assert len(lost) == 1
    if lost != {5}:  # damage in the last frame looks like a torn tail
        assert again.damaged.read_bytes() == data, "a copy is kept"
    again.close()


def test_it_compacts_itself_and_stays_small(path, monkeypatch):
    monkeypatch.setattr(module, "_COMPACT_BYTES", 20_000)
    box = Outbox(path)
    token_kept = box.put("s", an_outcome(0))
    for n in range(1, 300):
        box.done(box.put("s", an_outcome(n, "x" * 500)))
        assert os.stat(path).st_size < 2 * 20_000 + 2_000
    assert [p.token for p in box.pending()] == [token_kept]
    box.close()
    assert turns(Outbox(path)) == [0]


def test_a_full_outbox_raises_OutboxFull(path):
    box = Outbox(path, pending_bytes_max=2_000)
    tokens = []
    with pytest.raises(OutboxFull, match="No effect begins"):
        for n in range(100):
            tokens.append(box.put("s", an_outcome(n, "x" * 500)))
    assert len(tokens) == len(box) == 3
    box.done(tokens[0])
    box.put("s", an_outcome(100))
    assert turns(box) == [1, 2, 100]


def test_a_full_disk_leaves_the_file_readable(path, monkeypatch):
    box = Outbox(path)
    box.put("s", an_outcome(1))
    real = os.write

    def write_part(fd, data):
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return real(fd, bytes(data)[: len(data) - 30])

    monkeypatch.setattr(os, "write", write_part)
    with pytest.raises(OSError, match="No space"):
        box.put("s", an_outcome(2, "x" * 100))
    monkeypatch.undo()
    box.put("s", an_outcome(3))
    assert turns(box) == [1, 3]
    box.close()
    again = Outbox(path)
    assert turns(again) == [1, 3] and again.damaged is None


def test_threads_put_and_finish_concurrently_while_it_compacts(path, monkeypatch):
    monkeypatch.setattr(module, "_COMPACT_BYTES", 5_000)
    box = Outbox(path)
    start = threading.Barrier(6)

    def work(k):
        start.wait(PATIENCE_S)
        for n in range(40):
            token = box.put(f"s{k}", an_outcome(n))
            if n % 4:
                box.done(token)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        joined(thread)
    box.close()
    pending = sorted((p.session_id, p.event.turn) for p in Outbox(path).pending())
    assert pending == sorted((f"s{k}", n) for k in range(6) for n in range(0, 40, 4))


def test_law_13_an_outcome_that_only_another_version_decodes_stays_kept(path, monkeypatch):
    box = Outbox(path)
    with monkeypatch.context() as patched:
        patched.setattr(module.codec, "encode", lambda event: b"\xc3\x01newer!!!" + b"body")
        box.put("s", an_outcome(1))
    box.put("s", an_outcome(2))
    box.close()
    for _ in range(2):
        again = Outbox(path)
        assert turns(again) == [2] and len(again) == 2
        again.close()


def test_unicode_and_unusual_session_ids_survive_a_restart(path):
    event = replace(an_outcome(1), reason="Straße 🎉 " + "\x00")
    box = Outbox(path)
    box.put("a:b@c.d-e_f", event)
    box.close()
    assert Outbox(path).pending()[0][1:] == ("a:b@c.d-e_f", event)

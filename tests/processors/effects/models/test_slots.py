"""Slots of an API key: never more than there are, and a back-off that holds for all sessions."""

import threading

import pytest

from foldlog.processors.effects.slots import Slots


def test_slots_run_out_and_come_back():
    slots = Slots(2)
    assert slots.take(0) and slots.take(0)
    assert not slots.take(0)
    assert (slots.free(0), slots.next_free_at(0), slots.taken) == (False, None, 2)
    slots.release()
    assert (slots.free(0), slots.next_free_at(5), slots.taken) == (True, 5, 1)


def test_a_back_off_holds_for_every_session_and_is_never_cut_short():
    slots = Slots(2)
    assert slots.take(0)
    slots.back_off(1000)
    slots.back_off(400)
    assert slots.back_off_until_ms == 1000
    assert not slots.free(999) and not slots.take(999)
    assert slots.next_free_at(500) == 1000
    slots.release()
    assert slots.taken == 0
    assert slots.free(1000) and slots.take(1000)


def test_a_slot_that_nobody_took_is_a_bug():
    with pytest.raises(AssertionError):
        Slots(1).release()
    with pytest.raises(ValueError):
        Slots(0)


def test_threads_never_take_more_than_there_are():
    slots, taken, lock = Slots(3), [], threading.Lock()

    def run():
        for _ in range(300):
            if slots.take(0):
                with lock:
                    taken.append(slots.taken)
                slots.release()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(taken) <= 3 and slots.taken == 0

"""The slots of an API key: no more calls run than there are slots, and a back-off applies to all
sessions."""

import threading

import pytest

from foldlog.processors.effects.slots import Slots
from foldlog.tests.kit.waiting import joined


def test_a_released_slot_can_be_taken_again():
    slots = Slots(2)
    assert slots.take(0) and slots.take(0)
    assert not slots.take(0)
    assert (slots.free(0), slots.taken) == (False, 2)
    slots.release()
    assert (slots.free(0), slots.taken) == (True, 1)


def test_a_back_off_applies_to_every_session_and_is_never_shortened():
    slots = Slots(2)
    assert slots.take(0)
    slots.back_off(1000)
    slots.back_off(400)
    assert slots.back_off_until_ms == 1000
    assert not slots.free(999) and not slots.take(999)
    slots.release()
    assert slots.taken == 0
    assert slots.free(1000) and slots.take(1000)


def test_releasing_a_free_slot_is_a_bug():
    with pytest.raises(AssertionError):
        Slots(1).release()
    with pytest.raises(ValueError):
        Slots(0)


def test_threads_never_take_more_slots_than_exist():
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
        joined(thread)
    assert max(taken) <= 3 and slots.taken == 0

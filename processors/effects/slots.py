"""The slots of one API key limit how many attempts run at once;
a back-off makes the whole key wait.

All sessions of a process share one object per API key: a 429 or 529 of one session slows down all
sessions, so that 500 sessions do not all get 429s after a restart. Safe to use from any thread.
Times are Unix ms on the caller's clock.
"""

import threading


class Slots:
    """A number of slots and one shared back-off.

    The caller takes a slot when it claims an attempt and releases it when the effect has ended or
    the claim was lost. A back-off prevents new attempts; running attempts continue.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"an API key needs at least 1 slot, not {size}")
        self.size = size
        self._taken = 0
        self._back_off_until_ms = 0
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """The number of attempts running now."""
        return self._taken

    @property
    def back_off_until_ms(self) -> int:
        """Unix ms before which no attempt of this key may begin; 0 without a back-off."""
        return self._back_off_until_ms

    def free(self, now_ms: int) -> bool:
        """Whether an attempt may begin now."""
        return self._taken < self.size and now_ms >= self._back_off_until_ms

    def take(self, now_ms: int) -> bool:
        """Take a slot if one is free. Returns whether it took one."""
        with self._lock:
            if not self.free(now_ms):
                return False
            self._taken += 1
            return True

    def release(self) -> None:
        """Release a slot."""
        with self._lock:
            assert self._taken > 0, "a slot was released that was not taken"
            self._taken -= 1

    def back_off(self, until_ms: int) -> None:
        """Make the whole key wait. An earlier, longer wait stays in force."""
        with self._lock:
            self._back_off_until_ms = max(self._back_off_until_ms, until_ms)

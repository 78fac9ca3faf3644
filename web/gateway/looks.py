"""Records what operators read of other users' sessions, in the topic `operator-looks`.

A look is recorded before the gateway answers; if that fails, nothing is shown. A page reads a
session every few seconds, so one record covers the same look for EVERY_S.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from ...log.errors import Retry, TopicMismatch
from ...producers import acknowledgement
from ...producers.sessions import Sessions
from ...schemas.looks import NAME, Look, encode_look
from ...schemas.topics import OPERATOR_LOOKS

EVERY_S = 60.0


class LookNotRecorded(Retry):
    """The record of a look was not acknowledged, so nothing is shown. The text is for the person
    who runs the gateway."""


class Looks:
    """The looks of one gateway. May be used from several threads."""

    def __init__(self, writer: Sessions, clock: Callable[[], float] = time.monotonic) -> None:
        self._writer, self._clock, self._lock = writer, clock, threading.Lock()
        self._recorded: OrderedDict[Look, float] = OrderedDict()  # when, oldest first

    def record(self, look: Look) -> None:
        """Write a record and wait for its acknowledgement, unless one was written in the last
        EVERY_S seconds. Raises LookNotRecorded.
        """
        now = self._clock()
        with self._lock:
            while self._recorded and next(iter(self._recorded.values())) <= now - EVERY_S:
                self._recorded.popitem(last=False)
            if look in self._recorded:
                return
        try:
            answer = acknowledgement.append_value(
                self._writer.producer, OPERATOR_LOOKS, look.operator, encode_look(look),
                [("t", NAME.encode())], acknowledgement.ACK_S,
            )
        except (Retry, TopicMismatch) as error:
            answer = str(error)
        if isinstance(answer, str):
            raise LookNotRecorded(f"a record of {OPERATOR_LOOKS} was not acknowledged: {answer}. "
                                  "Nothing was shown. Check the broker and the topics (`foldlog "
                                  "status`)")
        with self._lock:
            self._recorded.setdefault(look, now)

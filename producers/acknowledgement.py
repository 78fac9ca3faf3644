"""Appends one event and waits for the broker's acknowledgement."""

import queue

from ..log.door import Delivered, Headers, Producer
from ..log.errors import AppendError
from ..schemas.codec import encode

ACK_S = 10.0
"""How long a call waits for the broker, in seconds. A broker restarts in under 2 s."""


def append(
    producer: Producer, topic: str, key: str, event: object, headers: Headers, ack_s: float
) -> Delivered | str:
    """Returns the position of the event, or the reason why it was not acknowledged.

    Raises AccessDenied, and the errors of `Producer.append`.
    """
    return append_value(producer, topic, key, encode(event), headers, ack_s)


def append_value(
    producer: Producer, topic: str, key: str, value: bytes, headers: Headers, ack_s: float
) -> Delivered | str:
    """As `append`, for the value of a record."""
    answers: queue.SimpleQueue[Delivered | AppendError] = queue.SimpleQueue()
    producer.append(topic, key, value, headers, on_delivery=answers.put)
    try:
        answer = answers.get(timeout=ack_s)
    except queue.Empty:
        return f"no broker answered within {ack_s:g} s"
    if isinstance(answer, Delivered):
        return answer
    if answer.denied is not None:
        raise answer.denied
    return answer.reason

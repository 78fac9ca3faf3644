"""The answer of a model that continues the kept part of a lost answer: the new chunks, and the
whole answer that results.

The real code assembles the answer from the events of a stream; only the model and the socket are
left out.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from foldlog.processors.effects.models.resumed import ResumedAnswer
from foldlog.processors.request.continuation import Kept
from foldlog.schemas import events as ev
from foldlog.schemas.canonical import compact

StreamedBlock = tuple[dict[str, Any], Iterable[dict[str, str]]]
"""A content block as it starts, and its deltas."""


class ContinuedAnswer:
    """The continuation of one answer. `place`: a dict of the event fields turn, step and
    attempt."""

    def __init__(
        self, kept: Kept, place: dict[str, int], blocks: Iterable[StreamedBlock]
    ) -> None:
        self._answer, self._place = ResumedAnswer(kept), place
        self._events, self._seq = _events(blocks), kept.prior_seq + 1

    def chunks(self) -> Iterator[list[ev.GenChunk]]:
        """The chunks of each stream event, a list per event; `so_far` and `content` grow with every
        list."""
        return map(self._feed, self._events)

    def _feed(self, event: dict[str, Any]) -> list[ev.GenChunk]:
        chunks = []
        for shown in self._answer.feed(event["type"], compact(event)):
            if shown.text:
                place = {**self._place, "seq": self._seq, "block": shown.block}
                chunks.append(ev.GenChunk(**place, kind=shown.kind, delta=shown.text))
                self._seq += 1
        return chunks

    def so_far(self) -> bytes:
        """The content of the answer if the stream is cut off after the events so far."""
        return self._answer.content_so_far()

    def content(self) -> bytes:
        """The content of the whole answer."""
        return self._answer.content()

    def finish(self, stop_reason: str) -> tuple[ev.ProposedCall, ...]:
        """End the stream, and return the calls of the answer."""
        self._feed({"type": "message_delta", "delta": {"stop_reason": stop_reason}})
        return tuple(
            ev.ProposedCall(
                index=call.index,
                call_id=call.call_id,
                name=call.name,
                args=ev.Body(inline=call.args),
                args_sha256=call.args_sha256,
                args_error=call.error,
            )
            for call in self._answer.calls()
        )


def pieces(text: str, size: int) -> Iterator[str]:
    """A text in deltas of this many characters; the first delta begins with a space."""
    text = " " + text
    return (text[start : start + size] for start in range(0, len(text), size))


def _events(blocks: Iterable[StreamedBlock]) -> Iterator[dict[str, Any]]:
    for index, (start, deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}

"""Reads the chunks of a lost attempt again, beginning at the offset of the attempt's claim (WAKE
row A2)."""

from collections.abc import Callable

from ...log.door import Log
from ...schemas.codec import entry_of
from ...schemas.events import GenChunk
from ...schemas.topics import SESSION_EVENTS

ChunksReader = Callable[[str, int, int], list[GenChunk]]
POLL_S = 1.0


def chunks_reader(log: Log) -> ChunksReader:
    """A function (session_id, partition, offset) that returns the session's chunks from the offset
    to the log's end.
    """

    def read(session_id: str, partition: int, start: int) -> list[GenChunk]:
        end = log.end_offsets(SESSION_EVENTS)[partition]
        reader = log.reader(SESSION_EVENTS, {partition: start})
        chunks: list[GenChunk] = []
        try:
            while reader.positions().get(partition, start) < end:
                for record in reader.poll(POLL_S):
                    if record.key == session_id.encode():
                        event = entry_of(record, chunks=True).event
                        if isinstance(event, GenChunk):
                            chunks.append(event)
        finally:
            reader.close()
        return chunks

    return read

"""A group member in a separate process, which a test pauses. Run it as a script: SERVERS PREFIX
NOTES.

It writes each assignment and each revocation as a line to the file NOTES, and runs until it is
killed.
"""

import sys
from pathlib import Path
from time import monotonic

from foldlog.log.kafka import KafkaLog
from foldlog.tests.log.contract import EVENTS

LIFE_S = 110.0  # of a member that its test does not end; less than the limit of a test


def main(servers: str, prefix: str, notes: str) -> None:
    def note(what: str, partitions: list[int]) -> None:
        with Path(notes).open("a") as file:
            file.write(" ".join([what, *map(str, partitions)]) + "\n")

    def assigned(partitions: list[int]) -> dict[int, int]:
        note("assigned", partitions)
        return dict.fromkeys(partitions, 0)

    log = KafkaLog(servers, topic_prefix=prefix)
    reader = log.group_reader(
        EVENTS, "workers", "w1", assigned, lambda revoked: note("revoked", revoked)
    )
    deadline = monotonic() + LIFE_S
    while monotonic() < deadline:
        reader.poll(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])

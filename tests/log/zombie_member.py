"""A group member in a process of its own, to be stopped. Run as a script: servers, prefix, notes.

It notes what it is given and what is taken, one line each, and ends when it is killed.
"""

import sys
from pathlib import Path

from foldlog.log.kafka import KafkaLog
from foldlog.tests.log.contract import EVENTS


def main(servers: str, prefix: str, notes: str) -> None:
    def note(what: str, partitions: list[int]) -> None:
        with Path(notes).open("a") as file:
            file.write(" ".join([what, *map(str, partitions)]) + "\n")

    def given(partitions: list[int]) -> dict[int, int]:
        note("given", partitions)
        return dict.fromkeys(partitions, 0)

    log = KafkaLog(servers, topic_prefix=prefix)
    reader = log.group_reader(EVENTS, "workers", "w1", given, lambda taken: note("taken", taken))
    while True:
        reader.poll(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])

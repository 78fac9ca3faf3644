"""Writes records that foldlog's own client cannot write. Run it as a script: SERVERS TOPIC.

It needs the pure Python record builder of aiokafka (AIOKAFKA_NO_EXTENSIONS=1).
"""

import asyncio
import sys

from aiokafka import AIOKafkaProducer


class NotUtf8(str):
    """A header name whose bytes are not UTF-8."""

    def encode(self, *_args) -> bytes:
        return b"\xff\xfe"


async def main(servers: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    await producer.start()
    for number, headers in enumerate([[("x", None)], [(NotUtf8("x"), b"1")], [("x", b"2")]]):
        await producer.send_and_wait(topic, b"%d" % number, headers=headers, partition=0)
    await producer.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

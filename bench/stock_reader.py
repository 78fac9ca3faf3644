"""The baseline of `fold` and `replay`: what anyone would write with stock parts only.

    python stock_reader.py BOOTSTRAP_SERVERS TOPIC SCHEMAS END...

SCHEMAS is a JSON file of Avro schemas by fingerprint (hex); END... the end offset of each
partition. It consumes the topic by `Consumer.consume(n)`, decodes every record into a dict with
fastavro, and prints JSON: {records, bytes, cpu_s, wall_s}, from the first batch to the last.

It imports nothing of foldlog. It must not change: figures of different versions would no longer be
comparable (a test compares its hash).
"""

import io
import json
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from fastavro import parse_schema, schemaless_reader

BATCH = 5_000
HEAD_BYTES = 10  # two bytes of magic, eight of fingerprint


def main(servers: str, topic: str, schema_file: str, *end_offsets: str) -> None:
    ends = dict(enumerate(map(int, end_offsets)))
    texts = json.loads(Path(schema_file).read_text("utf-8"))
    schemas = {bytes.fromhex(name): parse_schema(schema) for name, schema in texts.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "stock-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p, end in ends.items() if end])
    left = sum(ends.values())
    records = size = 0
    messages = [consumer.poll(30.0)]  # excludes the time to connect
    cpu, wall = time.process_time(), time.perf_counter()
    while True:
        for message in messages:
            assert message is not None and message.error() is None, message
            value = message.value()
            body = io.BytesIO(value)
            body.seek(HEAD_BYTES)
            fields = schemaless_reader(body, schemas[value[2:HEAD_BYTES]])
            assert type(fields) is dict
            size += len(value)
        records += len(messages)
        if records >= left:
            break
        messages = consumer.consume(BATCH, 1.0)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    consumer.close()
    print(json.dumps({"records": records, "bytes": size, "cpu_s": cpu, "wall_s": wall}))


main(*sys.argv[1:])

"""S0.7: the page that lists a user's sessions, which Faust reads from a broker."""

import asyncio
import json
import subprocess
import sys
import time

import faust
import pytest

from foldlog.log import open_log
from foldlog.log.partition import partition_for
from foldlog.processors.worker import rendezvous
from foldlog.schemas.tabs import key_of
from foldlog.schemas.topics import USER_SESSIONS, topics
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.played import settings_in

PATIENCE_S, NEVER_S = 60.0, 3_600.0
ANNOUNCEMENT = json.dumps({"phase": "chatting", "project_id": None, "opened_at": 1}).encode()


async def await_condition(condition) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        await asyncio.sleep(0.02)


@pytest.mark.broker
def test_S0_7_records_that_faust_dropped_before_its_first_commit_are_read_again(broker, tmp_path):
    """The defect: a record that arrived during the start was dropped, and the page never showed
    it."""
    settings = settings_in(
        tmp_path, bootstrap_servers=broker.bootstrap_servers, topic_prefix=unique_name()
    )
    log = open_log(settings)
    log.apply_topics(topics(settings.partitions)).demand()
    place = partition_for("ana", settings.partitions)
    producer = log.producer()
    producer.append(USER_SESSIONS, key_of("ana", "s1"), ANNOUNCEMENT, partition=place)
    producer.flush(PATIENCE_S)

    async def run_app() -> None:
        app = faust.App(
            f"{settings.topic_prefix}page",
            broker=f"kafka://{settings.bootstrap_servers}",
            broker_commit_interval=NEVER_S,
            datadir=str(tmp_path),
            store="memory://",
            web_enabled=False,
            topic_partitions=settings.partitions,
            topic_allow_declare=False,
            topic_disable_leader=True,
        )
        rendezvous.attach(app, settings, rendezvous.Reading({}))
        read = app.monitor.messages_received_by_topic
        topic = settings.topic(USER_SESSIONS)
        await app.start()
        try:
            await await_condition(lambda: read[topic] >= 1)
            before = read[topic]
            await app.consumer.perform_seek()  # as Faust does after dropping records
            await await_condition(lambda: read[topic] > before)
        finally:
            await app.stop()

    try:
        asyncio.run(run_app())
    finally:
        producer.close()
        log.close()


def test_a_page_requested_during_the_start_does_not_touch_the_app():
    """Faust creates its parts at their first use. The defect: a part that the thread of a page had
    used first waited in an event loop that never ran, and the process never became ready."""
    reading = rendezvous.Reading({0: 1})
    for path in ("/users/ana", "/readyz"):
        assert rendezvous.answer(None, None, reading, path).status == 503
    assert rendezvous.answer(None, None, reading, "/healthz").status == 200


STUCK = """
import signal, sys, time
from foldlog.processors.worker.rendezvous import Watch
signal.signal(signal.SIGTERM, lambda *_: None)
ready, ending = sys.argv[1] == "ready", sys.argv[2] == "ending"
Watch(lambda: ready, lambda: ending, print, (0.1, 0.1)).start()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("state", "code", "message"),
    [(("starts", "runs"), 1, "could not be read within 0.1 s"), (("ready", "ending"), 0, "")],
)
def test_a_process_that_does_not_start_or_end_in_time_is_ended(state, code, message):
    ended = subprocess.run(
        [sys.executable, "-uc", STUCK, *state], capture_output=True, text=True, timeout=50
    )
    assert (ended.returncode, ended.stderr) == (code, "") and message in ended.stdout

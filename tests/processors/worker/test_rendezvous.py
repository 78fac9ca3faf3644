"""S0.7: Faust's part in a worker's page of a user, on a broker, without the worker."""

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
from foldlog.tests.broker_fixture import unique_name
from foldlog.tests.consumers.played import settings_in

PATIENCE_S, NEVER_S = 60.0, 3_600.0
TOLD = json.dumps({"phase": "chatting", "project_id": None, "opened_at": 1}).encode()


async def until(holds) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came"
        await asyncio.sleep(0.02)


@pytest.mark.broker
def test_S0_7_what_faust_let_go_before_a_first_commit_is_read_again(broker, tmp_path):
    """A record that came while a worker started was let go, and its page lacked it for ever."""
    settings = settings_in(
        tmp_path, bootstrap_servers=broker.bootstrap_servers, topic_prefix=unique_name()
    )
    log = open_log(settings)
    log.apply_topics(topics(settings.partitions)).demand()
    place = partition_for("ana", settings.partitions)
    producer = log.producer()
    producer.append(USER_SESSIONS, key_of("ana", "s1"), TOLD, partition=place)
    producer.flush(PATIENCE_S)

    async def lives() -> None:
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
            await until(lambda: read[topic] >= 1)
            known = read[topic]
            await app.consumer.perform_seek()  # as Faust does behind what it lets go
            await until(lambda: read[topic] > known)
        finally:
            await app.stop()

    try:
        asyncio.run(lives())
    finally:
        producer.close()
        log.close()


def test_a_page_that_is_asked_for_while_it_starts_touches_nothing_of_the_app():
    """Faust makes its parts when they are first asked for: those that the thread of a page had
    asked for first waited in a loop that never ran, and the process never came up."""
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
    ("state", "code", "told"),
    [(("starts", "runs"), 1, "could not be read within 0.1 s"), (("ready", "ending"), 0, "")],
)
def test_what_does_not_come_up_or_does_not_end_is_ended(state, code, told):
    ended = subprocess.run(
        [sys.executable, "-uc", STUCK, *state], capture_output=True, text=True, timeout=50
    )
    assert (ended.returncode, ended.stderr) == (code, "") and told in ended.stdout

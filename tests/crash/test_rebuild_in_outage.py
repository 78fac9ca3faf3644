"""The broker is killed or paused while a worker reopens its stores: the worker continues."""

import threading
from contextlib import closing
from dataclasses import replace

import pytest

from foldlog.local.kafka import temporary_broker
from foldlog.log import open_log
from foldlog.processors.agent import Agent
from foldlog.processors.worker.assemble import Parts
from foldlog.processors.worker.worker_thread import WorkerThread
from foldlog.producers.sessions import Sessions
from foldlog.schemas.topics import topics
from foldlog.tests.crash.outages import FAULTS
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.played import settings_in
from foldlog.tests.kit.waiting import until

AGAIN = "joins the group again"  # what a worker logs when it found no broker
pytestmark = [pytest.mark.broker, pytest.mark.crash, pytest.mark.spread]


@pytest.fixture(scope="module")
def mortal(broker_cache_dir):
    """A broker for this module only."""
    with temporary_broker(broker_cache_dir) as made:
        yield made


@pytest.mark.parametrize("fault", FAULTS)
def test_S0_2_an_outage_while_stores_are_reopened_does_not_end_the_worker(
    mortal, tmp_path, fault, caplog
):
    """The defect: the worker ended with exit code 3."""
    caplog.set_level("INFO")
    where = {"bootstrap_servers": mortal.bootstrap_servers, "topic_prefix": unique_name()}
    settings = replace(settings_in(tmp_path, **where), partitions=1)
    ended = threading.Event()
    with closing(open_log(settings)) as log, closing(Sessions(log, settings)) as sessions:
        log.apply_topics(topics(1)).demand()
        agents = [Agent(name="a", model="m")]
        thread = WorkerThread(
            lambda: Parts(settings, agents, ("sessions",), None), lambda _parts: None, ended.set
        )
        thread.start()
        until("the worker's parts", lambda: thread.parts)
        parts = thread.parts

        def has(session_id: str) -> bool:
            views = owned.hot(session_id) if (owned := parts.worker.owned.get(0)) else None
            return views is not None and views.turn.known

        def reopen() -> None:
            """Reopen the stores, as if the topic had been recreated, until no broker is found."""
            parts.loop.topic_is("another topic")
            until("no broker was found", lambda: AGAIN in caplog.text or ended.is_set())

        try:
            sessions.open("before", agent="a")
            until("the session is folded", lambda: has("before"))
            FAULTS[fault](mortal, reopen)
            sessions.open("after", agent="a")
            until("the worker goes on", lambda: has("after") or ended.is_set())
            assert not ended.is_set() and not parts.fatal, parts.fatal
            sessions.say("before", "hello")  # a store may have it: then it gets hot only now
            until("the first session is known", lambda: has("before") or ended.is_set())
        finally:
            thread.stop()
            parts.close()

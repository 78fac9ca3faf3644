"""S0.7 with a real broker: `foldlog users` lists a user's open sessions, also after a kill -9."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from foldlog.log.partition import partition_for
from foldlog.schemas.tabs import key_of
from foldlog.schemas.topics import USER_SESSIONS, USER_TABS
from foldlog.tests.crash.fleet import PATIENCE_S, wait_until
from foldlog.tests.kit.programs import ended, line_of
from foldlog.tests.kit.waiting import within
from foldlog.web.gateway.tabs import Tabs

pytestmark = [pytest.mark.broker, pytest.mark.crash]


@contextmanager
def users(stage) -> Iterator[str]:
    """The address of a `foldlog users` process of the stage's installation."""
    settings = stage.settings
    env = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "FOLDLOG_TOPIC_PREFIX": settings.topic_prefix,
        "FOLDLOG_PARTITIONS": str(settings.partitions),
        "FOLDLOG_HOME": str(settings.home),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "foldlog.cli", "users"], stderr=subprocess.PIPE, text=True, env=env
    )
    assert process.stderr is not None
    try:
        line = line_of(process.stderr, "the address of the pages")
        if found := re.search(r"(http://\S+)/users/USER", line):
            yield found[1]
    finally:
        process.terminate()
        code = ended(process)
        rest = within("the rest of stderr", process.stderr.read)
        process.stderr.close()
    assert found, line + rest
    assert (code, "Traceback" in rest) == (0, False), rest


def page(web: str, user: str = "tester") -> list[str] | None:
    """The sessions that the page of a user lists, or None while the server does not answer."""
    try:
        with urllib.request.urlopen(f"{web}/users/{user}", timeout=90) as answer:
            return [tab["session_id"] for tab in json.loads(answer.read())["tabs"]]
    except (urllib.error.URLError, ValueError, ConnectionError):
        return None


def await_page(web: str, expected: list[str]) -> None:
    """Wait until the page lists exactly these sessions. Raises TimeoutError."""
    wait_until(f"the page lists {expected}", lambda: sorted(page(web) or ()) == expected)


@pytest.fixture
def web(stage) -> Iterator[str]:
    with users(stage) as address:
        yield address


def test_S0_7_the_page_survives_a_kill_and_the_next_worker_announces_the_rest(stage, web):
    handle = stage.handle()
    handle.start()
    for name in ("one", "two"):
        stage.sessions.open(name, agent="helper")
    await_page(web, ["one", "two"])
    assert page(web, "nobody") == []
    handle.arm("store.written:1")  # folded and in the store, not announced
    stage.sessions.terminate("one")
    handle.await_end()
    handle.start()
    await_page(web, ["two"])  # announced by the next worker
    tabs = Tabs(stage.log)
    try:
        wait_until("the gateway's view has it", lambda: tabs.look(0.1) or tabs.caught_up.is_set())
        assert [tab.session_id for tab in tabs.open_sessions("tester")] == ["two"]
    finally:
        tabs.close()


def test_S0_7_a_restart_under_requests_lists_exactly_the_sessions_of_the_topic(stage):
    """The defect: the process restored its table from a changelog. The table then had sessions
    whose end was compacted away, and lacked records written during the restore; a third of the
    requests during the start hung."""
    tab = {"phase": "chatting", "project_id": None, "opened_at": 1}
    place = partition_for("ana", stage.settings.partitions)
    ended = json.dumps({"gone": {"session_id": "gone", **tab}}).encode()
    expected = [f"s{number:02}" for number in range(30)]
    producer = stage.log.producer()
    try:
        producer.append(USER_TABS, "ana", ended, partition=place)
        for name in expected:
            value = json.dumps(tab).encode()
            producer.append(USER_SESSIONS, key_of("ana", name), value, partition=place)
        assert producer.flush(PATIENCE_S) == 0
    finally:
        producer.close()
    for _ in range(2):
        with users(stage) as web:
            wait_until("there is an answer", lambda: page(web, "ana") is not None)
            assert sorted(page(web, "ana") or ()) == expected

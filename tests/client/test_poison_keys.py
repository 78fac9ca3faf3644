"""No fold, neither a worker's nor a reader's, contains a record whose key cannot name a session."""

import pytest

from foldlog.client.follow import Follow
from foldlog.client.show import fold_everything
from foldlog.reports.replay import Replay
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.events import SessionOpened
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.played import memory_log

OPENED = SessionOpened(user_id="ana", agent="helper", rules=1)
KEYS = (None, b"", b"\xff\xfe", b"k" * 500, b"nul\0", b".", b"..")
REFUSED = (b"a/b", b"../s1", b"a\n", b"\x1b[2J", "s\u202e1".encode(), b"k" * 129, b"#s", b"%2E")


@pytest.fixture
def log():
    log = memory_log()
    producer = log.producer()
    for key in (*KEYS, *REFUSED, b"s1"):
        headers = headers_for(OPENED, "producer")
        producer.append(SESSION_EVENTS, key, encode(OPENED), headers, partition=0)
    yield log
    log.close()


def test_S2_11_a_replay_folds_what_a_worker_folds_and_nothing_else(log):
    refused = {key.decode() for key in REFUSED}
    shown = fold_everything(log).sessions
    assert set(Replay(log).run().sessions) == set(shown) == {"s1", *refused}
    assert {name for name, views in shown.items() if views.turn.known} == {"s1"}


def test_S2_4_following_the_log_returns_every_record(log):
    with Follow(log) as follow:
        entries = [entry for batch in follow.to(follow.ends()) for entry in batch]
    assert len(entries) == len((*KEYS, *REFUSED, b"s1"))

"""No fold, neither a worker's nor a reader's, contains a record whose key cannot name a session."""

import pytest

from foldlog.consumers.follow import Follow
from foldlog.consumers.replay import Replay
from foldlog.consumers.show import fold_everything
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.events import SessionOpened
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.consumers.played import memory_log

OPENED = SessionOpened(user_id="ana", agent="helper", rules=1)
KEYS = (None, b"", b"\xff\xfe", b"k" * 500, b"nul\0")


@pytest.fixture
def log():
    log = memory_log()
    producer = log.producer()
    for key in (*KEYS, b"s1"):
        headers = headers_for(OPENED, "producer")
        producer.append(SESSION_EVENTS, key, encode(OPENED), headers, partition=0)
    yield log
    log.close()


def test_S2_11_a_replay_folds_what_a_worker_folds_and_nothing_else(log):
    assert set(Replay(log).run().sessions) == {"s1"}
    assert set(fold_everything(log).sessions) == {"s1"}


def test_S2_4_following_the_log_returns_every_record(log):
    with Follow(log) as follow:
        assert len([e for batch in follow.to(follow.ends()) for e in batch]) == len(KEYS) + 1

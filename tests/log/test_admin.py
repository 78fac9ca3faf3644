"""Responses of the admin client that no broker gives on demand."""

from concurrent.futures import Future

import pytest
from confluent_kafka import OFFSET_INVALID
from confluent_kafka.admin import ListOffsetsResultInfo

from foldlog.log import LogUnreachable
from foldlog.log.admin import Cluster

BEGINS_AT = 7


class Admin:
    """In place of the Kafka client: the first responses to `list_offsets` have neither an offset
    nor an error, as the client gave once while a leader was paused."""

    def __init__(self, without):
        self.without, self.asked = without, 0

    def list_offsets(self, requests, **_options):
        self.asked += 1
        offset = OFFSET_INVALID if self.asked <= self.without else BEGINS_AT
        found = {}
        for at in requests:
            found[at] = Future()
            found[at].set_result(ListOffsetsResultInfo(offset, 0, 0))
        return found


@pytest.fixture
def cluster(monkeypatch):
    """A function that makes a cluster whose first responses have no offset."""

    def made(without, timeout_s=30):
        made = Cluster({"bootstrap.servers": "127.0.0.1:9"}, timeout_s)
        made._admin = Admin(without)
        monkeypatch.setattr(made, "partitions", lambda _topic: 2)
        return made

    return made


def test_a_response_without_an_offset_is_not_taken_for_one(cluster):
    """The defect: a gateway that started while a leader was paused read log-facts from offset
    -1001, and ended with the advice to delete its state.
    """
    made = cluster(without=1)
    assert made.first_offsets("t") == {0: BEGINS_AT, 1: BEGINS_AT}
    assert made._admin.asked == 2


def test_responses_that_never_have_an_offset_are_an_unreachable_log(cluster):
    with pytest.raises(LogUnreachable, match="did not report an offset"):
        cluster(without=1_000_000, timeout_s=0).end_offsets("t")

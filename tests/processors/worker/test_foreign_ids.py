"""What another program writes straight to the log opens no session that foldlog would not open.

Tools and clients use ids in paths and URLs, so an id must never leave a directory.
"""

import pytest

from foldlog.processors.agent import Agent
from foldlog.processors.fold.rulings.producers import RULES
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.ids import DOTS
from foldlog.schemas.topics import DEAD_LETTERS, SESSION_EVENTS
from foldlog.tests.kit.history import History, opened as opened_history
from foldlog.tests.kit.manual_worker import ManualWorker, answered, message, opened
from foldlog.tests.processors.fold.histories import code
from foldlog.web.gateway.tail import Tail

AGENT = Agent(name="a", model="m")
UNFOLDABLE = (b".", b"..", b"nul\0", b"\xff\xfe", b"k" * 300, b"")
REFUSED = (b"a/b", b"../s", b"/etc", b"a\n", b"\x1b[2J", "s\u202e".encode(), b"k" * 129, b"...\\")
SEED = ev.BlobRef(sha256="0" * 64, bytes=1, media_type="application/json")
NO_PATH = (*DOTS, "a/b", "../s", "a\n", "nul\0", "k" * 129, "")


def write(rig: ManualWorker, event: object, key: bytes) -> int:
    headers = tuple(headers_for(event, "producer"))
    return rig.log.store(SESSION_EVENTS, 0, key, encode(event), headers).offset


def letters(rig: ManualWorker) -> list[int]:
    """The offsets of the records that have a dead letter."""
    numbers = rig.log.end_offsets(DEAD_LETTERS)
    records = [record for n in numbers for record in rig.log.records(DEAD_LETTERS, n)]
    return [int(dict(record.headers)["__dlq.errors.offset"]) for record in records]


@pytest.fixture
def rig():
    rig = ManualWorker(AGENT)
    rig.assign()
    rig.settle()
    return rig


@pytest.mark.parametrize("key", [*UNFOLDABLE, *REFUSED])
def test_S2_11_a_worker_opens_no_session_whose_key_is_no_id(rig, key):
    """The defect: a worker answered in a session named `..`, whose tools use the id in a path."""
    offsets = [write(rig, event, key) for event in (opened("a"), message())]
    rig.write("producer", opened("a"), key="s1")
    rig.write("producer", message(), key="s1")
    rig.settle()
    assert [entry.session_id for entry in rig.entries(ev.GenStart)] == ["s1"]
    assert letters(rig) == (offsets if key in UNFOLDABLE else [])
    rig.write("models", answered(), key="s1")
    rig.settle()
    assert not rig.worker.owned[0].views("s1").turn.open


@pytest.mark.parametrize("key", [*UNFOLDABLE, *REFUSED])
def test_S2_11_a_gateway_serves_no_session_whose_key_is_no_id(rig, key, tmp_path):
    write(rig, opened("a"), key)
    write(rig, opened("a"), b"s1")
    tail = Tail(rig.log, tmp_path, pytest.fail)
    while not tail.caught_up:
        reader = rig.log.reader(SESSION_EVENTS, tail.places())
        tail._poll(reader)
        reader.close()
    assert [line["session_id"] for line in tail.summaries()] == ["s1"]
    tail.close()


@pytest.mark.parametrize("text", NO_PATH)
@pytest.mark.parametrize("field", ["user_id", "agent", "parent_session"])
def test_a_session_is_not_opened_with_another_id_that_is_none(field, text):
    fork = {"parent_session": "s0", "parent_offset": 1, "seed_ref": SEED}
    fields = {"user_id": "ana", "agent": "a", "rules": RULES, **fork, field: text}
    history = History()
    assert code(history.append(ev.SessionOpened(**fields), "producer")) == "invalid_id"
    assert not history.turn.known


@pytest.mark.parametrize("text", NO_PATH)
def test_a_session_is_not_locked_to_a_project_that_is_no_id(text):
    locked = ev.ProjectLocked(command_id="c1", project_id=text, by_user="ana")
    history = opened_history()
    assert code(history.append(locked, "producer")) == "invalid_id"
    assert history.state.project_id is None

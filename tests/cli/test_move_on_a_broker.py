"""A log whose topic got more partitions: writers refuse to write, doctor reports it, `move` repairs
it."""

import signal

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from foldlog.cli.__main__ import main
from foldlog.cli.edge import Edge
from foldlog.cli.terminal import progress
from foldlog.cli.terminal.printing import note
from foldlog.client.log_client import LogClient
from foldlog.client.session import Session
from foldlog.client.session_fold import SessionFold
from foldlog.log import Settings, made, open_log, partition_for
from foldlog.log.made import Facts, LogGrown, demand_as_made, facts_of, partitions_of
from foldlog.producers.memory import MemoryWriter
from foldlog.schemas.topics import MEMORY_EVENTS, SESSION_EVENTS
from foldlog.tests.cli.harness import Ran
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.played import Played
from foldlog.upkeep import moving

pytestmark = pytest.mark.broker
NEW = "new-"


class Installation:
    """A log that `topics apply` created with two partitions. Its commands run in the test's
    process."""

    def __init__(self, servers: str, home, capsys) -> None:
        self.prefix, self._capsys = unique_name("mv") + "-", capsys
        flags = {"bootstrap_servers": servers, "home": str(home), "user": "ana"}
        self.settings = Settings.load({}, None, {**flags, "topic_prefix": self.prefix,
                                                 "partitions": 2})
        self.moved = Settings.load({}, None, {**flags, "topic_prefix": self.prefix + NEW,
                                              "partitions": 3})
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def __call__(self, *args: str, settings: Settings | None = None) -> Ran:
        self._capsys.readouterr()
        code = main(args, Edge(settings or self.settings))
        return Ran(code, *self._capsys.readouterr())

    def grow(self, *topics: str) -> None:
        more = [NewPartitions(self.prefix + topic, 4) for topic in topics]
        for answer in self.admin.create_partitions(more).values():
            answer.result()


@pytest.fixture
def installation(broker, tmp_path, capsys):
    made = Installation(broker.bootstrap_servers, tmp_path, capsys)
    assert made("topics", "apply").code == 0
    return made


def test_A5_a_log_with_more_partitions_than_it_was_made_with_is_refused_and_moved(installation):
    foldlog, settings = installation, installation.settings
    names = [f"s{number}" for number in range(6)]
    with LogClient(settings) as client:
        assert facts_of(client.log).partitions == 2
        for name in names:
            Session(client, name).open()
            Played(client.log, name).take()
            Session(client, name).say(f"what {name} asks", message_id=f"m-{name}")
            if name != "s5":
                Played(client.log, name).answer(f"the answer of {name}")
        Session(client, "s4").terminate()
        producer = client.log.producer(brief=True)
        MemoryWriter(producer, "ana").set_preference("ana", "drink", "tea")
        producer.close()
    running = open_log(settings)
    assert demand_as_made(running) == 2
    foldlog.grow(SESSION_EVENTS, MEMORY_EVENTS)

    # Every way to write refuses and names the solution; reading continues.
    refusals = [
        foldlog("send", "s1", "again"),
        foldlog("open", "new-one"),
        foldlog("topics", "apply"),
        foldlog("worker"),
        foldlog("worker", "--supervise"),
        foldlog("gateway", "--port", "0"),
    ]
    for refused in refusals:
        assert refused.code == 3
        assert "created with 2 partitions and has 4 now" in refused.err
        assert "foldlog move --to-prefix NEW --partitions 4" in refused.err
    listed = foldlog("sessions", "--json").json
    assert sorted(row["session_id"] for row in listed) == names
    assert "the answer of s1" in foldlog("show", "s1").out
    found = foldlog("doctor", "--json")
    (problem,) = [f for f in found.json if f["check"] == "topics"]
    assert found.code == 1 and "foldlog move" in problem["do"]
    with pytest.raises(LogGrown):
        demand_as_made(running)
    # A running process keeps placing keys by the original number.
    answers = []
    producer = running.producer(brief=True)
    key = next(k for k in map(str, range(99)) if partition_for(k, 4) >= 2)
    producer.append(SESSION_EVENTS, key, b"x", on_delivery=answers.append)
    assert producer.flush(10) == 0
    assert answers[0].partition == partition_for(key, 2) != partition_for(key, 4)
    producer.close()
    running.close()

    # Invalid settings of the new log are refused before anything is created.
    for wrong in (["--to-prefix", "a b"], ["--to-prefix", "b-", "--partitions", "2000"]):
        refused = foldlog("move", *wrong, "--close-turns")
        assert refused.code == 2 and refused.err.startswith(f"foldlog: {wrong[-2]}: "), refused.err

    # An open turn is closed only with --close-turns; moving twice has the same effect.
    refused = foldlog("move", "--to-prefix", installation.moved.topic_prefix, "--partitions", "3")
    assert refused.code == 1 and "open turn or a call in doubt: s5" in refused.err
    arguments = ("move", "--to-prefix", installation.moved.topic_prefix, "--partitions", "3",
                 "--close-turns", "--json")
    first, second = foldlog(*arguments), foldlog(*arguments)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    (moved,) = first.json
    assert moved["sessions"] == 5 and moved["left"] == [["s4", "terminated"]]
    assert second.json == first.json
    again = foldlog(*(word for word in arguments if word != "--close-turns"))
    assert again.code == 0 and "was already moved there" in again.err, "no turn is left to close"
    assert "their sessions were moved to the topics" in foldlog("status").out
    (moved_to,) = [f for f in foldlog("doctor", "--json").json if f["check"] == "topics"]
    assert moved_to["do"].startswith("Set FOLDLOG_TOPIC_PREFIX=")
    refused = foldlog("send", "s1", "again")
    assert refused.code == 3 and "were moved to the topics beginning with" in refused.err
    assert "the answer of s4" in foldlog("show", "s4").out, "the old log can be read"

    # In the new log the sessions continue.
    with LogClient(installation.moved) as client:
        assert partitions_of(client.log) == 3
        for name in names[:4]:
            Session(client, name).say("and now?", message_id="m-new")
            played = Played(client.log, name)
            played.fold = SessionFold(client.log, name, read=client.read_blob)
            played.take()
            played.answer("it continues")
            shown = foldlog("show", name, settings=installation.moved).out
            assert f"the answer of {name}" in shown and "it continues" in shown
        assert facts_of(client.log) == Facts(3, None)
    assert "tea" in foldlog("memory", settings=installation.moved).out
    assert "forked" in foldlog("show", "s5", settings=installation.moved).out
    assert foldlog("doctor", settings=installation.moved).err == ""


def test_A5_a_setting_that_is_not_the_logs_number_names_it(installation):
    other = Settings.load({}, None, {
        "bootstrap_servers": installation.settings.bootstrap_servers,
        "home": str(installation.settings.home),
        "topic_prefix": installation.prefix,
        "partitions": 4,
    })
    refused = installation("worker", settings=other)
    assert refused.code == 3
    assert "created with 2 partitions" in refused.err and "Set it to 2" in refused.err


@pytest.mark.parametrize("stage", ["the topics of the new log exist", "partition 0 of 2 moved"])
def test_ctrl_c_reports_the_progress_and_the_command_continues(installation, monkeypatch, stage):
    """The defect: after Ctrl-C, the command exited with 130 and printed nothing."""
    foldlog, settings = installation, installation.settings
    with LogClient(settings) as client:
        for number in range(4):
            Session(client, f"s{number}").open()
    arguments = ("move", "--to-prefix", installation.moved.topic_prefix, "--json")

    def pressed(text: str) -> None:
        note(text)
        if text == stage:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(progress, "note", pressed)
        stopped = foldlog(*arguments)
    assert stopped.code == 130
    (refusal,) = stopped.json
    assert refusal["code"] == "move_interrupted" and stage in refusal["detail"]
    assert "not marked as moved" in refusal["detail"] and "run the same command" in stopped.err
    with LogClient(settings) as client:
        assert facts_of(client.log).moved_to is None
    again = foldlog(*arguments)
    assert again.code == 0 and again.json[0]["sessions"] == 4


def test_ctrl_c_after_the_log_was_marked_is_reported(installation, monkeypatch):
    """The mark is the last record that a move writes, so nothing after it undoes the move."""
    foldlog = installation
    arguments = ("move", "--to-prefix", installation.moved.topic_prefix)

    def marked(log, name, value) -> None:
        made.note(log, name, value)
        if name == "moved_to":
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(moving, "note", marked)
        stopped = foldlog(*arguments)
    assert stopped.code == 130 and "everything was moved, and the old log is marked" in stopped.err

"""A session whose work raises in the worker, also wherever a command or the gateway computes it:
people can cancel, terminate, fork and read it on every surface."""

import pytest

from foldlog.log.blobs import open_blobs
from foldlog.log.memory import MemoryLog
from foldlog.processors.agent import Agent
from foldlog.schemas import events as ev
from foldlog.schemas.topics import topics
from foldlog.tests.cli.harness import Shell
from foldlog.tests.kit.manual_worker import (
    SESSION,
    USER,
    ManualWorker,
    answered,
    call,
    message,
    opened,
)  # fmt: skip
from foldlog.tests.kit.played import settings_in
from foldlog.tests.processors.worker.raising import PLACES, fails_for_session
from foldlog.tests.web.gateway.served import served


class Raising(ManualWorker):
    """A worker whose work on SESSION raises after the model's first answer."""

    def __init__(self, monkeypatch, place, settings) -> None:
        log = MemoryLog(topics(1), threaded=True)
        def read(ref):
            return open_blobs(settings).get(ref.sha256)
        super().__init__(Agent(name="a", model="m"), log=log, read_blob=read)
        self.assign()
        self.write("producer", opened("a"))
        self.write("producer", message())
        self.settle()
        fails_for_session(monkeypatch, *place)
        self.write("models", answered(call("look")))
        self.settle()
        assert self.turn().open and self.worker.owned[0].stuck

    def write(self, writer, event, key=SESSION) -> int:
        with self.log.arrived:
            return super().write(writer, event, key)

    def turn(self, session_id: str = SESSION):
        return self.worker.owned[0].views(session_id).turn

    def ended(self, session_id: str = SESSION) -> list[str]:
        """The reasons for which the session's turns ended, after the worker has read everything."""
        self.settle()
        entries = self.entries(ev.TurnEnded)
        return [entry.event.reason for entry in entries if entry.session_id == session_id]


@pytest.fixture(params=PLACES, ids=lambda place: place[1])
def rig(request, monkeypatch, tmp_path):
    return Raising(monkeypatch, request.param, settings_in(tmp_path, USER))


@pytest.fixture
def shell(rig, tmp_path, capsys):
    shell = Shell(rig.log, tmp_path, capsys)
    shell.settings = settings_in(tmp_path, USER)
    return shell


@pytest.fixture
def http(rig, shell, tmp_path):
    with (
        served(rig.log, shell.settings, tmp_path / "gateway") as gateway,
        gateway.http() as http,
    ):
        yield http


def test_S1_commands_cancel_a_session_whose_work_raises(rig, shell):
    assert shell(f"cancel {SESSION}").code == 0
    assert rig.ended() == ["cancelled"] and not rig.turn().open


def test_S1_commands_terminate_a_session_whose_work_raises(rig, shell):
    assert shell(f"terminate {SESSION}").code == 0
    assert rig.ended() == ["terminated"]


def test_S1_commands_fork_a_session_whose_work_raises_and_the_fork_goes_on(rig, shell):
    assert shell(f"fork {SESSION} --as other").code == 0
    rig.settle()
    assert not rig.turn("other").open and rig.turn().open
    assert shell("send other again").code == 0
    rig.settle()
    assert rig.turn("other").open and "other" not in rig.worker.owned[0].stuck


def test_S1_commands_read_a_session_whose_work_raises(rig, shell):
    for command in ("show", "show --view wake", "tail", "context show"):
        ran = shell(f"{command} {SESSION}")
        assert (ran.code, ran.err) == (0, ""), command


def test_S1_a_gateway_cancels_forks_and_terminates_a_session_whose_work_raises(rig, http):
    path = f"/v1/sessions/{SESSION}"
    assert http.get(path).status_code == 200
    forked = http.post(f"{path}/fork", json={"name": "other"})
    assert forked.status_code == 201, forked.text
    assert http.post(f"{path}/cancel", json={}).status_code < 300
    assert rig.ended() == ["cancelled"] and not rig.turn("other").open
    assert http.post(f"{path}/terminate", json={"reason": "enough"}).status_code < 300
    rig.settle()
    assert rig.turn().terminated

"""A worker, a gateway and the command line, each as a principal with exactly the rights of its
role.

They are processes as users start them. Only `client.properties` states that the cluster is secured.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2 as httpx
import pytest

from foldlog.cli.__main__ import main
from foldlog.schemas.origin import TokenRole
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.own_environment import bare_env
from foldlog.tests.kit.programs import line_of, output_of
from foldlog.tests.kit.slowness import allowed
from foldlog.tests.security.secured import Secured, password_of
from foldlog.tests.web.gateway.served import SECRET
from foldlog.web.gateway.access import COOKIE, token_for

pytestmark = pytest.mark.broker
WAIT_S = allowed(60)
AGENT = """
from foldlog.processors.agent import Agent
agent = Agent(name="default", model="claude-sonnet-4-5", memory=True)
"""
"""Without tools, so that nothing asks for approval."""


class Installation:
    """One installation on the secured node, which several principals use."""

    def __init__(self, secured: Secured, directory: Path) -> None:
        self.secured, self.directory = secured, directory
        self.prefix = unique_name("acl") + "-"
        secured.grant(self.prefix)

    def env(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The environment of one principal. It names one file, which has everything about the
        cluster."""
        file = self.directory / f"{unique_name()}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return {
            "FOLDLOG_CLIENT_PROPERTIES": str(file),
            "FOLDLOG_TOPIC_PREFIX": self.prefix,
            "FOLDLOG_PARTITIONS": "2",
            "FOLDLOG_HOME": str(self.directory),
            "FOLDLOG_USER": "ana",
            "FOLDLOG_GATEWAY_SECRET": SECRET,
        }

    @contextmanager
    def running(self, properties: Mapping[str, str], *args: str) -> Iterator[subprocess.Popen]:
        """A process of a principal. Its output is checked after it has ended."""
        process = subprocess.Popen(
            [sys.executable, "-m", "foldlog.cli", *args],
            env=bare_env("PYTHONPATH") | self.env(properties),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.terminate()
            out, err = output_of(process, WAIT_S)
        assert process.returncode in (0, -signal.SIGTERM) and "Traceback" not in err, (out, err)
        assert "refuses access" not in err and "-Zk9" not in out + err, err


@pytest.fixture
def installation(secured: Secured, tmp_path: Path) -> Installation:
    return Installation(secured, tmp_path)


class Shell:
    """Runs commands as one principal in the test's process. `out`: the stdout of the last
    command."""

    out = ""

    def __init__(self, installation: Installation, patch, capsys) -> None:
        self.installation, self._patch, self._capsys = installation, patch, capsys

    def __call__(self, properties: Mapping[str, str], *args: str, code: int | None = 0) -> str:
        with self._patch.context() as patch:
            for name, value in self.installation.env(properties).items():
                patch.setenv(name, value)
            self._capsys.readouterr()
            found = main(args)
        out, err = self._capsys.readouterr()
        assert code in (found, None), (args, found, out, err)
        assert "Traceback" not in err
        self.out = out
        return out + err


@pytest.fixture
def shell(installation, monkeypatch, capsys) -> Shell:
    return Shell(installation, monkeypatch, capsys)


def test_every_role_works_with_only_its_rights(installation, shell):
    secured = installation.secured
    (installation.directory / "plain.py").write_text(AGENT)
    user, reader = secured.certificate("user"), secured.scram("reader")
    assert "created" in shell(secured.scram("operator"), "topics", "apply")
    with (
        installation.running(secured.scram("worker"), "worker", "--agent", "plain:agent"),
        installation.running(secured.scram("gateway"), "gateway", "--port", "0") as gateway,
        installation.running(secured.scram("fleet"), "fleet") as fleet,
    ):
        url = line_of(gateway.stdout, "a line of its output").split()[-1]
        member = line_of(fleet.stderr, "a line of its output").split()[-1]
        page = member.removesuffix("status") + "fleet/users/ana/sessions"
        shell(user, "send", "s1", "hello", "--wait", "--json")
        answered = json.loads(shell.out.splitlines()[-1])
        assert answered["reason"] == "end_turn" and answered["text"]
        token, role = token_for("ana", SECRET), [TokenRole.OPERATOR]
        operator = {"authorization": f"Bearer {token_for('olga', SECRET, roles=role)}"}
        with httpx.Client(base_url=url, timeout=WAIT_S, cookies={COOKIE: token}) as http:
            _until(lambda: http.get("/readyz"))
            assert http.post("/v1/sessions/s1/messages", json={"text": "more"}).is_success
            assert http.get("/v1/sessions/s1").is_success
            _until(lambda: http.get("/v1/sessions/s1", headers=operator))
            assert http.get("/api/tabs").is_success
            _until(lambda: http.get(page), text='"session_id":"s1"')
        for command in ("status", "doctor"):
            output = shell(user, command, "--json")
            assert "refuses" not in output and password_of("user") not in output
        assert "olga  session of session s1 of ana" in shell(user, "looks")
    files = installation.directory / "files"
    shell(user, "memory", "--dir", str(files), "--sync")
    (files / "core.md").write_text("likes tea\n")
    shell(user, "memory", "--dir", str(files), "--sync")
    for command in (
        ("tail", "s1", "--json"),
        ("show", "s1"),
        ("sessions",),
        ("search", "hello"),
        ("replay",),
        ("sql", "select count(*) from events"),
        ("export", "s1", "--format", "jsonl", "-o", str(files / "s1.jsonl")),
        ("request", "s1", "1.1"),
        ("traces", "s1"),
        ("looks",),
        ("memory",),
    ):
        output = shell(reader, *command)
        assert "refuses" not in output, command
    assert "likes tea" in output
    refused = shell(reader, "send", "s1", "x", code=3)
    assert f"right to topic {installation.prefix}session-events" in refused
    assert "may or may not" not in refused


def _until(ask: Callable[[], httpx.Response], status: int = 200, text: str = "") -> httpx.Response:
    """Repeat a request until the server answers with this status and text. Returns the answer."""
    until = time.monotonic() + WAIT_S
    while True:
        with suppress(httpx.TransportError):
            answer = ask()
            if answer.status_code == status and text in answer.text:
                return answer
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize(
    "command",
    ["status", "send s1 hi", "worker --supervise", "gateway"],
)
def test_a_wrong_password_ends_every_command_with_3_and_a_message(shell, command):
    wrong = {**shell.installation.secured.scram("worker"), "sasl.password": "pw-wrong-Zk9"}
    output = shell(wrong, *command.split(), code=3)
    assert "the login failed" in output and "sasl.password" in output
    assert "Zk9" not in output and "no Kafka broker answers" not in output

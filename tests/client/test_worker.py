"""Workers in a Python process, on a real broker.

Each test runs a script in a separate process, because a worker removes secrets from its
environment.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foldlog.client.worker import Worker, run_worker
from foldlog.local.messages_api import ScriptedServer
from foldlog.log.errors import Refused
from foldlog.processors.worker.supervise import HEAVY
from foldlog.tests.kit import forked
from foldlog.tests.kit.own_environment import installation_env
from foldlog.tests.kit.programs import line_of
from foldlog.tests.kit.slowness import allowed

pytestmark = pytest.mark.broker
WAIT_S = allowed(90)
IMPORTS = (*HEAVY, "foldlog.client.connection", "foldlog.client.worker")

AGENT = """
import os, sys, threading
import foldlog
from foldlog.log import Settings, open_log
from foldlog.log.made import apply_topics

def topics():
    settings = Settings.load(dict(os.environ), None, {})
    log = open_log(settings)
    apply_topics(log, settings.partitions)
    log.close()

@foldlog.tool(effect="pure")
def secret() -> str:
    "The API key in this process's environment."
    return os.environ.get("ANTHROPIC_API_KEY", "none")

@foldlog.tool(effect="pure", isolate=True)
def hang(file: str) -> str:
    "Hang in a process of its own."
    with open(file, "w") as found:
        found.write(f"{os.getpid()} {os.environ.get('ANTHROPIC_API_KEY')}\\n")
    while True:
        pass

shop = foldlog.Agent(
    name="shop", model="claude-sonnet-5", system="You help.", tools=[secret, hang]
)
"""


class Machine:
    """Runs Python scripts in one installation. fork: whether by a fork, which costs less; its
    environment is not in its /proc."""

    def __init__(self, servers: str, home: Path) -> None:
        self.home = home
        self.env = installation_env(servers, home, "emb")
        self.fork = True
        (home / "agent.py").write_text(AGENT)

    def start(self, script: str) -> subprocess.Popen:
        (self.home / "script.py").write_text(f"from agent import *\n{script}")
        real = (sys.executable, "script.py")
        command = forked.command(IMPORTS, "script.py") if self.fork else real
        return subprocess.Popen(
            command, env=self.env, cwd=self.home, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def __call__(self, script: str) -> tuple[str, str]:
        """Runs a script that must end without an error. Returns its output and what it logged."""
        process = self.start(script)
        out, err = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, f"{out}\n{err}"
        return out, err


@pytest.fixture
def machine(broker, tmp_path):
    with ScriptedServer("obedient") as model:
        machine = Machine(broker.bootstrap_servers, tmp_path)
        machine.env["ANTHROPIC_BASE_URL"] = model.base_url
        yield machine


def test_a_worker_in_a_block_answers_and_a_second_block_continues(machine):
    out, err = machine("""
topics()
for message in ("SAY one", "SAY two"):
    with foldlog.Worker([shop]), foldlog.connect() as log:
        print(log.open("s1", agent="shop").send(message).answer())
print([t.name for t in threading.enumerate() if t.name in ("poll", "effects")])
""")
    assert out.splitlines() == ["one", "two", "[]"], err


@pytest.mark.parametrize("agents", [(), "shop", [17], None])
def test_bad_input_a_value_that_is_no_list_of_agents_is_refused(agents):
    for make in (Worker, run_worker):
        with pytest.raises(Refused, match="needs .*(agent|foldlog.Agent)"):
            make(agents)


def test_without_a_key_a_scripted_model_answers_and_a_warning_names_it(machine):
    del machine.env["ANTHROPIC_BASE_URL"]
    out, err = machine("""
topics()
with foldlog.Worker([shop]), foldlog.connect() as log:
    print(log.open(agent="shop").send("hello").answer())
""")
    assert "I am a scripted stand-in for a model" in out
    assert "no ANTHROPIC_API_KEY and no ANTHROPIC_BASE_URL: a scripted model answers at" in err


def test_a_worker_in_an_async_block_answers_over_the_same_loop(machine):
    out, _ = machine("""
import asyncio
topics()
async def main():
    async with foldlog.Worker([shop]), foldlog.aconnect() as log:
        session = await log.open(agent="shop")
        print(await session.send("SAY hello").answer())
asyncio.run(main())
""")
    assert out == "hello\n"


def test_a_tool_of_an_embedded_worker_cannot_read_foldlogs_secrets(machine):
    machine.env["ANTHROPIC_API_KEY"], machine.fork = "sk-very-secret", False
    out, _ = machine("""
topics()
with foldlog.Worker([shop]):
    print(os.environ.get("ANTHROPIC_API_KEY"))
    print("sk-very" in open("/proc/self/environ").read() if sys.platform == "linux" else False)
""")
    assert out.splitlines() == ["None", "False"]


def test_S1_constraint_3_a_cancel_kills_an_isolated_tool_of_a_worker(machine):
    machine.env["ANTHROPIC_API_KEY"] = "sk-very-secret"
    out, err = machine("""
from foldlog.tests.kit.waiting import until
topics()
file = os.path.abspath("pid")
def begun():
    return os.path.exists(file) and open(file).read().endswith("\\n")
with foldlog.Worker([shop]), foldlog.connect() as log:
    session = log.open("s1", agent="shop")
    reply = session.send('CALL hang {"file": "%s"}' % file)
    until("the tool has begun", begun)
    pid, key = open(file).read().split()
    session.cancel()
    ended = [event for event in reply if isinstance(event, foldlog.ToolFinished)]
    print([event.outcome for event in ended], key, os.path.exists(f"/proc/{pid}"))
""")
    assert out.splitlines() == ["['cancelled'] None False"], err


def test_a_worker_without_topics_does_not_start_and_says_what_to_do(machine):
    out, _ = machine("""
try:
    foldlog.Worker([shop]).start()
except foldlog.FoldlogError as error:
    print(type(error).__name__, error)
""")
    assert out.startswith("TopicMissing ") and "foldlog topics apply" in out


def test_a_second_worker_in_one_directory_is_refused(machine):
    out, _ = machine("""
topics()
with foldlog.Worker([shop]):
    try:
        foldlog.Worker([shop]).start()
    except foldlog.FoldlogError as error:
        print(type(error).__name__)
    with foldlog.connect() as log:
        print(log.open(agent="shop").send("SAY still here").answer())
""")
    assert out.splitlines() == ["StateDirTaken", "still here"]


def test_a_worker_that_fails_is_reported_by_wait(machine):
    out, err = machine("""
from foldlog.log.kafka import KafkaLog
topics()
with foldlog.Worker([shop]) as worker:
    parts = worker._thread.parts
    parts.mail.post(lambda: 1 / 0)
    try:
        worker.wait(60)
    except foldlog.WorkerFailed as error:
        print(type(error.__cause__).__name__, error)
    print(worker.why_not_ready())
""")
    failure, state = out.splitlines()
    assert failure.startswith("ZeroDivisionError the worker ended: ZeroDivisionError"), err
    assert state == "not ready: ended"


def test_run_worker_answers_until_SIGTERM_and_returns_0(machine):
    process = machine.start("""
topics()
def ask():
    with foldlog.connect() as log:
        print(log.open(agent="shop").send("SAY hello").answer(), flush=True)
threading.Thread(target=ask, daemon=True).start()
sys.exit(foldlog.run_worker([shop]))
""")
    assert process.stdout is not None
    assert line_of(process.stdout, "a line of its output") == "hello\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err


def test_run_worker_in_another_thread_names_the_alternative(machine):
    out, _ = machine("""
def work():
    try:
        foldlog.run_worker([shop])
    except RuntimeError as error:
        print(error)
thread = threading.Thread(target=work)
thread.start()
thread.join()
""")
    assert "main thread" in out and "with foldlog.Worker(agents):" in out

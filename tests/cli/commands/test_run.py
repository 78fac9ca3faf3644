"""`worker` and `dev`: a command line results in agents and roles, or in an error that names the
mistake."""

import dataclasses
import json
import logging
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import SimpleQueue

import click
import pytest

from foldlog.cli import agents
from foldlog.cli.commands import demo, fleet, run
from foldlog.cli.commands.gateway import child_arguments, gateway_command, restarting
from foldlog.cli.edge import Edge
from foldlog.cli.worker_info import worker_info
from foldlog.local.kafka import Condition
from foldlog.processors.effects.models.client import host_of
from foldlog.processors.worker.start_lock import exclusive_start
from foldlog.tests.cli.harness import make_shell
from foldlog.tests.kit.played import settings_in
from foldlog.tests.kit.waiting import PATIENCE_S, joined, until

APP = """
from foldlog.processors.agent import Agent
one = Agent(name="one", model="m")
several = [one, Agent(name="two", model="m")]
text = "no agent"
"""


@pytest.fixture(autouse=True)
def restored_logging():
    """Restores the logging handlers, because a worker's command line replaces the format of log
    lines."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_app_for_run.py").write_text(APP)
    (tmp_path / "my_broken_app.py").write_text("x = 1\nraise RuntimeError('no luck')\n")
    (tmp_path / "my_fetching_app.py").write_text(
        "from foldlog.processors.outside.fetch import fetch_url\n"
        "fetch_url(allow_networks=['10.0.0.1/8'])\n"
    )
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "sub").mkdir()
    for name, text in {
        "json": APP,
        "none": "text = 'no agent'\n",
        "syntax": "x = 1\ny = (\n",
        "imports": "import not_there\n",
        "v1.2": APP,
    }.items():
        (tmp_path / "sub" / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]  # the next test has other files of these names


def test_dev_beside_another_one_is_refused_with_the_way_to_run_two(tmp_path, capsys):
    shell = make_shell(tmp_path, capsys)
    with exclusive_start(shell.settings.state_dir, None, pytest.fail, supervises=True):
        ran = shell("dev")
    assert ran.code == 2 and "is already running" in ran.err
    assert "foldlog --home DIR dev" in ran.err


def test_agents_are_loaded_by_name(app):
    names = [agent.name for agent in agents.load_agents(["my_app_for_run:several"])]
    assert names == ["one", "two"]
    assert [agent.name for agent in agents.load_agents([])] == ["default"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (":one", "neither a file nor a module. Give one, as in shop.py"),
        ("my_app_for_run", "several agents, so name one: my_app_for_run:one or my_app_for_run:sev"),
        ("my_app_for_run:other", "has no other.* my_app_for_run has one, several"),
        ("my_app_for_run:text", "it is a str, not an Agent"),
        ("not_there_at_all:agent", "No module named 'not_there_at_all'.* looked for in /"),
        ("my_app_for_ran:one", "Did you mean my_app_for_run?"),
        ("my_app_for_run.one", "Did you mean my_app_for_run:one?"),
        ("my_app_for_run.py", "name one: my_app_for_run.py:one or my_app_for_run.py:several"),
        ("my_app_for_run.py:other", "my_app_for_run.py has no other"),
        ("./my_app_for_ran.py", "no file /.*my_app_for_ran.py. Did you mean my_app_for_run.py?"),
        ("./my_app_for_run", "no file /.*my_app_for_run. Did you mean my_app_for_run.py?"),
        ("sub/zzz.py:one", "no file .*sub/zzz.py. It has imports.py, json.py, none.py, ..."),
        ("empty/zzz.py", "no file /.*empty/zzz.py. /.*empty has no Python file"),
        ("nowhere/zzz.py", "no file /.*zzz.py. There is no directory /.*nowhere either"),
        (".", "is a directory. Give a Python file in it. It has my_app_for_run.py"),
        ("sub/", "sub is a directory. Give a Python file in it. It has imports.py"),
        ("sub", "sub is a directory. Give a Python file in it. It has imports.py"),
        ("./notes.txt", "not a Python file. Give a file that ends in .py"),
        ("./sub/v1.2.py", "another dot. Rename the file"),
        ("sub/json.py", "another module named json .*. Rename the file"),
        ("sub/none.py", "has no Agent at its top level. Assign one there"),
        ("sub/none.py:text", "it is a str, not an Agent.* none.py has no Agent"),
        ("sub/syntax.py", r"syntax.py cannot be imported: SyntaxError: .*\(syntax.py, line 2\)"),
        ("sub/imports.py", r"No module named 'not_there' \(.*imports.py, line 1\)"),
        ("my_broken_app:agent", r"RuntimeError: no luck \(.*my_broken_app.py, line 2\)"),
        ("my_fetching_app:agent", r"as 10.1.2.0/24: .*host bits.*my_fetching_app.py, line 2\)"),
    ],
)
def test_a_wrong_agent_is_refused_with_the_reason(app, name, why):
    with pytest.raises(click.UsageError, match=why):
        agents.load_agents([name])


ONLY = """
from helper_for_run import NAME
from foldlog.processors.agent import Agent
shop = agent = Agent(name=NAME, model="m")
"""


@pytest.mark.parametrize(
    "name", ["sub/shop_{}.py", "./sub/shop_{}.py:agent", "{tmp}/sub/shop_{}.py:"]
)
def test_a_file_is_imported_as_its_own_directory_would(tmp_path, monkeypatch, name, request):
    """It imports its neighbours, and needs no name if it has one agent."""
    number = request.node.callspec.indices["name"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "helper_for_run", raising=False)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / f"shop_{number}.py").write_text(ONLY)
    (tmp_path / "sub" / "helper_for_run.py").write_text(f"NAME = 'shop{number}'\n")
    (agent,) = agents.load_agents([name.format(number, tmp=tmp_path)])
    assert agent.name == f"shop{number}"


def test_a_file_of_a_package_is_imported_with_its_relative_imports(tmp_path, monkeypatch):
    package = tmp_path / "src" / "shop_package_for_run"
    package.mkdir(parents=True)
    monkeypatch.chdir(package)
    monkeypatch.setattr(sys, "path", sys.path[:])
    (package / "__init__.py").write_text("")
    (package / "names.py").write_text("NAME = 'inner'\n")
    (package / "app.py").write_text(ONLY.replace("helper_for_run", ".names"))
    assert [agent.name for agent in agents.load_agents(["app.py"])] == ["inner"]


def test_a_module_with_one_agent_needs_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop_alone.py").write_text(ONLY.replace("helper_for_run", "shop_alone_name"))
    (tmp_path / "shop_alone_name.py").write_text("NAME = 'alone'\n")
    assert [agent.name for agent in agents.load_agents(["shop_alone"])] == ["alone"]


def test_two_agents_of_one_name_are_refused(app):
    with pytest.raises(click.UsageError, match="more than one agent is named one"):
        agents.load_agents(["my_app_for_run:one", "my_app_for_run:several"])


def test_roles_are_a_set_in_their_order():
    assert run.parse_roles("tools, sessions") == ("sessions", "tools")
    for wrong in ("", ",", "sessions,nonsense"):
        with pytest.raises(click.UsageError, match="the roles are sessions, models, tools"):
            run.parse_roles(wrong)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        (None, "api.anthropic.com"),
        ("http://127.0.0.1:8199", "127.0.0.1:8199"),
        ("https://ana:secret@proxy.example/v1", "proxy.example"),
        ("proxy", "ANTHROPIC_BASE_URL, which names no host"),
    ],
)
def test_the_output_names_the_host_of_the_model(tmp_path, capsys, monkeypatch, url, host):
    """The defect: with a key and another url, the demo printed that the real model answers."""
    settings = settings_in(tmp_path, api_key="key", base_url=url)
    assert host_of(url) == host
    monkeypatch.setattr(demo, "_run_scenes", lambda *_: 0)
    lines = []
    demo._with_model(settings, tmp_path, tmp_path, "127.0.0.1:1", lines.append)
    assert lines == [f"   ANTHROPIC_API_KEY is set: the model answers at {host}"]


def test_a_configured_model_is_used(tmp_path):
    settings = settings_in(tmp_path, base_url="http://127.0.0.1:1")
    with run.model_of(settings, run.ROLES, run.note) as found:
        assert found is settings
    with run.model_of(settings_in(tmp_path), ("sessions", "tools"), run.note) as found:
        assert found.base_url is None, "no models role, no model"


def test_without_an_api_key_a_scripted_model_answers_with_a_note(tmp_path, capsys):
    with run.model_of(settings_in(tmp_path), run.ROLES, run.note) as found:
        assert found.base_url.startswith("http://127.0.0.1:") and found.api_key
        assert "a scripted model answers" in capsys.readouterr().err


def test_missing_topics_are_reported_once_before_a_worker_is_started(tmp_path, capsys):
    from foldlog.log import MemoryLog
    from foldlog.tests.cli.harness import Shell

    ran = Shell(MemoryLog(), tmp_path, capsys)("worker --supervise")
    assert ran.code == 3 and ran.err.count("foldlog topics apply") == 1


@pytest.mark.parametrize("command", ["worker", "worker --supervise", "dev"])
def test_an_invalid_channel_stops_only_delivering_commands(tmp_path, capsys, command):
    shell = make_shell(tmp_path, capsys)
    wrong = ("foldlog.toml, channels.crm: url is invalid",)
    shell.settings = dataclasses.replace(shell.settings, channels_wrong=wrong, base_url="http://x")
    ran = shell(command)
    assert ran.code == 2 and "channels.crm: url is invalid" in ran.err
    assert not list(tmp_path.glob("**/worker.json")), "nothing was started"
    assert shell("send s1 hi").code == 0 and shell("down").code == 0
    assert "PROBLEM channels: foldlog.toml, channels.crm: url is invalid" in shell("doctor").out


@pytest.mark.parametrize("command", ["worker --log-json", "worker --supervise --log-json"])
def test_where_log_lines_are_json_so_are_notes_and_errors(tmp_path, capsys, command):
    """The defect: notes such as `a scripted model answers` were plain text between JSON objects."""
    shell = make_shell(tmp_path, capsys)
    shell.settings = dataclasses.replace(shell.settings, channels_wrong=("crm: \x1b[1m wrong",))
    (line,) = map(json.loads, shell(command).err.splitlines())
    assert line["logger"] == "foldlog.cli" and "crm:" in line["text"]
    assert "\x1b" not in line["text"], "as clean as a note"


def test_up_names_the_next_command(tmp_path):
    """The defect: `up` named `topics apply` as the next command, even if the topics existed."""
    from foldlog.cli.commands.kafka import what_is_next
    from foldlog.cli.edge import Edge
    from foldlog.log import MemoryLog
    from foldlog.tests.kit.played import memory_log

    settings = settings_in(tmp_path)
    assert what_is_next(Edge(settings, MemoryLog())) == "foldlog topics apply"
    assert what_is_next(Edge(settings, memory_log())).startswith("foldlog worker")
    settings.state_dir.mkdir()
    contents = {"pid": os.getpid(), "web": "http://127.0.0.1:1"}
    (settings.state_dir / "worker.json").write_text(json.dumps(contents))
    assert what_is_next(Edge(settings, memory_log())) == "foldlog chat"


def test_the_worker_info_of_no_worker_and_of_a_silent_one(tmp_path):
    assert worker_info(tmp_path) == (None, None)
    (tmp_path / "worker.json").write_text("{half")
    assert worker_info(tmp_path) == (None, None)
    (tmp_path / "worker.json").write_text('{"pid": 1, "web": "http://127.0.0.1:1"}')
    assert worker_info(tmp_path) == (1, None), "it runs and does not respond"
    (tmp_path / "worker.json").write_text('{"pid": 99999999, "web": "http://127.0.0.1:1"}')
    assert worker_info(tmp_path) == (None, None), "it was killed"


@pytest.fixture
def answering_worker(tmp_path):
    """A worker's web port. Yields an event that makes the worker ready, and the paths that were
    requested."""
    ready, asked = threading.Event(), SimpleQueue()
    status = {
        "owner": "w1/a",
        "roles": ["sessions"],
        "agents": ["shop"],
        "partitions": {"0": {"offset": 3, "held": [], "stuck": {"s9": "T1 twice"}}},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            is_early = self.path == "/readyz/" and not ready.is_set()
            asked.put(self.path)
            self.send_response(503 if is_early else 200)
            self.end_headers()
            self.wfile.write(json.dumps(status).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    (tmp_path / "worker").mkdir()
    contents = {"pid": 4711, "web": f"http://127.0.0.1:{server.server_port}"}
    (tmp_path / "worker" / "worker.json").write_text(json.dumps(contents))
    yield ready, asked
    server.shutdown()
    joined(thread)
    server.server_close()


def test_doctor_and_status_ask_the_worker(answering_worker, tmp_path, capsys):
    shell = make_shell(tmp_path, capsys)
    shell("send s1 hi")
    assert "worker: w1/a (process 4711), partitions 0" in shell("status").out
    found = shell("doctor").out
    assert "session s9 (partition 0) is set aside: T1 twice" in found
    assert "PROBLEM agents: session s1 needs agent default; the worker serves shop" in found


def test_dev_names_the_next_command_when_its_worker_is_ready(answering_worker, tmp_path):
    """The defect: the command was named before a worker served, and reported that none does."""
    (ready, asked), said = answering_worker, SimpleQueue()
    with run.when_ready(tmp_path / "worker", lambda: said.put("Next")):
        assert [asked.get(timeout=PATIENCE_S) for _ in range(2)] == ["/readyz/"] * 2
        assert said.empty(), "the first response was that it is not ready"
        ready.set()
        assert said.get(timeout=PATIENCE_S) == "Next"


def test_dev_names_the_next_command_also_if_its_worker_is_late(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "READY_S", 0.0)
    said = SimpleQueue()
    with run.when_ready(tmp_path, lambda: said.put("Next")):
        said.get(timeout=PATIENCE_S)
    assert "the worker is not ready after 0 s" in " ".join(capsys.readouterr().err.split())


def test_E28_dev_passes_the_allowed_origins_to_its_gateway(tmp_path, capsys):
    origins = ("http://localhost:5173", "https://app.example")
    arguments = child_arguments(["--home", "/x"], origins)
    assert arguments[:4] == ["--home", "/x", "gateway", "--until-eof"]
    context = gateway_command.make_context("gateway", arguments[3:])
    assert context.params["origins"] == origins and context.params["until_eof"]
    ran = make_shell(tmp_path, capsys)("dev --cors-origin localhost:5173")
    assert ran.code == 2 and "is not an origin" in ran.err


ENDS_TWICE = """
import pathlib, sys
lives = pathlib.Path(sys.argv[1])
lives.write_text(lives.read_text() + "life ")
if lives.read_text().count("life") <= 2:
    sys.exit(1)
sys.stdin.read()
lives.write_text(lives.read_text() + "end")
"""


def test_dev_reports_that_its_gateway_ended_and_restarts_it(tmp_path):
    """The defect: `dev` continued without a gateway and printed nothing."""
    lives = tmp_path / "lives"
    lives.write_text("")
    reports: SimpleQueue[str] = SimpleQueue()
    with restarting([sys.executable, "-c", ENDS_TWICE, str(lives)], reports.put, 0.01):
        for pause in ("0.01", "0.02"):
            report = reports.get(timeout=20)
            assert "the gateway ended with exit code 1" in report
            assert f"restarts in {pause} s" in report
        until = time.monotonic() + 20
        while lives.read_text() != "life life life ":
            assert time.monotonic() < until
            time.sleep(0.01)
    assert lives.read_text() == "life life life end" and reports.empty()


def test_dev_lets_its_gateway_end_while_its_worker_ends(tmp_path):
    lives = tmp_path / "lives"
    lives.write_text("life life ")  # so that it ends only with its stdin
    with restarting([sys.executable, "-c", ENDS_TWICE, str(lives)]) as end:
        until("it runs", lambda: lives.read_text() == "life life life ")
        end()
        until("it has ended", lambda: lives.read_text() == "life life life end")


def test_dev_starts_a_fleet_unless_another_one_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fleet, "AFTER_S", 0.0)
    threads = threading.active_count()
    with fleet.child_fleet(Edge(settings_in(tmp_path, fleet_url="http://fleet:9465"))):
        assert threading.active_count() == threads, "nothing is supervised"
    with fleet.child_fleet(Edge(settings_in(tmp_path))):  # it finds no Kafka, and ends
        until("a fleet was started", lambda: "the fleet ended" in capsys.readouterr().err)


@pytest.mark.broker
def test_dev_starts_a_local_kafka_that_died_and_none_that_was_stopped(tmp_path, broker_cache_dir):
    """The defect: Kafka ended on a disk that was full for a moment, and `dev` waited for ever."""
    edge = Edge(dataclasses.replace(settings_in(tmp_path), cache_dir=broker_cache_dir))
    broker = edge.local_broker()
    broker.up()
    try:
        broker.kill()
        until("Kafka is gone", lambda: broker.status().condition is Condition.GONE)
        run.restart_broker(edge)
        assert broker.status().condition is Condition.RUNNING
        broker.down()
        run.restart_broker(edge)
        assert broker.status().condition is Condition.STOPPED
    finally:
        broker.down()

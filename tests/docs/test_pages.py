"""Types the commands of the pages, and compares the code on the pages with examples/."""

import inspect
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import httpx
import pytest

import foldlog
from foldlog import Client, Settings
from foldlog.api.events import SessionEvent
from foldlog.docs.tables import session_events
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.effects.models.call import _streaming
from foldlog.processors.limits import Limits
from foldlog.processors.tools.tool import tool
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.broker_fixture import unique_name
from foldlog.tests.browser_fixture import WAIT_MS, chromium_path
from foldlog.tests.docs.pages import GATEWAY_PORT, ROOT, WAIT_S, Reader, blocks, missing

PAGES = {
    "agents.md": ("shop", "my_app.py"),
    "budgets.md": ("budgets", "small.py"),
    "embed.md": ("web", "app.py"),
}
OF_EXAMPLES = PAGES | {
    "human-approval.md": ("approval", "clerk.py"),
    "chat-page.md": ("chat", "agent.py"),
}


@pytest.fixture
def copied(tmp_path):
    """A factory that copies a directory of examples/."""

    def copy(name: str) -> Path:
        place = tmp_path / "mine"
        shutil.copytree(ROOT / "examples" / name, place, ignore=shutil.ignore_patterns("*.sqlite3"))
        return place

    return copy


@pytest.mark.broker
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_print_the_output_it_shows(page, copied, tmp_path, broker):
    with Reader(copied(PAGES[page][0]), installation(tmp_path, broker)) as reader:
        reader.read(page)


@pytest.mark.broker
@pytest.mark.crash
def test_the_tutorial_works_as_written(tmp_path, broker, request):
    place = tmp_path / "clerk"
    place.mkdir()
    with Reader(place, installation(tmp_path, broker)) as reader:
        reader.read("tutorial.md")
        if chromium_path() is not None:
            use_chat_page(request.getfixturevalue("browser"), reader.ports["5173"])


@pytest.mark.broker
def test_the_test_of_an_agent_that_a_page_shows_passes(tmp_path, broker):
    place = tmp_path / "shop"
    place.mkdir()
    with Reader(place, installation(tmp_path, broker)) as reader:
        reader.read("test-your-agent.md")
    page = blocks("test-your-agent.md")
    *_, script = (block.text for block in page if block.language == "python")
    exec(compile(script, "test-your-agent.md", "exec"), {})


@pytest.mark.broker
def test_the_python_page_works_as_written(tmp_path, broker):
    place = tmp_path / "shop"
    place.mkdir()
    with Reader(place, installation(tmp_path, broker)) as reader:
        reader.read("python.md")
        scripts = [block.text for block in blocks("python.md") if block.language == "python"]
        users, *cells = (text for text in scripts if not text.startswith("# "))
        (place / "users.py").write_text(users)
        reader.type("python users.py", "True")
        (place / "notebook.py").write_text(NOTEBOOK)
        (place / "cells.json").write_text(json.dumps(["import foldlog", *cells]))
        reader.type("python notebook.py", "ApprovalAsked charge\nToolFinished charge\nTurnEnded")


@pytest.mark.broker
def test_the_page_of_approvals_works_as_written(copied, tmp_path, broker, request):
    place = copied("approval")
    with Reader(place, installation(tmp_path, broker)) as reader:
        reader.read("human-approval.md")
        report = (place / "audit.html").read_text("utf-8")
        assert "recorded by a command of OS user" in report
        assert "where command is &#x27;sales *&#x27;" in report
        if chromium_path() is not None:
            reader.type(
                """foldlog send s4 'CALL refund {"order": 20}' --agent clerk\nfoldlog show s4""",
                "s4 1.1.0",
            )
            press_allow(request.getfixturevalue("browser"), reader.ports[GATEWAY_PORT])
            reader.type("foldlog show s4", "done: order 20 is refunded")


def press_allow(browser, port: str) -> None:
    """Allow the call that the home page of the inspector shows."""
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"http://127.0.0.1:{port}/")
    page.get_by_role("button", name="Allow").click()
    page.get_by_role("button", name="Allow").wait_for(state="hidden")
    page.close()


NGINX = """
daemon off;
error_log stderr;
pid {place}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    include {place}/site.conf;
}}
"""


@pytest.mark.broker
def test_a_chat_page_is_deployed_as_its_page_says(copied, tmp_path, broker):
    place = copied("chat")
    site = (place / "nginx.conf").read_text("utf-8")
    (shown,) = (block.text for block in blocks("chat-page.md") if block.language == "nginx")
    assert shown in site
    with Reader(place, installation(tmp_path, broker)) as reader:
        reader.read("chat-page.md")
        preflight = {"origin": "https://app.example", "access-control-request-method": "POST"}
        for shown, code in (("8401", 403), ("8402", 204)):
            url = f"http://127.0.0.1:{reader.ports[shown]}/api/chat"
            assert httpx.options(url, headers=preflight).status_code == code
        if (nginx := shutil.which("nginx")) is None:
            return
        (place / "site.conf").write_text(reader.with_free_ports(site))
        (place / "all.conf").write_text(NGINX.format(place=place))
        with subprocess.Popen([nginx, "-p", place, "-c", place / "all.conf"]) as proxy:
            try:
                wait_for_port(reader.ports["8400"], proxy)
                *_, check = (block for block in blocks("chat-page.md") if block.language == "sh")
                url = f"http://127.0.0.1:{reader.ports['8400']}"
                reader.type(f"python check.py {url}", check.printed)
            finally:
                proxy.terminate()


def wait_for_port(port: str, process: subprocess.Popen) -> None:
    """Wait until a process listens."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", int(port))).close()
        except ConnectionRefusedError:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.05)  # polls: the other process sends no signal


@pytest.mark.broker
def test_the_page_about_stuck_sessions_shows_what_each_cause_prints(
    copied, tmp_path, broker, request
):
    with Reader(copied("stuck"), installation(tmp_path, broker)) as reader:
        reader.type("foldlog topics apply")
        freeze_a_session(Settings.load(reader.env, None, {}), "s7")
        reader.read("debug-a-stuck-session.md")
        if chromium_path() is not None:
            read_why(request.getfixturevalue("browser"), reader.ports[GATEWAY_PORT], "s3")


def freeze_a_session(settings: Settings, name: str) -> None:
    """Open a session with a message, and write an event that only a newer version knows."""
    unknown = [("t", b"SESSION_TRANSFERRED"), ("w", b"producer"), ("m", b"1")]
    with Client(settings) as client:
        client.say(name, "SAY hello", message_id="m1", agent="shop")
        with closing(client.log.producer()) as producer:
            producer.append(SESSION_EVENTS, name, b"written by a newer version", unknown)
            assert producer.flush(WAIT_S) == 0


def read_why(browser, port: str, session: str) -> None:
    """Read the inspector's part Why of a session that waits for approval."""
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"http://127.0.0.1:{port}/#/s/{session}")
    page.get_by_role("heading", name="Waiting for a person to allow charge").wait_for()
    page.get_by_text("Nobody decides in time").wait_for()
    page.close()


NOTEBOOK = """
import ast, asyncio, inspect, json, pathlib

async def run(cells):
    names = {}
    for cell in cells:  # as IPython does
        code = compile(cell, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        done = eval(code, names)
        if inspect.isawaitable(done):
            await done

asyncio.run(run(json.loads(pathlib.Path("cells.json").read_text())))
"""


def test_the_python_page_names_every_event_class():
    listed = set(re.findall(r"^\| `(\w+)` \|", session_events(), re.MULTILINE))
    made = {SessionEvent}
    while more := {sub for cls in made for sub in cls.__subclasses__()} - made:
        made |= more
    bases = {"SessionEvent", "RecordedEvent", "CallEvent"}
    assert {cls.__name__ for cls in made if cls.__module__ == SessionEvent.__module__} - bases == (
        listed
    )
    assert listed <= set(foldlog.__all__)


def use_chat_page(browser, port: str) -> None:
    """Use the tutorial's chat page: an answer arrives, and after a reload the page shows it
    again."""
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"http://127.0.0.1:{port}/chat.html")
    page.fill("input", "SAY Hello from the log.")
    page.press("input", "Enter")
    for _ in range(2):
        page.wait_for_function(
            "document.querySelector('#chat').innerText.endsWith('\\n\\nHello from the log.')"
        )
        page.reload()
    page.close()


def installation(tmp_path: Path, broker) -> dict[str, str]:
    """The environment of a new installation."""
    return {
        "FOLDLOG_HOME": str(tmp_path / "home"),
        "FOLDLOG_CONFIG_DIR": str(tmp_path / "config"),
        "FOLDLOG_TOPIC_PREFIX": unique_name("docs"),
        "FOLDLOG_USER": "ana",
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
    }


@pytest.mark.parametrize("page", OF_EXAMPLES)
def test_the_code_of_a_page_equals_its_example_or_runs_in_it(page, copied, monkeypatch):
    name, file = OF_EXAMPLES[page]
    place = copied(name)
    source = "\n".join(path.read_text("utf-8") for path in sorted(place.glob("*.py")))
    monkeypatch.syspath_prepend(str(place))
    stem = file.removesuffix(".py")
    sys.modules.pop(stem, None)
    module = __import__(stem)
    monkeypatch.setitem(sys.modules, stem, module)
    for block in blocks(page):
        if block.language == "python" and block.text not in source:
            exec(compile(block.text, page, "exec"), {**vars(module), stem: module})


def test_the_page_of_agents_names_every_field_and_parameter():
    page = (ROOT / "docs" / "agents.md").read_text("utf-8")
    words = [field.name for field in fields(Agent) if not field.name.startswith("_")]
    words += [name for name in inspect.signature(tool).parameters if name != "function"]
    assert [word for word in words if f"| `{word}` |" not in page] == []


def test_the_page_of_budgets_names_every_choice():
    page = (ROOT / "docs" / "budgets.md").read_text("utf-8")
    words = [f"`{field.name}`" for field in fields(Limits)]
    words += [f"Compaction({field.name}=" for field in fields(Compaction)]
    assert [word for word in words if word not in page] == []


def test_the_page_of_requests_names_what_is_added_on_the_wire():
    page = (ROOT / "docs" / "requests.md").read_text("utf-8")
    sent = _streaming(b'{"a":1}')
    assert f"it ends with `{sent[6:].decode()}`" in page


def test_a_line_that_a_command_did_not_print_is_found():
    printed = "turn 12 (offset 417)\n  done:   {}\nsha256 00c1ab2300: as its claim says"
    assert missing("turn 1 (offset 5)\ndone: {}\nsha256 ffffffff: as ...", printed) == []
    assert missing("done: {}\nturn 1", printed) == ["turn 1"], "the order counts"
    assert missing("done: []", printed) == ["done: []"]

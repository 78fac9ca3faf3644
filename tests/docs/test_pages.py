"""Types the commands of the pages, and compares the code on the pages with examples/."""

import inspect
import json
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import foldlog
from foldlog.client.events import SessionEvent
from foldlog.docs.tables import session_events
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.effects.models.call import _streaming
from foldlog.processors.limits import Limits
from foldlog.processors.tools.tool import tool
from foldlog.tests.docs.pages import ROOT, Reader, blocks, missing
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.browser_fixture import WAIT_MS, chromium_path
from foldlog.tests.kit.own_environment import NO_FLEET

PAGES = {
    "agents.md": ("shop", "my_app.py"),
    "budgets.md": ("budgets", "small.py"),
    "embed.md": ("web", "app.py"),
}
OF_EXAMPLES = PAGES | {
    "human-approval.md": ("approval", "clerk.py"),
    "chat-page.md": ("chat", "agent.py"),
}


@pytest.mark.full
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


@pytest.mark.full
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
    return NO_FLEET | {
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

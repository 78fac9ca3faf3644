"""examples/web as separate processes: several servers, and a server that is killed in
mid-stream."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from foldlog.local.messages_api import Reply, ScriptedServer, text
from foldlog.tests.docs.pages import ROOT, _free_ports
from foldlog.tests.docs.test_pages import installation
from foldlog.tests.kit.browser_fixture import WAIT_MS, chromium_path
from foldlog.tests.kit.own_environment import bare_env
from foldlog.tests.kit.programs import END_S, end
from foldlog.tests.kit.slowness import allowed

pytestmark = pytest.mark.broker
WAIT_S = allowed(90.0)
ANA = {"Authorization": "Bearer token-of-ana"}
ANSWER = "Order 17 was packed on Monday, and it will arrive tomorrow."


class Example:
    """A copy of the example, and the processes that a test starts in it."""

    def __init__(self, place: Path, env: dict[str, str]) -> None:
        self.env = bare_env("PYTHONPATH") | env
        self.place = place
        (port,) = _free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.serving = ("-m", "uvicorn", "app:app", "--port", str(port),
                        "--timeout-graceful-shutdown", "1")

    @contextmanager
    def running(self, *arguments: str, until: str, **env: str) -> Iterator[subprocess.Popen]:
        """A Python process. The block begins once the process prints the line `until`, and the
        process ends with the block."""
        out = self.place / f"out-{arguments[0].strip('-')}"
        with out.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=self.place, env=self.env | env,
                stdout=file, stderr=file,
            )  # fmt: skip
        try:
            deadline = time.monotonic() + WAIT_S
            while until not in out.read_text():
                assert process.poll() is None and time.monotonic() < deadline, out.read_text()
                time.sleep(0.05)  # polls: the other process sends no signal
            yield process
        finally:
            end(process, END_S)


@pytest.fixture
def model():
    with ScriptedServer("demo") as server:
        yield server


@pytest.fixture
def example(tmp_path, broker, model):
    place = tmp_path / "web"
    shutil.copytree(ROOT / "examples" / "web", place)
    scripted = {"ANTHROPIC_BASE_URL": model.base_url, "ANTHROPIC_API_KEY": "any"}
    made = Example(place, installation(tmp_path, broker) | scripted)
    subprocess.run(
        [sys.executable, "-m", "foldlog.cli", "topics", "apply"], env=made.env, check=True,
        stdout=subprocess.DEVNULL,
        timeout=60,
    )  # fmt: skip
    return made


def events_of(stream: httpx.Response) -> Iterator[tuple[str, str, dict]]:
    """The (id, name, data) of each server-sent event."""
    fields = {}
    for line in stream.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            yield fields["id"], fields["event"], json.loads(fields["data"])


def test_several_server_processes_share_workers_of_their_own(example, request):
    servers = example.running(
        *example.serving, "--workers", "2", until="Application startup", WORKERS_ELSEWHERE="1"
    )
    with servers, example.running("worker.py", until="runs sessions"):
        for _ in range(3):
            ran = subprocess.run(
                [sys.executable, "talk.py", example.url, "c1", "refund 17"],
                cwd=example.place, env=example.env, capture_output=True, text=True,
                timeout=60,
            )  # fmt: skip
            assert "refund {'order': 17}: allowed" in ran.stdout, ran.stdout + ran.stderr
            assert "returned: order 17 is refunded" in ran.stdout
        if chromium_path() is not None:
            use_the_page(request.getfixturevalue("browser"), example)


def use_the_page(browser, example: Example) -> None:
    """Sign in with a cookie, see the history, send a message, allow its call, reload the page."""
    context = browser.new_context()
    page = context.new_page()
    page.on("dialog", lambda asks: asks.accept("token-of-ana"))
    page.goto(f"{example.url}/#c1")
    page.get_by_text("refund: ok").nth(2).wait_for(timeout=WAIT_MS)
    page.get_by_label("Message").fill("refund 18")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Allow").click(timeout=WAIT_MS)
    page.get_by_text("returned: order 18 is refunded").wait_for(timeout=WAIT_MS)
    page.reload()
    page.get_by_text("refund: ok").nth(3).wait_for(timeout=WAIT_MS)
    page.get_by_text("You: refund 18").wait_for(timeout=WAIT_MS)
    assert page.get_by_role("button", name="Allow").count() == 0
    context.close()


@pytest.mark.crash
def test_S2_a_server_killed_in_mid_stream_loses_and_repeats_nothing(example, model):
    model.add(Reply([text(ANSWER)], gate="g", gate_after=6))
    message = {"id": "m1", "text": "where is order 17?"}
    seen, cursor = [], ""
    with (
        example.running(*example.serving, until="Application startup complete") as server,
        httpx.Client(base_url=example.url, headers=ANA, timeout=WAIT_S) as http,
        http.stream("POST", "/chats/c1/messages", json=message) as stream,
    ):
        try:
            for last, name, event in events_of(stream):
                cursor = last
                seen.append((name, event))
                if name == "Token":
                    server.kill()
        except httpx.HTTPError:
            pass  # the connection ends with its server
    assert seen and not any(name == "TurnEnded" for name, _ in seen)
    model.open("g")
    with (
        example.running(*example.serving, until="Application startup complete"),
        httpx.Client(base_url=example.url, headers=ANA, timeout=WAIT_S) as http,
        http.stream("GET", "/chats/c1/events", headers={"Last-Event-ID": cursor}) as stream,
    ):
        for _, name, event in events_of(stream):
            seen.append((name, event))
            if name == "TurnEnded":
                break
    shown = ""
    for name, event in seen:
        shown = shown + event["text"] if name == "Token" else "" if name == "Discarded" else shown
    assert shown == ANSWER

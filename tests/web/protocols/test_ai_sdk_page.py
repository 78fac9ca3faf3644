"""A page reaches the gateway as docs/ai-sdk.md describes: vite's dev server with its proxy, the
real client of the AI SDK, and a real browser."""

import socket
import threading
from pathlib import Path

import pytest

from foldlog.tests.kit.played import Played, memory_log, settings_in
from foldlog.tests.kit.waiting import joined
from foldlog.tests.web.gateway.served import served

SERVER = Path(__file__).parents[2] / "node" / "vite_dev.mjs"


@pytest.fixture(scope="module")
def log():
    return memory_log(threaded=True)


@pytest.fixture(scope="module")
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def gateway(log, port, tmp_path_factory):
    directory = tmp_path_factory.mktemp("page")
    origins = (f"http://127.0.0.1:{port}",)
    with served(log, settings_in(directory), directory / "gateway", origins=origins) as running:
        yield running


@pytest.fixture(scope="module")
def closed(log, tmp_path_factory):
    """A gateway that no page of another origin may use."""
    directory = tmp_path_factory.mktemp("closed")
    with served(log, settings_in(directory), directory / "gateway") as running:
        yield running


@pytest.fixture(scope="module")
def page(browser, talk, port, closed):
    """A page of an app in development. The proxy of its dev server leads to `closed`."""
    talk(SERVER, str(port), closed.url).receive()
    context = browser.new_context()
    context.set_default_timeout(60_000)
    opened = context.new_page()
    opened.goto(f"http://127.0.0.1:{port}/")
    opened.wait_for_function("document.title === 'ready'")
    yield opened
    context.close()


def chat_of(page, log, api, chat):
    """The result in the page of a chat whose message is answered."""

    def answer():
        worker = Played(log, chat)
        worker.wait(lambda views: views.turn.open)
        worker.answer("hello you")

    answering = threading.Thread(target=answer)
    answering.start()
    shown = page.evaluate("given => window.talk(...given)", [api, chat])
    assert "error" not in shown, shown
    joined(answering)
    return shown


def test_E28_a_page_reaches_the_gateway_through_its_dev_servers_proxy(page, log):
    shown = chat_of(page, log, "/api/chat", "proxied")
    assert shown == {"resumed": None, "messages": [], "text": "hello you"}


def test_E28_a_page_of_an_allowed_origin_needs_no_proxy(page, log, gateway):
    shown = chat_of(page, log, f"{gateway.url}/api/chat", "direct")
    assert shown == {"resumed": None, "messages": [], "text": "hello you"}


def test_E28_a_proxy_that_changes_the_host_is_refused_with_the_solution(page):
    shown = page.evaluate("given => window.talk(...given)", ["/changed/api/chat", "changed"])
    assert "--cors-origin" in shown["error"]
    short = page.evaluate("fetch('/v1/sessions', {method: 'POST'}).then(r => r.status)")
    assert short == 403, "vite's short form changes the host as well"


def test_E28_a_page_of_another_origin_is_refused(page, closed):
    shown = page.evaluate("given => window.talk(...given)", [f"{closed.url}/api/chat", "other"])
    assert "error" in shown

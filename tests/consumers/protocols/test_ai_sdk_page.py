"""The ways a page reaches the gateway that docs/ai-sdk.md names: vite's dev server and its proxy,
the real client of the AI SDK, a real browser."""

import socket
import threading
from pathlib import Path

import pytest

from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.played import Played, memory_log, settings_in

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
    place = tmp_path_factory.mktemp("page")
    origins = (f"http://127.0.0.1:{port}",)
    with served(log, settings_in(place), place / "gateway", origins=origins) as running:
        yield running


@pytest.fixture(scope="module")
def closed(log, tmp_path_factory):
    """A gateway that no page of another origin may use."""
    place = tmp_path_factory.mktemp("closed")
    with served(log, settings_in(place), place / "gateway") as running:
        yield running


@pytest.fixture(scope="module")
def page(browser, talk, port, closed):
    """A page of an app in development, which `closed` is behind."""
    talk(SERVER, str(port), closed.url).receive()
    context = browser.new_context()
    context.set_default_timeout(60_000)
    opened = context.new_page()
    opened.goto(f"http://127.0.0.1:{port}/")
    opened.wait_for_function("document.title === 'ready'")
    yield opened
    context.close()


def talks(page, log, api, chat):
    """What the page gets of a chat whose message is answered."""

    def answer():
        worker = Played(log, chat)
        worker.wait(lambda views: views.turn.open)
        worker.answer("hello you")

    answering = threading.Thread(target=answer)
    answering.start()
    got = page.evaluate("given => window.talk(...given)", [api, chat])
    assert "error" not in got, got  # else nobody is ever answered
    answering.join()
    return got


def test_E28_a_page_talks_through_its_dev_servers_proxy(page, log):
    got = talks(page, log, "/api/chat", "proxied")
    assert got == {"resumed": None, "messages": [], "text": "hello you"}


def test_E28_a_page_of_an_allowed_origin_talks_without_a_proxy(page, log, gateway):
    got = talks(page, log, f"{gateway.url}/api/chat", "direct")
    assert got == {"resumed": None, "messages": [], "text": "hello you"}


def test_E28_a_proxy_that_changes_the_host_is_refused_and_told_what_to_do(page):
    got = page.evaluate("given => window.talk(...given)", ["/changed/api/chat", "changed"])
    assert "--cors-origin" in got["error"]
    short = page.evaluate("fetch('/v1/sessions', {method: 'POST'}).then(answer => answer.status)")
    assert short == 403, "vite's short form changes the host as well"


def test_E28_a_page_of_another_origin_is_refused(page, closed):
    got = page.evaluate("given => window.talk(...given)", [f"{closed.url}/api/chat", "other"])
    assert "error" in got

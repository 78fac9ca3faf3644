"""Types the commands of the how-to pages for people who run agents: stuck sessions, approvals, a
chat page behind a proxy."""

import shutil
import socket
import subprocess
import time
from contextlib import closing

import httpx
import pytest

from foldlog import Settings, connect
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.docs.pages import GATEWAY_PORT, WAIT_S, Reader, blocks
from foldlog.tests.docs.test_pages import installation
from foldlog.tests.kit.browser_fixture import WAIT_MS, chromium_path

pytestmark = pytest.mark.broker


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


@pytest.mark.full
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


@pytest.mark.full
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
    with connect(settings) as connection:
        connection.open(name, agent="shop").say("SAY hello", message_id="m1")
        with closing(connection.log.producer()) as producer:
            producer.append(SESSION_EVENTS, name, b"written by a newer version", unknown)
            assert producer.flush(WAIT_S) == 0


def read_why(browser, port: str, session: str) -> None:
    """Read the inspector's part Why of a session that waits for approval."""
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"http://127.0.0.1:{port}/#/s/{session}")
    page.get_by_role("heading", name="Waiting for a person to allow charge").wait_for()
    page.get_by_text("The approval expires", exact=True).wait_for()
    page.close()

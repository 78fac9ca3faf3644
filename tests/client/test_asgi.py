"""The gateway's protocols inside an application, with the application's users, lifespan and
routes."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import ASGIApp

import foldlog
from foldlog.log.errors import SettingsError
from foldlog.log.memory import MemoryLog
from foldlog.schemas.topics import OPERATOR_LOOKS, SESSION_EVENTS
from foldlog.tests.kit.played import Played, memory_log, settings_in
from foldlog.tests.kit.slowness import allowed
from foldlog.web.asgi import asgi
from foldlog.web.gateway.access import Access
from foldlog.web.gateway.mounted import AsgiApp
from foldlog.web.gateway.serve import listen

PATIENCE_S = allowed(30.0)
ANA, BOB = {"x-user": "ana"}, {"x-user": "bob"}


@pytest.fixture
def log() -> MemoryLog:
    return memory_log(threaded=True)


@pytest.fixture
def chat(log, tmp_path) -> AsgiApp:
    return asgi(
        authenticate=lambda request: request.headers.get("x-user"),
        origins=["https://app.example"],
        settings=settings_in(tmp_path),
        log=log,
    )


def application(chat: AsgiApp, *, enter: bool = True) -> FastAPI:
    """A FastAPI application that has the chat at /chat and a route of its own."""

    @asynccontextmanager
    async def lifespan(_app):
        if not enter:
            yield
            return
        async with chat:
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/chat", chat)
    app.get("/own")(lambda: "own")
    return app


@contextmanager
def running(app: ASGIApp) -> Iterator[httpx.Client]:
    """A client of an app that uvicorn serves until the end of the block."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    with closing(listen("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_a_mounted_app_streams_an_answer_beside_the_applications_own_routes(chat, log):
    with running(application(chat)) as http:
        assert http.get("/own").json() == "own"
        sent = http.post("/chat/v1/sessions/s1/messages", json={"text": "hi"}, headers=ANA)
        assert sent.status_code in (200, 201, 202), sent.text
        played = Played(log, sent.json()["session_id"])
        played.answer("It is four.")
        url = f"/chat/v1/sessions/{sent.json()['session_id']}/stream"
        with http.stream("GET", url, headers=ANA) as stream:
            assert stream.status_code == 200
            assert any("It is four." in line for line in stream.iter_lines())
        assert http.get("/own").json() == "own"


def test_the_application_says_who_the_user_is_and_records_prove_it(chat, log):
    with running(application(chat)) as http:
        url = "/chat/v1/sessions/s1/messages"
        refused = http.post(url, json={"text": "hi"})
        assert refused.status_code == 401
        assert "this application knows no user" in refused.json()["detail"]
        session_id = http.post(url, json={"text": "hi"}, headers=ANA).json()["session_id"]
        other = http.get(f"/chat/v1/sessions/{session_id}", headers=BOB)
        assert other.status_code == 404
    reader = log.reader(SESSION_EVENTS, dict.fromkeys(range(4), 0))
    assert {record.header("by") for record in reader.poll(1)} == {b"gateway app ana"}


def test_an_application_gives_its_operators_roles_and_their_looks_are_recorded(log, tmp_path):
    def who(request: Request) -> str | foldlog.Caller | None:
        user = request.headers.get("x-user")
        roles = frozenset({foldlog.TokenRole.OPERATOR})
        return foldlog.Caller(user, roles) if user == "eve" else user

    chat = asgi(authenticate=who, settings=settings_in(tmp_path), log=log)
    with running(application(chat)) as http:
        url = "/chat/v1/sessions/s1/messages"
        session_id = http.post(url, json={"text": "hi"}, headers=ANA).json()["session_id"]
        here = f"/chat/v1/sessions/{session_id}"
        assert http.get(here, headers=BOB).status_code == 404
        assert sum(log.end_offsets(OPERATOR_LOOKS).values()) == 0
        assert http.get(here, headers={"x-user": "eve"}).json()["session_id"] == session_id
        assert sum(log.end_offsets(OPERATOR_LOOKS).values()) == 1
        stopped = http.post(f"{here}/cancel", json={"turn": 1}, headers={"x-user": "eve"})
        assert stopped.status_code == 403, stopped.text


@pytest.mark.parametrize(
    ("found", "said"),
    [("ana smith", "the user must be 1-"), (foldlog.Caller("ana", {"boss"}), "operator, decide")],
)
def test_a_user_id_or_a_role_that_is_not_valid_is_the_applications_error(
    log, tmp_path, found, said
):
    with pytest.raises(ValueError, match=said):
        Access("me", None, (), lambda _: found).caller_of(Request({"type": "http"}))
    chat = asgi(authenticate=lambda _: found, settings=settings_in(tmp_path), log=log)
    with running(application(chat)) as http:
        assert http.get("/chat/v1/sessions").status_code == 500
    assert log.end_offsets(SESSION_EVENTS) == dict.fromkeys(range(4), 0)


def test_pages_of_other_origins_need_to_be_allowed(chat):
    with running(application(chat)) as http:
        url = "/chat/v1/sessions"
        allowed = http.get(url, headers={**ANA, "origin": "https://app.example"})
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        foreign = http.get(url, headers={**ANA, "origin": "https://other.example"})
        assert foreign.status_code == 403


def test_it_has_no_inspector_unless_the_application_wants_one(chat):
    with running(application(chat)) as http:
        assert http.get("/chat/", headers=ANA).status_code == 404
        for path in ("about", "home", "charts"):
            assert http.get(f"/chat/inspector/api/{path}", headers=ANA).status_code == 404


def test_an_app_that_was_not_entered_answers_503_and_says_what_to_do(chat):
    with running(application(chat, enter=False)) as http:
        answer = http.get("/chat/v1/sessions", headers=ANA)
    assert answer.status_code == 503 and "async with" in answer.json()["detail"]


def test_a_server_may_run_it_alone(chat):
    with running(chat) as http:
        assert http.get("/v1/sessions", headers=ANA).status_code == 200


STREAMS = ("/chat/v1/sessions/s1/stream", "/chat/v1/sessions/events", "/chat/api/tabs/events")

SERVED = """
from pathlib import Path
from foldlog.web.asgi import asgi
from foldlog.web.gateway.access import Access
from foldlog.tests.client.test_asgi import application
from foldlog.tests.kit.played import memory_log, settings_in

chat = asgi(
    authenticate=lambda _: "ana", settings=settings_in(Path.cwd()), log=memory_log(threaded=True)
)
app = application(chat)
"""


def test_a_server_that_stops_ends_the_open_streams_first(tmp_path):
    """uvicorn waited for them for ever or, with a limit, cancelled them with a traceback each."""
    (tmp_path / "served.py").write_text(SERVED)
    with ExitStack() as stack:
        listening = stack.enter_context(closing(listen("127.0.0.1", 0)))
        command = [sys.executable, "-m", "uvicorn", "served:app", f"--fd={listening.fileno()}"]
        server = stack.enter_context(subprocess.Popen(
            command, cwd=tmp_path, pass_fds=[listening.fileno()], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        ))
        stack.callback(server.kill)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        http = stack.enter_context(httpx.Client(base_url=url, timeout=PATIENCE_S))
        http.post("/chat/v1/sessions/s1/messages", json={"text": "hi"}).raise_for_status()
        until = time.monotonic() + PATIENCE_S
        while http.get("/chat/api/tabs").status_code == 503:  # it reads the list of tabs
            assert time.monotonic() < until
        streams = [stack.enter_context(http.stream("GET", path)) for path in STREAMS]
        assert [stream.status_code for stream in streams] == [200] * len(STREAMS)
        server.send_signal(signal.SIGINT)
        out, _ = server.communicate(timeout=PATIENCE_S)
        for stream in streams:
            stream.read()  # raises an error if the connection broke in the middle of the stream
        assert server.returncode == 0 and "Application shutdown complete" in out
        assert "Traceback" not in out and "ERROR" not in out


def test_two_processes_of_one_application_have_caches_of_their_own(log, tmp_path):
    def make() -> AsgiApp:
        return asgi(authenticate=lambda _: "ana", settings=settings_in(tmp_path), log=log)

    with running(make()) as first, running(make()) as second:
        assert first.get("/v1/sessions").status_code == 200
        assert second.get("/v1/sessions").status_code == 200
    assert {path.name for path in tmp_path.glob("asgi-*")} == {"asgi-1", "asgi-2"}


def test_bad_input_one_origin_in_place_of_a_list_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="origins. Write origins=.'https://app.example'."):
        asgi(authenticate=lambda _: "me", origins="https://app.example")


def test_without_users_or_a_secret_nothing_is_served(tmp_path):
    with pytest.raises(SettingsError, match="no way to tell users apart. Pass authenticate"):
        asgi(settings=settings_in(tmp_path))

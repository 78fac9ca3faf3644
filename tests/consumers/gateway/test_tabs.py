"""S0.5-S0.7, S0.11: tabs have their own sessions, know each other, and stop each other."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from foldlog.consumers.gateway.access import token_for
from foldlog.consumers.gateway.routes import tabs as routes_tabs
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.played import memory_log, settings_in
from foldlog.tests.processors.worker.announcing import Announcing

SECRET = "a secret of forty characters, or of more"
ROUNDS = 12
PATIENCE_S = 20


@pytest.fixture(scope="module")
def log():
    return memory_log(threaded=True)


@pytest.fixture(scope="module")
def gateway(log, tmp_path_factory):
    place = tmp_path_factory.mktemp("tabs")
    worker, halt = Announcing(log), threading.Event()

    def work() -> None:
        while not halt.is_set():
            worker.run()

    thread = threading.Thread(target=work)
    thread.start()
    with served(log, settings_in(place), place / "gateway", secret=SECRET) as running:
        yield running
    halt.set()
    thread.join()


def browser(gateway, user):
    return gateway.http(token_for(user, SECRET))


@pytest.fixture
def ana(gateway):
    with browser(gateway, "ana") as http:
        yield http


@pytest.fixture
def bob(gateway):
    with browser(gateway, "bob") as http:
        yield http


def of_tab(http, tab: str):
    answer = http.post("/api/tabs", json={"tab": tab, "agent": "helper"})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()["session_id"]


def named(http) -> set[str]:
    return {tab["session_id"] for tab in http.get("/api/tabs").json()["tabs"]}


def awaited(what, found):
    end = time.monotonic() + PATIENCE_S
    while not (value := found()):
        assert time.monotonic() < end, what
        threading.Event().wait(0.01)
    return value


def test_S0_5_each_tab_has_its_own_session_and_keeps_it_over_a_reload(ana):
    one, other = of_tab(ana, "tab-1"), of_tab(ana, "tab-2")
    assert one != other
    assert (of_tab(ana, "tab-1"), of_tab(ana, "tab-2")) == (one, other)
    cookie = next(c for c in ana.cookies.jar if c.name == "foldlog_tab_tab-1")
    assert cookie.value == one and cookie.has_nonstandard_attr("HttpOnly") and cookie.discard


def test_S0_5_a_tab_whose_session_has_ended_gets_a_new_one(ana):
    one = of_tab(ana, "tab-e")
    assert ana.post(f"/v1/sessions/{one}/terminate", json={}).status_code == 200
    assert of_tab(ana, "tab-e") != one


def test_a_cookie_of_another_user_or_of_nothing_opens_no_door(ana, bob):
    one = of_tab(ana, "tab-x")
    bob.cookies.set("foldlog_tab_tab-x", one)
    assert of_tab(bob, "tab-x") != one
    ana.cookies.set("foldlog_tab_tab-y", "no/such session")
    assert of_tab(ana, "tab-y")
    assert ana.post("/api/tabs", json={"tab": "a b"}).status_code == 400


def test_S0_7_tabs_of_a_user_know_each_other_and_nobody_elses(ana, bob):
    mine, bobs = of_tab(ana, "tab-k"), of_tab(bob, "tab-k")
    awaited("ana's tab is listed", lambda: mine in named(ana))
    awaited("bob's tab is listed", lambda: bobs in named(bob))
    assert bobs not in named(ana) and mine not in named(bob)


def test_S0_7_a_tab_hears_what_opens_changes_and_closes(gateway, ana):
    heard, seen = [], threading.Condition()

    def listen() -> None:
        with browser(gateway, "ana") as http, http.stream("GET", "/api/tabs/events") as response:
            name = ""
            for line in response.iter_lines():
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    with seen:
                        heard.append((name, json.loads(line[6:])))
                        seen.notify()
                    if name == "session_close":
                        return

    def hears(kind, session_id):
        def found():
            return [d for n, d in heard if n == kind and d.get("session_id") == session_id]

        with seen:
            assert seen.wait_for(found, PATIENCE_S), (kind, heard)
            return found()[0]

    thread = threading.Thread(target=listen)
    thread.start()
    with seen:
        assert seen.wait_for(lambda: heard and heard[0][0] == "tabs", PATIENCE_S)
    one = of_tab(ana, "tab-h")
    assert hears("session_open", one)["phase"] == "chatting"
    path = f"/v1/sessions/{one}"
    assert ana.post(f"{path}/phase", json={"trigger": "start_build"}).status_code == 200
    assert hears("phase", one)["phase"] == "building"
    assert ana.post(f"{path}/terminate", json={}).status_code == 200
    hears("session_close", one)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_S0_7_a_stream_of_changes_ends_with_its_token(gateway, ana, monkeypatch):
    with browser(gateway, "ana") as brief, brief.stream("GET", "/api/tabs/events") as response:
        told = (line for line in response.iter_lines() if line.startswith("data: "))
        assert next(told)
        later = time.time() + 3_601
        monkeypatch.setattr(routes_tabs, "time", SimpleNamespace(time=lambda: later))
        of_tab(ana, "tab-late"), of_tab(ana, "tab-later")
        assert None in [next(told, None) for _ in range(2)], "it goes on"


def test_S0_6_another_tab_of_the_same_user_stops_a_session_and_nobody_else_does(ana, bob):
    one = of_tab(ana, "tab-s")
    ana.post(f"/v1/sessions/{one}/messages", json={"text": "build it"})
    foreign = bob.post(f"/cancel?session_id={one}")
    assert (foreign.status_code, foreign.json()["code"]) == (404, "unknown_session")
    assert ana.get(f"/v1/sessions/{one}").json()["state"]["cancel_token"] is None
    assert ana.post(f"/cancel?session_id={one}").json()["verdict"] == "accepted"
    assert ana.get(f"/v1/sessions/{one}").json()["state"]["cancel_token"]


def test_cancel_says_what_is_wrong(gateway, ana):
    assert ana.post("/cancel").status_code == 400
    assert ana.post("/cancel?session_id=nobody").status_code == 404
    idle = ana.post(f"/cancel?session_id={of_tab(ana, 'tab-i')}")
    assert (idle.status_code, idle.json()["code"]) == (409, "nothing_to_cancel")
    with gateway.http() as stranger:
        asked = [stranger.get(path) for path in ("/api/tabs", "/api/tabs/events")]
        asked += [stranger.post("/cancel?session_id=x")]
        asked += [stranger.post("/api/tabs", json={"tab": "t"})]
        assert [answer.status_code for answer in asked] == [401] * 4


def test_S0_11_publish_against_cancel_one_wins_and_the_other_is_told(gateway, ana):
    """Two tabs at the same instant, again and again: the log's order decides."""
    winners = set()
    with browser(gateway, "ana") as other, ThreadPoolExecutor(2) as pool:
        for number in range(ROUNDS):
            session = of_tab(ana, f"race-{number}")
            path = f"/v1/sessions/{session}"
            for trigger in ("start_build", "todo_done_build"):
                assert ana.post(f"{path}/phase", json={"trigger": trigger}).status_code == 200
            ready = threading.Barrier(2)

            def publish(path=path, ready=ready):
                ready.wait()
                return ana.post(f"{path}/phase", json={"trigger": "publish"})

            def cancel(session=session, ready=ready):
                ready.wait()
                return other.post(f"/cancel?session_id={session}&seen_phase=verifying")

            answers = [made.result() for made in (pool.submit(publish), pool.submit(cancel))]
            assert sorted(answer.status_code for answer in answers) == [200, 409], answers
            lost = answers[0] if answers[0].status_code == 409 else answers[1]
            winner = "publish" if lost is answers[1] else "cancel"
            code, detail = lost.json()["code"], lost.json()["detail"]
            phase = ana.get(path).json()["state"]["phase"]
            if winner == "publish":
                assert (code, phase) == ("phase_changed", "done") and "verifying" in detail
            else:
                assert (code, phase) == ("invalid_transition", "chatting")
                assert "phase=chatting, event=publish" in detail
            winners.add(winner)
    assert winners

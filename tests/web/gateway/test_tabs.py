"""S0.5-S0.7, S0.11: each tab has its own session, knows the other tabs, and can stop their
sessions."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from foldlog.tests.kit.waiting import PATIENCE_S, joined, until
from foldlog.tests.processors.worker.announcing import Announcing
from foldlog.tests.web.gateway.served import SECRET, lines_of, served
from foldlog.web.gateway.routes import tabs as routes_tabs

ROUNDS = 12


@pytest.fixture(scope="module")
def gateway(log, settings):
    """A gateway, and a worker that announces the sessions."""
    worker, halt = Announcing(log), threading.Event()

    def work() -> None:
        for _ in iter(halt.is_set, True):
            worker.run()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        with served(log, settings, settings.home / "gateway", secret=SECRET) as running:
            yield running
    finally:
        halt.set()
        joined(thread)


def session_of(http, tab: str):
    response = http.post("/api/tabs", json={"tab": tab, "agent": "helper"})
    assert response.status_code in (200, 201), response.text
    return response.json()["session_id"]


def listed(http) -> set[str]:
    return {tab["session_id"] for tab in http.get("/api/tabs").json()["tabs"]}


def wait_until_listed(http, session_id):
    until(f"{session_id} is listed", lambda: session_id in listed(http))


def test_S0_5_each_tab_has_its_own_session_and_keeps_it_over_a_reload(ana):
    one, other = session_of(ana, "tab-1"), session_of(ana, "tab-2")
    assert one != other
    assert (session_of(ana, "tab-1"), session_of(ana, "tab-2")) == (one, other)
    cookie = next(c for c in ana.cookies.jar if c.name == "foldlog_tab_tab-1")
    assert cookie.value == one and cookie.has_nonstandard_attr("HttpOnly") and cookie.discard


def test_S0_5_a_tab_whose_session_has_ended_gets_a_new_one(ana):
    one = session_of(ana, "tab-e")
    assert ana.post(f"/v1/sessions/{one}/terminate", json={}).status_code == 200
    assert session_of(ana, "tab-e") != one


def test_a_cookie_of_another_user_or_without_a_session_gives_no_access(ana, bob):
    one = session_of(ana, "tab-x")
    bob.cookies.set("foldlog_tab_tab-x", one)
    assert session_of(bob, "tab-x") != one
    ana.cookies.set("foldlog_tab_tab-y", "no/such session")
    assert session_of(ana, "tab-y")
    assert ana.post("/api/tabs", json={"tab": "a b"}).status_code == 400


def test_S0_7_a_user_lists_their_own_tabs_only(ana, bob):
    mine, bobs = session_of(ana, "tab-k"), session_of(bob, "tab-k")
    wait_until_listed(ana, mine)
    wait_until_listed(bob, bobs)
    assert bobs not in listed(ana) and mine not in listed(bob)


def test_S0_7_a_tab_is_notified_of_sessions_that_open_change_and_close(gateway, ana):
    events, condition = [], threading.Condition()

    def listen() -> None:
        with gateway.http("ana") as http, http.stream("GET", "/api/tabs/events") as response:
            name = ""
            for line in lines_of(response):
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    with condition:
                        events.append((name, json.loads(line[6:])))
                        condition.notify()
                    if name == "session_close":
                        return

    def wait_for(kind, session_id):
        def found():
            return [d for n, d in events if n == kind and d.get("session_id") == session_id]

        with condition:
            assert condition.wait_for(found, PATIENCE_S), (kind, events)
            return found()[0]

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    with condition:
        assert condition.wait_for(lambda: events and events[0][0] == "tabs", PATIENCE_S)
    one = session_of(ana, "tab-h")
    assert wait_for("session_open", one)["phase"] == "chatting"
    path = f"/v1/sessions/{one}"
    assert ana.post(f"{path}/phase", json={"trigger": "start_build"}).status_code == 200
    assert wait_for("phase", one)["phase"] == "building"
    assert ana.post(f"{path}/terminate", json={}).status_code == 200
    wait_for("session_close", one)
    joined(thread)


def test_S0_7_a_stream_of_changes_ends_with_its_token(gateway, ana, monkeypatch):
    with gateway.http("ana") as brief, brief.stream("GET", "/api/tabs/events") as response:
        events = (line for line in lines_of(response) if line.startswith("data: "))
        assert next(events)
        later = time.time() + 3_601
        monkeypatch.setattr(routes_tabs, "time", SimpleNamespace(time=lambda: later))
        session_of(ana, "tab-late"), session_of(ana, "tab-later")
        assert None in [next(events, None) for _ in range(2)], "the stream continues"


def test_S0_6_another_tab_of_the_same_user_stops_a_session_and_another_user_does_not(ana, bob):
    one = session_of(ana, "tab-s")
    path = f"/v1/sessions/{one}"
    ana.post(f"{path}/messages", json={"text": "build it"})
    foreign = bob.post(f"/cancel?session_id={one}")
    assert (foreign.status_code, foreign.json()["code"]) == (404, "unknown_session")
    assert ana.get(path).json()["state"]["cancel_token"] is None
    assert ana.post(f"/cancel?session_id={one}").json()["verdict"] == "accepted"

    def kinds():
        return [line["kind"] for line in ana.get(f"{path}/transcript").json()["lines"]]

    until("the cancelled turn ends", lambda: "ended" in kinds())


def test_cancel_refuses_mistakes(gateway, ana):
    assert ana.post("/cancel").status_code == 400
    assert ana.post("/cancel?session_id=nobody").status_code == 404
    idle = ana.post(f"/cancel?session_id={session_of(ana, 'tab-i')}")
    assert (idle.status_code, idle.json()["code"]) == (409, "nothing_to_cancel")
    with gateway.http() as unauthenticated:
        responses = [unauthenticated.get(path) for path in ("/api/tabs", "/api/tabs/events")]
        responses += [unauthenticated.post("/api/tabs", json={"tab": "t"})]
        assert [response.status_code for response in responses] == [401] * 3


def test_S0_11_of_publish_and_cancel_at_once_one_wins_and_the_other_is_refused(gateway, ana):
    """Two tabs send the commands at the same instant, repeatedly: the order in the log decides."""
    winners = set()
    with gateway.http("ana") as other, ThreadPoolExecutor(2) as pool:
        for number in range(ROUNDS):
            session = session_of(ana, f"race-{number}")
            path = f"/v1/sessions/{session}"
            for trigger in ("start_build", "todo_done_build"):
                assert ana.post(f"{path}/phase", json={"trigger": trigger}).status_code == 200
            ready = threading.Barrier(2)

            def publish(path=path, ready=ready):
                ready.wait(PATIENCE_S)
                return ana.post(f"{path}/phase", json={"trigger": "publish"})

            def cancel(session=session, ready=ready):
                ready.wait(PATIENCE_S)
                return other.post(f"/cancel?session_id={session}&seen_phase=verifying")

            responses = [f.result() for f in (pool.submit(publish), pool.submit(cancel))]
            assert sorted(r.status_code for r in responses) == [200, 409], responses
            loser = responses[0] if responses[0].status_code == 409 else responses[1]
            winner = "publish" if loser is responses[1] else "cancel"
            code, detail = loser.json()["code"], loser.json()["detail"]
            phase = ana.get(path).json()["state"]["phase"]
            if winner == "publish":
                assert (code, phase) == ("phase_changed", "done") and "verifying" in detail
            else:
                assert (code, phase) == ("invalid_transition", "chatting")
                assert "phase=chatting, event=publish" in detail
            winners.add(winner)
    assert winners

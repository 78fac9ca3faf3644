"""The routes of the home page: each user sees only their own sessions; what waits, charts, agents,
search."""

import json
from hashlib import sha256

import pytest

from foldlog.client.session_fold import SessionFold
from foldlog.client.show import summary
from foldlog.client.status import Situation, Status
from foldlog.processors.advice.prices import load_prices
from foldlog.producers import Sessions
from foldlog.reports.search.search_index import Progress
from foldlog.schemas import events as ev
from foldlog.schemas.events.parts import AgentDigest
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.tests.kit.played import Played, memory_log, settings_in
from foldlog.tests.web.gateway.served import SECRET, served
from foldlog.tests.web.inspector.sessions import HOSTILE, Place, asking, doubting, hostile
from foldlog.web.gateway.finder import Behind
from foldlog.web.inspector import cards
from foldlog.web.inspector.overview import Overview

MINE = {"talk", "asks", "doubts", "failed", "hostile", "titled"}


def as_user(place, user, session_id, text):
    """A session that belongs to another user, with an answer."""
    sessions = Sessions(place.log, settings_in(place.settings.home, user))
    sessions.open(session_id, agent="shop", user=user)
    sessions.say(session_id, text, user=user, message_id="m1")
    played = Played(place.log, session_id)
    played.answer("a lilac answer")
    return played


@pytest.fixture(scope="module", autouse=True)
def sessions(place):
    place.talk("talk", 2)
    asking(place)
    doubting(place)
    hostile(place)
    _, played = place.open("failed", "Report the late deliveries.")
    played.call()
    played.start()
    played.fail()
    played.start()
    played.fail(permanent=True)
    played.end("failed")
    _, played = place.open("titled", "Find the lilac parcel of T. Okafor. It is late.\nThanks")
    played.answer("here")
    as_user(place, "bob", "bobs", "my lilac secret")


def home(http, since=""):
    response = http.get("/inspector/api/home", params={"since": since})
    assert response.status_code == 200, response.text
    return response.json()


def charts(http, hours=24, step=1, until=None):
    until = max(row["updated_at"] for row in home(http)["rows"]) if until is None else until
    asked = {"hours": hours, "step": step, "until": until}  # the test's log has its own clock
    response = http.get("/inspector/api/charts", params=asked)
    assert response.status_code == 200, response.text
    return response.json()


def rows(http):
    return {row["id"]: row for row in home(http)["rows"]}


def test_a_user_sees_their_own_sessions_only(ana, bob):
    assert set(rows(ana)) == MINE and home(ana)["total"] == len(MINE)
    assert set(rows(bob)) == {"bobs"}


def test_without_a_token_nothing_is_shown(gateway):
    with gateway.http() as http:
        for route in ("home", "charts", "search?q=lilac"):
            assert http.get(f"/inspector/api/{route}").status_code == 401


@pytest.mark.parametrize("query", [
    "charts?hours=0", "charts?hours=99999", "charts?step=0", "search?q=", "search", "home?limit=0",
    f"home?since={'x' * 99}", f"search?q={'x' * 999}",
])
def test_an_invalid_query_is_refused(ana, query):
    assert ana.get(f"/inspector/api/{query}").status_code == 400


def test_a_title_is_the_first_sentence_of_the_first_message(ana):
    found = rows(ana)
    assert found["titled"]["title"] == "Find the lilac parcel of T. Okafor"
    assert found["talk"]["title"] == "question 1"
    assert found["hostile"]["title"] == HOSTILE[0]


def test_a_row_has_the_costs_turns_and_activity_of_its_session(ana):
    talk = rows(ana)["talk"]
    assert (talk["status"], talk["turns"], talk["agent"]) == ("idle", 2, "shop")
    cost = ana.get("/inspector/api/sessions/talk/cost").json()["total"]
    assert talk["usd"] == cost["usd"] and talk["unpriced"] == cost["unpriced"]
    assert talk["tokens"] == 4 * 15
    kinds = talk["runs"][::3]
    assert kinds == [cards.Run.MODEL, cards.Run.TOOL, cards.Run.MODEL] * 2
    assert talk["now"] is None and talk["in_turns_ms"] <= talk["updated_at"] - talk["started_at"]


def test_those_that_wait_for_a_person_come_first_with_what_was_asked(ana):
    first = home(ana)["rows"][:3]
    assert {row["id"] for row in first} == {"asks", "doubts", "failed"}
    found = {row["id"]: row for row in first}
    [ask] = found["asks"]["waits"]
    assert ask["asks"] and ask["name"] == "charge"
    assert json.loads(ask["args"]) == {"amount_cents": 900}
    assert ask["args_sha256"] == sha256(ask["args"].encode()).hexdigest()
    [doubt] = found["doubts"]["waits"]
    assert not doubt["asks"] and found["doubts"]["now"][0] == cards.Run.DOUBT
    failure = found["failed"]["failure"]
    assert found["failed"]["status"] == "failed"
    assert (failure["tries"], failure["turn"], failure["reason"]) == (2, 1, "failed")
    assert "overloaded" in failure["error"]


def test_both_pages_call_the_same_sessions_failed(place, ana):
    """The page of a session called a turn done that had reached its limit of steps."""
    _, played = place.open("limited", "Look everywhere.")
    played.propose("Let me look.", ("read_file", {"path": "notes"}))
    played.run_tool("nothing")
    played.end("max_steps", limit=1, used=1)
    MINE.add("limited")
    found = rows(ana)
    assert found["limited"]["status"] == "failed" == found["failed"]["status"]
    for name, row in found.items():
        assert row["status"] == shown(situation(ana, name)), name


RETRY_AT = 4_000_000_000_000


def situation(http, name):
    """What the page of a session shows."""
    moment = http.get(f"/inspector/api/sessions/{name}/moment").raise_for_status().json()
    return Situation(Status(moment["status"]), moment["reason"], moment["until"])


def shown(found):
    return "failed" if found.has_failed else found.status


def test_lists_show_the_situation_that_the_page_of_a_session_shows(tmp_path):
    """A list showed a model call while no worker ran, and no end of an approval; of a failed
    session's fork the page said that it failed, and the list that it was done."""
    place = Place(memory_log(threaded=True), settings_in(tmp_path))
    place.open("new")
    asking(place)
    for name, error in (("failed", {"permanent": True}), ("limited", {"error": "rate_limit"}),
                        ("answers", None)):
        _, played = place.open(name, "Look for it.")
        played.call()
        played.start()
        if error is not None:
            played.fail(**error, retry_at=None if "permanent" in error else RETRY_AT)
        if name == "failed":
            played.end("failed")
    with served(place.log, place.settings, tmp_path / "gateway") as running, running.http() as http:
        fork = http.post("/v1/sessions/failed/fork", json={}).json()["session_id"]

        def situations():
            found, listed = rows(http), http.get("/v1/sessions").json()["sessions"]
            for line in listed:
                name = line["session_id"]
                of_page = situation(http, name)
                assert (line["status"], line["reason"], line["until"]) == of_page, name
                row = found[name]
                assert (row["status"], *of_page[1:]) == (shown(of_page), row["reason"],
                                                         row["until"]), name
            return {line["session_id"]: line["reason"] for line in listed}

        assert situations() == {
            "new": "new", "asks": "", "failed": "failed", "limited": "rate_limit",
            "answers": "model", fork: "new",
        }  # fmt: skip
        assert rows(http)["answers"]["now"][0] == cards.Run.MODEL
        assert situation(http, "limited").until == RETRY_AT and situation(http, "asks").until
        played.append(ev.OwnerGone(owner=played.owner), "sessions", PARTITION_KEY)
        assert situations()["answers"] == "worker_ended"
        assert rows(http)["answers"]["now"] is None, "no model answers"
        played.take("w2/1")
        assert situations()["answers"] == "model"


def test_arguments_too_long_for_the_page_are_left_out(place, ana):
    _, played = place.open("long-args", "charge it")
    played.propose("", ("charge", {"note": "x" * cards.ARGS_BYTES_MAX}))
    played.invoke(approval="ask")
    assert rows(ana)["long-args"]["waits"][0]["args"] is None
    MINE.add("long-args")


def test_later_answers_have_the_changed_rows_only(place, ana, bob):
    before = home(ana)
    assert before["whole"]
    assert home(ana, before["version"])["rows"] == []
    played = Played(place.log, "talk")
    Sessions(place.log, place.settings).say("talk", "question 3", message_id="m3")
    played.call()
    played.start()
    later = home(ana, before["version"])
    assert not later["whole"] and [row["id"] for row in later["rows"]] == ["talk"]
    assert home(bob, before["version"])["rows"] == []
    assert later["rows"][0]["now"][0] == cards.Run.MODEL
    played.complete("done")
    played.end()
    assert home(ana, "00000000.3")["whole"] and home(ana, "nonsense")["whole"]


def test_a_restarted_gateway_shows_the_same(place, ana):
    """The overview of a store that is read at once equals the overview of events that are folded
    one by one."""
    with served(place.log, place.settings, place.settings.home / "new", secret=SECRET) as other:
        with other.http("ana") as http:
            first, late = home(http), charts(ana)
            assert {r["id"]: r for r in first["rows"]} == rows(ana)
            assert charts(http) == late
    with served(place.log, place.settings, place.settings.home / "new", secret=SECRET) as other:
        with other.http("ana") as http:
            assert {r["id"]: r for r in home(http)["rows"]} == rows(ana)
            assert charts(http) == late


def test_charts_add_up_and_are_the_users_own(ana, bob):
    shown = charts(ana)
    assert shown["count"] == 24 and len(shown["all"]["tokens"]) == 24
    assert shown["all"]["total"]["tokens"] == sum(row["tokens"] for row in rows(ana).values())
    assert shown["all"]["total"]["errors"] == 2 == sum(shown["agents"]["shop"]["errors"])
    assert sum(shown["all"]["turns"]) == shown["all"]["total"]["turns"]
    assert shown["models"]["claude-test"]["total"]["tokens"] == shown["all"]["total"]["tokens"]
    assert 0 < shown["all"]["total"]["p50"] <= shown["all"]["total"]["p95"]
    assert charts(bob)["all"]["total"]["turns"] == 1
    days = charts(ana, 168, 6)
    assert days["count"] == 28 and days["all"]["total"] == shown["all"]["total"]
    earlier = charts(ana, until=0)
    assert earlier["all"]["total"]["turns"] == 0 and earlier["all"]["total"]["p50"] is None


def test_a_forgotten_partition_is_counted_once_when_it_is_folded_again(place):
    overview = Overview(load_prices(None), lambda ref: b"")
    now = 0
    for _ in range(2):
        for name in ("talk", "failed"):
            fold = SessionFold(place.log, name)
            views = fold.to_end()
            now = fold.newest_ms
            overview.take(views, summary(views, 0, fold.holders))
        before = overview.charts("ana", now, 24, 1)["all"]["total"], overview.home("ana", "", 9)
        overview.forget(0)
        assert overview.home("ana", before[1]["version"], 9)["whole"]
        assert overview.charts("ana", now, 24, 1)["all"]["total"]["turns"] == 0
        assert overview.title("talk") == ""
    assert before[0]["turns"] == 4 and before[1]["total"] == 2


def folded(place, session_id):
    """The steps of a session as the gateway's reader folds them: each event's views before and
    after it, and the session's summary."""
    fold = SessionFold(place.log, session_id)
    steps = []
    for step in fold.upto(fold.end()):
        if step.views.turn.known and step.views is not step.before:
            steps.append((step, summary(step.views, fold.partition, fold.holders)))
    return steps


def test_too_many_sessions_are_dropped_oldest_first_and_are_still_counted(place):
    names = ["asks", "talk", "failed", *(f"drop-{n}" for n in range(6))]
    for name in names[3:]:
        place.talk(name, 1)
    bounded, whole = (
        Overview(load_prices(None), lambda ref: b"", per_user=limit, sessions_max=limit)
        for limit in (5, 1_000)
    )
    for name in names:
        for step, line in folded(place, name):
            bounded.take(step.views, line, step.before)
            whole.take(step.views, line, step.before)
    found = bounded.home("ana", "", 100)
    kept = {row["id"] for row in found["rows"]}
    assert {"asks", "failed"} < kept, "sessions that wait for a person are kept longest"
    assert {"drop-5", "drop-4"} < kept and "talk" not in kept and len(kept) == 5
    assert (found["total"], found["most"]) == (len(names), 5)
    assert bounded.home("bob", "", 100)["total"] == 0
    now = max(row["updated_at"] for row in found["rows"])
    assert bounded.charts("ana", now, 24, 1) == whole.charts("ana", now, 24, 1)


def test_a_dropped_session_returns_with_its_next_event_and_is_not_counted_again(place):
    bounded, whole = (
        Overview(load_prices(None), lambda ref: b"", per_user=limit) for limit in (1, 1_000)
    )
    steps = {name: folded(place, name) for name in ("talk", "titled")}
    *first, last = steps["talk"]
    for step, line in (*first, *steps["titled"], last):
        bounded.take(step.views, line, step.before)
        whole.take(step.views, line, step.before)
    found = bounded.home("ana", "", 100)
    assert [row["id"] for row in found["rows"]] == ["talk"] and found["total"] == 2
    assert found["rows"][0] == next(
        row for row in whole.home("ana", "", 100)["rows"] if row["id"] == "talk"
    )
    now = last[1]["updated_at"]
    assert bounded.charts("ana", now, 24, 1) == whole.charts("ana", now, 24, 1)
    bounded.forget(last[1]["partition"])
    assert bounded.home("ana", "", 100)["total"] <= 1


def test_search_finds_a_session_that_the_list_dropped(place, gateway, ana, monkeypatch):
    overview = gateway.gateway.overview
    monkeypatch.setattr(overview, "_per_user", 1)
    place.open("newest", "the newest of all")
    before = home(ana)
    assert len(before["rows"]) == 1 < before["total"] and "titled" not in rows(ana)
    found = ana.get("/inspector/api/search?q=lilac").json()["found"]
    assert [(hit["id"], hit["title"]) for hit in found] == [("titled", "")]


def test_agents_are_those_that_live_workers_serve(place, ana):
    assert home(ana)["agents"][0]["name"] == "shop" and home(ana)["agents"][0]["workers"] == 0
    names = (
        AgentDigest(name="shop", digest="d"), AgentDigest(name="research", digest="d"),
    )
    played = Played(place.log, "talk", "w7/1")
    for role in ("sessions", "models"):
        played.append(ev.PartitionTaken(role=role, owner="w7/1", agents=names), role, PARTITION_KEY)
    served_by = {a["name"]: (a["workers"], a["partitions"]) for a in home(ana)["agents"]}
    assert served_by == {"shop": (1, 1), "research": (1, 1)}
    played.append(ev.OwnerGone(owner="w7/1"), "sessions", PARTITION_KEY)
    assert {a["name"]: a["workers"] for a in home(ana)["agents"]} == {"shop": 0}


def test_search_finds_content_of_the_users_sessions_only(ana, bob):
    mine = ana.get("/inspector/api/search?q=lilac").json()
    assert mine["behind"] is None
    assert [(hit["id"], hit["match"]) for hit in mine["found"]] == [("titled", "lilac")]
    assert mine["found"][0]["before"] == "Find the " and mine["found"][0]["turn"] == 1
    theirs = bob.get("/inspector/api/search?q=lilac").json()["found"]
    assert {hit["id"] for hit in theirs} == {"bobs"} and len(theirs) == 2


@pytest.mark.parametrize("words", ["\"", "a' OR 1=1 --", "NEAR(", "*", "日本", "\u202e", "%00"])
def test_any_text_can_be_searched_for(ana, words):
    response = ana.get("/inspector/api/search", params={"q": words})
    assert response.status_code == 200, response.text


def test_while_the_index_is_behind_its_progress_is_answered(gateway, ana, monkeypatch):
    finder = gateway.gateway.finder
    monkeypatch.setattr(finder, "search", lambda *_: Behind(Progress(3, 10)))
    answer = ana.get("/inspector/api/search?q=lilac").json()
    assert answer == {"found": [], "behind": {"read": 3, "behind": 10}}

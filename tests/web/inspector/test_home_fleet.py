"""The home page's answers from the fleet equal those of the gateway's own fold; without a fleet
they say so."""

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from foldlog.producers import Sessions
from foldlog.tests.fleet.answering import answering
from foldlog.tests.kit.played import Played, memory_log, settings_in
from foldlog.tests.web.gateway.served import SECRET, served
from foldlog.tests.web.inspector.sessions import Place, asking, doubting
from foldlog.tests.web.inspector.test_home import card
from foldlog.tests.web.inspector.test_home_routes import as_user, charts, home, rows
from foldlog.web.gateway import fleet_home
from foldlog.web.gateway.access import token_for
from foldlog.web.gateway.fleet_home import NO_FLEET, FleetHome
from foldlog.web.inspector.overview import Overview

SAME = (
    "id", "user", "agent", "status", "reason", "until", "turns", "usd", "unpriced", "tokens",
    "in_turns_ms", "phase", "waits", "waits_since", "failure", "runs", "now", "turn_at",
    "started_at",
)
"""The fields of a row whose value does not depend on where it comes from. A change that no fact
tells, such as a piece of an answer, moves `updated_at` of the gateway's fold only."""

WHOSE = "The sums by agent and by model are what the gateway has folded"


@pytest.fixture(scope="module", autouse=True)
def sessions(place):
    place.talk("talk", 2)
    asking(place)
    doubting(place)
    _, played = place.open("failed", "Report the late deliveries.")
    played.call()
    played.start()
    played.fail(permanent=True)
    played.end("failed")
    as_user(place, "bob", "bobs", "my lilac secret")


@pytest.fixture(scope="module")
def fleet(log):
    with answering(log) as running:
        yield running


@pytest.fixture
def at_fleet(place, fleet, tmp_path):
    """A gateway that knows the fleet."""
    settings = replace(place.settings, fleet_url=fleet.url)
    with served(place.log, settings, tmp_path, secret=SECRET) as running:
        yield running
    fleet.status = 200


def comparable(found):
    """The fields to compare. The fleet's titles keep the full stop."""
    return {
        name: {"title": row["title"].rstrip("."), **{field: row[field] for field in SAME}}
        for name, row in found.items()
    }


def test_rows_from_the_fleet_equal_those_that_the_gateway_folds(at_fleet, ana):
    with at_fleet.http("ana") as http:
        shown = home(http)
        assert (shown["source"], shown["why"], shown["whole"]) == ("fleet", "", True)
        assert shown["total"] == len(shown["rows"]) == 4
        assert comparable(rows(http)) == comparable(rows(ana))
        assert {row["id"] for row in shown["rows"][:3]} == {"asks", "doubts", "failed"}
        assert home(http, shown["version"])["rows"] == []


@pytest.mark.parametrize("user", ["ana", "bob"])
def test_charts_from_the_fleet_equal_those_that_the_gateway_folds(at_fleet, gateway, user):
    with at_fleet.http(user) as http, gateway.http(user) as other:
        for hours, step in ((24, 1), (168, 6)):
            found, own = charts(http, hours, step), charts(other, hours, step)
            assert (found["source"], own["source"]) == ("fleet", "gateway")
            assert found["groups"] == "gateway"
            if user == "ana":  # of a turn that runs, the fleet does not know the tokens yet
                for each in (found["all"], own["all"]):
                    del each["tokens"], each["unpriced"]
                    del each["total"]["tokens"], each["total"]["unpriced"]
            assert {**found, "source": "", "why": ""} == {**own, "source": "", "why": ""}


def test_without_users_the_sums_by_agent_and_model_come_from_the_fleet(place, fleet, tmp_path):
    settings = replace(place.settings, fleet_url=fleet.url)
    with served(place.log, settings, tmp_path) as running, running.http() as http:
        found = charts(http)
        assert (found["source"], found["groups"]) == ("fleet", "fleet")
        assert {row["id"] for row in home(http)["rows"]} > {"talk", "bobs"}
        everything = found["all"]["total"]
        assert found["agents"]["shop"]["total"] == everything
        by_model = found["models"]["claude-test"]["total"]
        assert (by_model["tokens"], by_model["usd"]) == (everything["tokens"], everything["usd"])


def test_a_change_reaches_a_page_that_knows_the_list(place, at_fleet, monkeypatch):
    monkeypatch.setattr(fleet_home, "FRESH_S", 0.0)
    with at_fleet.http("ana") as http:
        before = home(http)
        Sessions(place.log, place.settings).say("talk", "question 3", message_id="m3")
        played = Played(place.log, "talk")
        later = home(http, before["version"])
        assert not later["whole"] and [row["id"] for row in later["rows"]] == ["talk"]
        assert later["rows"][0]["status"] == rows(http)["talk"]["status"] != "idle"
        played.answer("done")


def test_a_user_sees_their_own_sessions_only(at_fleet):
    with at_fleet.http("bob") as http:
        assert set(rows(http)) == {"bobs"} and charts(http)["all"]["total"]["turns"] == 1


def test_what_waits_is_listed_however_long_ago_it_changed(at_fleet, monkeypatch):
    monkeypatch.setattr(fleet_home, "ROWS_MAX", 1)
    with at_fleet.http("ana") as http:
        found = home(http)
        assert {row["id"] for row in found["rows"]} == {"asks", "doubts", "failed"}
        assert (found["total"], found["most"]) == (4, 1)
    with at_fleet.http("bob") as http:  # of another user's inbox there is nothing
        assert set(rows(http)) == {"bobs"}


def test_without_a_fleet_one_sentence_says_so(ana):
    for found in (home(ana), charts(ana)):
        assert (found["source"], found["why"]) == ("gateway", NO_FLEET)


def test_a_fleet_that_restores_is_not_waited_for(at_fleet, fleet, ana):
    fleet.status = 503
    with at_fleet.http("ana") as http:
        found = home(http)
        assert found["source"] == "gateway" and found["rows"] == home(ana)["rows"]
        assert found["why"] == (
            f"The fleet at {fleet.url} restores its tables; ask again soon, so this is what the "
            "gateway has folded."
        )


def test_a_fleet_that_does_not_answer_is_asked_again_only_later(tmp_path, fleet, log):
    now = 100.0
    settings = replace(settings_in(tmp_path), fleet_url=fleet.url)
    asked = FleetHome(settings, Overview({}, lambda _: b""), lambda: now)
    fleet.status = 503
    count = len(fleet.asked)
    assert asked.home("ana", "", 10)["source"] == "gateway"
    fleet.status = 200
    assert "restores" in asked.home("ana", "", 10)["why"]
    assert len(fleet.asked) == count + 1
    now += fleet_home.RETRY_S
    assert asked.home("ana", "", 10)["source"] == "fleet"


def test_the_page_lives_on_the_fleet_and_says_when_it_does_not(tmp_path, page_at):
    place = Place(memory_log(threaded=True), settings_in(tmp_path))
    place.talk("talk", 1)
    asking(place)
    with answering(place.log) as fleet:
        settings = replace(place.settings, fleet_url=fleet.url)
        with served(place.log, settings, tmp_path / "gateway") as running:
            page = page_at(f"{running.url}/")
            page.get_by_role("heading", name="One session is waiting for you").wait_for()
            note = page.get_by_role("note")
            expect(note).to_have_count(0)
            ask = card(page, "Allow charge? in charge it")
            ask.get_by_role("button", name="Allow charge").click()
            expect(ask).to_have_count(0)
            page.get_by_role("link", name="By agent and model").click()
            expect(page.get_by_text("turns that used it, and their time")).to_be_visible()
            expect(page.get_by_text(WHOSE)).to_have_count(0)
            fleet.status = 503
            page.goto(f"{running.url}/")
            expect(note).to_contain_text("restores its tables; ask again soon, so this is what")
            page.close()


def test_the_page_says_whose_a_users_sums_by_agent_and_model_are(at_fleet, page_at):
    page = page_at(f"{at_fleet.url}/#/cost")
    page.get_by_label("Token").fill(token_for("ana", SECRET))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text(WHOSE)).to_be_visible()
    page.goto("about:blank")
    page.complaints[:] = [text for text in page.complaints if "401 (Unauthorized)" not in text]

"""The page in a real browser, live: what streams, what people answer, the list of sessions."""

import re

import pytest
from playwright.sync_api import expect

from foldlog.consumers.gateway.access import token_for
from foldlog.producers import Sessions
from foldlog.schemas import events as ev
from foldlog.tests.browser_fixture import PHONE
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.inspector.sessions import HOSTILE, Place, asking, doubting, hostile

SECRET = "s" * 40

SHIFTS = """
() => { window.shifts = [];
  new PerformanceObserver((list) => window.shifts.push(...list.getEntries().map((e) => e.value)))
    .observe({ type: "layout-shift", buffered: false }); }
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def url(place):
    with served(place.log, place.settings, place.settings.home / "gateway") as running:
        yield running.url


@pytest.fixture
def said(place):
    with_ids = Sessions(place.log, place.settings)
    yield with_ids
    with_ids.close()


def conversation(page):
    return page.get_by_role("log", name="Conversation")


def test_tokens_are_seen_as_they_come_and_nothing_moves(place, url, page_at, said):
    played = place.talk("stream", 1)
    page = page_at(f"{url}/#/s/stream")
    conversation(page).get_by_text("turn 1 ended").wait_for()
    page.get_by_text("live", exact=True).wait_for()
    said.say("stream", "tell me more", message_id="more")
    played.call()
    played.start()
    conversation(page).get_by_text("tell me more").wait_for()
    page.evaluate(SHIFTS)
    streaming = page.get_by_label("The model's output")
    for number in range(40):
        played.chunk(f"piece{number} ")
        if number % 10 == 9:
            streaming.get_by_text(f"piece{number}").wait_for()
    assert streaming.locator(".text").inner_text().split() == [f"piece{n}" for n in range(40)]
    played.complete("".join(f"piece{number} " for number in range(40)))
    played.end()
    conversation(page).get_by_text("turn 2 ended").wait_for()
    expect(streaming).to_have_count(0)
    expect(conversation(page).get_by_text("piece39")).to_have_count(1)
    assert sum(page.evaluate("window.shifts")) < 0.02
    where = "e => e.scrollHeight - e.scrollTop - e.clientHeight"
    assert conversation(page).evaluate(where) < 40  # it follows what is said


def test_an_attempt_that_is_lost_is_taken_away(place, url, page_at, said):
    _, played = place.open("lost")
    said.say("lost", "hi", message_id="m1")
    played.call()
    played.start()
    page = page_at(f"{url}/#/s/lost")
    played.chunk("never mind")
    conversation(page).get_by_text("never mind").wait_for()
    played.resume()
    conversation(page).get_by_text("the one before was lost").wait_for()
    expect(conversation(page).get_by_text("never mind")).to_have_count(0)
    played.chunk("anew")
    page.get_by_label("The model's output").get_by_text("anew").wait_for()
    expect(conversation(page).get_by_text("never mind")).to_have_count(0)


def test_what_was_there_before_and_what_comes_are_seen_once(place, url, page_at, said):
    played = place.talk("once", 3)
    page = page_at(f"{url}/")

    def told_meanwhile(route):  # by the stream, which is open, and then by the answer as well
        if played.views.turn.number == 3:
            said.say("once", "question 4", message_id="n4")
            played.answer("answer 4")
        route.continue_()

    page.route("**/lines?*", told_meanwhile)
    page.goto(f"{url}/#/s/once")
    conversation(page).get_by_text("turn 4 ended").wait_for()
    for number in range(5, 7):
        said.say("once", f"question {number}", message_id=f"n{number}")
        played.answer(f"answer {number}")
    conversation(page).get_by_text("turn 6 ended").wait_for()
    for number in range(1, 7):
        expect(conversation(page).get_by_text(f"question {number}", exact=True)).to_have_count(1)
    kinds = conversation(page).locator(".note.ended").all_inner_texts()
    assert kinds == [f"turn {n} ended: end turn" for n in range(1, 7)]


def test_saying_something_and_stopping_what_runs(place, url, page_at):
    _, played = place.open("talk")
    page = page_at(f"{url}/#/s/talk")
    page.get_by_text("live", exact=True).wait_for()
    page.get_by_label("Message", exact=True).fill("are you there?")
    page.keyboard.press("Enter")
    conversation(page).get_by_text("are you there?").wait_for()
    expect(page.get_by_label("Message", exact=True)).to_have_value("")
    played.wait(lambda views: views.turn.open)
    played.call()
    played.start()
    page.get_by_role("button", name="Stop", exact=True).click()
    played.wait(lambda views: views.turn.closing is not None)
    assert played.views.turn.closing.reason == "cancelled"
    played.stopped("I was ab")
    played.end("cancelled")
    conversation(page).get_by_text("turn 1 ended: cancelled").wait_for()
    conversation(page).get_by_text("stopped: cancelled").wait_for()


def test_an_approval_is_answered_with_the_arguments_that_were_shown(place, url, page_at):
    played = asking(place, "asks")
    page = page_at(f"{url}/#/s/asks")
    ask = page.get_by_role("article", name="charge waits for approval")
    ask.get_by_text("900").wait_for()
    page.get_by_role("button", name="Allow").click()
    played.wait(lambda views: views.turn.calls[0].status == "allowed")
    ask.wait_for(state="detached")
    conversation(page).get_by_label("Tool charge, allow").wait_for()


def test_a_denial_is_a_denial(place, url, page_at):
    played = asking(place, "denied")
    page = page_at(f"{url}/#/s/denied")
    page.get_by_role("button", name="Deny").click()
    played.wait(lambda views: views.turn.calls[0].decision == "deny")
    conversation(page).get_by_label("Tool charge, deny").wait_for()


def test_an_approval_that_came_too_late_is_refused_in_words(place, url, page_at):
    played = asking(place, "late")
    page = page_at(f"{url}/#/s/late")
    page.get_by_role("button", name="Allow").wait_for()
    page.route("**/inspector/api/**", lambda route: route.abort())  # the page sees the past
    page.complaints.clear()
    played.append(ev.ApprovalExpired(call=played.views.turn.calls[0].key), "sessions")
    with page.expect_response("**/decide") as answer:
        page.get_by_role("button", name="Allow").click()
    assert answer.value.status == 409
    refused = page.get_by_label("charge waits for approval").get_by_role("alert")
    refused.wait_for()
    assert refused.inner_text()
    page.unroute("**/inspector/api/**")
    page.complaints.clear()  # the browser logs what it was answered


def test_a_doubt_is_resolved_by_who_knows(place, url, page_at):
    played = doubting(place, "doubts")
    page = page_at(f"{url}/#/s/doubts")
    page.get_by_label("What happened, for the model").fill("the bank has it")
    page.get_by_role("button", name="It happened").click()
    played.wait(lambda views: views.turn.calls[0].human == "happened")
    conversation(page).get_by_text("the bank has it").wait_for()


def test_fifty_sessions_that_change_are_a_list_that_follows(place, url, page_at, said):
    for number in range(50):
        place.open(f"team-{number:02}")
    page = page_at(f"{url}/")
    rows = page.get_by_role("navigation", name="Sessions").get_by_role("link")
    expect(rows.filter(has_text="team-")).to_have_count(50)
    busy = rows.filter(has_text=re.compile("team-.*busy", re.DOTALL))
    expect(busy).to_have_count(0)
    for number in range(50):
        said.say(f"team-{number:02}", "go", message_id="m1")
    expect(busy).to_have_count(50)
    page.get_by_label("Find a session").fill("team-4")
    expect(rows).to_have_count(10)
    rows.filter(has_text="team-42").click()
    page.wait_for_url("**/#/s/team-42")
    conversation(page).get_by_text("go", exact=True).wait_for()


@pytest.mark.parametrize("look", ["", "@past"])
def test_nothing_that_was_said_becomes_markup(place, url, page_at, look):
    session = f"hostile{len(look)}"
    played = hostile(place, session)
    at = f"@{played.fold.cursor}" if look else ""
    page = page_at(f"{url}/#/s/{session}{at}")
    conversation(page).get_by_text(HOSTILE[0]).first.wait_for()
    shown = conversation(page).inner_text()
    for words in HOSTILE[:3]:
        assert words in shown
    for tab in ("state", "wake", "budget", "request", "compare", "cost", "events"):
        page.get_by_role("tab", name=tab).click()
    page.locator(".detail summary").click()
    found = page.evaluate("""() => ({
      pwned: window.pwned ?? null,
      made: document.querySelectorAll("#app script, #app img, #app svg, #app iframe").length,
      links: [...document.querySelectorAll("#app a")].map((a) => a.getAttribute("href")),
      handlers: [...document.querySelectorAll("#app *")]
        .flatMap((e) => e.getAttributeNames()).filter((name) => name.startsWith("on")),
    })""")
    assert found["pwned"] is None and found["made"] == 0 and found["handlers"] == []
    assert all(link.startswith("#") for link in found["links"])


def test_where_a_token_is_needed_it_is_asked_for_and_kept_in_the_tab(place, page_at):
    place.talk("mine", 1)
    directory = place.settings.home / "closed"
    with served(place.log, place.settings, directory, secret=SECRET) as running:
        page = page_at(f"{running.url}/#/s/mine", viewport=PHONE, touch=True)
        page.get_by_label("Token").fill(token_for("ana", SECRET))
        page.get_by_role("button", name="Sign in").click()
        conversation(page).get_by_text("turn 1 ended").wait_for()
        assert page.evaluate("localStorage.length") == 0
        assert "token" not in page.url
        foreign = running.http(token_for("eve", SECRET))
        with foreign:
            assert foreign.get("/inspector/api/sessions/mine/moment").status_code == 404
        page.goto("about:blank")
        # The browser logs the 401 that made the page ask for a token.
        page.complaints[:] = [text for text in page.complaints if "401 (Unauthorized)" not in text]


def test_a_gateway_that_ended_is_followed_again_when_it_is_back(place, page_at, said):
    played = place.talk("back", 1)
    directory = place.settings.home / "first"
    with served(place.log, place.settings, directory) as first:
        page = page_at(f"{first.url}/#/s/back")
        conversation(page).get_by_text("turn 1 ended").wait_for()
        page.get_by_text("live", exact=True).wait_for()
    page.get_by_text("connecting", exact=True).wait_for()
    said.say("back", "meanwhile", message_id="m9")
    played.answer("said while nobody looked")
    with served(place.log, place.settings, directory, port=first.port):
        page.get_by_text("live", exact=True).wait_for()
        said.say("back", "and on", message_id="m10")
        played.answer("the end")
        conversation(page).get_by_text("turn 3 ended").wait_for()
        for words in ("meanwhile", "said while nobody looked", "and on", "the end"):
            expect(conversation(page).get_by_text(words, exact=True)).to_have_count(1)
        page.goto("about:blank")
    page.complaints.clear()  # the browser logs each try

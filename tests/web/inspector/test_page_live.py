"""The session page in a real browser, live: streams, decisions of people, the list of sessions."""

import json
import re
import threading

import pytest
from playwright.sync_api import expect

from foldlog.schemas import events as ev
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.tests.kit.browser_fixture import DESK, PHONE
from foldlog.tests.web.gateway.served import SECRET, served
from foldlog.tests.web.inspector.sessions import HOSTILE, asking, doubting, hostile
from foldlog.tests.web.inspector.shown import conversation, refused_without_a_report
from foldlog.web.gateway.access import token_for
from foldlog.web.inspector.timeline import Timelines

# Of the conversation, the timeline and the buttons; the pane and the facts in the head say
# something else when something else is the case.
SHIFTS = """
() => { window.shifts = [];
  const own = (e) => e.sources.some(({ node }) =>
    (node?.parentElement ?? node)?.closest(".talk, .tl, .btn"));
  new PerformanceObserver((list) =>
    window.shifts.push(...list.getEntries().filter(own).map((e) => e.value)))
    .observe({ type: "layout-shift", buffered: false }); }
"""

REDRAWS = """async () => {
  const { Session } = await import("/inspector/static/model.js");
  const { changed } = Session.prototype;
  window.redraws = 0;
  Session.prototype.changed = function () { window.redraws += 1; changed.call(this); };
}"""
SCROLL = """box => new Promise((done) => {
  const step = (n) => {
    box.scrollTop += 30;
    n ? requestAnimationFrame(() => step(n - 1)) : done();
  };
  step(20);
})"""
PLACE = """box => [box.scrollTop, box.scrollHeight - box.clientHeight - box.scrollTop]"""


def test_tokens_appear_as_they_arrive_and_nothing_shifts(place, url, page_at, producer):
    played = place.talk("stream", 1)
    page = page_at(f"{url}/#/s/stream")
    conversation(page).get_by_text("Turn 1 ended").wait_for()
    page.get_by_text("Live", exact=True).wait_for()
    producer.say("stream", "tell me more", message_id="more")
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
    conversation(page).get_by_text("Turn 2 ended").wait_for()
    expect(streaming).to_have_count(0)
    expect(conversation(page).get_by_text("piece39")).to_have_count(1)
    assert sum(page.evaluate("window.shifts")) < 0.02
    where = "e => e.scrollHeight - e.scrollTop - e.clientHeight"
    assert conversation(page).evaluate(where) < 40  # the conversation scrolls with the stream


def test_a_token_redraws_the_answer_alone_and_its_end_stays_in_view(place, url, page_at, producer):
    """Each token redrew the whole page, and laid it out twice."""
    played = place.talk("follows", 12)
    producer.say("follows", "tell me more", message_id="more")
    played.call()
    played.start()
    page = page_at(f"{url}/#/s/follows")
    lines, streaming = conversation(page), page.get_by_label("The model's output")

    def grow(name, pieces=5):
        for number in range(pieces):
            played.chunk(f"\n\n{name}{number} goes on")
            streaming.get_by_text(f"{name}{number} goes on").wait_for()
        return lines.evaluate(PLACE)

    grow("first")
    page.evaluate(REDRAWS)
    top, below = grow("second", 30)
    assert top > 0 and below < 1
    assert page.evaluate("window.redraws") < 15  # of the events that are fetched in between
    lines.evaluate("box => { box.scrollTop = 100 }")
    assert grow("third")[0] == 100
    lines.evaluate("box => { box.scrollTop = box.scrollHeight }")
    _, below = grow("fourth")
    assert below < 1
    page.set_viewport_size({**DESK, "height": 600})
    _, below = grow("fifth")
    assert below < 1


def test_the_text_of_a_lost_attempt_is_removed(place, url, page_at, producer):
    _, played = place.open("lost")
    producer.say("lost", "hi", message_id="m1")
    played.call()
    played.start()
    page = page_at(f"{url}/#/s/lost")
    played.chunk("never mind")
    conversation(page).get_by_text("never mind").wait_for()
    played.resume()
    conversation(page).get_by_text("Worker w1 was lost. Worker w2 took over").wait_for()
    expect(conversation(page).get_by_text("never mind")).to_have_count(0)
    played.chunk("again")
    page.get_by_label("The model's output").get_by_text("again").wait_for()
    expect(conversation(page).get_by_text("never mind")).to_have_count(0)


def test_past_and_new_lines_are_shown_once(place, url, page_at, producer):
    played = place.talk("once", 3)
    page = page_at(f"{url}/")

    def add_a_turn(route):  # the open stream has it, and then the response too
        if played.views.turn.number == 3:
            producer.say("once", "question 4", message_id="n4")
            played.answer("answer 4")
        route.continue_()

    page.route("**/lines?*", add_a_turn)
    page.goto(f"{url}/#/s/once")
    conversation(page).get_by_text("Turn 4 ended").wait_for()
    for number in range(5, 7):
        producer.say("once", f"question {number}", message_id=f"n{number}")
        played.answer(f"answer {number}")
    conversation(page).get_by_text("Turn 6 ended").wait_for()
    for number in range(1, 7):
        expect(conversation(page).get_by_text(f"question {number}", exact=True)).to_have_count(1)
    kinds = conversation(page).locator(".note.ended").all_inner_texts()
    assert kinds == [f"Turn {n} ended." for n in range(1, 7)]


def test_events_stay_where_they_were_scrolled_and_lay_out_new_rows(place, url, page_at, producer):
    """The list jumped to its end with each new event, and each new row numbered all lists of the
    page again, because a row had style containment."""
    played = place.talk("scrolled", 8)
    page = page_at(f"{url}/#/s/scrolled")
    page.get_by_role("tab", name="events").click()
    listed = page.get_by_role("listbox", name="Events")
    listed.get_by_text("turn 8 ended", exact=False).wait_for()
    listed.evaluate("box => { box.scrollTop = 0 }")
    listed.get_by_text("The session was opened").wait_for()
    producer.say("scrolled", "one more", message_id="more")
    played.answer("\n".join(f"{number}. thing" for number in range(1, 51)))
    conversation(page).get_by_text("Turn 9 ended").wait_for()
    count = len(Timelines(place.log).of("scrolled").moments)
    shown = re.compile(f" of ({count}|{count + 1})$")  # the answer was shown, which is an event
    expect(page.locator(".filters .num")).to_have_text(shown)
    assert listed.evaluate("box => box.scrollTop") == 0
    page.locator("h1").click()  # so that keys go to the page
    page.keyboard.press("Home")
    page.get_by_text("This is the past").wait_for()
    page.keyboard.press("l")
    listed.get_by_text("turn 9 ended", exact=False).wait_for()
    expect(conversation(page).locator("ol > li")).to_have_count(50)
    listed.evaluate("box => { box.scrollTop = 0 }")
    listed.get_by_text("The session was opened").wait_for()
    browser = page.context.browser
    browser.start_tracing(page=page, categories=["devtools.timeline"])
    listed.evaluate(SCROLL)
    traced = json.loads(browser.stop_tracing())["traceEvents"]
    dirty = [e["args"]["beginData"]["dirtyObjects"] for e in traced if e["name"] == "Layout"]
    assert len(dirty) > 10 and max(dirty) < 40, dirty  # a row has nine objects


def test_a_message_is_sent_and_a_turn_is_stopped(place, url, page_at):
    _, played = place.open("talk")
    page = page_at(f"{url}/#/s/talk")
    page.get_by_text("Live", exact=True).wait_for()
    page.get_by_label("Message", exact=True).fill("are you there?")
    page.keyboard.press("Enter")
    conversation(page).get_by_text("are you there?").wait_for()
    expect(page.get_by_label("Message", exact=True)).to_have_value("")
    played.wait(lambda views: views.turn.open)
    played.call()
    played.start()
    page.get_by_role("button", name="Stop turn").click()
    played.wait(lambda views: views.turn.closing is not None)
    assert played.views.turn.closing.reason == "cancelled"
    played.stopped("I was ab")
    played.end("cancelled")
    conversation(page).get_by_text("Turn 1 was stopped by a person.").wait_for()
    conversation(page).get_by_text("stopped: cancelled").wait_for()


def test_E13_an_answer_without_text_says_so(place, url, page_at):
    _, played = place.open("silent", "is it there?")
    played.answer("")
    page = page_at(f"{url}/#/s/silent")
    conversation(page).get_by_text("the model ended its turn without any text").wait_for()
    page.goto(f"{url}/#/s/silent@{played.fold.cursor - 1}")
    conversation(page).get_by_text("the model ended its turn without any text").wait_for()


def test_an_approval_is_sent_with_the_arguments_that_were_shown(place, url, page_at):
    played = asking(place, "asks")
    page = page_at(f"{url}/#/s/asks")
    ask = page.get_by_role("region", name="charge waits for approval")
    ask.get_by_text("900").wait_for()
    page.get_by_role("button", name="Allow").click()
    played.wait(lambda views: views.turn.calls[0].status == "allowed")
    ask.wait_for(state="detached")
    conversation(page).get_by_label("Tool charge, allowed").wait_for()


def test_a_call_is_denied(place, url, page_at):
    played = asking(place, "denied")
    page = page_at(f"{url}/#/s/denied")
    page.get_by_role("button", name="Deny").click()
    played.wait(lambda views: views.turn.calls[0].decision == "deny")
    conversation(page).get_by_label("Tool charge, denied").wait_for()


def test_a_late_approval_is_refused_with_the_reason(place, url, page_at):
    played = asking(place, "late")
    deciding = threading.Event()

    def expire(route):
        """The approval expires while the decision is on its way."""
        played.append(ev.ApprovalExpired(call=played.views.turn.calls[0].key), "sessions")
        route.continue_()

    page = page_at(f"{url}/#/s/late")
    page.route("**/inspector/api/**", lambda route: (  # unanswered: the page keeps the old moment
        None if deciding.is_set() else route.continue_()))
    page.route("**/decide", expire)
    allow = page.get_by_role("button", name="Allow")
    allow.wait_for()
    deciding.set()
    with page.expect_response("**/decide") as response:
        allow.click()
    assert response.value.status == 409
    refused = page.get_by_label("charge waits for approval").get_by_role("alert")
    refused.wait_for()
    assert refused.inner_text()
    page.unroute_all(behavior="ignoreErrors")
    page.close()  # so that no request is on its way
    page.complaints.clear()  # the browser logs the 409


def test_a_doubt_is_resolved_with_a_report(place, url, page_at):
    played = doubting(place, "doubts")
    page = page_at(f"{url}/#/s/doubts")
    reason = re.compile("^The worker died. (It may have|Running it again)")
    expect(page.get_by_text(reason)).to_have_count(2)  # in the conversation and in the pane
    page.get_by_role("button", name="It happened").click()
    report = page.get_by_label("What happened?")
    tell = page.get_by_role("button", name="Report that it happened")
    refused_without_a_report(page, report, tell)
    report.fill("the bank has it")
    tell.click()
    played.wait(lambda views: views.turn.calls[0].human == "happened")
    conversation(page).get_by_label(re.compile("^Tool charge, in doubt, settled")).click()
    conversation(page).get_by_text("the bank has it").wait_for()


def test_that_a_call_did_not_happen_needs_no_report(place, url, page_at):
    played = doubting(place, "did-not")
    page = page_at(f"{url}/#/s/did-not")
    page.get_by_role("button", name="It did not happen").click()
    page.get_by_role("button", name="Report that it did not happen").click()
    played.wait(lambda views: views.turn.calls[0].human == "did_not_happen")


@pytest.mark.parametrize("past", [False, True])
def test_no_text_becomes_markup(place, url, page_at, past):
    session = f"hostile-{past}"
    played = hostile(place, session)
    at = f"@{played.fold.cursor}" if past else ""
    page = page_at(f"{url}/#/s/{session}{at}")
    conversation(page).get_by_text(HOSTILE[0]).first.wait_for()
    shown = conversation(page).inner_text()
    assert all(text in shown for text in HOSTILE[:3])
    for tab in ("why", "budget", "request", "compare", "cost", "events"):
        page.get_by_role("tab", name=tab).click()
    page.locator(".detail summary").click()
    found = page.evaluate("""() => ({
      pwned: window.pwned ?? null,
      made: document.querySelectorAll(
        "#app script, #app img, #app svg:not(.i, .tl svg), #app iframe").length,
      links: [...document.querySelectorAll("#app a")].map((a) => a.getAttribute("href")),
      handlers: [...document.querySelectorAll("#app *")]
        .flatMap((e) => e.getAttributeNames()).filter((name) => name.startsWith("on")),
    })""")
    assert found["pwned"] is None and found["made"] == 0 and found["handlers"] == []
    assert all(link.startswith("#") for link in found["links"])


def test_a_needed_token_is_requested_and_kept_in_the_tab(place, page_at):
    place.talk("mine", 1)
    directory = place.settings.home / "closed"
    with served(place.log, place.settings, directory, secret=SECRET) as running:
        page = page_at(f"{running.url}/#/s/mine", viewport=PHONE, touch=True)
        page.get_by_label("Token").fill(token_for("ana", SECRET))
        page.get_by_role("button", name="Sign in").click()
        conversation(page).get_by_text("Turn 1 ended").wait_for()
        assert page.evaluate("localStorage.length") == 0
        assert "token" not in page.url
        page.goto("about:blank")
        # The browser logs the 401 after which the page requests a token.
        page.complaints[:] = [text for text in page.complaints if "401 (Unauthorized)" not in text]


def test_the_page_reconnects_to_a_restarted_gateway(place, page_at, producer):
    played = place.talk("back", 1)
    directory = place.settings.home / "first"
    with served(place.log, place.settings, directory) as first:
        page = page_at(f"{first.url}/#/s/back")
        conversation(page).get_by_text("Turn 1 ended").wait_for()
        page.get_by_text("Live", exact=True).wait_for()
    page.get_by_text("No answer from the gateway since").wait_for()
    producer.say("back", "meanwhile", message_id="m9")
    played.answer("answered meanwhile")
    with served(place.log, place.settings, directory, port=first.port):
        page.get_by_text("Live", exact=True).wait_for()
        producer.say("back", "and on", message_id="m10")
        played.answer("the end")
        conversation(page).get_by_text("Turn 3 ended").wait_for()
        for text in ("meanwhile", "answered meanwhile", "and on", "the end"):
            expect(conversation(page).get_by_text(text, exact=True)).to_have_count(1)
        page.goto("about:blank")
    page.complaints.clear()  # the browser logs each try


def test_a_session_without_a_worker_for_its_agent_says_so(place, url, page_at, producer):
    _, played = place.open("unserved")
    played.take("w8/1")
    producer.say("unserved", "hello?", message_id="m1")
    page = page_at(f"{url}/#/s/unserved")
    expect(page.locator("header .status")).to_have_text("Waits for worker")
    played.append(ev.OwnerGone(owner="w8/1"), "sessions", PARTITION_KEY)
    notice = page.get_by_role("status").get_by_text("No worker serves the agent")
    notice.wait_for()
    page.get_by_role("heading", name="No worker serves the agent shop").wait_for()
    page.get_by_text("worker w8 had its partition and has ended").wait_for()
    page.get_by_text("The message is kept").wait_for()
    expect(page.locator("header .status")).to_have_text("No worker")
    played.take("w9/1", (ev.AgentDigest(name="other", digest="d"),))
    producer.say("unserved", "hello?", message_id="m2")  # the page is notified
    page.get_by_text("has the session's partition and serves other").wait_for()
    played.take("w9/2", (ev.AgentDigest(name="shop", digest="d"),))
    played.call()
    played.start()
    played.fail(error="rate_limit", retry_at=played.now_ms() + 3_600_000)
    expect(page.locator("header .status")).to_have_text(re.compile("^Rate limit until "))
    page.get_by_text("The model's rate limit was reached. It is tried again at").wait_for()
    worker = page.locator("dt", has_text="Claimed by").locator("+ dd")
    expect(worker).to_have_text("no worker")  # it was the worker of the failed attempt
    played.start()
    expect(worker).to_have_text(re.compile("^w9, since "))


def test_an_unknown_session_is_reported_and_not_read_for_ever(url, page_at):
    page = page_at(f"{url}/#/s/nobody")
    page.get_by_role("alert").get_by_text("nobody").wait_for()
    page.get_by_text("There is nothing to show.").wait_for()
    expect(page.get_by_text("Reading the session")).to_have_count(0)
    page.close()
    page.complaints.clear()  # the browser logs each 404


def test_every_key_is_listed_and_the_dialog_keeps_them_from_the_page(place, url, page_at):
    place.talk("keyed", 2)
    page = page_at(f"{url}/#/s/keyed")
    conversation(page).get_by_text("Turn 2 ended").wait_for()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    bars = "next or previous bar of the timeline, or call of the chosen tool"
    for words in ("previous or next event", bars, "fork here"):
        keys.get_by_text(words, exact=True).wait_for()
    page.keyboard.press("Home")
    page.keyboard.press("Escape")
    expect(keys).not_to_be_visible()
    assert page.url.endswith("#/s/keyed")
    page.keyboard.press("m")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.keyboard.type("1")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Why")
    page.keyboard.press("Escape")
    page.keyboard.press("5")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Cost")
    page.keyboard.press("h")
    page.wait_for_url("**/#/")


def test_the_focus_goes_from_the_head_over_the_conversation_to_the_timeline(place, url, page_at):
    place.talk("focus", 1)
    page = page_at(f"{url}/#/s/focus")
    conversation(page).get_by_text("Turn 1 ended").wait_for()
    where = "document.activeElement.closest('.rail, .top, .talk, .pane, .tl')?.classList[0] ?? ''"
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        part = page.evaluate(where)
        if part and (not seen or seen[-1] != part):
            seen.append(part)
        if seen[-1:] == ["tl"]:
            break
    assert seen == ["rail", "top", "talk", "pane", "tl"]

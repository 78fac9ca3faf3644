"""The home page in a real browser: calls that wait and their answers, new sessions, the table,
filters, search, bulk actions, keys, and a gateway that stops and returns."""

import json
import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from foldlog.log import MemoryLog
from foldlog.producers import Sessions
from foldlog.schemas import events as ev
from foldlog.schemas.events.parts import AgentDigest
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.origin import TokenRole
from foldlog.schemas.topics import topics
from foldlog.tests.kit.browser_fixture import DESK, PHONE
from foldlog.tests.kit.played import PARTITIONS, Played, memory_log, settings_in
from foldlog.tests.web.gateway.served import SECRET, served
from foldlog.tests.web.inspector.judges import CONTRASTS, SMALL, UNNAMED
from foldlog.tests.web.inspector.sessions import (
    HOSTILE,
    Place,
    asking,
    doubting,
    hostile,
)
from foldlog.tests.web.inspector.shown import refused_without_a_report
from foldlog.web.gateway.access import token_for


def failing(place, session_id="fails", text="Report the late deliveries."):
    _, played = place.open(session_id, text)
    played.call()
    played.start()
    played.fail(permanent=True)
    played.end("failed")
    return played


def titled(place, session_id, title):
    """A session with an answer. Its title is its first message."""
    _, played = place.open(session_id, title)
    played.answer(f"answer about {title}")
    return played


def card(page, name):
    return page.get_by_role("region", name="Waiting for you").get_by_role("article", name=name)


def table(page):
    return page.get_by_role("table", name="Sessions")


def rows(page):
    return table(page).locator(".tbody").get_by_role("row")


def test_an_approval_is_answered_with_what_was_shown(place, url, page_at):
    played = asking(place, "asks-home")
    page = page_at(f"{url}/#/waiting")
    ask = card(page, "Allow charge? in charge it").first
    expect(ask.get_by_role("row")).to_have_text(["amount_cents900"])
    ask.get_by_role("button", name="Allow charge").click()
    expect(ask).to_have_count(0)
    [call] = played.views.turn.calls
    assert call.decision == "allow"


def test_a_doubt_is_answered_with_what_the_model_should_know(place, url, page_at):
    played = doubting(place, "doubt-home")
    page = page_at(f"{url}/#/waiting")
    doubt = card(page, "Did charge happen?")
    doubt.get_by_text("The worker died.").wait_for()
    doubt.get_by_role("button", name="It happened").click()
    report = doubt.get_by_label("What happened?")
    expect(report).to_be_focused()
    refused_without_a_report(page, report, doubt.get_by_role("button", name="Report that it hap"))
    report.fill("")
    page.keyboard.type("The bank shows it.")
    doubt.get_by_role("button", name="Report that it happened").click()
    expect(doubt).to_have_count(0)
    kinds = [line.kind for line in played.views.transcript.lines.since(0)]
    assert kinds[-1] == "resolved" and not played.views.turn.doubts


def test_the_home_page_counts_what_waits_and_is_not_shown(tmp_path, page_at):
    """It read "2 mores waiting for you"."""
    place = Place(memory_log(threaded=True), settings_in(tmp_path))
    for number in range(8):
        asking(place, f"asks-{number}")
    with served(place.log, place.settings, tmp_path / "gateway") as running:
        page = page_at(f"{running.url}/")
        expect(page.locator(".rest")).to_have_text("2 more waiting for you")
        page.close()


def test_a_failed_turn_is_tried_again_or_set_aside(place, url, page_at):
    played, other = failing(place), failing(place, "fails-2", "Count the lamps.")
    page = page_at(f"{url}/#/waiting")
    card(page, "The model was overloaded in Report").get_by_role("button", name="Try again").click()
    expect(card(page, "The model was overloaded in Report")).to_have_count(0)
    assert played.views.turn.number == 2 and played.views.turn.open
    aside = card(page, "The model was overloaded in Count the lamps")
    aside.focus()
    page.keyboard.press("d")
    expect(aside).to_have_count(0)
    page.reload()
    table(page).or_(page.get_by_role("heading", level=1)).first.wait_for()
    expect(aside).to_have_count(0)
    assert other.views.turn.number == 1


def test_both_pages_count_the_same_sessions_as_waiting(tmp_path, page_at):
    """The rail of a session left out failed turns, which the home page counts, and counted failed
    turns that were set aside."""
    place = Place(memory_log(threaded=True), settings_in(tmp_path))
    asking(place)
    doubting(place)
    failing(place)
    failing(place, "fails-2", "Count the lamps.")
    with served(place.log, place.settings, tmp_path / "gateway") as running:
        page = page_at(f"{running.url}/#/s/asks")
        badge = page.get_by_role("navigation", name="Main").get_by_role("link", name="Waiting")
        expect(badge).to_have_accessible_name("Waiting for you: 4")
        badge.click()
        page.get_by_role("heading", name="Four sessions are waiting for you").wait_for()
        aside = card(page, "The model was overloaded in Count the lamps")
        aside.get_by_role("button", name="Set aside").click()
        page.get_by_role("heading", name="Three sessions are waiting for you").wait_for()
        page.goto(f"{running.url}/#/sessions")
        status = page.get_by_role("group", name="Status")
        status.get_by_role("button", name="Waiting for you 3").wait_for()
        page.goto(f"{running.url}/#/s/asks")
        expect(badge).to_have_accessible_name("Waiting for you: 3")
        page.goto("about:blank")


def test_the_list_states_its_bounds_when_it_is_not_whole(tmp_path, page_at):
    place = Place(memory_log(threaded=True), settings_in(tmp_path))
    for number in range(8):
        titled(place, f"s-{number}", f"Job {number}")
    with served(place.log, place.settings, tmp_path / "gateway") as running:
        page = page_at(f"{running.url}/#/sessions")
        expect(rows(page)).to_have_count(8)
        expect(page.locator(".bounds")).to_have_count(0)
        running.gateway.overview._per_user = 5
        titled(place, "s-8", "Job 8")
        page.reload()
        expect(rows(page)).to_have_count(5)
        expect(page.locator(".bounds")).to_contain_text("cover 5 of 9 sessions")
        expect(page.locator(".bounds")).to_contain_text("the most that this page lists")
        page.get_by_role("heading", name="9 sessions").wait_for()
        page.get_by_role("button", name="Listed 5").wait_for()  # it was "All 5"
        page.goto("about:blank")


def test_the_columns_are_chosen_and_kept(place, url, page_at):
    titled(place, "columns", "Choose the columns")
    page = page_at(f"{url}/#/sessions?find=columns")
    heads = table(page).get_by_role("columnheader")
    expect(heads.filter(has_text="Agent")).to_have_count(1)
    page.get_by_label("Columns", exact=True).click()
    page.get_by_role("checkbox", name="Agent").uncheck()
    page.get_by_role("checkbox", name="Tokens").check()
    page.keyboard.press("Escape")
    expect(page.get_by_role("checkbox", name="Tokens")).to_be_hidden()
    for _ in range(2):
        expect(heads.filter(has_text="Agent")).to_have_count(0)
        expect(rows(page).locator(".c-tokens")).to_have_text("15")
        page.reload()
    heads.filter(has_text="Tokens").get_by_role("button").click()
    assert page.url.endswith("sort=tokens")


def test_arguments_that_cannot_be_shown_whole_and_exactly_are_not_allowed_here(
    place, url, page_at
):
    _, played = place.open("long-args", "pay it")
    played.propose("", ("pay", {"note": "x" * 3_000}))
    played.invoke(approval="ask")
    _, played = place.open("big-number", "wire it")
    played.propose("", ("wire", {"account": 12345678901234567891}))
    played.invoke(approval="ask")
    page = page_at(f"{url}/#/waiting")
    card(page, "Allow pay?").get_by_text("too long for this page").wait_for()
    expect(card(page, "Allow pay?").get_by_role("button")).to_have_count(0)
    card(page, "Allow wire?").get_by_text("12345678901234567891").wait_for()


def test_a_session_is_started_with_an_agent_that_a_worker_serves(place, url, page_at):
    page = page_at(f"{url}/")
    form = page.get_by_role("form", name="New session")
    form.get_by_text("No worker serves any agent").wait_for()
    played = Played(place.log, "asks-home", "w7/1")
    names = (AgentDigest(name="shop", digest="d"), AgentDigest(name="research", digest="d"))
    for role in ("sessions", "models"):
        taken = ev.PartitionTaken(role=role, owner="w7/1", agents=names)
        played.append(taken, role, PARTITION_KEY)
    place.open("nudge", "hello")  # the page is notified, and requests its data again
    expect(form.get_by_text("No worker serves any agent")).to_have_count(0)
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("n")
    expect(form.get_by_label("What should be done")).to_be_focused()
    page.keyboard.type("Find the oak stools.")
    form.get_by_label("Agent").select_option("research")
    form.get_by_role("button", name="Start session").click()
    page.wait_for_url(re.compile("#/s/"))
    page.get_by_role("log", name="Conversation").get_by_text("Find the oak stools.").wait_for()
    page.goto(f"{url}/#/sessions?find=oak")
    expect(rows(page)).to_have_count(1)
    assert "research" in rows(page).inner_text()


def test_the_table_follows_the_changes_of_fifty_sessions(place, url, page_at, producer):
    for number in range(50):
        _, played = place.open(f"team-{number:02}")
        played.take()
    page = page_at(f"{url}/#/sessions?find=team-&ids=1")
    page.get_by_role("heading", name="50 sessions").wait_for()
    working = page.get_by_role("group", name="Status").get_by_role("button", name="Working 50")
    expect(working).to_have_count(0)
    for number in range(50):
        producer.say(f"team-{number:02}", f"Do task {number:02}.", message_id="m1")
    working.wait_for()
    page.get_by_label("Find by title").fill("task 4")
    expect(rows(page)).to_have_count(10)
    rows(page).get_by_role("link", name="Do task 42").click()
    page.wait_for_url("**/#/s/team-42")


def test_only_the_rows_in_view_are_drawn_and_all_can_be_reached(place, page_at, tmp_path):
    log = memory_log(threaded=True)
    settings = settings_in(tmp_path)
    producer = Sessions(log, settings)
    for number in range(1_000):
        producer.open(f"many-{number}", agent="shop")
        producer.say(f"many-{number}", f"Task {number:04}", message_id="m1")
    with served(log, settings, tmp_path / "gateway") as running:
        page = page_at(f"{running.url}/#/sessions?sort=title")
        page.get_by_role("heading", name="1,000 sessions").wait_for()
        rows(page).get_by_text("Task 0000").wait_for()
        expect(table(page)).to_have_attribute("aria-rowcount", "1001")
        assert rows(page).count() < 60
        page.keyboard.press("j")
        page.keyboard.press("End")
        rows(page).get_by_text("Task 0999").wait_for()
        assert rows(page).count() < 60
        expect(rows(page).get_by_role("link", name="Task 0999")).to_be_focused()
        page.keyboard.press("k")
        expect(rows(page).get_by_role("link", name="Task 0998")).to_be_focused()
        page.keyboard.press("x")
        page.get_by_text("1 session selected").wait_for()
        producer.say("many-5", "more", message_id="m2")  # the list changes, the focus stays
        page.keyboard.press("Shift+Tab")
        expect(rows(page).get_by_label("Select Task 0998")).to_be_focused()
        page.keyboard.press("Space")
        expect(page.get_by_text("1 session selected")).to_have_count(0)
        expect(rows(page).get_by_label("Select Task 0998")).to_be_focused()
        page.keyboard.press("Home")
        expect(rows(page).get_by_role("link", name="Task 0000")).to_be_focused()
        page.keyboard.press("Enter")
        page.wait_for_url("**/#/s/many-0")
        page.goto("about:blank")


def test_filters_are_in_the_link_and_can_be_saved(place, url, page_at):
    titled(place, "lilac-1", "Sort the lilac boxes")
    titled(place, "lilac-2", "Count the lilac boxes")
    page = page_at(f"{url}/#/sessions")
    page.get_by_label("Find by title").fill("lilac")
    page.get_by_role("group", name="Status").get_by_role("button", name="Done 2").click()
    expect(rows(page)).to_have_count(2)
    page.get_by_role("columnheader", name="Session").get_by_role("button").click()
    expect(rows(page).first).to_contain_text("Count the lilac")
    assert page.url.endswith("#/sessions?status=done&find=lilac&sort=title")
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("s")
    expect(page.get_by_label("Name of this filter")).to_be_focused()
    page.keyboard.type("Boxes")
    page.keyboard.press("Enter")
    saved = page.get_by_role("navigation", name="Saved filters")
    page.goto(f"{url}/#/")
    page.reload()
    saved.get_by_role("link", name="Boxes").click()
    expect(rows(page)).to_have_count(2)
    page.get_by_text("Saved as “Boxes”").wait_for()
    saved.get_by_role("button", name="Remove the filter Boxes").click()
    expect(saved).to_have_count(0)


def test_search_finds_what_was_said_and_goes_to_its_instant(place, url, page_at):
    titled(place, "quince", "Where is the quince jelly")
    page = page_at(f"{url}/")
    page.get_by_role("heading", level=1).wait_for()
    page.keyboard.press("/")
    expect(page.get_by_label("Search everything that was said")).to_be_focused()
    page.keyboard.type("quinces")
    found = page.get_by_role("region", name="Found")
    expect(found.get_by_role("listitem")).to_have_count(2)
    assert found.locator("mark").all_inner_texts() == ["quince", "quince"]
    assert "q=quinces" in page.url
    found.get_by_role("link").first.click()
    page.wait_for_url(re.compile("#/s/quince@"))
    page.goto(f"{url}/#/?q=zzzz")
    found.get_by_text("No message, answer or tool result has these words").wait_for()
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("Escape")
    expect(found).to_have_count(0)


def test_turns_are_stopped_and_sessions_exported_after_a_count_is_confirmed(
    place, url, page_at
):
    running = []
    for number in (1, 2):
        _, played = place.open(f"plum-{number}", f"Peel the plums {number}")
        played.call()
        played.start()
        running.append(played)
    titled(place, "plum-3", "Peel the plums 3")
    page = page_at(f"{url}/#/sessions?find=plums")
    page.get_by_label("Select all 3").check()
    chosen = page.get_by_role("region", name="Selected sessions")
    chosen.get_by_role("button", name="Export 3 sessions").click()
    asked = page.get_by_role("dialog", name="Export 3 sessions?")
    with page.expect_download() as download:
        asked.get_by_role("button", name="Export 3 sessions").click()
    lines = list(map(json.loads, Path(download.value.path()).read_text("utf-8").splitlines()))
    assert {line["session_id"] for line in lines} == {"plum-1", "plum-2", "plum-3"}
    done = next(line for line in lines if line["session_id"] == "plum-3")
    assert [line["kind"] for line in done["lines"]] == ["message", "answer", "ended"]
    page.get_by_text("3 sessions exported.").wait_for()
    page.get_by_label("Select all 3").check()
    chosen.get_by_role("button", name="Stop 2 turns").click()
    asked = page.get_by_role("dialog", name="Stop 2 running turns?")
    asked.get_by_text("1 selected session runs nothing and is left alone").wait_for()
    asked.get_by_role("button", name="Let them run").click()
    expect(asked).to_have_count(0)
    assert all(played.views.turn.closing is None for played in running)
    chosen.get_by_role("button", name="Stop 2 turns").click()
    asked.get_by_role("button", name="Stop 2 turns").click()
    page.get_by_text("2 turns stopped.").wait_for()
    assert all(played.views.turn.closing.reason == "cancelled" for played in running)


def test_a_refused_stop_is_reported_with_its_session(place, url, page_at):
    _, played = place.open("pear", "Core the pears")
    played.call()
    page = page_at(f"{url}/#/sessions?find=pears")
    rows(page).get_by_label("Select Core the pears").check()
    page.route("**/cancel", lambda route: route.fulfill(
        status=409, json={"code": "refused", "detail": "the phase changed"}))
    page.get_by_role("button", name="Stop 1 turn").click()
    asked = page.get_by_role("dialog", name="Stop 1 running turn?")
    asked.get_by_role("button", name="Stop 1 turn").click()
    asked.get_by_role("alert").get_by_text("the phase changed").wait_for()
    page.complaints.clear()  # the browser logs the 409


@pytest.fixture
def clocked(tmp_path):
    """The address of the page of a log with today's times, because the charts end now."""
    log = MemoryLog(topics(PARTITIONS), threaded=True, clock_ms=lambda: time.time_ns() // 1_000_000)
    place = Place(log, settings_in(tmp_path))
    place.talk("today", 2)
    with served(log, place.settings, tmp_path / "gateway") as running:
        yield f"{running.url}/"


def test_the_charts_show_each_interval_to_the_keyboard(clocked, page_at):
    page = page_at(f"{clocked}#/cost")
    by_agent = page.get_by_role("region", name="By agent")
    expect(by_agent.get_by_role("row", name=re.compile("^shop"))).to_contain_text("60")
    by_model = page.get_by_role("region", name="By model").get_by_role("row")
    expect(by_model.nth(1)).to_contain_text("claude-test")
    turns = page.get_by_role("group", name=re.compile("^Turns, by hour"))
    turns.focus()
    page.keyboard.press("ArrowLeft")
    figure = page.get_by_role("figure").filter(has=turns)
    figure.get_by_text(re.compile(r"\d\d:00 to \d\d:00")).wait_for()
    page.get_by_role("button", name="30 days").click()
    page.get_by_role("group", name=re.compile("^Cost, by day")).wait_for()
    by_agent.get_by_role("button", name="shop").click()
    page.get_by_role("group", name=re.compile("^Cost of shop, by day")).wait_for()
    assert page.evaluate(UNNAMED) == []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert page.evaluate(CONTRASTS) == [], scheme
    page.goto("about:blank")


def test_no_content_becomes_markup_or_a_link(place, url, page_at):
    hostile(place, "hostile-home")
    _, played = place.open("hostile-ask", HOSTILE[2])
    played.propose(HOSTILE[0], ("charge", {HOSTILE[1]: HOSTILE[0]}))
    played.invoke(approval="ask")
    page = page_at(f"{url}/")
    page.get_by_text(HOSTILE[1]).first.wait_for()
    page.goto(f"{url}/#/sessions?q=script")
    page.get_by_role("region", name="Found").get_by_text("window.pwned").first.wait_for()
    found = page.evaluate("""() => ({
      pwned: window.pwned ?? null,
      made: document.querySelectorAll(
        "#app script, #app img, #app iframe, #app svg[onload]").length,
      links: [...document.querySelectorAll("#app a")].map((a) => a.getAttribute("href")),
    })""")
    assert found["pwned"] is None and found["made"] == 0
    assert all(link.startswith("#") for link in found["links"])


def test_the_first_visit_says_what_to_do(page_at, tmp_path):
    log, settings = memory_log(threaded=True), settings_in(tmp_path)
    with served(log, settings, tmp_path / "gateway") as running:
        page = page_at(running.url)
        page.get_by_role("heading", name="No sessions yet").wait_for()
        page.get_by_text("foldlog chat").wait_for()
        page.get_by_label("What should be done").fill("Water the plants")
        page.get_by_role("button", name="Start session").click()
        page.wait_for_url(re.compile("#/s/"))
        page.goto(f"{running.url}/#/")
        page.get_by_role("heading", name="One session has no worker").wait_for()
        page.goto("about:blank")


def test_a_lost_gateway_is_reported_and_the_page_recovers(place, page_at):
    directory = place.settings.home / "first"
    titled(place, "kept", "Keep this in view")
    with served(place.log, place.settings, directory) as first:
        page = page_at(f"{first.url}/#/sessions?find=in+view")
        expect(rows(page)).to_have_count(1)
    lost = page.get_by_role("alert")
    lost.get_by_text("No answer from the gateway since").wait_for()
    expect(rows(page)).to_have_count(1)
    with served(place.log, place.settings, directory, port=first.port):
        titled(place, "kept-2", "Also in view")
        expect(rows(page)).to_have_count(2)
        expect(lost).to_have_count(0)
        page.goto("about:blank")
    page.complaints.clear()  # the browser logs each try


def signed_in(page_at, url, token):
    page = page_at(url)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    return page


def test_each_user_sees_their_own_sessions_and_an_operator_all(place, page_at):
    titled(place, "anas", "Only Ana knows")
    played = asking(place, "anas-asks")
    operator, decide = TokenRole
    with served(place.log, place.settings, place.settings.home / "two", secret=SECRET) as running:
        page = bobs = signed_in(page_at, f"{running.url}/#/sessions", token_for("bob", SECRET))
        page.get_by_role("heading", name="No sessions yet").wait_for()

        url = f"{running.url}/#/s/anas-asks"
        page = olgas = signed_in(page_at, url, token_for("olga", SECRET, roles=[operator]))
        page.get_by_text("This session belongs to ana. As an operator you may read it, but not "
                         "write to it.").wait_for()
        asked = page.get_by_label("charge waits for approval")
        expect(asked.get_by_role("alert")).to_contain_text("not decide without the role decide")
        for button in ("Allow charge", "Deny"):
            expect(asked.get_by_role("button", name=button)).to_be_disabled()
        expect(page.get_by_label("Message")).to_have_count(0)
        page.goto(f"{running.url}/#/waiting")
        waits = page.get_by_role("article").filter(has_text="belongs to ana")
        expect(waits.first.get_by_role("button", name="Deny")).to_be_disabled()

        page = signed_in(page_at, url, token_for("dora", SECRET, roles=[operator, decide]))
        page.get_by_label("charge waits for approval").get_by_role("button", name="Deny").click()
        played.wait(lambda views: views.turn.calls[0].decision == "deny")
        for each in (bobs, olgas, page):
            each.goto("about:blank")
        page.complaints[:] = [text for text in page.complaints if "401 (Unauthorized)" not in text]


PARTS = ("", "waiting", "sessions?status=done", "cost", "?q=answer", "search")


def test_both_themes_have_contrast_and_every_control_has_a_name(place, url, page_at):
    page = page_at(f"{url}/")
    asking(place, "asks-themes")
    doubting(place, "doubts-themes")
    for part in PARTS:
        page.goto(f"{url}/#/{part}")
        page.get_by_role("navigation", name="Agents").wait_for()
        expect(page.get_by_text("Searching…")).to_have_count(0)
        assert page.evaluate(UNNAMED) == [], part
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert page.evaluate(CONTRASTS) == [], (part, scheme)


def test_no_width_overflows_and_a_phone_has_room_for_fingers(place, url, page_at):
    page = page_at(f"{url}/")
    for part in PARTS:
        page.goto(f"{url}/#/{part}")
        for width in (761, 901, 1024, 1440):
            page.set_viewport_size({**DESK, "width": width})
            assert page.evaluate("document.scrollingElement.scrollWidth") <= width, (part, width)
    phone = page_at(f"{url}/", viewport=PHONE, touch=True)
    for part in PARTS:
        phone.goto(f"{url}/#/{part}")
        phone.get_by_role("navigation", name="Main").wait_for()
        assert phone.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"], part
        assert phone.evaluate(SMALL) == [], part
    phone.goto(f"{url}/#/")
    phone.get_by_role("button", name="New session").tap()
    expect(phone.get_by_label("What should be done")).to_be_focused()


def test_every_key_is_listed(place, url, page_at):
    titled(place, "keys-home", "A session, so that the page has parts")
    page = page_at(f"{url}/")
    expect(page.get_by_role("heading", level=1)).not_to_have_text(re.compile("Your|No sessions"))
    page.keyboard.press("?")
    listed = page.get_by_role("dialog", name="Keys")
    for key in "N / J K X W A D S I ?".split():
        expect(listed.get_by_text(key, exact=True).first).to_be_visible()
    page.keyboard.press("Escape")
    expect(listed).to_have_count(0)
    page.keyboard.press("4")
    page.get_by_role("heading", name="What it costs").wait_for()


def test_a_key_works_while_the_browser_still_focuses_the_closed_list(place, url, page_at):
    """The defect: a browser moves the focus out of a closed dialog only when it draws the next
    frame, and a key pressed before that was ignored."""
    titled(place, "closed-home", "A session, so that the page has parts")
    page = page_at(f"{url}/")
    expect(page.get_by_role("heading", level=1)).not_to_have_text(re.compile("Your|No sessions"))
    page.locator("dialog[aria-label=Keys] button").dispatch_event("keydown", {"key": "4"})
    page.get_by_role("heading", name="What it costs").wait_for()

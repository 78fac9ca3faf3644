"""The session page in a real browser: past moments, their requests, comparisons, accessibility; on
a desktop and on a phone, with few events and with ten thousand."""

import re

import pytest
from playwright.sync_api import expect

from foldlog.client.session_fold import SessionFold
from foldlog.client.show import request_of
from foldlog.schemas import events as ev
from foldlog.tests.kit.browser_fixture import DESK, PHONE
from foldlog.tests.web.inspector.judges import CONTRASTS, SMALL, UNNAMED
from foldlog.tests.web.inspector.sessions import asking, doubting, long
from foldlog.tests.web.inspector.shown import at, conversation, of_type
from foldlog.web.inspector import api
from foldlog.web.inspector.timeline import Timelines

DRAG = """async ([first, last, offset]) => {  // how often the steps of a drag wrote the link
  const { replaceState } = history;
  let written = 0;
  history.replaceState = (...link) => {
    written += 1;
    replaceState.apply(history, link);
  };
  const slider = document.querySelector(".tl-slider");
  for (let place = first; place <= last; place += 1) {
    slider.value = place;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  }
  const frame = () => new Promise(requestAnimationFrame);
  const until = performance.now() + 20_000;
  while (!location.hash.endsWith(`@${offset}`) && performance.now() < until) await frame();
  history.replaceState = replaceState;
  return written;
}"""
FOLLOW = """([first, last]) => {  // follows the page's own link while the page is ahead of it
  const slider = document.querySelector(".tl-slider");
  for (let place = first; place <= last; place += 1) {
    slider.value = place;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  }
  const link = document.body.appendChild(document.createElement("a"));
  link.href = location.hash;
  link.click();
  link.remove();
}"""
MUTATIONS = """() => {
  window.mutations = 0;
  new MutationObserver((found) => { window.mutations += found.length; }).observe(
    document.querySelector(".talk"), { subtree: true, childList: true, characterData: true });
}"""
LEFT = """async (box) => {  // how many rows leave the document when three are scrolled away
  const frame = () => new Promise(requestAnimationFrame);
  box.scrollTop = 3000;
  for (let n = 0; n < 3; n += 1) await frame();
  let left = 0;
  const count = (found) => found.forEach(({ removedNodes }) => { left += removedNodes.length; });
  new MutationObserver(count).observe(box.firstElementChild, { childList: true });
  box.scrollTop += 90;
  for (let n = 0; n < 3; n += 1) await frame();
  return left;
}"""
NAMES = ("talk", "asks", "doubts", "long", "more")


@pytest.fixture(scope="module", autouse=True)
def sessions(place):
    place.talk("talk", 3, chunks=4)
    asking(place)
    doubting(place)
    long(place)
    place.talk("more", 1)  # five sessions in four partitions: one begins after another


@pytest.fixture(scope="module")
def moments(place, sessions):
    return Timelines(place.log).of("talk").moments


def test_a_link_names_a_session_and_an_offset(url, page_at, moments):
    chunk = of_type(moments, ev.GenChunk)[5]
    offset = chunk.entry.offset
    page = page_at(f"{url}/#/s/talk@{offset}")
    at(page, offset)
    shown = conversation(page)
    shown.get_by_text("word0 word1", exact=True).wait_for()
    expect(shown.get_by_text("question 2")).to_have_count(1)
    expect(shown.get_by_text("question 3")).to_have_count(0)
    page.reload()
    at(page, offset)
    expect(shown.get_by_text("until here")).to_have_count(1)


def test_a_link_that_changes_before_the_first_frame_is_followed(url, page_at):
    page = page_at(f"{url}/")
    page.add_init_script("addEventListener('load', () => { location.hash = '#/s/talk'; })")
    page.reload()
    conversation(page).get_by_text("Turn 3 ended").wait_for()


def test_the_keyboard_steps_through_the_views_event_by_event(url, page_at, moments):
    start = of_type(moments, ev.ToolStarted)[0].place
    page = page_at(f"{url}/#/s/talk@{moments[start].entry.offset}")
    at(page, moments[start].entry.offset)
    for place in range(start + 1, start + 5):
        page.keyboard.press("ArrowRight")
        at(page, moments[place].entry.offset)
        shown = len(moments[place].views.transcript.lines)
        running = conversation(page).get_by_label(re.compile("^Tool .*, is running")).count()
        kinds = [line.kind for line in moments[place].views.transcript.lines.since(0)[:shown]]
        assert running == kinds.count("call") - kinds.count("result")
    page.keyboard.press("ArrowLeft")
    at(page, moments[start + 3].entry.offset)
    page.keyboard.press("Home")
    at(page, moments[0].entry.offset)
    conversation(page).get_by_text("No messages yet").wait_for()
    page.keyboard.press("]")
    at(page, of_type(moments, ev.TurnEnded)[0].entry.offset)
    chunks = of_type(moments, ev.GenChunk)
    page.goto(f"{url}/#/s/talk@{chunks[0].entry.offset - 1}")
    at(page, chunks[0].entry.offset - 1)
    page.keyboard.press("Shift+ArrowRight")
    at(page, of_type(moments, ev.GenComplete)[1].entry.offset)
    page.keyboard.press("l")
    page.get_by_text("Live", exact=True).wait_for()


def test_the_slider_moves_the_whole_page(url, page_at, moments):
    page = page_at(f"{url}/#/s/talk")
    page.get_by_role("tab", name="events").click()
    slider = page.get_by_role("slider", name="Event")
    expect(slider).to_have_attribute("max", str(len(moments) - 1))
    slider.fill("7")
    at(page, moments[7].entry.offset)
    assert page.url.endswith(f"#/s/talk@{moments[7].entry.offset}")
    slider.press("ArrowRight")
    at(page, moments[8].entry.offset)
    text = slider.get_attribute("aria-valuetext")
    assert f"right after event 9 of {len(moments)}: " in text
    chosen = page.get_by_role("option", selected=True)
    assert chosen.get_attribute("id") == f"event-{moments[8].entry.offset}"
    assert page.evaluate(DRAG, [9, 14, moments[14].entry.offset]) < 4
    at(page, moments[14].entry.offset)
    slider.press("l")
    page.get_by_text("Live", exact=True).wait_for()
    held = []
    page.route("**/moment?at=*", lambda route: held.append(route), times=1)
    page.evaluate(MUTATIONS)
    with page.expect_request("**/moment?at=*"):
        slider.fill("3")
    page.get_by_text("right after event 4 of").wait_for()
    assert page.evaluate("window.mutations") == 0, "the page is drawn once, with the moment"
    held[0].continue_()
    at(page, moments[3].entry.offset)


def test_a_link_is_followed_also_while_the_page_is_ahead_of_the_same_link(url, page_at, moments):
    page = page_at(f"{url}/#/s/talk")
    slider = page.get_by_role("slider", name="Event")
    expect(slider).to_have_attribute("max", str(len(moments) - 1))
    page.evaluate(FOLLOW, [3, 6])
    at(page, moments[3].entry.offset)


def test_a_reload_shows_the_newest_instant_of_a_drag(url, page_at, moments):
    page = page_at(f"{url}/#/s/talk")
    slider = page.get_by_role("slider", name="Event")
    expect(slider).to_have_attribute("max", str(len(moments) - 1))
    page.evaluate(DRAG, [1, 6, moments[6].entry.offset])
    page.reload()
    at(page, moments[6].entry.offset)


def test_play_runs_to_the_end_and_stops(url, page_at, moments):
    page = page_at(f"{url}/#/s/talk@{moments[0].entry.offset}")
    at(page, moments[0].entry.offset)
    page.get_by_label(re.compile("^Speed")).click()
    page.locator("h1").click()  # so that keys go to the page
    page.keyboard.press("Space")
    at(page, moments[-1].entry.offset)
    page.get_by_role("button", name="Play", exact=True).wait_for()
    conversation(page).get_by_text("Turn 3 ended").wait_for()


def test_the_request_of_a_moment_equals_that_of_the_command_line(
    place, url, page_at, moments
):
    step = of_type(moments, ev.GenStart)[3]
    page = page_at(f"{url}/#/s/talk@{step.entry.offset}")
    page.get_by_role("tab", name="request").click()
    page.get_by_text("Rebuilt from the log, the same to the byte as what was sent.").click()
    page.get_by_text("the same", exact=True).wait_for()
    page.get_by_role("button", name="As sent").click()
    shown = page.locator("pre.body").text_content()
    sent = request_of(SessionFold(place.log, "talk"), 2, 2, lambda ref: b"")
    assert shown.encode() == sent.body
    assert page.locator(".sha").inner_text() == sent.sha256
    page.keyboard.press("Home")
    page.get_by_text("No request was decided up to this point").wait_for()


def test_the_owed_rows_are_shown_with_their_reasons(url, page_at, place):
    timeline = Timelines(place.log).of("asks")
    page = page_at(f"{url}/#/s/asks@{timeline.moments[-1].entry.offset}")
    owed = page.locator(".wake")
    owed.first.wait_for()
    first = owed.first.inner_text()
    assert "T2w" in first and "A person must allow or deny the call" in first
    page.locator("h1").click()
    page.keyboard.press("ArrowLeft")
    why = "The model proposed a call, and its arguments and approval must be checked"
    page.locator(".wake").get_by_text(why).wait_for()


def test_two_offsets_are_compared(url, page_at, moments):
    ended = of_type(moments, ev.TurnEnded)[0]
    page = page_at(f"{url}/#/s/talk@{ended.entry.offset}")
    page.get_by_role("tab", name="compare").click()
    page.get_by_label("Compare with offset").fill(str(moments[ended.place - 1].entry.offset))
    page.get_by_role("button", name="Set", exact=True).click()
    page.get_by_text("differences in the views").click()
    one = page.locator(".differences li").filter(has_text="turn.open")
    one.wait_for()
    assert one.locator("pre.before").inner_text().strip() == "true"
    assert one.locator("pre.after").inner_text().strip() == "false"
    page.get_by_label("Compare with offset").fill("1")
    page.locator("h1").click()
    page.keyboard.press("ArrowLeft")
    at(page, moments[ended.place - 1].entry.offset)
    assert page.get_by_label("Compare with offset").input_value() == "1", "the typed one is kept"
    page.keyboard.press("ArrowRight")
    at(page, ended.entry.offset)
    page.get_by_role("button", name="Swap").click()
    at(page, moments[ended.place - 1].entry.offset)


def test_state_budget_and_cost_are_those_of_the_moment(url, page_at, moments):
    first = of_type(moments, ev.TurnEnded)[0]
    page = page_at(f"{url}/#/s/talk@{first.entry.offset}")
    page.get_by_role("tab", name="why").click()
    page.get_by_text("1, ended", exact=True).wait_for()
    page.get_by_role("tab", name="budget").click()
    expect(page.get_by_role("button", name=re.compile("^Step 1"))).to_have_count(2)
    page.get_by_role("tab", name="cost").click()
    page.get_by_role("row", name=re.compile("^all 2")).wait_for()
    page.get_by_text("Prompt caching saved 0 % of the input cost").wait_for()
    assert first.views.turn.step == 2


def test_a_fork_begins_with_the_history_and_continues_separately(url, page_at, moments):
    ended = of_type(moments, ev.TurnEnded)[0].entry.offset
    page = page_at(f"{url}/#/s/talk@{ended}")
    at(page, ended)
    page.get_by_role("button", name="Fork here").first.click()
    page.wait_for_url(re.compile(r"#/s/(?!talk)[^@]+$"))
    conversation(page).get_by_text("question 1", exact=True).wait_for()
    page.get_by_text("Live", exact=True).wait_for()
    expect(conversation(page).get_by_text("question 2", exact=True)).to_have_count(0)
    page.get_by_label("Message", exact=True).fill("another way")
    page.get_by_role("button", name="Send").click()
    conversation(page).get_by_text("another way", exact=True).wait_for()
    page.goto(f"{url}/#/s/talk")
    conversation(page).get_by_text("Turn 3 ended").wait_for()
    expect(conversation(page).get_by_text("another way")).to_have_count(0)


def test_a_moment_before_the_session_is_an_error_with_a_reason(url, page_at, place):
    begins = {name: Timelines(place.log).of(name).moments[0].entry.offset for name in NAMES}
    later = max(begins, key=begins.get)
    assert begins[later] > 0
    page = page_at(f"{url}/#/s/{later}@0")
    page.get_by_role("alert").get_by_text("begins at offset").wait_for()
    page.complaints.clear()  # the browser logs the 404
    page.get_by_role("button", name="Back to now").first.click()
    page.get_by_text("Live", exact=True).wait_for()


def test_of_ten_thousand_events_only_the_visible_rows_are_drawn(place, url, page_at):
    page = page_at(f"{url}/#/s/long")
    events = Timelines(place.log).of("long").moments
    count = f"{len(events):,}"
    page.get_by_text(f"of {count}", exact=False).first.wait_for()
    page.get_by_role("tab", name="events").click()
    page.get_by_label("chunks").check()
    page.get_by_text(f"{count} of {count}", exact=True).wait_for()
    listed = page.get_by_role("listbox", name="Events")
    listed.get_by_text(str(events[-1].entry.offset), exact=True).wait_for()
    assert page.get_by_role("option").count() < 60
    assert listed.evaluate(LEFT) == 3, "the rows that stay are not moved in the document"
    listed.focus()
    listed.press("Home")
    at(page, events[0].entry.offset)
    listed.get_by_text("The session was opened for the agent shop").wait_for()
    assert page.get_by_role("option").count() < 60
    listed.press("PageDown")
    page.get_by_label("Filter events").fill("question 77 ")
    listed.get_by_text("said: “question 77”").click()
    conversation(page).get_by_text("question 77", exact=True).wait_for()
    expect(page.get_by_role("option")).to_have_count(1)
    assert page.locator("#app *").count() < 3_000
    page.get_by_role("button", name=re.compile("Show earlier")).click()


def test_both_themes_have_contrast_and_every_control_has_a_name(url, page_at):
    page = page_at(f"{url}/")
    for session in ("talk", "asks", "doubts"):
        page.goto(f"{url}/#/s/{session}")
        page.locator("h1").wait_for()
        page.get_by_text("Live", exact=True).wait_for()
        for tab in ("why", "budget", "request", "compare", "cost", "events"):
            page.get_by_role("tab", name=tab).click()
            assert page.evaluate(UNNAMED) == []
            for scheme in ("dark", "light"):
                page.emulate_media(color_scheme=scheme)
                assert page.evaluate(CONTRASTS) == [], (session, tab, scheme)


def test_a_chosen_theme_is_kept(url, page_at):
    page = page_at(f"{url}/#/s/talk", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.get_by_role("button", name=re.compile("^Theme: auto")).click()
    page.get_by_role("button", name=re.compile("^Theme: light")).click()
    after = page.evaluate(ground)
    assert before != after
    page.reload()
    assert page.evaluate(ground) == after


def test_a_phone_shows_the_pane_as_a_sheet_without_overflow(url, page_at):
    page = page_at(f"{url}/", viewport=PHONE, touch=True)
    sheet = page.get_by_role("complementary", name="This instant")
    for session in ("long", "asks", "talk"):
        page.goto(f"{url}/#/s/{session}")
        conversation(page).locator("article").first.wait_for()
        for is_up in (True, False):
            sheet.get_by_role("button").first.tap()
            expect(page.get_by_role("tab", name="why")).to_have_count(1 if is_up else 0)
            assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]
            assert page.evaluate(SMALL) == []
    page.get_by_role("slider", name="Event").fill("3")
    page.get_by_role("button", name="Back to now").wait_for()
    assert conversation(page).bounding_box()["height"] > 200
    page.get_by_role("link", name="All sessions").first.tap()
    page.wait_for_url("**/#/")


def test_a_desktop_shows_the_page_without_overflow(url, page_at):
    page = page_at(f"{url}/#/s/talk")
    conversation(page).get_by_text("Turn 3 ended").wait_for()
    for width in (761, 1024, 1180, 1440):
        page.set_viewport_size({**DESK, "width": width})
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width
        assert page.evaluate("document.scrollingElement.scrollHeight") <= DESK["height"]


def test_the_page_shows_every_message_of_the_timeline(place, url, page_at, moments):
    page = page_at(f"{url}/#/s/talk")
    conversation(page).get_by_text("Turn 3 ended").wait_for()
    timeline = Timelines(place.log).of("talk")
    lines = api.lines_json(timeline, lambda ref: b"")["lines"]
    messages = [line for line in lines if line["kind"] == "message"]
    expect(conversation(page).locator(".msg.user")).to_have_count(len(messages))

"""The timeline in a browser: real time, collapsed silences, zoom, the overview map, and bars that
select an instant."""

import re

import pytest
from playwright.sync_api import expect

from foldlog.schemas import events as ev
from foldlog.tests.kit.browser_fixture import DESK, PHONE
from foldlog.tests.web.inspector.conftest import page_of
from foldlog.tests.web.inspector.sessions import Timed
from foldlog.tests.web.inspector.shown import at, conversation, offset_of
from foldlog.web.inspector.timeline import Timeline

TO_THE_TOP = """box => { box.scrollTop = 0;
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); }"""
BARS = """() => Object.fromEntries([...document.querySelectorAll(".tl .hit .f-model")].map(
  (bar) => [bar.parentElement.dataset.run, bar.getAttribute("x")]))"""
WIDTH = "document.querySelector('.tl-map .frame').getBoundingClientRect().width"


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """A turn with a lost attempt, an hour of silence, a doubt, a report of a person, and an
    approval."""
    timed = Timed(tmp_path_factory.mktemp("timed"))
    timed.after(10).call()
    timed.after(10).start()
    timed.after(2000).chunk("The lamp")
    timed.after(12_000).resume()
    timed.after(3000).complete("The lamp broke.")
    timed.played.end()
    timed.ms += 3_600_000
    timed.sessions.say("s1", "Book the courier", message_id="m2")
    timed.after(10).propose("Booking.", ("book", {"day": "Tuesday"}))
    timed.after(5).invoke()
    timed.played.tool_start()
    timed.after(10_000).uncertain()
    timed.ms += 60_000
    timed.sessions.resolve("s1", "2.1.0", "happened", report="it is booked")
    timed.remember()
    timed.ms += 1000
    timed.played.propose("Refunding.", ("refund", {"amount": 129}))
    timed.remembered()
    timed.played.invoke(approval="ask")
    return timed


def until(page, condition):
    """Wait in the page, frame by frame, because the content security policy forbids playwright's
    way of waiting."""
    page.evaluate(f"""() => new Promise((done) => {{
      const look = () => ({condition} ? done() : requestAnimationFrame(look));
      look();
    }})""")


def drawn(page):
    """The texts that the timeline shows."""
    return page.locator(".tl svg text").all_text_contents()


def times(page):
    """The times on the axis."""
    return [text for text in drawn(page) if re.match(r"\d\d:\d\d:\d\d", text)]


def box(page, name):
    return page.locator(".tl .hit").filter(has_text=name).first.bounding_box()


def whole(page, timed_url):
    opened = page(timed_url)
    opened.locator(".tl .hit").first.wait_for()
    opened.get_by_role("button", name="Show the whole session").click()
    opened.locator(".tl text.turn").filter(has_text="Turn 1").wait_for()
    return opened


def test_a_long_silence_is_folded_and_named_and_a_short_wait_keeps_its_length(timed_url, page_at):
    page = whole(page_at, timed_url)
    texts = drawn(page)
    assert any(re.fullmatch(r"59 min 59 s|1 h|60 min", text) for text in texts), texts
    assert any("w1 was lost, 12 s" in text for text in texts), texts
    again, booked = box(page, "1.1 again"), box(page, "book")
    lost = page.locator(".tl .hit .pale").first.bounding_box()
    wait = again["x"] - lost["x"] - lost["width"]
    assert wait / lost["width"] == pytest.approx(6, rel=0.05), "12 s to 2 s"
    assert booked["x"] - again["x"] - again["width"] < 80, "an hour is narrower than twelve seconds"


def test_every_kind_of_run_has_its_shape(timed_url, page_at):
    page = whole(page_at, timed_url)
    for shape in ("circle.f-person", "rect.f-model", "rect.f-tool", "rect.bar.doubt",
                  "rect.bar.asks", "path.s-wait", "path.s-fail"):
        expect(page.locator(f".tl-svg {shape}").first).to_be_attached()
    said = page.get_by_role("list", name="What happened in this stretch")
    for words in ("model call 1.1 was lost after 2.0 s",
                  "worker w1 was lost, waited 12 s for a worker",
                  "book ended in doubt after 10 s", "book was in doubt for 1 min: it happened",
                  "memory ended after 1.0 s (worker w2)", "refund waits for a person"):
        expect(said.get_by_text(words)).to_have_count(1)


def test_a_bar_goes_to_the_instant_of_its_start_and_what_follows_is_veiled(
    timed_url, page_at, moments
):
    page = whole(page_at, timed_url)
    expect(page.locator(".tl .veil")).to_have_count(0)
    page.locator(".tl .hit").filter(has_text="1.1 again").click()
    at(page, offset_of(moments, ev.GenResumed))
    assert page.url.endswith(f"@{offset_of(moments, ev.GenResumed)}")
    expect(page.locator(".tl-svg .veil")).to_have_count(1)
    page.keyboard.press("j")
    at(page, offset_of(moments, ev.MessageReceived, 1))
    page.keyboard.press("k")
    at(page, offset_of(moments, ev.GenResumed))


def test_a_press_on_the_axis_goes_to_the_event_at_that_time(timed_url, page_at, moments):
    page = whole(page_at, timed_url)
    again, plot = box(page, "1.1 again"), page.locator(".tl-plot").bounding_box()
    page.mouse.click(again["x"] + again["width"] / 2, plot["y"] + 12)
    at(page, offset_of(moments, ev.GenResumed))  # the newest event before that time


def test_zoom_and_map_change_the_stretch_and_never_the_instant(timed_url, page_at, moments):
    page = whole(page_at, timed_url)
    offset = offset_of(moments, ev.ToolStarted)
    page.goto(f"{timed_url}@{offset}")
    at(page, offset)
    before = page.evaluate(WIDTH)
    page.keyboard.press("+")
    until(page, f"{WIDTH} < 0.7 * {before}")
    page.keyboard.press("0")
    until(page, f"{WIDTH} === {before}")
    place = page.locator(".tl-map").bounding_box()
    page.mouse.move(place["x"] + place["width"] - 2, place["y"] + 10)
    page.mouse.down()
    page.mouse.move(place["x"] + place["width"] * 0.6, place["y"] + 10, steps=4)
    page.mouse.up()
    frame = page.locator(".tl-map .frame").bounding_box()
    assert frame["width"] < 0.8 * place["width"]
    assert page.url.endswith(f"@{offset}")


def test_the_stretch_stays_while_the_instant_moves_in_it(tmp_path, page_at):
    """It was centred on each instant again, so every bar moved."""
    timed = Timed(tmp_path)
    for number in range(2, 8):
        timed.after(10).call()
        timed.after(10).start()
        timed.after(50_000).complete("The lamp broke.")
        timed.played.end()
        timed.sessions.say("s1", "And now?", message_id=f"m{number}")
    moments = Timeline(timed.log, "s1").extend().moments
    first, second = (offset_of(moments, ev.TurnEnded, number) for number in range(2))
    with page_of(timed) as url:
        page = page_at(f"{url}/#/s/s1@{second}")
        at(page, second)
        bars = page.locator(".tl .hit .f-model")
        bars.first.wait_for()
        before = [bar.bounding_box()["x"] for bar in bars.all()]
        page.keyboard.press("[")
        at(page, first)
        assert [bar.bounding_box()["x"] for bar in bars.all()] == before
        page.keyboard.press("End")
        at(page, moments[-1].entry.offset)
        frame = page.locator(".tl-map .frame").bounding_box()
        plot = page.locator(".tl-map").bounding_box()
        assert frame["x"] + frame["width"] == pytest.approx(plot["x"] + plot["width"], abs=2)
        page.keyboard.press("l")
        page.get_by_text("Live", exact=True).wait_for()
        before = page.evaluate(BARS)
        timed.sessions.say("s1", "And then?", message_id="m8")
        timed.after(10).call()
        timed.after(10).start()
        timed.after(20_000).complete("It broke.")
        timed.played.end()
        moments = Timeline(timed.log, "s1").extend().moments
        page.locator(f'.tl [data-run^="{offset_of(moments, ev.GenStart, -1)}."]').wait_for()
        after = page.evaluate(BARS)
        whole = [run for run in before if run in after][1:]  # the first is cut at the left end
        assert whole and all(before[run] == after[run] for run in whole), "all slide as one group"
        page.goto("about:blank")


def test_a_bar_under_the_pointer_shows_its_facts(timed_url, page_at):
    page = whole(page_at, timed_url)
    page.locator(".tl .hit").filter(has_text="book").first.hover()
    card = page.locator(".tl-card")
    card.get_by_text("book ended in doubt after 10 s (worker w2 · the worker died)").wait_for()
    page.mouse.move(5, 5)
    expect(card).to_have_count(0)


def test_the_lane_and_the_keys_show_the_calls_of_the_chosen_tool(timed_url, page_at, moments):
    page = whole(page_at, timed_url)
    choice = page.get_by_label("Show the calls of")
    expect(choice.locator("option")).to_have_text(["Tools", "book (1)", "refund (1)"])
    ticks = times(page)
    choice.select_option("refund")
    expect(page.locator(".tl .hit").filter(has_text="book")).to_have_count(0)
    expect(page.locator(".tl rect.bar.asks")).to_have_count(1)
    expect(page.locator(".tl rect.f-model").first).to_be_attached()
    assert times(page) == ticks, "the axis stays"
    page.locator("h1").click()
    page.keyboard.press("k")
    asked = [m for m in moments if getattr(m.entry.event, "name", "") == "refund"][-1]
    at(page, asked.entry.offset)
    choice.select_option("")
    expect(page.locator(".tl .hit").filter(has_text="book").first).to_be_attached()


def test_the_instant_to_compare_with_is_picked_on_the_timeline(timed_url, page_at, moments):
    page = whole(page_at, timed_url)
    page.locator(".tl .hit").filter(has_text="1.1 again").click(modifiers=["Shift"])
    marked = page.get_by_label("Compare with offset")
    expect(marked).to_have_value(str(offset_of(moments, ev.GenResumed)))
    page.get_by_role("heading", name=re.compile("changed, in")).wait_for()
    assert "@" not in page.url, "the page shows the same instant as before"
    button = page.get_by_role("button", name="Pick on the timeline")
    button.click()
    page.get_by_role("status").get_by_text("Click the instant to compare with.").wait_for()
    page.keyboard.press("Escape")
    expect(button).to_have_attribute("aria-pressed", "false")
    button.click()
    booked, plot = box(page, "book"), page.locator(".tl-plot").bounding_box()
    page.mouse.click(booked["x"] + booked["width"] / 2, plot["y"] + 12)
    expect(marked).to_have_value(str(offset_of(moments, ev.ToolStarted)))
    assert "@" not in page.url
    page.mouse.click(booked["x"] + booked["width"] / 2, plot["y"] + 12)
    at(page, offset_of(moments, ev.ToolStarted))  # one pick is one click


def test_J_K_and_L_bring_the_bar_and_the_line_into_view(timed_url, page_at, moments):
    page = whole(page_at, timed_url)
    page.set_viewport_size({**DESK, "height": 520})
    started, said = offset_of(moments, ev.ToolStarted), offset_of(moments, ev.MessageReceived, 1)
    booked = box(page, "book")
    page.goto(f"{timed_url}@{said}")
    at(page, said)
    lane = page.locator(".tl-map").bounding_box()
    page.mouse.move(lane["x"] + lane["width"] - 2, lane["y"] + 10)
    page.mouse.down()
    page.mouse.move(booked["x"] + 6, lane["y"] + 10, steps=4)  # now the bar begins at the edge
    page.mouse.up()
    lines, slider = conversation(page), page.get_by_role("slider", name="Event")
    place = {moment.entry.offset: str(number) for number, moment in enumerate(moments)}
    for key, offset, line in (("j", started, ".tool"), ("k", said, ".msg.user")):
        lines.evaluate(TO_THE_TOP)
        for _ in range(4):
            if slider.input_value() == place[offset]:
                break
            page.keyboard.press(key)
        at(page, offset)
        expect(lines.locator(line).last).to_be_in_viewport()
        bar = page.locator(f'.tl [data-run^="{offset}."]').first.bounding_box()
        assert lane["x"] + 40 < bar["x"] < lane["x"] + lane["width"] - 40
    page.keyboard.press("l")
    page.get_by_text("Live", exact=True).wait_for()
    lines.evaluate(TO_THE_TOP)
    page.keyboard.press("l")
    expect(lines.get_by_role("button", name="Deny")).to_be_in_viewport()


def test_the_map_of_a_phone_scrubs(timed_url, page_at, moments):
    page = page_at(timed_url, viewport=PHONE, touch=True)
    page.locator(".tl-map .m-model").wait_for(state="attached")
    place = page.locator(".tl-map").bounding_box()
    page.touchscreen.tap(place["x"] + 0.25 * place["width"], place["y"] + 10)
    at(page, offset_of(moments, ev.GenChunk))  # the newest event before that time


OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll(".tl-plot svg text")]
    .map((text) => [text.textContent, text.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], n) => boxes.slice(n + 1)
    .filter(([, b]) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
    .map(([other]) => [one, other]));
}"""


def test_no_text_of_the_axis_covers_another(tmp_path, page_at):
    """The length of a silence covered the words "Turn 2", and "Now" half of a time."""
    timed = Timed(tmp_path)
    timed.after(10).call()
    timed.after(10).start()
    timed.after(15_000).complete("The lamp broke.")
    timed.played.end()
    timed.ms += 2_400_000
    timed.sessions.say("s1", "Book the courier", message_id="m2")
    timed.after(500).propose("Booking.", ("book", {"day": "Tuesday"}))
    timed.after(5).invoke(approval="ask")
    timed.ms += 64_000
    digest = timed.played.views.turn.calls[0].args_sha256
    timed.sessions.decide("s1", "2.1.0", "allow", args_sha256=digest)
    timed.after(10).tool_start()
    timed.after(3_000).tool_result("booked")
    timed.after(10).propose("It is booked.")
    timed.after(9_000).end()
    with page_of(timed) as url:
        page = whole(page_at, f"{url}/#/s/s1")
        for width in (1440, 1280, 1024):
            page.set_viewport_size({**DESK, "width": width})
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => done()))")
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => done()))")
            assert page.evaluate(OVERLAPS) == [], width
        page.goto("about:blank")

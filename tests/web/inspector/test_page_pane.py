"""The pane in a browser: why a session waits, request, budget, cost and comparison of one instant,
and forks."""

import re
import time

import pytest
from playwright.sync_api import expect

from foldlog.schemas import events as ev
from foldlog.tests.web.inspector.sessions import Timed
from foldlog.tests.web.inspector.shown import offset_of


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    timed = Timed(tmp_path_factory.mktemp("timed"))
    timed.after(10).propose("Let me look.", ("get_order", {"order_id": 17}))
    timed.played.invoke()
    timed.played.tool_start()
    timed.after(90).tool_result("a lamp")
    timed.after(10).answer("A **lamp**.")
    timed.ms += 60_000
    timed.sessions.say("s1", "Refund it", message_id="m2")
    timed.after(10).propose("Refunding.", ("refund", {"amount": 129}))
    timed.played.invoke(approval="ask")
    return timed


@pytest.fixture
def page(timed_url, page_at):
    page = page_at(timed_url)
    page.get_by_text("Live", exact=True).wait_for()
    return page


def heading(page, text):
    page.get_by_role("tabpanel").get_by_role("heading", name=text).wait_for()


def test_why_says_what_is_pending_then_the_row_then_what_could_follow(page):
    heading(page, "Waiting for a person to allow refund")
    row = page.locator(".wake")
    expect(row).to_have_count(1)
    expect(row.locator("b")).to_have_text("A person must allow or deny the call")
    expect(row.locator(".rowid")).to_have_text("T2w")
    expect(row.locator("li")).to_have_text([
        "the session can continue", "the turn is not closing", "the call asks for approval",
        "it has not expired",
    ])
    rows = page.locator(".next li").all_inner_texts()
    said = [re.split(r"\n+", text)[0] for text in rows]
    assert said == ["A person allows it", "A person denies it", "The approval expires"]


def test_why_at_a_past_instant_speaks_of_that_instant_and_of_what_came_then(
    page, timed_url, moments
):
    started = offset_of(moments, ev.ToolStarted)
    page.goto(f"{timed_url}@{started}")
    heading(page, "get_order was running")
    then = page.get_by_text("get_order returned, 90 ms later.")
    then.wait_for()
    page.get_by_role("button", name="Go to that instant").click()
    page.wait_for_url(f"**@{offset_of(moments, ev.ToolResult)}")
    page.keyboard.press("l")
    heading(page, "Waiting for a person to allow refund")


def test_the_request_is_readable_first_and_marks_what_a_cache_can_serve(page):
    page.keyboard.press("2")
    heading(page, "What the model saw in step 2.1")
    names = page.locator(".panel .blk summary .dim").all_inner_texts()
    assert names[0] == "system" and names[1] == "tool list" and names[-1] == "settings"
    page.get_by_text("3 messages, as in step 1.2").wait_for()
    page.locator(".cacheline").get_by_text("New since step 1.2.").wait_for()
    page.locator(".blk summary").filter(has_text="Refund it").click()
    page.locator(".blk .md").get_by_text("Refund it").wait_for()
    expect(page.locator(".sha")).not_to_be_visible()
    page.get_by_text("the same to the byte").click()
    expect(page.locator(".sha")).to_be_visible()


def test_the_budget_shows_what_fills_each_request_and_goes_there(page, moments):
    page.keyboard.press("4")
    page.get_by_role("heading", name=re.compile("The window is .* full")).wait_for()
    bar = page.get_by_role("img", name=re.compile("^Request of step 2.1: .*People"))
    bar.wait_for()
    page.get_by_role("button", name=re.compile("^Step 1.2")).click()
    page.wait_for_url(f"**@{offset_of(moments, ev.LlmCalled, 1)}")
    page.get_by_role("img", name=re.compile("^Request of step 1.2")).wait_for()


def test_the_cost_is_shown_by_turn_step_model_and_tool(page):
    page.keyboard.press("5")
    page.get_by_role("row", name=re.compile("^turn 1")).wait_for()
    page.get_by_role("button", name="By step").click()
    page.get_by_role("row", name=re.compile("^1.2")).wait_for()
    page.get_by_role("button", name="By model").click()
    page.get_by_role("row", name=re.compile("^claude-test")).wait_for()
    page.get_by_role("button", name="By tool").click()
    row = page.get_by_role("row", name=re.compile("^get_order 1 90 ms"))
    row.wait_for()


def test_two_instants_are_compared_by_their_answers_first(page):
    page.keyboard.press("6")
    page.get_by_role("heading", name=re.compile("things changed, in")).wait_for()
    answers = page.locator(".answers .well")
    expect(answers).to_have_text(["A lamp.", "Refunding."])
    expect(answers.first.locator("b")).to_have_text("lamp")
    changed = page.locator(".diff .changed")
    expect(changed.filter(has_text="Pending call")).to_contain_text("refund 2.1.0")


def test_a_fork_is_in_the_tree_and_is_compared_with_its_parent(page, timed_url, moments):
    ended = offset_of(moments, ev.TurnEnded)
    page.goto(f"{timed_url}@{ended}")
    page.get_by_role("button", name="Fork here").first.click()
    page.wait_for_url(re.compile(r"#/s/(?!s1)[^@]+$"))
    page.get_by_text("Live", exact=True).wait_for()
    page.keyboard.press("6")
    forks = page.get_by_role("navigation", name="Forks")
    expect(forks.locator("a[aria-current]")).to_have_count(1)
    forks.get_by_text(f"forked at offset {ended}").wait_for()
    parent = page.get_by_role("banner").get_by_role("link", name="Refund order 17")
    expect(parent).to_have_attribute("href", f"#/s/s1@{ended}")
    [instant] = [moment.entry.at for moment in moments if moment.entry.offset == ended]
    clock = time.strftime("%H:%M:%S", time.gmtime(instant / 1000))
    expect(page.get_by_role("banner")).to_contain_text(
        f"Forked from Refund order 17 at {clock}, offset {ended}")
    expect(page.get_by_label("Compare with", exact=True)).to_have_value("s s1")
    expect(page.locator(".answers .well")).to_have_text(["Refunding.", "A lamp."])
    forks.get_by_role("link").first.click()
    page.wait_for_url("**/#/s/s1")


def test_events_are_sentences_and_their_type_stands_below(page):
    page.keyboard.press("3")
    listed = page.get_by_role("listbox", name="Events")
    for words in ("ana said: “Refund it”", "The model answered: 1 call", "get_order returned",
                  "refund asks for approval"):
        listed.get_by_text(words).first.wait_for()
    listed.get_by_text("get_order returned").click()
    page.locator(".detail summary").get_by_text("TOOL_RESULT").wait_for()
    page.locator(".detail summary").click()
    page.get_by_label("Fields of the event").wait_for()


def test_a_comparison_takes_the_whole_width_on_request(page):
    pane = page.get_by_role("complementary", name="This instant")
    talk = page.get_by_role("log", name="Conversation")
    page.get_by_role("tab", name="compare").click()
    page.get_by_role("heading", name=re.compile("changed")).wait_for()
    narrow = pane.bounding_box()["width"]
    pane.get_by_role("button", name="Full width").click()
    expect(talk).to_be_hidden()
    assert pane.bounding_box()["width"] > 2.5 * narrow
    page.locator("h1").click()
    page.keyboard.press("w")
    expect(talk).to_be_visible()
    assert pane.bounding_box()["width"] == narrow
    page.keyboard.press("w")
    expect(talk).to_be_hidden()
    page.keyboard.press("1")
    expect(talk).to_be_visible()
    page.keyboard.press("w")  # only a comparison has the whole width
    expect(talk).to_be_visible()

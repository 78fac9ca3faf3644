"""Edit and run again in a browser: a message or a result is edited, and the fork is compared with
its parent."""

import re
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect

from foldlog.client.log_client import LogClient
from foldlog.tests.client.branching.branched import played_on
from foldlog.tests.web.inspector.sessions import Timed
from foldlog.tests.web.inspector.shown import conversation


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    timed = Timed(tmp_path_factory.mktemp("timed"))
    timed.after(10).propose("Let me look.", ("get_order", {"order_id": 17}))
    timed.played.run_tool("a lamp")
    timed.after(10).answer("A lamp.")
    return timed


def answer(timed, session_id, text):
    with LogClient(timed.settings, timed.log) as client:
        played_on(client, session_id).answer(text)


def run_again(page, kind, before, after):
    """Edit what the open dialog shows, and run it again. Returns the id of the fork."""
    dialog = page.get_by_role("dialog", name=f"Edit the {kind} and run again")
    field = dialog.get_by_role("textbox")
    expect(field).to_have_value(before)
    field.fill(after)
    dialog.get_by_role("button", name="Run again").click()
    page.wait_for_url(re.compile(r"#/s/(?!s1)[^@]+$"))
    return unquote(page.url.rpartition("/")[2])


def test_an_edited_result_is_answered_again_beside_the_first_answer(timed, timed_url, page_at):
    page = page_at(timed_url)
    conversation(page).locator("details.tool summary").click()
    conversation(page).get_by_role("button", name="Edit and run again").last.click()
    fork = run_again(page, "result", "a lamp", "a chair")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Compare")
    answer(timed, fork, "A chair.")
    expect(page.locator(".answers .well")).to_have_text(["A lamp.", "A chair."])
    expect(page.get_by_role("row", name="Results of calls")).to_have_text(re.compile("1.*1$"))
    page.get_by_role("button", name="Beside the conversation").click()
    conversation(page).locator("details.tool summary").click()
    conversation(page).get_by_text("Replaced by a person").wait_for()


def test_an_edited_message_is_sent_to_a_fork(timed, timed_url, page_at):
    page = page_at(timed_url)
    conversation(page).get_by_role("button", name="Edit and run again").first.click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Edit the message and run again")).to_have_count(0)
    conversation(page).get_by_role("button", name="Edit and run again").first.click()
    fork = run_again(page, "message", "Refund order 17", "Refund order 18")
    answer(timed, fork, "Eighteen.")
    expect(page.locator(".answers .well")).to_have_text(["A lamp.", "Eighteen."])

"""The inspector below a prefix of another application, with the application's own users."""

import httpx
import pytest
from playwright.sync_api import expect

from foldlog.tests.client.test_asgi import application, running
from foldlog.tests.web.inspector.sessions import asking
from foldlog.tests.web.inspector.shown import conversation
from foldlog.web.asgi import asgi

PAGE = "/chat/"


@pytest.fixture(scope="module")
def mounted(place):
    """The URL of an application that has the inspector's page at /chat/."""
    chat = asgi(
        authenticate=lambda _: "ana", inspector=True, settings=place.settings, log=place.log
    )
    with running(application(chat)) as http:
        yield str(http.base_url).rstrip("/")


def test_the_page_of_a_mounted_app_works_below_its_prefix(place, mounted, page_at):
    """It called the application's own /v1/sessions and /inspector/api."""
    played = asking(place, "asks")
    page = page_at(f"{mounted}{PAGE}")
    sent = []
    page.on("request", lambda request: sent.append(request.url))
    page.get_by_role("article").get_by_role("link", name="Open").click()
    page.get_by_text("Live", exact=True).wait_for()
    page.get_by_role("button", name="Allow charge").click()
    played.wait(lambda views: views.turn.calls[0].decision == "allow")
    played.tool_start()
    played.tool_result("charged")
    played.answer("It is charged.")
    conversation(page).get_by_text("It is charged.").wait_for()
    for tab in ("why", "request", "events", "budget", "cost", "compare"):
        page.get_by_role("tab", name=tab).click()
    page.get_by_role("link", name="Sessions").first.click()
    expect(page.get_by_role("table").first).to_contain_text("charge it")
    page.get_by_role("link", name="Home").first.click()
    page.get_by_role("button", name="7 days").click()
    assert sent and all(url.startswith(f"{mounted}{PAGE}") for url in sent)


def test_the_path_of_the_mount_leads_to_the_page(mounted):
    found = httpx.get(f"{mounted}/chat", follow_redirects=True)
    assert str(found.url) == f"{mounted}{PAGE}" and "foldlog inspector" in found.text

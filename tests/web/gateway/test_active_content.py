"""Content that users wrote runs no script when a browser opens it.

The message below is an attack: a page that approves, sends and cancels as the user who opens it.
The tests open its session as it is served, and once as the page, without Content-Disposition, so
that only the content security policy can stop it.
"""

import pytest

from foldlog.tests.web.gateway.served import SECRET
from foldlog.tests.web.inspector.sessions import asking
from foldlog.web.gateway.access import token_for
from foldlog.web.gateway.app import INERT

EVIL = """<!doctype html><title>harmless</title><h1>hello</h1><script>
document.title = "it ran";
fetch("/v1/sessions/asks/calls/1.1.0/decide", {method: "POST", body: '{"decision": "allow"}',
      headers: {"content-type": "application/json"}});
</script><form id=f method=post action="/v1/sessions/asks/cancel"></form>
<img src=x onerror="document.title = 'it ran'"><svg onload="document.title = 'it ran'"></svg>"""
PASSIVE = {"application/json", "text/event-stream", "text/plain"}


@pytest.fixture(scope="module")
def asks(place):
    return asking(place)


@pytest.fixture(scope="module")
def hostile(ana):
    """The path of the stream of a session whose message is the attack."""
    ana.post("/v1/sessions/evil/messages", json={"text": EVIL}).raise_for_status()
    return "/v1/stream/evil"


@pytest.mark.parametrize("query", ["", "?offset=-1", "?offset=now", "?offset=-1&live=long-poll"])
def test_a_stream_is_served_as_a_download(ana, hostile, query):
    response = ana.get(hostile + query)
    assert response.status_code == 200
    assert ("harmless" in response.text) == ("now" not in query)
    assert response.headers["content-disposition"] == "attachment"
    for name, value in INERT.items():
        assert response.headers[name.decode()] == value.decode()


def test_no_response_can_run_scripts_or_be_framed(ana, hostile):
    for path in ("/v1/sessions", hostile, "/openapi.json", "/healthz", "/nothing", "/"):
        headers = ana.get(path).headers
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy and "default-src 'none'" in policy, path
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["x-frame-options"] == "DENY", path
        is_passive = headers["content-type"].partition(";")[0] in PASSIVE
        assert is_passive or path == "/" or "content-disposition" in headers, path


@pytest.fixture
def signed_in(browser, gateway):
    """A browser whose cookie signs a user in at the gateway."""
    context = browser.new_context(accept_downloads=True)
    context.set_default_timeout(90_000)
    context.add_cookies(
        [{"name": "foldlog_token", "value": token_for("ana", SECRET), "url": gateway.url}]
    )
    yield context
    context.close()


def methods_of(page):
    """A list that receives the method of each request that a page makes from now on."""
    methods = []
    page.on("request", lambda request: methods.append(request.method))
    return methods


def test_a_hostile_stream_opened_as_a_page_is_downloaded(signed_in, gateway, hostile, asks):
    page = signed_in.new_page()
    page.goto(f"{gateway.url}/")
    methods = methods_of(page)
    with page.expect_download() as download:
        page.evaluate("url => { location.href = url }", hostile)
    assert download.value.url == gateway.url + hostile
    assert "POST" not in methods and page.url == f"{gateway.url}/"
    assert [call.status for call in asks.views.turn.calls] == ["asks"]


def test_a_hostile_stream_that_is_shown_as_a_page_runs_nothing(signed_in, gateway, hostile, asks):
    """An old browser or a viewer of downloads may show what it takes for a page: then only the
    policy protects the user."""
    page = signed_in.new_page()

    def as_a_page(route):
        headers = dict(route.fetch().headers) | {"content-type": "text/html"}
        del headers["content-disposition"], headers["content-length"]
        route.fulfill(body=EVIL, headers=headers)

    methods = methods_of(page)
    page.route(f"**{hostile}", as_a_page)
    page.goto(gateway.url + hostile, wait_until="load")
    assert page.locator("h1").inner_text() == "hello"
    assert page.title() == "harmless", "a script of a user ran on the gateway's origin"
    page.evaluate("() => document.getElementById('f').submit()")
    assert "POST" not in methods
    assert page.evaluate("() => self.origin") == "null"
    assert [call.status for call in asks.views.turn.calls] == ["asks"]

"""Nothing that users wrote is a page: opened in a real browser, it neither runs nor asks anything.

The stream below is what an attacker would write: a page that approves, says and cancels as whoever
opens it. It is opened as itself, and with each of its fences taken away but one.
"""

import pytest

from foldlog.consumers.gateway.access import token_for
from foldlog.consumers.gateway.inert import INERT
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.inspector.sessions import Place, asking

SECRET = "s" * 40
EVIL = b"""<!doctype html><title>harmless</title><h1>hello</h1><script>
document.title = "it ran";
fetch("/v1/sessions/asks/calls/1.1.0/decide", {method: "POST", body: '{"decision": "allow"}',
      headers: {"content-type": "application/json"}});
</script><form id=f method=post action="/v1/sessions/asks/cancel"></form>
<img src=x onerror="document.title = 'it ran'"><svg onload="document.title = 'it ran'"></svg>"""
TYPES = ("text/html", "text/plain", "image/svg+xml", "application/xhtml+xml", "text/xml",
         "text/javascript")
DRAWN = {"application/json", "text/event-stream", "text/plain"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def running(place):
    with served(place.log, place.settings, place.settings.home / "gateway", secret=SECRET) as it:
        yield it


@pytest.fixture(scope="module")
def ana(running):
    with running.http(token_for("ana", SECRET)) as http:
        yield http


@pytest.fixture(scope="module")
def asks(place):
    return asking(place)


def written(http, name, media_type):
    http.put(f"/v1/stream/{name}", content=EVIL, headers={"content-type": media_type})
    return f"/v1/stream/{name}"


@pytest.mark.parametrize("media_type", TYPES)
@pytest.mark.parametrize("query", ["", "?offset=-1", "?offset=now", "?offset=-1&live=long-poll"])
def test_a_stream_that_clients_wrote_is_a_file_and_no_page(ana, media_type, query):
    answer = ana.get(written(ana, f"of-{TYPES.index(media_type)}", media_type) + query)
    assert answer.status_code == 200
    assert answer.headers["content-disposition"] == "attachment"
    for name, value in INERT.items():
        assert answer.headers[name.decode()] == value.decode()


def test_whatever_the_gateway_answers_can_not_act_or_be_framed(ana):
    written(ana, "any", "text/html")
    paths = ("/v1/sessions", "/v1/stream/any", "/openapi.json", "/healthz", "/nothing", "/")
    for path in paths:
        answer = ana.get(path)
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy and "default-src 'none'" in policy, path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert answer.headers["x-frame-options"] == "DENY", path
        drawn = answer.headers["content-type"].partition(";")[0] in DRAWN
        assert drawn or path == "/" or "content-disposition" in answer.headers, path


@pytest.fixture
def signed_in(browser, running):
    """A browser of somebody who is signed in at the gateway, by its cookie."""
    context = browser.new_context(accept_downloads=True)
    context.set_default_timeout(20_000)
    context.add_cookies(
        [{"name": "foldlog_token", "value": token_for("ana", SECRET), "url": running.url}]
    )
    yield context
    context.close()


def test_an_evil_stream_opened_as_a_page_is_downloaded(signed_in, running, ana, asks):
    path = written(ana, "evil", "text/html")
    page = signed_in.new_page()
    page.goto(f"{running.url}/")
    asked = []
    page.on("request", lambda request: asked.append(request.method))
    with page.expect_download() as download:
        page.evaluate("url => { location.href = url }", path)
    assert download.value.url == running.url + path
    assert "POST" not in asked and page.url == f"{running.url}/"
    assert [call.status for call in asks.views.turn.calls] == ["asks"]


def test_an_evil_stream_that_is_shown_all_the_same_runs_nothing(signed_in, running, ana, asks):
    """An old browser, or a viewer of downloads: the policy alone holds."""
    path = written(ana, "shown", "text/html")
    page = signed_in.new_page()

    def without_attachment(route):
        answer = route.fetch()
        headers = {n: v for n, v in answer.headers.items() if n != "content-disposition"}
        route.fulfill(response=answer, headers=headers)

    asked = []
    page.on("request", lambda request: asked.append(request.method))
    page.route(f"**{path}", without_attachment)
    page.goto(running.url + path, wait_until="load")
    assert page.locator("h1").inner_text() == "hello"
    assert page.title() == "harmless", "a script of a user ran on the gateway's origin"
    page.evaluate("() => document.getElementById('f').submit()")
    assert "POST" not in asked
    assert page.evaluate("() => self.origin") == "null"
    assert [call.status for call in asks.views.turn.calls] == ["asks"]

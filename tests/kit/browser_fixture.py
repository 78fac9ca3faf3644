"""A real headless Chromium for the tests of the inspector; they wait for states, never for a time.

A pytest plugin, loaded by tests/conftest.py. The browser is the distribution's own (.ci/run
installs it if it may); without a browser, tests that need one are skipped. A page fails its test if
it logs an error, violates its content security policy, or sends a request to another host.
"""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from foldlog.tests.kit.chromium import NAMES, OPTIONS, chromium_path

WAIT_MS = 20_000

DESK = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:  # noqa: F821
    """One browser for the tests of a file; each test has its own browser context. The browser ends
    after the file, because its event loop runs in the main thread, where tests of other files need
    their own loops."""
    path = chromium_path()
    if path is None:
        pytest.skip(f"no Chromium found ({', '.join(NAMES)}): apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        try:
            yield running
        finally:
            running.close()


@pytest.fixture
def page_at(browser) -> Iterator[Callable[..., "Page"]]:  # noqa: F821
    """A factory of watched pages: page_at(url, viewport=DESK, color_scheme="light")."""
    from playwright.sync_api import expect

    expect.set_options(timeout=WAIT_MS)
    contexts, problems = [], []

    def open_page(url: str, *, viewport=DESK, color_scheme: str = "light", touch: bool = False):
        context = browser.new_context(
            viewport=viewport, color_scheme=color_scheme, has_touch=touch, is_mobile=touch,
            locale="en-GB", timezone_id="UTC",
        )
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        page = context.new_page()
        host = urlsplit(url).netloc
        page.on("console", lambda line: line.type == "error" and problems.append(line.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message) or dialog.dismiss())
        page.on("request", lambda sent: problems.append(f"request to {sent.url}")
                if urlsplit(sent.url).netloc != host else None)
        page.complaints = problems
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []

"""A real headless Chromium for the tests of the inspector; they wait for states, never for a time.

A pytest plugin, loaded by tests/conftest.py. The browser is the distribution's own (.ci/run
installs it where it may); where there is none, tests that ask for it are reported as not run.
Every page fails its test if it logs an error, breaks its content security policy or asks any host
but the one it came from.
"""

import shutil
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
WAIT_MS = 20_000

DESK = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}


def chromium_path() -> str | None:
    """Where the distribution's Chromium is, None without one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:  # noqa: F821
    """One browser for a file's tests, which keep apart by contexts. No longer than that: as long as
    it runs, playwright's loop runs in the main thread, and no other test could have its own."""
    path = chromium_path()
    if path is None:
        pytest.skip(f"no Chromium here ({', '.join(NAMES)}): apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        # In a container neither the sandbox nor a large /dev/shm can be had.
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        running = playwright.chromium.launch(executable_path=path, args=options)
        try:
            yield running
        finally:
            running.close()


@pytest.fixture
def page_at(browser) -> Iterator[Callable[..., "Page"]]:  # noqa: F821
    """A factory: page_at(url, viewport=DESK, color_scheme="light") opens a watched page."""
    from playwright.sync_api import expect

    expect.set_options(timeout=WAIT_MS)
    contexts, complaints = [], []

    def open_page(url: str, *, viewport=DESK, color_scheme: str = "light", touch: bool = False):
        context = browser.new_context(
            viewport=viewport, color_scheme=color_scheme, has_touch=touch, is_mobile=touch,
            locale="en-GB", timezone_id="UTC",
        )
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        page = context.new_page()
        host = urlsplit(url).netloc
        page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message) or dialog.dismiss())
        page.on("request", lambda asked: complaints.append(f"asks {asked.url}")
                if urlsplit(asked.url).netloc != host else None)
        page.complaints = complaints
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []

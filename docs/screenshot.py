"""Photographs the inspector for the README: `make screenshot` writes docs/images/inspector.png.

A real browser (the distribution's Chromium, driven by playwright) opens a session of a real run:
the worker was killed in the middle of an answer, another one took over, and a tool was approved.
The page stands at the instant in which that tool is started.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from foldlog.docs.running import QUESTION, WAIT_S, Running, running
from foldlog.docs.tables import ROOT
from foldlog.tests.browser_fixture import WAIT_MS, chromium_path

PICTURE = ROOT / "docs" / "images" / "inspector.png"
SESSION = "returns"
SIZE = {"width": 1360, "height": 800}
CHUNKS_BEFORE_KILL = 3


def main() -> None:
    """Run the session, and write the picture."""
    browser = chromium_path()
    if browser is None:
        raise SystemExit("there is no Chromium here: apt-get install chromium")
    with tempfile.TemporaryDirectory() as directory, running(Path(directory)) as place:
        _killed_in_an_answer(place)
        place.printed("chat", "--agent", "shop", SESSION, stdin="charge 1900\nyes\n")
        offset = _offset(place, "TOOL_STARTED")
        with sync_playwright() as playwright:
            options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
            chromium = playwright.chromium.launch(executable_path=browser, args=options)
            page = chromium.new_page(viewport=SIZE, locale="en-GB", timezone_id="UTC")
            page.set_default_timeout(WAIT_MS)
            page.goto(f"{place.gateway}#/s/{SESSION}@{offset}")
            where = re.compile(f"Right after offset {offset}, ")
            page.get_by_role("status").get_by_text(where).wait_for()
            page.get_by_role("tab", name="events").click()
            page.get_by_role("option", selected=True).get_by_text("TOOL_STARTED").wait_for()
            page.screenshot(path=PICTURE)
            chromium.close()
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1024:.0f} KB")


def _killed_in_an_answer(place: Running) -> None:
    """A session whose worker was killed with SIGKILL while its answer streamed."""
    pid = json.loads(place.printed("status", "--json"))["worker"]["pid"]
    with subprocess.Popen(
        ["foldlog", "tail", SESSION, "--chunks", "--follow", "--json"],
        cwd=place.directory, env=place.env, stdout=subprocess.PIPE, text=True,
    ) as following:
        assert following.stdout is not None
        with subprocess.Popen(
            ["foldlog", "send", SESSION, QUESTION, "--agent", "shop", "--wait"],
            cwd=place.directory, env=place.env, stdout=subprocess.DEVNULL,
        ) as sending:
            types = (json.loads(line)["type"] for line in following.stdout)
            for _ in range(CHUNKS_BEFORE_KILL):
                next(kind for kind in types if kind == "GEN_CHUNK")
            os.kill(pid, signal.SIGKILL)
            sending.wait(WAIT_S)
        following.terminate()


def _offset(place: Running, kind: str) -> int:
    """Of the first event of a type."""
    events = map(json.loads, place.printed("tail", SESSION, "--json").splitlines())
    return next(event["offset"] for event in events if event["type"] == kind)


if __name__ == "__main__":
    main()

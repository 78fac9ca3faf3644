"""Takes the screenshots of the inspector in docs/images: `make screenshot`.

Playwright uses the distribution's Chromium to open the sessions of a real run. In the first
session, the worker was killed in the middle of an answer, another worker took over, and a tool call
was approved: the README's picture shows the moment at which this call started. In the second
session, a call waits for approval: two pictures show it on the home page and in its session. In the
third session, the worker was killed while the tutorial's agent paid a refund: the last picture
shows the call in doubt.
"""

import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from inspect import getsource
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from foldlog.docs.running import LOG, QUESTION, WAIT_S, Running, fingerprint, running
from foldlog.docs.tables import ROOT
from foldlog.tests.kit.browser_fixture import WAIT_MS, chromium_path

IMAGES = ROOT / "docs" / "images"
PICTURE = IMAGES / "inspector.png"
HOME = IMAGES / "inspector-home.png"
WAITING = IMAGES / "inspector-waiting.png"
DOUBT = IMAGES / "inspector-doubt.png"
PICTURES = (PICTURE, HOME, WAITING, DOUBT)
SESSION = "returns"
ASKING = "late-fee"
DOUBTING = "refund-17"
SIZE = {"width": 1440, "height": 900}
CHUNKS_BEFORE_KILL = 3
DOUBT_MS = 8_000
"""How long the call of the last picture has been in doubt, so that its bar can be seen."""


def main() -> None:
    """Run the sessions, and write the pictures."""
    browser = chromium_path()
    if browser is None:
        raise SystemExit("no Chromium found: apt-get install chromium")
    with tempfile.TemporaryDirectory() as directory, running(Path(directory)) as place:
        _kill_in_the_middle_of_an_answer(place)
        place.printed("chat", "--agent", "shop", SESSION, stdin="charge 1900\nyes\n")
        offset = _offset(place, "TOOL_STARTED")
        place.printed("send", ASKING, "charge 500", "--agent", "shop")
        with sync_playwright() as playwright:
            options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
            chromium = playwright.chromium.launch(executable_path=browser, args=options)
            page = chromium.new_page(viewport=SIZE, locale="en-GB", timezone_id="UTC")
            page.set_default_timeout(WAIT_MS)
            page.goto(f"{place.gateway}#/s/{SESSION}@{offset}")
            where = re.compile(f"Right after offset {offset}, ")
            page.get_by_role("status").get_by_text(where).wait_for()
            page.get_by_role("button", name="Show the whole session").click()
            page.get_by_role("heading", name="charge was running").wait_for()
            _write(PICTURE, page)
            page.goto(f"{place.gateway}#/s/{ASKING}")
            page.get_by_role("heading", name="Waiting for a person to allow charge").wait_for()
            _write(WAITING, page)
            page.goto(f"{place.gateway}#/")
            page.get_by_text("One session is waiting for you").first.wait_for()
            page.get_by_role("button", name="Allow").wait_for()
            _write(HOME, page)
            _kill_in_the_middle_of_a_refund(place)
            page.goto(f"{place.gateway}#/s/{DOUBTING}")
            page.get_by_role("heading", name="Did refund happen?").wait_for()
            page.get_by_text("Live", exact=True).wait_for()
            page.wait_for_timeout(DOUBT_MS)
            _write(DOUBT, page)
            chromium.close()


def _write(path: Path, page: Page) -> None:
    """Write a picture of the page as it is now."""
    path.write_bytes(with_comment(page.screenshot(), made_by()))
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1024:.0f} KB")


def made_by() -> str:
    """The fingerprint of the sources of the picture."""
    return fingerprint(getsource(sys.modules[__name__]))


def with_comment(png: bytes, comment: str) -> bytes:
    """The PNG with a comment in its metadata, in a tEXt chunk after the header."""
    header_end = 33  # end of the signature and the IHDR chunk
    chunk = b"tEXtComment\0" + comment.encode("latin-1")
    size, checksum = (struct.pack(">I", n) for n in (len(chunk) - 4, zlib.crc32(chunk)))
    return png[:header_end] + size + chunk + checksum + png[header_end:]


def _kill_in_the_middle_of_an_answer(place: Running) -> None:
    """Send a message, and kill the worker with SIGKILL while its answer streams."""
    pid = _worker(place)
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


def _kill_in_the_middle_of_a_refund(place: Running) -> None:
    """Add the tutorial's agent, and kill the worker with SIGKILL while its tool runs."""
    text = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(# clerk.py\n.*?)```", text, re.DOTALL)
    (place.directory / "clerk.py").write_text(code)
    with (place.directory / "my_app.py").open("a") as file:
        file.write("\nimport clerk\nagent = [agent, clerk.agent]\n")
    _until(lambda: "the worker was replaced" in (place.directory / LOG).read_text())
    place.printed("send", DOUBTING, "Please refund order 17", "--agent", "clerk")
    _until(lambda: "waits for approval" in place.printed("show", DOUBTING))
    place.printed("approve", DOUBTING, "1.1.0")
    _until((place.directory / "refunds.txt").exists)
    os.kill(_worker(place), signal.SIGKILL)


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("the sessions did not get as far as the picture needs")
        time.sleep(0.1)


def _worker(place: Running) -> int:
    """The worker's process id."""
    found: int = json.loads(place.printed("status", "--json"))["worker"]["pid"]
    return found


def _offset(place: Running, kind: str) -> int:
    """The offset of the first event of a type."""
    events = map(json.loads, place.printed("tail", SESSION, "--json").splitlines())
    return next(event["offset"] for event in events if event["type"] == kind)


if __name__ == "__main__":
    main()

"""Takes the README's screenshot of the inspector, docs/images/inspector.png: `make screenshot`.

The distribution's Chromium, driven by playwright, opens a session of a real run: its worker was
killed in the middle of an answer, another one took over, and a tool call was approved. The page
shows the moment at which that call started.
"""

import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from inspect import getsource
from pathlib import Path

from playwright.sync_api import sync_playwright

from foldlog.docs.running import QUESTION, WAIT_S, Running, fingerprint, running
from foldlog.docs.tables import ROOT
from foldlog.tests.browser_fixture import WAIT_MS, chromium_path

PICTURE = ROOT / "docs" / "images" / "inspector.png"
SESSION = "returns"
SIZE = {"width": 1440, "height": 900}
CHUNKS_BEFORE_KILL = 3


def main() -> None:
    """Run the session, and write the picture."""
    browser = chromium_path()
    if browser is None:
        raise SystemExit("no Chromium found: apt-get install chromium")
    with tempfile.TemporaryDirectory() as directory, running(Path(directory)) as place:
        _kill_in_the_middle_of_an_answer(place)
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
            page.get_by_role("button", name="Show the whole session").click()
            page.get_by_role("heading", name="charge was running").wait_for()
            PICTURE.write_bytes(with_comment(page.screenshot(), made_by()))
            chromium.close()
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1024:.0f} KB")


def made_by() -> str:
    """The fingerprint of the sources of the picture."""
    return fingerprint(getsource(sys.modules[__name__]))


def with_comment(png: bytes, comment: str) -> bytes:
    """The PNG with a comment in its metadata, in a tEXt chunk after the header."""
    header_end = 33  # of the signature and the IHDR chunk
    chunk = b"tEXtComment\0" + comment.encode("latin-1")
    size, checksum = (struct.pack(">I", n) for n in (len(chunk) - 4, zlib.crc32(chunk)))
    return png[:header_end] + size + chunk + checksum + png[header_end:]


def _kill_in_the_middle_of_an_answer(place: Running) -> None:
    """Send a message, and kill the worker with SIGKILL while its answer streams."""
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
    """The offset of the first event of a type."""
    events = map(json.loads, place.printed("tail", SESSION, "--json").splitlines())
    return next(event["offset"] for event in events if event["type"] == kind)


if __name__ == "__main__":
    main()

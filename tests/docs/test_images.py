"""The pictures of the README: small, self-contained, and of the run that their scripts make."""

import re
from xml.etree import ElementTree

import pytest

from foldlog.docs import recording, screenshot
from foldlog.docs.running import ANSWER, QUESTION
from foldlog.docs.tables import ROOT
from foldlog.docs.terminal_svg import CELL_WIDTH, PADDING

PICTURES = [recording.PICTURE, screenshot.PICTURE]
BYTES_MAX = 300 * 1024
SVG = "{http://www.w3.org/2000/svg}"


def screens() -> list[str]:
    """What each terminal of the recording shows at the end, its lines joined."""
    shown = []
    for terminal in ElementTree.parse(recording.PICTURE).iter(f"{SVG}g"):
        rows: dict[str, list[str]] = {}
        for node in list(terminal.iter(f"{SVG}text"))[1:]:
            row = rows.setdefault(node.attrib["y"], [" "] * recording.COLUMNS)
            column = round((float(node.attrib["x"]) - PADDING) / CELL_WIDTH)
            row[column : column + len(node.text)] = node.text
        shown.append(" ".join(" ".join("".join(row) for row in rows.values()).split()))
    return shown


def test_the_readme_shows_every_picture():
    shown = re.findall(r"!\[[^\]]{40,}\]\(([^)]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert [ROOT / path for path in shown] == PICTURES
    assert sorted((ROOT / "docs" / "images").iterdir()) == sorted(PICTURES)


@pytest.mark.parametrize("path", PICTURES)
def test_a_picture_is_small(path):
    assert path.stat().st_size < BYTES_MAX


def test_the_recording_shows_the_kill_and_the_whole_answer():
    chat, shell = screens()
    first_line = ANSWER.split("\n")[0]
    assert f"> {QUESTION} {first_line}" in chat
    assert chat.count(first_line) == 2, "cut, and whole"
    assert chat.endswith(f"{' '.join(ANSWER.split())} >")
    assert re.search(r"process (\d+) \$ kill -9 \1 ", shell)
    assert "GEN_RESUMED turn=1 step=1 attempt=2 GEN_COMPLETE turn=1 step=1 attempt=2" in shell


def test_the_recording_plays(browser):
    page = browser.new_page()
    page.goto(recording.PICTURE.as_uri())

    def visible(moment: float) -> str:
        """The texts that are shown at this share of the recording."""
        return page.evaluate(
            """moment => {
              for (const animation of document.getAnimations()) {
                animation.pause();
                animation.currentTime = moment * animation.effect.getTiming().duration;
              }
              return [...document.querySelectorAll("text")]
                .filter(text => getComputedStyle(text).visibility === "visible")
                .map(text => text.textContent).join(" ");
            }""",
            moment,
        )

    answered, resumed, completed = "Yes,", "attempt 2", "GEN_COMPLETE"
    begin, end = visible(0), visible(0.99)
    assert "terminal 1" in begin and answered not in begin and resumed not in begin
    assert answered in end and resumed in end and completed in end
    page.close()

"""The README's pictures are small and self-contained, and the current scripts made them."""

import re
from xml.etree import ElementTree

import pytest

from foldlog.docs import recording, screenshot
from foldlog.docs.running import ANSWER, QUESTION, fingerprint
from foldlog.docs.tables import ROOT
from foldlog.docs.terminal_svg import CELL_WIDTH, PADDING

PICTURES = [recording.PICTURE, screenshot.PICTURE]
BYTES_MAX = 300 * 1024
SVG = "{http://www.w3.org/2000/svg}"


def screens() -> list[str]:
    """The text on each terminal at the end of the recording, with its lines joined."""
    texts = []
    for terminal in ElementTree.parse(recording.PICTURE).iter(f"{SVG}g"):
        rows: dict[str, list[str]] = {}
        for node in list(terminal.iter(f"{SVG}text"))[1:]:
            row = rows.setdefault(node.attrib["y"], [" "] * recording.COLUMNS)
            column = round((float(node.attrib["x"]) - PADDING) / CELL_WIDTH)
            row[column : column + len(node.text)] = node.text
        texts.append(" ".join(" ".join("".join(row) for row in rows.values()).split()))
    return texts


def test_the_readme_shows_every_picture():
    shown = re.findall(r"!\[[^\]]{40,}\]\(([^)]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert [ROOT / path for path in shown] == PICTURES
    assert sorted((ROOT / "docs" / "images").iterdir()) == sorted(PICTURES)


@pytest.mark.parametrize("script", [recording, screenshot])
def test_a_picture_was_made_by_the_current_script(script):
    target = script.__name__.rpartition(".")[2]
    assert script.made_by().encode() in script.PICTURE.read_bytes(), f"run `make {target}`"


def test_a_changed_script_has_another_fingerprint():
    before = fingerprint("kill(9)")
    assert fingerprint('"""Kills."""\nkill(9)  # at once') == before
    assert fingerprint("kill(15)") != before


@pytest.mark.parametrize("path", PICTURES)
def test_a_picture_is_small(path):
    assert path.stat().st_size < BYTES_MAX


def test_the_recording_shows_the_kill_and_the_whole_answer():
    chat, shell = screens()
    first_line = ANSWER.split("\n")[0]
    assert f"> {QUESTION} {first_line}" in chat
    assert chat.count(first_line) == 2, "once cut off, once whole"
    assert re.search(re.escape(" ".join(ANSWER.split())) + r" \[turn 1: [^]]+\$[^]]+\] >$", chat)
    assert re.search(r"process (\d+) \$ kill -9 \1 ", shell)
    assert "GEN_RESUMED 1.1 attempt 2 GEN_COMPLETE 1.1 attempt 2" in shell


def test_the_recording_plays(browser):
    page = browser.new_page()
    page.goto(recording.PICTURE.as_uri())

    def visible(moment: float) -> str:
        """The texts that are visible at this fraction of the recording."""
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

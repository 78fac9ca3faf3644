"""The pictures of README and docs/ are small, self-contained, and made by the current scripts."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from foldlog.bench import published
from foldlog.docs import recording, screenshot
from foldlog.docs.running import ANSWER, QUESTION, fingerprint
from foldlog.docs.tables import ROOT
from foldlog.docs.terminal_svg import CELL_WIDTH, PADDING

MADE = [(recording, recording.PICTURE), *((screenshot, path) for path in screenshot.PICTURES)]
PICTURES = [path for _, path in MADE]
BYTES_MAX = 200 * 1024
SHOWN = re.compile(r"!\[[^\]]{40,}\]\(([^)]+)\)")  # with a text for those who do not see it
SVG = "{http://www.w3.org/2000/svg}"


def screens() -> list[str]:
    """The text of each terminal at the end of the recording, with its lines joined."""
    texts = []
    for terminal in ElementTree.parse(recording.PICTURE).iter(f"{SVG}g"):
        rows: dict[str, list[str]] = {}
        for node in list(terminal.iter(f"{SVG}text"))[1:]:
            row = rows.setdefault(node.attrib["y"], [" "] * recording.COLUMNS)
            column = round((float(node.attrib["x"]) - PADDING) / CELL_WIDTH)
            row[column : column + len(node.text)] = node.text
        texts.append(" ".join(" ".join("".join(row) for row in rows.values()).split()))
    return texts


def shown_on(page: Path) -> list[Path]:
    """The pictures that a page shows, each with a description."""
    return [page.parent / path for path in SHOWN.findall(page.read_text("utf-8"))]


def test_the_readme_shows_the_recording_and_the_inspector():
    assert shown_on(ROOT / "README.md") == [recording.PICTURE, screenshot.PICTURE]


def test_every_picture_is_made_by_a_script_and_shown_on_a_page():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    images = ROOT / "docs" / "images"
    plots = [
        images / f"bench-{name}.svg"
        for name, (_, newest) in published.load().items() if newest.ratio.plot is not None
    ]
    assert {path for page in pages for path in shown_on(page)} == {*PICTURES, *plots}
    assert set(images.iterdir()) == {*PICTURES, *plots}


@pytest.mark.parametrize(("script", "path"), MADE)
def test_a_picture_was_made_by_the_current_script(script, path):
    target = script.__name__.rpartition(".")[2]
    assert script.made_by().encode() in path.read_bytes(), f"run `make {target}`"


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

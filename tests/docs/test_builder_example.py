"""The builder of examples/builder: the table of its page predicts what it may do."""

import re
import runpy

import pytest

from foldlog.processors.fold.transitions import TRANSITIONS
from foldlog.schemas import events as ev
from foldlog.tests.docs.pages import ROOT, blocks
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import opened
from foldlog.tests.kit.phases import in_phase

AGENT = runpy.run_path(str(ROOT / "examples" / "builder" / "builder.py"))["agent"]
ARGUMENTS = {
    "read_page": '{"name":"home"}',
    "start_build": '{"plan":"two pages"}',
    "write_page": '{"name":"home","html":"x"}',
}


def predicted() -> dict[tuple[str, str], str]:
    """The table of docs/agents.md: what a call of each tool becomes in each phase."""
    page = (ROOT / "docs" / "agents.md").read_text("utf-8")
    (table,) = re.findall(r"\| tool \| (.*) \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", page)
    phases = table[0].split(" | ")
    assert phases == list(TRANSITIONS)
    rows = [row.strip("| ").split(" | ") for row in table[1].splitlines()]
    return {
        (phase, name.strip("`")): cell
        for name, *cells in rows
        for phase, cell in zip(phases, cells, strict=True)
    }


def test_the_page_shows_the_code_of_the_builder():
    source = (ROOT / "examples" / "builder" / "builder.py").read_text("utf-8")
    (shown,) = [b.text for b in blocks("agents.md") if "def write_page" in b.text]
    assert shown in source


@pytest.mark.parametrize("phase", TRANSITIONS)
def test_S2_12_the_prompt_and_the_table_predict_what_the_builder_may_do(phase):
    names = [each.name for each in AGENT.tools]
    s = in_phase(opened(agent=AGENT), phase)
    s.say("go")
    s.answer(*(Use(name, ARGUMENTS.get(name, "{}"), f"c{n}") for n, name in enumerate(names)))
    found = {}
    for event in (step.entry.event for step in s.steps):
        if isinstance(event, ev.ToolInvoked):
            outcome = "runs" if event.approval == "none" else f"{event.approval}s"
            found[phase, event.name] = event.code or outcome.replace("denys", "denied")
    assert found == {key: cell for key, cell in predicted().items() if key[0] == phase}

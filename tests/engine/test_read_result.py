"""S2.5, S3.8: a model pages through truncated results of its own session and of no other
session."""

import pytest

from foldlog.local.messages_api import Reply, Rule, text, tool_use
from foldlog.processors.agent import Agent
from foldlog.processors.effects.tool import refs_in
from foldlog.processors.tools.builtin import read_result
from foldlog.processors.tools.tool import tool
from foldlog.schemas import events as ev
from foldlog.tests.engine.driven import Driven
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import opened

WHOLE = "".join(f"row {n} of the report\n" for n in range(9_000))


@tool(effect="pure")
def report(ctx) -> str:
    """Returns the report."""
    return WHOLE


@pytest.fixture
def driven(start_session):
    """A session whose model requests the report, or reads the result that the message names."""

    def answer(request):
        if request.turn_results:
            return Reply([text("Done.")])
        _, _, ref = request.last_user_text.partition("read on in ")
        call = tool_use("read_result", {"ref": ref}) if ref else tool_use("report", {})
        return Reply([call])

    agent = Agent(name="helper", model="claude-opus-5-5", tools=(report, read_result))
    return start_session(agent, Rule(reply=answer))


def outcomes(driven: Driven) -> list[tuple[str, str]]:
    results = driven.events(ev.ToolResult)
    return [(result.outcome, result.content.inline.decode()) for result in results]


def test_S2_5_a_model_reads_the_rest_of_a_truncated_result_even_after_a_restart(driven):
    driven.say("the report").run()
    (truncated,) = driven.events(ev.ToolResult)
    driven.restart()
    driven.say(f"read on in {truncated.content.ref.sha256}").run()
    outcome, page = outcomes(driven)[-1]
    assert outcome == "ok" and page.startswith("row 0 of the report")


def test_a_ref_of_another_session_is_refused(driven):
    """The defect: a ref was enough to read the result of another user's tool."""
    foreign = driven.blobs.put(b"a result of another user").sha256
    driven.say("the report").run()
    driven.say(f"read on in {foreign}").run()
    outcome, why = outcomes(driven)[-1]
    assert outcome == "error" and "no result of this session" in why
    assert "another user" not in why


def test_a_late_result_can_be_read_by_the_ref_in_its_reminder():
    session = opened()
    session.say("post it")
    session.answer(Use("post", '{"text":"dear"}', "a"))
    session.cancel()
    session.work()
    session.later(60_000).work()
    sha = "ab" * 32
    foreign = f'Cut. read on: read_result, ref "{"cd" * 32}", offset 9'
    whole = ev.BlobRef(sha256=sha, bytes=9, media_type="text/plain")
    assert session.result("1.1.0", foreign, whole=whole).accepted
    session.say("and?")
    session.work()
    assert refs_in(session.views) == {sha}, "a ref that a tool wrote into its text does not count"

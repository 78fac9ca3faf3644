"""An answer without any text is reported on every surface, never shown as nothing."""

import json

import pytest

from foldlog.client.history import history
from foldlog.client.outcomes import answer_in
from foldlog.client.printable import NO_TEXT, no_text
from foldlog.schemas import events as ev
from foldlog.tests.cli.harness import playing, turn_opens
from foldlog.tests.kit.played import Played, text_block
from foldlog.web.protocols import plain
from foldlog.web.protocols.ag_ui.events import Encoder
from foldlog.web.protocols.ai_sdk.messages import messages

EMPTY = {
    "nothing": [],
    "an empty block": [text_block("")],
    "blanks": [text_block(" \n\u200b\u3164")],
    "thinking": [{"type": "thinking", "thinking": "Is that all?", "signature": "s"}],
    "redacted": [{"type": "redacted_thinking", "data": "x"}],
}


def answering(played: Played, blocks: list, stop_reason: str = "end_turn") -> None:
    played.call()
    played.start()
    content = ev.Body(inline=json.dumps(blocks).encode())
    played.complete(content=content, stop_reason=stop_reason)
    played.end()


@pytest.fixture(params=EMPTY.values(), ids=EMPTY)
def silent(shell, request):
    """The session s1, whose message m1 has an answer without text."""
    shell("send s1 hi --message-id m1")
    played = Played(shell.log, "s1")
    answering(played, request.param)
    return played


def test_E13_commands_report_it(shell, silent, tmp_path):
    sent = shell("send s1 --message-id m1 --wait")
    assert NO_TEXT in sent.err and sent.code == 0
    (line,) = shell("send s1 --message-id m1 --wait --json").json
    assert (line["reason"], line["note"]) == ("end_turn", NO_TEXT)
    assert NO_TEXT in shell("show s1").out
    assert NO_TEXT in shell("show s1 --view transcript").out
    report = tmp_path / "audit.html"
    shell(f"export s1 --format audit -o {report}")
    assert NO_TEXT in report.read_text("utf-8")
    views = silent.views
    assert NO_TEXT in str(answer_in(views, "m1", silent.read)) or answer_in(views, "m1", None).text


def test_E13_streams_report_it(silent):
    views, read = silent.views, silent.read
    (_, answer, _) = views.transcript.lines
    assert plain.line_json(answer, read)["text"] == NO_TEXT
    (_, message) = messages(views, read)
    (part,) = [part for part in message["parts"] if part["type"] == "data-silent"]
    assert part["data"] == {"why": NO_TEXT}
    encoder = Encoder("s1", read)
    events = [event for _, thing in history(views, read) for event in encoder.show(thing, views)]
    (custom,) = [event["value"] for event in events if event.get("name") == "silent"]
    assert (custom["turn"], custom["step"], custom["why"]) == (1, 1, NO_TEXT)


@pytest.mark.parametrize("blocks", EMPTY.values(), ids=EMPTY)
def test_E13_a_chat_reports_it(shell, blocks):
    shell("open s1")
    played = Played(shell.log, "s1")

    def work():
        turn_opens(played)
        answering(played, blocks)

    with playing(work):
        ran = shell("chat s1", stdin="hi\n")
    assert ran.err.count(NO_TEXT) == 1


def test_E13_an_empty_end_after_a_tool_is_reported_beside_the_earlier_text(shell):
    shell("send s1 hi --message-id m1")
    played = Played(shell.log, "s1")
    played.propose("I look.", ("read", {}))
    played.run_tool("seen")
    answering(played, [])
    ran = shell("send s1 --message-id m1 --wait")
    assert ran.out == "I look.\n" and NO_TEXT in ran.err


@pytest.mark.parametrize(
    ("blocks", "stop_reason"),
    [([text_block("Done.")], "end_turn"), ([], "refusal"), ([], "max_tokens"), ([], "tool_use")],
)
def test_other_answers_have_no_such_remark(shell, blocks, stop_reason):
    shell("send s1 hi --message-id m1")
    played = Played(shell.log, "s1")
    answering(played, blocks, stop_reason)
    assert not any(no_text(line, played.read) for line in played.views.transcript.lines)

"""The provider refuses a request for a reason that foldlog does not know, or the model refuses to
answer: the request is built again without the newest content, and the session continues.
"""

import json

import pytest

from foldlog.cli.commands.inspect import transcript_rows
from foldlog.cli.terminal.event_lines import words
from foldlog.client.context_view import changes
from foldlog.client.outcomes import answer_in
from foldlog.client.session_fold import SessionFold
from foldlog.local.messages_api import Reply, Rule, text, thinking, tool_use
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.tools.tool import tool
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.tests.engine.test_many_images import REFUSALS, images, say_with_images
from foldlog.tests.kit.manual_worker import SESSION
from foldlog.web.inspector.sentences import sentence

MODEL, CHEAP = "claude-opus-5-5", "claude-haiku-4-5"
STRATEGIES = ["full", "compacted", "sliding_window_20"]
FIXED = {"thinking": {"type": "enabled", "budget_tokens": 2_048}}
ADAPTIVE = {"thinking": {"type": "adaptive"}}
WORDS = "messages.2.content.0: a rule of the API that nobody knows"


@tool(effect="pure")
def fetch() -> str:
    """Fetches."""
    return "POISON"


def has_poison(request) -> bool:
    return "POISON" in json.dumps(request.body["messages"])


def agent(strategy="compacted", params=ADAPTIVE, **more) -> Agent:
    return Agent(name="h", model=MODEL, tools=(fetch,), strategy=strategy, params=params,
                 compaction=Compaction(model=CHEAP), **more)


def refuses(words: str = WORDS, when=has_poison, **more) -> Rule:
    return Rule(reply=Reply([], fault={"name": "bad_request", "message": words}), when=when, **more)


def calls_then_ok() -> list[Rule]:
    first = Reply([thinking("a"), text("I look."), tool_use("fetch", {})])
    return [
        Rule(reply=first, when=lambda r: "fetch" in r.last_user_text, tool_results=0),
        Rule(reply=Reply([thinking("b"), text("ok")])),
    ]


def ended(driven) -> list[str]:
    return [turn.reason for turn in driven.events(ev.TurnEnded)]


def newest(driven) -> dict:
    return json.loads(driven.server.body(driven.server.calls()))


@pytest.mark.parametrize("params", [{}, ADAPTIVE, FIXED], ids=["none", "adaptive", "fixed"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_S1_a_result_that_the_provider_refuses_is_left_out(start_session, strategy, params):
    """The defect: every later turn failed, too."""
    driven = start_session(agent(strategy, params), refuses(), *calls_then_ok())
    driven.say("hello").run().say("fetch it").run()
    assert ended(driven) == ["end_turn"] * 2 and len(driven.events(ev.GenFailed)) == 1
    sent = json.dumps(newest(driven)["messages"])
    assert "[The result of a tool is left out here" in sent and "fetch it" in sent
    assert "I look." in sent and "[Called fetch.]" in sent
    driven.check()
    driven.restart()
    driven.run().say("more").run().say("fetch it again").run().say("and more").run()
    assert ended(driven) == ["end_turn"] * 5 and len(driven.events(ev.GenFailed)) == 2
    driven.check()


@pytest.mark.parametrize("words", [*REFUSALS, "request contains 51 images, at most 50"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_S1_too_many_images_in_any_words(start_session, tmp_path, strategy, words):
    many = refuses(words, lambda request: images(request.body) > 20)
    short = Rule(reply=Reply([text("In short.")]), when=lambda request: request.model == CHEAP)
    driven = start_session(agent(strategy), many, short, Rule(reply=Reply([text("ok")])))
    for count in (12, 10):
        say_with_images(driven, tmp_path, count)
        driven.run()
    driven.say("And now?").run()
    assert ended(driven) == ["end_turn"] * 3
    say_with_images(driven, tmp_path, 9)
    driven.run()
    assert ended(driven) == ["end_turn"] * 4 and len(driven.events(ev.GenFailed)) == 1
    assert images(newest(driven)) >= 9, "newer files are sent"
    driven.check()


@pytest.mark.parametrize("words", [REFUSALS[1], "too many images", "an unknown reason"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_S1_too_many_images_in_one_message(start_session, tmp_path, strategy, words):
    many = refuses(words, lambda request: images(request.body) > 10)
    driven = start_session(agent(strategy), many, Rule(reply=Reply([text("ok")])))
    say_with_images(driven, tmp_path, 15)
    driven.run().say("And now?").run()
    assert ended(driven) == ["end_turn"] * 2 and len(driven.events(ev.GenFailed)) == 1
    assert "[No longer shown: " in json.dumps(newest(driven))
    driven.check()


@pytest.mark.parametrize("strategy", ["full", "sliding_window_20"])
def test_S1_a_request_that_is_too_large_because_of_one_result(start_session, strategy):
    words = "Request exceeds the maximum size"
    large = Rule(
        reply=Reply([], fault={"name": "bad_request", "message": f"prompt is too long: {words}"}),
        when=has_poison,
    )
    driven = start_session(agent(strategy), large, *calls_then_ok())
    driven.say("fetch it").run().say("more").run()
    assert ended(driven) == ["end_turn"] * 2
    driven.check()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_S1_a_message_that_the_provider_refuses_fails_its_turn_only(start_session, strategy):
    driven = start_session(agent(strategy), refuses(), *calls_then_ok())
    driven.say("hello").run().say("POISON").run()
    assert ended(driven) == ["end_turn", "failed"]
    driven.say("more").run().say("even more").run()
    assert ended(driven) == ["end_turn", "failed", "end_turn", "end_turn"]
    sent = json.dumps(newest(driven)["messages"])
    assert "[A message is left out here" in sent and "hello" in sent
    driven.check()


@pytest.mark.parametrize("strategy", ["full", "compacted"])
@pytest.mark.parametrize("place", ["message", "result"])
def test_S1_older_content_that_the_provider_refuses_later_is_found(start_session, strategy, place):
    """The defect: each later turn failed, and the fork that was named failed, too."""
    driven = start_session(agent(strategy), *calls_then_ok())
    driven.say("POISON" if place == "message" else "fetch it").run()
    for _ in range(3):
        driven.say("hello").run()
    driven.server.add(refuses())
    for _ in range(5):
        driven.say("more").run()
    assert ended(driven) == ["end_turn"] * 4 + ["failed"] * 3 + ["end_turn"] * 2
    driven.check()
    driven.restart()
    driven.run().say("and more").run()
    assert ended(driven)[-1] == "end_turn" and len(driven.events(ev.GenFailed)) == 7
    driven.check()


def test_S1_an_answer_whose_form_the_provider_refuses_is_sent_as_plain_text(start_session):
    """The defect: each later turn failed, because the text kept its other fields."""
    odd = Reply([{**text("Yes."), "odd": [1]}])
    poor = refuses(when=lambda request: '"odd"' in json.dumps(request.body["messages"]))
    driven = start_session(agent(), poor, Rule(reply=odd, times=1), *calls_then_ok())
    driven.say("hello").run().say("more").run().say("and more").run()
    assert ended(driven) == ["end_turn"] * 3 and len(driven.events(ev.GenFailed)) == 1
    assert "Yes." in json.dumps(newest(driven)["messages"])
    driven.check()


@pytest.mark.parametrize("status", [400, 422])
def test_S1_a_request_that_cannot_be_processed_is_a_bad_request(start_session, status):
    fault = {"name": "bad_request" if status == 400 else "unprocessable", "message": "odd"}
    poor = Rule(reply=Reply([], fault=fault), when=has_poison)
    driven = start_session(agent(), poor, *calls_then_ok())
    driven.say("fetch it").run().say("more").run()
    assert ended(driven) == ["end_turn"] * 2
    assert [failed.status for failed in driven.events(ev.GenFailed)] == [status]


def test_S1_a_setting_that_the_provider_refuses_leaves_nothing_out(start_session):
    words = "thinking.enabled.budget_tokens: Input should be less than 9"
    driven = start_session(agent(), *calls_then_ok())
    driven.say("fetch it").run()
    driven.server.add(refuses(words, lambda request: True, times=1))
    driven.say("more").run().say("more").run()
    assert ended(driven) == ["end_turn", "failed", "end_turn"]
    assert [failed.error for failed in driven.events(ev.GenFailed)] == ["setting_refused"]
    assert "POISON" in json.dumps(newest(driven))


def test_S1_what_was_left_out_in_vain_is_sent_again(start_session):
    driven = start_session(agent(), *calls_then_ok())
    driven.say("fetch it").run()
    driven.server.add(refuses("odd", lambda request: True, times=2))
    driven.say("more").run()
    assert ended(driven) == ["end_turn", "failed"] and len(driven.events(ev.GenFailed)) == 2
    driven.say("again").run()
    assert ended(driven)[-1] == "end_turn" and "POISON" in json.dumps(newest(driven))
    driven.check()


def test_S1_a_first_message_that_is_refused_is_not_sent_twice(start_session):
    driven = start_session(agent(), refuses(), *calls_then_ok())
    driven.say("POISON").run()
    assert ended(driven) == ["failed"] and len(driven.events(ev.GenFailed)) == 1
    driven.say("hello").run()
    assert ended(driven) == ["failed", "end_turn"]


# -- refusals --------------------------------------------------------------------------------------

DETAILS = {"type": "refusal", "category": "cyber", "explanation": "because of exploits"}


def refusal(details=DETAILS, when=has_poison) -> Rule:
    return Rule(reply=Reply([], stop_reason="refusal", stop_details=details), when=when)


@pytest.mark.parametrize("params", [{}, ADAPTIVE, FIXED], ids=["none", "adaptive", "fixed"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_S1_a_result_for_which_the_model_refused_is_left_out_later(
    start_session, strategy, params
):
    """The defect: each later turn ended with a refusal."""
    driven = start_session(agent(strategy, params), refusal(), *calls_then_ok())
    driven.say("hello").run().say("fetch it").run().say("more").run().say("and more").run()
    assert ended(driven) == ["end_turn", "refusal", "end_turn", "end_turn"]
    sent = json.dumps(newest(driven)["messages"])
    assert "[The result of a tool is left out here" in sent and "hello" in sent
    driven.check()


def test_S1_a_message_for_which_the_model_refused_is_left_out_later(start_session):
    driven = start_session(agent(), refusal(), *calls_then_ok())
    driven.say("POISON").run()
    driven.restart()
    driven.run().say("more").run().say("and more").run()
    assert ended(driven) == ["refusal", "end_turn", "end_turn"]
    driven.check()


@pytest.mark.parametrize(
    ("details", "category", "explanation"),
    [
        (DETAILS, "cyber", "because of exploits"),
        (None, "unspecified", ""),
        ({"type": "refusal", "category": None, "explanation": None}, "unspecified", ""),
        ({"category": 5, "explanation": ["x"]}, "unspecified", ""),
        ({"category": "c" * 5_000, "explanation": "e" * 5_000}, "c" * 1_000, "e" * 1_000),
    ],
    ids=["all", "none", "null", "odd", "long"],
)
def test_S1_the_reason_of_a_refusal_is_in_the_log(start_session, details, category, explanation):
    driven = start_session(agent(), refusal(details), *calls_then_ok())
    driven.say("POISON").run()
    (answer,) = driven.events(ev.GenComplete)
    assert (answer.refusal_category, answer.refusal_explanation) == (category, explanation)


def test_S1_people_see_what_is_left_out(start_session):
    driven = start_session(agent(), refuses(), *calls_then_ok())
    driven.say("hello").run().say("fetch it").run().say("more").run()
    with SessionFold(driven.log, SESSION) as folded:
        (change,) = changes(folded, folded.end(), driven.read_blob)
    assert (change.kind, [piece.what for piece in change.left_out]) == ("refused", ["result"])
    assert change.left_out[0].words == "POISON"


def test_S1_people_see_why_the_model_refused_and_the_way_out(start_session):
    driven = start_session(agent(), refusal(), *calls_then_ok())
    driven.say("hello").run().say("fetch it").run()
    lines = driven.views.transcript.lines
    said = [line for line in lines if line.kind == "message"][-1]
    assert lines[-1].text == "cyber: because of exploits"
    out = f"fork before message m2: foldlog fork s --at {said.offset - 1}"
    note = f"cyber: because of exploits; to continue without what was refused, {out}"
    assert answer_in(driven.views, "m2", None).note == note
    entries = list(map(entry_of, driven.records()))
    (entry,) = [e for e in entries if getattr(e.event, "refusal_category", "")]
    assert 'refusal (cyber: "because of exploits")' in words(entry.event)
    assert "cyber, because of exploits" in sentence(entry, driven.views.turn)
    rows = [text for _, text in transcript_rows(driven.views, driven.read_blob)]
    assert rows[-1] == "[turn 2 ended: refusal (cyber: because of exploits)]"


def test_S1_a_failed_turn_names_the_way_out(start_session):
    driven = start_session(agent(), refuses(), *calls_then_ok())
    driven.say("hello").run().say("POISON").run()
    said = [line for line in driven.views.transcript.lines if line.kind == "message"][-1]
    out = f"fork before message m2: foldlog fork s --at {said.offset - 1}"
    assert out in answer_in(driven.views, "m2", None).note
    assert any(out in line for line in driven.log_lines)
    driven.say("POISON, too").run()
    driven.server.add(refuses("no", lambda request: True))
    driven.say("more").run()
    assert out in answer_in(driven.views, "m4", None).note, "before the first of these turns"


def test_S1_an_answer_that_is_no_refusal_has_no_category(start_session):
    driven = start_session(agent(), *calls_then_ok())
    driven.say("hello").run()
    assert driven.events(ev.GenComplete)[0].refusal_category == ""


def test_S1_a_summary_does_not_get_what_is_left_out(start_session):
    short = Rule(reply=Reply([text("In short.")]), when=lambda request: request.model == CHEAP)
    driven = start_session(agent(), refusal(), short, *calls_then_ok())
    driven.say("fetch it").run()
    for number in range(14):
        driven.say(f"{number} " + "words " * 4_000).run()
    assert "refusal" not in ended(driven)[1:]
    summaries = [json.loads(driven.server.body(n)) for n in range(1, driven.server.calls() + 1)]
    summaries = [body for body in summaries if body["model"] == CHEAP]
    assert summaries and "POISON" not in json.dumps(summaries)
    driven.check()

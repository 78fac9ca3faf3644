"""Symptom 1: "shortening has no effect, results still reach the model in full size".

The cause was a cache that was written under one key and read under another. foldlog writes and
reads short forms under TURN.STEP.INDEX, which is unique whatever ids a provider assigns.
"""

from foldlog.schemas import events as ev
from foldlog.tests.kit.api_rules import findings
from foldlog.tests.symptoms.by_background import (
    SHORT,
    claimed_kinds,
    long_result,
    opened,
    run_work,
    use,
)


def results(history) -> dict[str, str]:
    """Returns the results in the newest request, by the id of the call."""
    blocks = [b for m in history.request()["messages"] for b in m["content"]]
    assert not findings(history.request_bytes())
    return {b["tool_use_id"]: b["content"] for b in blocks if b["type"] == "tool_result"}


def session_with_calls(*uses):
    history = opened()
    history.say("look for errors")
    return history.answer(*uses)


def work_up_to_decision(history) -> None:
    """Does all work before the decision of the next step."""
    history.work(before=("N3",))


def test_S1_E_symptom_1_the_next_request_shows_the_short_form(server, tmp_path):
    history = session_with_calls(use())
    whole = long_result(history)
    work_up_to_decision(history)
    assert claimed_kinds(history) == ["result"]
    (short, finished) = run_work(history, server, tmp_path)
    assert short.call == "1.1.0" and finished.ok
    history.work()
    shown = results(history)["a"]
    assert shown.startswith(SHORT) and "line 7 of" not in shown
    assert "The whole is kept" in shown, "the agent has no tool to read the rest"
    assert len(history.request_bytes()) < len(whole) / 4


def test_S1_symptom_1_constraint_2_calls_with_the_same_provider_id_are_distinguished(
    server, tmp_path
):
    history = session_with_calls(use(id="x"), use(id="x"))
    history.result("1.1.0", "a short answer")
    long_result(history, "1.1.1")
    work_up_to_decision(history)
    run_work(history, server, tmp_path)
    history.work()
    first, second = results(history).values()
    assert first == "a short answer" and second.startswith(SHORT)


def test_S1_E_symptom_1_a_result_sent_in_full_stays_until_the_prefix_may_change(server, tmp_path):
    """A late short form must not replace a result that was sent, because that would invalidate the
    cache."""
    history = session_with_calls(use())
    long_result(history)
    history.work()
    sent = results(history)["a"]
    run_work(history, server, tmp_path)
    history.answer(use(id="b"))
    history.result("1.2.0", "seen")
    history.work()
    assert results(history)["a"] == sent and SHORT not in sent
    history.answer("done")
    history.later(600_000)  # the cached prefix has expired, so changing it is free
    history.say("and now?")
    history.work()
    assert results(history)["a"].startswith(SHORT)
    assert history.views.context.request.compacted_upto >= 0


def test_S1_E_symptom_1_a_result_is_shortened_once(server, tmp_path):
    history = session_with_calls(use())
    long_result(history)
    work_up_to_decision(history)
    short, _ = run_work(history, server, tmp_path)
    assert history.append(short, "background").code == "duplicate"
    history.work()
    assert claimed_kinds(history) == [] and not isinstance(history.owed(), ev.BackgroundStarted)

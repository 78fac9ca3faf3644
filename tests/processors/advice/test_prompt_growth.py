"""A system prompt that grows from session to session (S3.9) is reported with the part that grows
and its tokens."""

import json
from datetime import date

import pytest

from foldlog.client.show import Everything
from foldlog.processors.advice import prompt_growth
from foldlog.processors.advice.mistakes import Watch, grown_in, in_sessions
from foldlog.processors.advice.prompt_growth import Growth
from foldlog.processors.agent import Agent
from foldlog.processors.fold.projections.transcript import Line
from foldlog.processors.fold.rows import Rows
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.request.layers import Layer, Layers
from foldlog.processors.request.prefix import assemble
from foldlog.processors.worker.assemble import TokenAdvisor
from foldlog.schemas.events.parts import Body
from foldlog.schemas.value import replace
from foldlog.tests.kit.history import opened
from foldlog.upkeep.doctor.budget import budget_mistakes

ONE = opened()
ONE.say("go")
ONE.answer("done")
TODAY = date(2026, 11, 23)


def session(number: int, system: int = 10, memory: int = 0, user: str = "ana") -> SessionViews:
    """Returns a session whose prompt and core memory have these numbers of words."""
    agent = Agent(name="helper", model="claude-test", system="word " * system)
    layers = [Layer("core", "memory", "fact " * memory)] if memory else []
    prefix = assemble(agent, Layers(tuple(layers)))
    views, name = ONE.views, f"s{number:03}"
    (row,) = views.context.prefixes
    bodies = {"system": Body(inline=prefix.system), "tools": Body(inline=prefix.tools)}
    row = replace(row, sha256=f"{system}-{memory}", **bodies)
    return replace(
        views,
        session_id=name,
        state=replace(views.state, session_id=name, user_id=user),
        context=replace(views.context, prefixes=Rows([row])),
        transcript=replace(views.transcript, lines=Rows([Line("message", 1, 0, 0, number)])),
    )


def findings_of(sessions: list[SessionViews]) -> list[str]:
    """Returns what `doctor` reports about the prompts of these sessions."""
    by_id = {views.session_id: views for views in sessions}
    everything = Everything(by_id, dict.fromkeys(by_id, 0), {}, dict.fromkeys(by_id, 0), 0)
    found = budget_mistakes(everything, lambda ref: b"", TODAY)
    return [finding.text for finding in found if finding.check == "budget prompt"]


def test_S3_9_a_prompt_that_grows_from_session_to_session_is_reported_by_part_and_tokens():
    """The prompt does not grow within a session: each session has one prefix, slightly longer than
    that of the session before."""
    sessions = [session(n, system=100 + 40 * n) for n in range(30)]
    (text,) = findings_of(sessions)
    assert text.startswith("system prompt of agent helper: ")
    assert "has grown by" in text and "from session to session: " in text
    assert "in session s000, " in text and "29 sessions later (session s029)" in text
    grown = int(text.split("has grown by ")[1].split()[0])
    assert grown > prompt_growth.GROWTH_TOKENS_MAX


def test_S3_9_only_the_layer_that_grew_is_reported():
    sessions = [session(n, system=100, memory=100 + 100 * n) for n in range(20)]
    (text,) = findings_of(sessions)
    assert text.startswith("memory core of agent helper: ")


def test_S3_9_a_prompt_that_keeps_its_size_or_shrinks_again_is_not_reported():
    assert findings_of([session(n, system=3_000, memory=800) for n in range(20)]) == []
    sizes = [100, 100, 3_000, 3_000, 100]
    assert findings_of([session(n, system=size) for n, size in enumerate(sizes)]) == []


def test_S3_9_memories_of_different_users_are_not_compared():
    first, second = session(1, memory=10, user="ana"), session(2, memory=3_000, user="bo")
    assert findings_of([first, second]) == []
    (text,) = findings_of([first, second, session(3, memory=3_000, user="ana")])
    assert text.startswith("memory core") and "in session s001" in text


def test_S3_9_growth_is_no_longer_reported_after_enough_sessions(monkeypatch):
    monkeypatch.setattr(prompt_growth, "SESSIONS_BACK", 5)
    sizes = [100, *[3_000] * 4]
    assert len(findings_of([session(n, system=size) for n, size in enumerate(sizes)])) == 1
    assert findings_of([session(n, system=size) for n, size in enumerate([*sizes, 3_000])]) == []


def test_S3_9_a_session_read_twice_counts_once():
    growth = Growth()
    for n in (1, 2, 2, 2):
        found = grown_in(session(n, system=100 + 2_000 * (n > 1)), growth)
    (grown,) = found[("helper",)]
    assert (grown.since, grown.sessions) == ("s001", 1)
    (mistake,) = in_sessions([grown])
    assert mistake.tokens == grown.tokens and "1 session later" in mistake.text


def test_S3_9_a_watch_reports_growth_once_and_again_after_as_much_more_growth():
    watch, reported = Watch(), {}
    for n, size in enumerate([100, 150, 1_000, 1_050, 1_100, 2_500]):
        reported[n] = [m.culprit for m in watch.check(session(n, system=size))]
    assert reported == {0: [], 1: [], 2: ["system prompt"], 3: [], 4: [], 5: ["system prompt"]}


def test_S3_9_an_advisor_remembers_the_sessions_of_the_previous_process(tmp_path):
    logged: list[str] = []
    file = tmp_path / "sizes.json"
    TokenAdvisor(logged.append, lambda _id: 0, file).check(session(1, system=100))
    assert logged == []
    TokenAdvisor(logged.append, lambda _id: 0, file).check(session(2, system=2_000))
    (line,) = logged
    assert line.startswith("session s002: system prompt: ") and "in session s001" in line
    TokenAdvisor(logged.append, lambda _id: 0, file).check(session(3, system=2_000))
    assert len(logged) == 1, "the previous process reported it"


@pytest.mark.parametrize("content", [
    "", "[", "[1]", "{}", '[{"group": 1}]', '[{"group": ["a"], "sessions": [["s", 1]]}]',
    '[{"group": ["a"], "sessions": [], "told": {}}]',
    '[{"group": ["a"], "sessions": [["s", {"p": "x"}]], "told": {}}]',
])
def test_bad_input_an_invalid_file_of_sizes_is_replaced(tmp_path, content):
    file, logged = tmp_path / "sizes.json", []
    file.write_text(content)
    TokenAdvisor(logged.append, lambda _id: 0, file).check(session(1, system=100))
    TokenAdvisor(logged.append, lambda _id: 0, file).check(session(2, system=2_000))
    assert len(logged) == 1


def test_the_saved_sizes_are_bounded_and_survive_a_round_trip(monkeypatch):
    monkeypatch.setattr(prompt_growth, "GROUPS_MAX", 3)
    growth = Growth()
    for n in range(200):
        grown_in(session(n, memory=10, user=f"user{n % 7}"), growth)
    saved = growth.to_json()
    assert len(saved) == 3 and max(len(row["sessions"]) for row in saved) <= 50
    assert Growth(json.loads(json.dumps(saved))).to_json() == json.loads(json.dumps(saved))

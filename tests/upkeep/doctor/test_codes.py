"""Facts are codes, never sentences: with every sentence replaced by its code, nothing else changes.

One scenario for each family of sentences. Each runs twice, with the words and with codes in their
place, and must give the same facts.
"""

import asyncio
import dataclasses
import json
from datetime import date

import pytest

from foldlog.client.outcomes import answer_in
from foldlog.client.show import fold_everything
from foldlog.log import MemoryLog
from foldlog.log.blobs import BlobStore
from foldlog.log.made import note
from foldlog.processors.advice import block_usage, mistakes
from foldlog.processors.advice.block_usage import AdviceCode, AgentUsage, Place, Use
from foldlog.processors.advice.mistakes import MistakeCode, in_prefixes, in_sessions
from foldlog.processors.advice.prompt_growth import GrownPart
from foldlog.processors.agent import Agent
from foldlog.processors.effects import background
from foldlog.processors.effects.failed_turns import failed_turn, way_out
from foldlog.processors.effects.models import errors
from foldlog.processors.fold import transitions
from foldlog.processors.fold.projections import transcript
from foldlog.processors.limits import Limits
from foldlog.processors.outside import connection
from foldlog.processors.outside.connection import Condition, State
from foldlog.processors.request.layers import Layer
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.tool import tool
from foldlog.processors.wake import work_ends
from foldlog.processors.wake.background_tasks import Task
from foldlog.processors.wake.work_ends import WorkEnd
from foldlog.schemas import events as ev
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import UNCLEAN, topics
from foldlog.tests.kit import answers
from foldlog.tests.kit.played import PARTITIONS, memory_log, opened
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.processors.advice.test_mistakes import (
    ENTRIES,
    LOG,
    NEWS,
    after_result,
    described,
    prefix,
    served,
)
from foldlog.upkeep.doctor import checks, findings
from foldlog.upkeep.doctor.budget import budget_mistakes
from foldlog.upkeep.doctor.findings import Code, Severity, TopicRemedy, Words
from foldlog.web.protocols.plain import line_json


def replace_sentences(monkeypatch):
    """Put its code in the place of every sentence."""
    monkeypatch.setattr(work_ends, "WORDS", {code: str(code) for code in work_ends.WORDS})
    monkeypatch.setattr(connection, "WORDS", {state: str(state) for state in connection.WORDS})
    monkeypatch.setattr(transcript, "in_words", lambda line: f"{line.kind} {line.code}")
    monkeypatch.setattr(transitions.InvalidTransition, "__str__", lambda illegal: "code")
    monkeypatch.setattr(errors, "ADVICE", {cause: str(cause) for cause in errors.ADVICE})
    policy = {name: row._replace(advice=name) for name, row in errors.POLICY.items()}
    monkeypatch.setattr(errors, "POLICY", policy)
    kinds = {code: row._replace(text=code, do=code) for code, row in mistakes.WORDS.items()}
    monkeypatch.setattr(mistakes, "WORDS", kinds)
    monkeypatch.setattr(block_usage, "WORDS", {code: str(code) for code in AdviceCode})
    coded = {code: Words(row.level, "check", code, code) for code, row in findings.FINDINGS.items()}
    monkeypatch.setattr(findings, "FINDINGS", coded)


@pytest.fixture
def both(monkeypatch):
    """Runs a scenario with the words, then with codes in their place; returns both results."""

    def run(scenario):
        with_words = scenario()
        with monkeypatch.context() as patched:
            replace_sentences(patched)
            with_codes = scenario()
        assert with_words == with_codes
        return with_words

    return run


def facts(findings):
    return [(finding.code, finding.level) for finding in findings]


@tool(effect="pure", compactor=lambda text: text * 2)
def longer() -> str:
    """Read."""
    return ""


@tool(effect="pure", compactor=lambda text: "")
def empty() -> str:
    """Read."""
    return ""


@tool(effect="pure", compactor=lambda text: 1 / 0)
def broken() -> str:
    """Read."""
    return ""


async def no_client() -> None:
    """A client that must not be needed."""


def background_end(path, name: str, *, aborted: bool = False):
    sink, stop = background.OutcomeSink([]), Stop()
    if aborted:
        stop.request("stop")
    agent = Agent(name="a", model="m", tools=(longer, empty, broken))
    task = Task(b"{}", "m", 10, call="1.1.0", tool=name, text="long " * 10)
    claim = background.WorkClaim("s", "result", 3, 1, 1_000_000)
    work = background.work(claim, task, agent, sink, stop, no_client, blobs=BlobStore(path))
    asyncio.run(work)
    (done,) = sink.outcomes
    return done


def test_the_end_of_background_work_is_a_code(both, tmp_path):
    def scenario():
        ends = [background_end(tmp_path, name) for name in ("longer", "empty", "broken")]
        ends.append(background_end(tmp_path, "longer", aborted=True))
        return [(end.ok, end.code, end.released) for end in ends]

    assert both(scenario) == [
        (False, WorkEnd.SHORT_TOO_LONG, False),
        (False, WorkEnd.SHORT_EMPTY, False),
        (False, WorkEnd.COMPACTOR_FAILED, False),
        (False, WorkEnd.ABORTED, False),
    ]


def test_work_that_hangs_ends_with_the_code_of_its_limit(both, monkeypatch, tmp_path):
    monkeypatch.setattr(background, "GRACE_S", 0.02)

    def scenario():
        sink = background.OutcomeSink([])
        agent = Agent(name="a", model="m", limits=Limits(background_timeout_ms=20))
        claim = background.WorkClaim("s", "result", 3, 1, 1_000_000)

        async def never():
            await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)

        async def run():
            await background.work(
                claim, Task(b"{}", "m", 10), agent, sink, Stop(), never, blobs=BlobStore(tmp_path)
            )

        asyncio.run(run())
        return sink.outcomes[0].code

    assert both(scenario) == WorkEnd.TOO_LATE


def test_doctor_groups_background_work_by_codes(both, settings):
    def scenario():
        log = memory_log()
        for number, end in enumerate(WorkEnd):
            name = f"s{number}"
            sessions, played = opened(log, settings, name)
            sessions.say(name, "hi", message_id="m1")
            played.answer("hello")
            views = played.views
            if end is WorkEnd.TOO_LITTLE:
                upto, why = views.context.fragments[-1].offset, work_ends.in_words(end)
                played.append(ev.CompactionSkipped(upto=upto, why=why), "sessions")
                continue
            claim = {"kind": "memory", "upto": views.background.idle_at, "attempt": 1}
            taken = ev.PartitionTaken(role="background", owner=played.owner)
            epoch = played.append(taken, "background", PARTITION_KEY)
            place = {"owner": played.owner, "epoch": epoch, "deadline": 1}
            played.append(ev.BackgroundStarted(**claim, **place), "background")
            why = {"detail": "d", "model": "m", "error": "e", "tokens": 1, "covers": 1}
            done = work_ends.without_result(*claim.values(), end, **why, limit_ms=1)
            played.append(done, "background")
        return sorted(facts(checks.background_failures(fold_everything(log), None)))

    found = [code for code, _ in both(scenario)]
    assert len(found) == len(WorkEnd)
    assert found.count(Code.BACKGROUND_RETRIED) == 3
    assert found.count(Code.BACKGROUND_TOO_LITTLE) == 1
    assert found.count(Code.BACKGROUND_OWN_MODEL_FAILED) == 3


def test_refusals_to_tools_are_counted_by_codes(both, settings):
    def scenario():
        log = memory_log()
        sessions, played = opened(log, settings)
        sessions.say("s1", "hi", message_id="m1")
        played.propose("", ("mail", {}))
        played.invoke(0)
        played.tool_start()
        publish, revert = ev.Trigger(trigger="publish"), ev.Trigger(trigger="revert")
        locks = ev.Trigger(project_id="p; q")
        played.tool_result("sent", triggers=(publish, publish, revert, locks))
        found = list(checks.refused_to_tools(fold_everything(log)))
        result = [line for line in played.views.transcript.lines if line.kind == "result"][-1]
        shown = line_json(result, lambda _: b"")
        return [(f.values["times"], f.level) for f in found], result.code, shown["code"]

    assert both(scenario) == ([(2, "note"), (1, "note"), (1, "note")], "ok", "ok")


def test_a_failed_turn_offers_the_same_fork(both, settings):
    def scenario(error="bad_request"):
        log = memory_log()
        sessions, played = opened(log, settings)
        sessions.say("s1", "hi", message_id="m1")
        played.call()
        played.start()
        failed = ev.GenFailed(
            **played.place(), content=ev.Body(inline=b"[]"), error=error, permanent=True,
            detail="authentication: a text with: colons", status=400,
        )
        played.append(failed, "models")
        before = played.views
        played.end("failed", used=5, limit=5)
        lines = played.views.transcript.lines
        fork = way_out("s1", lines[-1], lines)
        answer = answer_in(played.views, "m1", None)
        said = failed_turn(before)
        return fork, answer.reason, fork.partition("fork ")[2] in said, "attempt 1" in said

    fork, reason, is_logged, has_number = both(scenario)
    assert "foldlog fork s1 --at" in fork and reason == "failed" and is_logged and has_number
    assert scenario("authentication")[0] == "", "no other content helps"


def test_the_states_of_mcp_servers_are_codes(both):
    def scenario():
        conditions = {f"s{n}": Condition(state, "up", "1") for n, state in enumerate(State)}
        states = {name: str(each.state) for name, each in conditions.items()}
        return facts(checks.mcp_servers(states, {n: str(c) for n, c in conditions.items()}))

    assert [level for _, level in both(scenario)] == ["ok", "ok", "note", "problem", "note", "ok"]


@pytest.mark.parametrize("moved_to", ["", "new."])
def test_a_log_with_other_partitions_or_that_was_moved_is_a_code(both, settings, moved_to):
    def scenario():
        log = memory_log()
        note(log, *(("moved_to", moved_to) if moved_to else ("partitions", 3)))
        return facts(checks.topics_as_wanted(log, settings))

    assert both(scenario) == [(Code.LOG_MOVED if moved_to else Code.LOG_GROWN, Severity.PROBLEM)]


@pytest.mark.parametrize(("made", "wanted", "remedy"), [
    (None, 3, TopicRemedy.SET_PARTITIONS_UNLESS_ADDED),
    (PARTITIONS, 3, TopicRemedy.SET_PARTITIONS),
    (PARTITIONS, PARTITIONS, TopicRemedy.SET_PROPERTIES),
])
def test_the_remedy_of_a_topic_is_a_code(both, settings, made, wanted, remedy):
    def scenario():
        config = {} if wanted != PARTITIONS else {UNCLEAN: "true"}
        specs = topics(PARTITIONS)
        log = MemoryLog([dataclasses.replace(x, config={**x.config, **config}) for x in specs])
        if made is not None:
            note(log, "partitions", made)
        found = checks.topics_as_wanted(log, dataclasses.replace(settings, partitions=wanted))
        return [each.values["remedy"] for each in found if "remedy" in each.values]

    assert set(both(scenario)) == {remedy}


def in_results(path):
    """The mistakes in results of tools: every kind of log, repetition and search."""
    hits, twice = json.dumps([NEWS, "short"]), after_result(NEWS)
    twice.answer(answers.Use("put", "{}", "b"))
    twice.result("1.2.0", NEWS)
    quoting = after_result("ok")
    quoting.say(raw=f"[{answers.text(NEWS)}]".encode())
    quoting.answer(answers.Use("look", "{}", "b"))
    quoting.result("1.2.0", NEWS)
    sessions = (
        after_result(LOG), after_result(served(path, ENTRIES * 10)),
        after_result(served(path, {"output": ENTRIES})), twice, quoting,
        after_result(NEWS, args=json.dumps({"where": NEWS})),
        after_result(NEWS * 6, "search_notes"), after_result(hits, "search_notes"),
    )
    return [found for session in sessions for found in mistakes.mistakes(session.views)]


def in_prompts():
    """The mistakes in prompts: large schemas, a clock, growth and changes."""
    rules, large = Layer("project", "F.md", "rule\n"), "a rule more\n" * 400
    grown = prefix("You help.", rules._replace(text=large))
    histories = (
        [prefix(tools=[described(7_900, f"big{n}") for n in range(6)])],
        [prefix("It is 2026-11-21T10:11.")], [prefix("You help.", rules), grown],
        [prefix(), grown], [prefix(f"You help number {n}.") for n in range(7)],
    )
    parts = (("system prompt", 1), ("memory core", 2))
    later = [GrownPart(("a",), part, 10, 900, "s1", sessions) for part, sessions in parts]
    return [*(found for each in histories for found in in_prefixes(each)), *in_sessions(later)]


def test_a_mistake_is_a_code(both, tmp_path):
    def scenario():
        found = [*in_results(tmp_path), *in_prompts()]
        return [(each.code, each.kind, *each[1:]) for each in found]

    found = both(scenario)
    assert {code for code, *_ in found} == set(MistakeCode)
    assert {kind for _, kind, *_ in found} == set(mistakes.KINDS)


def test_doctor_merges_mistakes_by_codes(both, settings):
    def scenario():
        log = memory_log()
        sessions, played = opened(log, settings)
        sessions.say("s1", "hi", message_id="m1")
        played.propose("", ("read", {}), ("read", {}))
        for index in range(2):
            played.invoke(index)
            played.tool_start(index)
            played.tool_result(LOG, index)
        found = budget_mistakes(fold_everything(log), lambda _: b"", date(2026, 11, 21))
        return [(each.code, each.values["mistake"].code) for each in found]

    expected = [MistakeCode.LOG, MistakeCode.ECHO_OF_CALL]
    assert both(scenario) == [(Code.BUDGET_MISTAKE, code) for code in expected]


def test_advice_on_a_block_is_a_code(both):
    uses = (
        Use(Place.FRONT, "rare", 100, 0, 0, 5_000, True), Use(Place.BEHIND, "usual", 100, 95, 95),
        Use(Place.PROMPT, "memory index", 100, 0, 0, 900),
    )

    def scenario():
        return [(each.use, each.code) for each in block_usage.advice(AgentUsage(100, uses))]

    assert both(scenario) == list(zip(uses, AdviceCode, strict=True))


def test_the_parts_of_texts_follow_from_values():
    one = findings.found(
        Code.AGENT_MISSING, agent="shop", sessions=["s1"], open_sessions=["s1"], served=()
    )
    assert one.text == "session s1 needs agent shop; the worker serves none"
    some = {"agent": "shop", "sessions": ["a", "b"], "open_sessions": ["b"], "served": ("x", "y")}
    assert findings.found(Code.AGENT_MISSING, **some).text == (
        "2 sessions need agent shop (with an open turn: b); the worker serves x, y"
    )
    letters = findings.found(Code.DEAD_LETTERS_LEFT, left=2, skipped=1).text
    assert letters.startswith("2 records could not be decoded, and 1 more that `foldlog skip`")


def test_every_finding_has_words():
    assert set(findings.FINDINGS) == set(Code)
    assert set(findings.TOPIC_REMEDIES) == set(TopicRemedy)
    assert set(mistakes.WORDS) == set(MistakeCode) and set(block_usage.WORDS) == set(AdviceCode)
    assert set(work_ends.WORDS) == set(WorkEnd) and set(connection.WORDS) == set(State)

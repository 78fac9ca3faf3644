"""A worker's counters: each event counts once, labels come from a fixed set, sums equal the
ledger."""

from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest

from foldlog.log import MemoryLog
from foldlog.log.errors import LogUnreachable
from foldlog.processors.advice.prices import PICO_PER_USD, input_cost, list_prices, total
from foldlog.processors.tools.tool import tool
from foldlog.processors.worker import meter as metering
from foldlog.processors.worker.meter import COUNTERS, Meter, refusal_lines
from foldlog.processors.worker.metrics import LAG, REACHABLE, exposition, lag
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.golden.record import PLAYS
from foldlog.tests.kit.agents import AGENT
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, with_calls


def counted(s: History) -> dict[str, dict[tuple[str, ...], float]]:
    meter = Meter(list_prices())
    for step in s.steps:
        meter.count(step.entry, step.before, step.ruling)
    return {family.name: values for family, values in meter.counts().items()}


@pytest.mark.parametrize("name", PLAYS)
def test_the_counters_of_a_session_equal_its_views(name):
    s = PLAYS[name]()
    found = counted(s)
    rows = list(s.views.ledger.spent)
    paid = Counter()
    for (_, part, _), tokens in found["foldlog_tokens"].items():
        paid[part] += tokens
    for part in ("input", "cache_read", "cache_write_5m", "output"):
        assert paid[part] == sum(getattr(row, f"{part}_tokens") for row in rows)
    money = total(rows, list_prices())
    assert sum(found["foldlog_cost_usd"].values()) == pytest.approx(float(Decimal(money.usd)))
    assert sum(found["foldlog_unpriced_attempts"].values()) == money.unpriced
    inputs = input_cost(rows, list_prices())
    for name, picodollars in (("", inputs.paid), ("_uncached", inputs.uncached)):
        dollars = sum(found[f"foldlog_input_cost{name}_usd"].values())
        assert dollars == pytest.approx(picodollars / PICO_PER_USD), "S3.7"
    ended = [line for line in s.views.transcript.lines if line.kind == "ended"]
    assert found["foldlog_turns"] == Counter((line.name,) for line in ended)
    whole = [step for step in s.steps if not isinstance(step.entry.event, ev.GenChunk)]
    chunks = [step for step in s.steps if type(step.entry.event).__name__ == "ChunkSeen"]
    assert sum(found["foldlog_events"].values()) == len(whole) - len(chunks)
    refused = sum(step.ruling.verdict == "refused" for step in s.steps)
    assert sum(found["foldlog_refusals"].values()) == refused
    shorts = Counter(("in time" if x.early else "late",) for x in s.views.compaction.shorts)
    assert Counter(found["foldlog_short_forms"]) == shorts
    assert set(found["foldlog_short_forms"]) == {("in time",), ("late",)}, "even at 0"


def test_claims_and_attempts_are_counted_by_role():
    found = counted(PLAYS["crash_and_resume"]())
    assert found["foldlog_claims"]["models", "accepted"] >= 2
    assert found["foldlog_attempts"]["models", "complete"] >= 1
    assert sum(found["foldlog_events"].values()) > 10
    assert ("GEN_COMPLETE", "superseded") in found["foldlog_events"]


def test_S0_4_a_refusal_of_a_tool_is_counted_and_logged_like_that_of_a_person():
    """The defect: an invalid transition by a tool was only a line in the tool's result."""
    s = with_calls(Use("look", "{}", "a"))
    s.trigger("publish")
    s.result("1.1.0", triggers=(ev.Trigger(trigger="publish"), ev.Trigger(project_id="p1")))
    counts = counted(s)["foldlog_refusals"]
    assert counts == {("invalid_transition",): 2, ("not_the_project_tool",): 1}
    lines = [line for x in s.steps for line in refusal_lines(x.entry, x.before, x.ruling)]
    invalid = "was refused: invalid transition: phase=chatting, event=publish"
    tool = "session s1: tool look (call 1.1.0)"
    assert lines == [
        f"session s1: a command {invalid}",
        f"{tool} {invalid}",
        f"{tool} was refused: look may not lock a project: build_and_deploy may",
    ]


def test_S2_12_a_call_in_a_wrong_phase_is_counted_and_logged_like_an_invalid_transition():
    @tool(phases=("building",))
    def write() -> str:
        """Writes."""
        return ""

    s = with_calls(Use("write", "{}", "a"), agent=replace(AGENT, tools=[write]))
    assert counted(s)["foldlog_refusals"] == {("wrong_phase",): 1}
    lines = [line for x in s.steps for line in refusal_lines(x.entry, x.before, x.ruling)]
    where = "phase=chatting, tool=write"
    assert lines == [f"session s1: tool write (call 1.1.0) was refused: wrong phase: {where}"]


def test_the_number_of_series_is_bounded(monkeypatch):
    monkeypatch.setattr(metering, "SERIES_MAX", 3)
    meter = Meter(list_prices())
    for n in range(10):
        meter.add("foldlog_unpriced_attempts", f"model-{n}")
    (found,) = (v for f, v in meter.counts().items() if f.name == "foldlog_unpriced_attempts")
    assert found == {("model-0",): 1, ("model-1",): 1, ("model-2",): 1, ("other",): 7}


def test_prometheus_parses_the_exposition():
    from prometheus_client.parser import text_string_to_metric_families

    meter = Meter(list_prices())
    s = PLAYS["conversation"]()
    for step in s.steps:
        meter.count(step.entry, step.before, step.ruling)
    text = exposition(meter.counts() | lag(MemoryLog(topics(2)), {0: 0, 1: 0})).decode()
    read = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(COUNTERS) <= set(read) and {LAG.name, REACHABLE.name} <= set(read)
    assert "process_resident_memory_bytes" in read
    ended = {tuple(x.labels.values()): x.value for x in read["foldlog_turns"].samples}
    assert ended == {("end_turn",): 2}
    for secret in ("golden", "ana", "hello", "charge", "m1"):
        assert secret not in text, "no id and no content"


def test_an_unreachable_log_is_reported_and_has_no_lag():
    class Away:
        def end_offsets(self, _topic):
            raise LogUnreachable("away")

    assert lag(Away(), {0: 3}) == {REACHABLE: {(): 0}}
    log = MemoryLog(topics(1))
    log.producer().append(SESSION_EVENTS, "s1", b"x")
    assert lag(log, {0: 0}) == {REACHABLE: {(): 1}, LAG: {("0",): 1}}

"""Every bench runs at a tiny size and measures what its docstring states. No test asserts a time.

The peers' environment is not required: without it, their benches must name what is missing.
"""

import ast
import re
import subprocess
import sys
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest

from foldlog.bench import (
    __main__ as bench,
    append,
    caching,
    fold_spread,
    peers,
    refold,
    steps,
    storage,
    streams,
    targets,
    tokens,
    turn_bytes,
)
from foldlog.bench.history import Session
from foldlog.bench.job import agent, turn
from foldlog.bench.measure import Installation, Missing, Ratio
from foldlog.bench.played import Played, canned
from foldlog.log.memory import MemoryLog
from foldlog.processors.store.store import DictBackend
from foldlog.reports.replay import Replay
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, entry_of, headers_for
from foldlog.schemas.events import ToolResult
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit.played import settings_in


def _played(turns: int, **more) -> Played:
    job = [turn(number) for number in range(1, turns + 1)]
    return Played(agent(**more), DictBackend(), canned).play_all(job)


def test_the_job_has_the_same_content_in_every_run_and_repeats_nothing():
    assert turn(7) == turn(7)
    assert len({turn(n).result for n in range(1, 21)}) == 20
    assert turn(1).content_bytes == sum(len(text) for text in turn(1)[1:])


def test_a_played_turn_is_in_the_request_and_every_record_is_accepted():
    played = _played(3)
    request = played.request.decode()
    for number in (1, 2, 3):
        assert all(text in request for text in (turn(number).question, turn(number).result))
    assert turn(2).answer in request and played.calls == 6
    assert played.messages == 12
    assert not played.worker.rulings, "a bench over ignored events would measure nothing"


def test_a_chat_without_tools_has_two_messages_per_turn():
    with append.chat() as mine:
        mine.grow(6)
        assert mine.played.messages == 6 and mine.played.calls == 3
        took = mine.played.timed(mine.next())
    assert took.round_ms > took.append_ms > 0 < took.context_ms
    assert mine.played.messages == 8


def test_stored_bytes_include_every_part_of_a_record():
    records = _played(1).records
    whole = sum(len(bytes(part, "utf-8") if isinstance(part, str) else part)
                for record in records
                for part in (record.key, record.value, *(p for h in record.headers for p in h)))
    assert storage.stored_bytes(records) == whole
    kinds = {type(entry_of(record).event).__name__ for record in records}
    assert {"ChunkSeen", "GenStart", "ToolResult", "TurnEnded"} <= kinds


def test_stored_bytes_grow_with_new_content():
    ten, twenty = (storage.stored_bytes(_played(turns).records) for turns in (10, 20))
    assert twenty < 2.1 * ten


def test_S3_7_cache_saving_prices_the_tokens_that_the_server_counted():
    found = caching.cache_saving(turns=6)
    assert 0 < found.ratio < 1 and found.ratio == pytest.approx(1 - found.ours / found.baseline)
    first, second, *_ = caching.spent_on(2)
    assert first.cache_read_tokens == 0 < first.cache_write_5m_tokens
    assert second.cache_read_tokens == first.cache_write_5m_tokens, "the second step hits"


def test_S3_1_a_second_user_reads_what_users_share_from_the_cache():
    read, whole = caching.read_by_a_second_user()
    assert 0.8 * whole < read < whole
    assert f"reads {read:,} of {whole:,}" in caching.cache_saving(turns=2).note


def test_S2_12_two_changes_of_phase_do_not_lower_the_saving():
    phased, plain = caching.saving_with_phases(6)
    assert 0 < plain <= phased
    assert "with two changes of phase" in caching.cache_saving(turns=2).note


def test_S3_7_the_page_about_costs_states_what_the_bench_measures():
    page = (Path(bench.__file__).parents[1] / "docs" / "tokens-and-cost.md").read_text("utf-8")
    shown = dict(re.findall(r"^\| (\d+) \| ([\d.]+) % \|$", page, re.MULTILINE))
    assert shown.keys() == {"20", str(caching.TURNS)}
    assert shown["20"] == f"{caching.cache_saving(turns=20).ratio:.1%}"[:-1]


def test_context_flatness_compares_the_sizes_in_its_note(monkeypatch):
    monkeypatch.setattr(append, "SIZES", (90, 100))
    found = append.context_flatness(1)
    assert found.ratio >= 1 and "at 90" in found.note and "at 100" in found.note
    assert found.spread is not None


def test_token_estimate_error_is_the_worst_of_every_sample_and_family():
    found = tokens.token_estimate_error()
    every = list(tokens.sample_errors())
    assert {one.family for one in every} == {"old", "new"} and len(every) >= 40
    assert found.ratio == max(abs(one.error) for one in every)
    assert found.ratio == pytest.approx(abs(found.ours / found.baseline - 1))
    assert found.ratio <= 0.25, "docs/tokens-and-cost.md promises it"


def test_bytes_per_turn_is_a_ratio():
    assert isinstance(turn_bytes.bytes_per_turn(1), Ratio)


@pytest.mark.skipif(not peers.PYTHON.exists(), reason="`make bench` installs the peers")
def test_the_peers_do_the_same_job():
    job = [turn(number) for number in (1, 2)]
    assert storage.theirs(job)["messages"] == 8
    with peers.peer("peer_agents.py", append.PACKAGE) as agents:
        agents.ask({"fill": list(append.items_of(job[0]))})
        response = agents.ask({"append": append.items_of(job[1])[0]})
    assert response["items"] == 3 and response["ms"] > 0


def test_a_peer_that_dies_is_an_error_without_a_figure():
    with pytest.raises((RuntimeError, Missing)):
        with peers.peer("peer_langgraph.py", storage.PACKAGE) as langgraph:
            langgraph.ask("no job")


def test_the_stock_baseline_stays_as_it_was():
    """Figures with another baseline could not be compared with the old ones."""
    text = refold.STOCK.read_text()
    assert "foldlog" not in "".join(line for line in text.splitlines() if "import" in line[:7])
    assert sha256(text.encode()).hexdigest()[:16] == "ebfbed8fc8015033"


def test_the_bare_loop_reads_every_delta_of_the_streaming_server():
    with streams.stream_server(5) as server:
        loop = [sys.executable, str(streams.SCRIPTS / "sdk_loop.py"), server.url, "3"]
        subprocess.run(loop, check=True, timeout=60)
        server.await_active(0)
        assert server.report()["deltas"] == 15


def test_the_bare_loop_stays_as_it_was():
    """Figures with another baseline could not be compared with the old ones."""
    text = (streams.SCRIPTS / "sdk_loop.py").read_text()
    assert sha256(text.encode()).hexdigest()[:16] == "f420bae3a9a881ab"


def test_streams_fit_while_first_texts_and_chunks_are_in_time():
    fits = streams.Step(300, 499, 249, us={"worker": 60.0}, sent=1)
    assert fits.fits and fits.cores == pytest.approx(0.9)
    assert not fits._replace(first_ms=500).fits and not fits._replace(lag_ms=250).fits
    slow = fits._replace(sent=0.94)
    assert not slow.fits and "only 94% of the deltas sent" in str(slow)


@pytest.mark.parametrize(
    ("most", "tried"),
    [(10_000, [300, 600, 1200, 2400, 4800]), (460, [300, 600, 450, 500]), (90, [300, 150, 50, 100]),
     (0, [300, 150, 50])],
)
def test_the_most_streams_are_searched_in_few_steps(most, tried):
    steps = []
    while (number := streams.next_streams(steps)) is not None:
        steps.append(streams.Step(number, 1, 1 if number <= most else 1_000, {}, 1))
    assert [step.streams for step in steps] == tried


def test_the_streaming_server_ends_every_stream_when_it_is_told_to():
    with streams.stream_server(1_000_000) as server:
        loop = [sys.executable, str(streams.SCRIPTS / "sdk_loop.py"), server.url, "3"]
        with subprocess.Popen(loop) as process:
            server.await_active(3)
            server.finish()
            assert process.wait(60) == 0


@pytest.fixture
def shared_log(tmp_path):
    """An installation whose log has records of workers that were started before, as in `fold`."""
    settings = settings_in(tmp_path)
    log = MemoryLog(topics(settings.partitions))
    producer = log.producer()
    for partition in range(settings.partitions):
        for n in range(3 + partition):
            taken = ev.PartitionTaken(role="tools", owner=f"w/{n}")
            headers = headers_for(taken, "tools")
            producer.append(
                SESSION_EVENTS, PARTITION_KEY, encode(taken), headers, partition=partition
            )
    return Installation(settings, log, tmp_path, tmp_path)


@pytest.mark.parametrize(
    "write",
    [
        lambda here: refold.write_log(here, 3, 2) + refold.write_log(here, 2, 1, "more"),
        lambda here: fold_spread.write_spread(here, 2, 5),
    ],
    ids=["fold", "fold_spread"],
)
def test_every_event_of_a_written_log_is_accepted(shared_log, write):
    """The defect: decisions named offsets as if the log had been empty, and the fold ignored them.
    """
    written = write(shared_log)
    sessions = Replay(shared_log.log).run().sessions
    assert len(sessions) == 5
    assert sum(folded.rulings["accepted"] for folded in sessions.values()) == written
    assert not any(folded.views.turn.open for folded in sessions.values())


def test_a_history_repeats_no_text_and_is_the_same_in_every_run():
    def results(name: str) -> list[bytes]:
        session = Session(name, count())
        events = [event for _, event in (*session.opened(), *session.turn(), *session.turn())]
        return [event.content.inline for event in events if isinstance(event, ToolResult)]

    assert results("one") == results("one")
    assert len({*results("one"), *results("two")}) == 4


def test_peers_import_nothing_of_foldlog_and_are_pinned():
    here = Path(bench.__file__).parent
    scripts = list(here.glob("peer_*.py"))
    assert len(scripts) == 5
    assert not any("foldlog" in line for s in scripts for line in s.read_text().splitlines()
                   if line.startswith(("import", "from")))
    pinned = (here / "peers.lock").read_text()
    for line in (here / "peers.in").read_text().splitlines():
        name = line.replace("[binary]", "")  # the lock names the extra's packages one by one
        assert line.startswith("#") or f"\n{name} \\" in pinned


def test_a_step_is_timed_from_an_answer_to_the_next_request_of_its_turn():
    clock = count(0, 10)
    entries = []
    for _turn in range(3):
        for _call in range(steps.STEPS + 1):
            entries += [{"kind": kind, "at_ms": next(clock)} for kind in ("accepted", "answered")]
        next(clock)  # a pause between two turns, which is nobody's step
    waits = steps._turnarounds(entries)
    assert waits == [10] * (2 * steps.STEPS), "the first turn warms up, and pauses are left out"


def test_a_step_is_compared_with_the_fastest_peer_run_by_run():
    peers_ms = {"slow": [[9.0] * 9, [9.0] * 9], "fast": [[2.0] * 9, [4.0] * 9]}
    found = steps.ratio_of_steps("durable_step", [[1.0] * 9, [3.0] * 9], peers_ms)
    assert found.spread == (0.5, 0.75) and found.peers == {"slow": 9.0, "fast": 3.0}
    assert found.ratio == pytest.approx(0.625) and "fast" in found.note


@pytest.mark.skipif(not peers.PYTHON.exists(), reason="`make bench` installs the peers")
@pytest.mark.parametrize("name", steps.PEERS)
def test_each_peer_times_as_many_steps_as_it_is_asked_for(name):
    row = steps.PEERS[name]
    with peers.peer(row.script, row.package) as process:
        for asked in (3, 4):
            times_ms = process.ask({"steps": asked, "flush": asked == 4, **row.question})
            assert len(times_ms) == asked and min(times_ms) > 0


@pytest.mark.parametrize(
    ("aim", "ratio", "verdicts"),
    [
        ("at most 1.5", 1.5, [True]),
        ("at most 1.5", 1.6, [False]),
        ("at least 0.45, aim 0.7", 0.5, [True, False]),
        ("at most 4, aim 2.5", 2.0, [True, True]),
        ("at most 1.5, ours at most 0.4 s, aim 0.1 s", 1.0, [True, True, False]),
        ("at least 1 (300 streams), aim 2", 1.5, [True, False]),
    ],
)
def test_a_figure_is_compared_with_every_clause_of_its_target(aim, ratio, verdicts):
    row = Ratio("fold", 0.2, 1.0, "s", ratio, 5, aim)
    assert [clause.is_met for clause in targets.clauses(row)] == verdicts
    unmet = not all(met for met, text in zip(verdicts, aim.split(", "), strict=True)
                    if not text.startswith("aim"))
    assert targets.is_met(row) is not unmet


def test_every_target_in_the_benches_can_be_read():
    found = set()
    for path in Path(bench.__file__).parent.glob("*.py"):
        if path.name != "targets.py":
            for node in ast.walk(ast.parse(path.read_text())):
                value = getattr(node, "value", None)
                if isinstance(node, ast.Constant) and isinstance(value, str):
                    found |= {value} & {value for word in ("at most ", "at least ")
                                        if value.startswith(word) and len(value) < 60}
    assert len(found) > 10
    for aim in found - {"at least 1 ("}:  # the beginning of an f-string
        assert targets.clauses(Ratio("fold", 1.0, 1.0, "ms", 1.0, 5, aim))

"""Runs of `make bench` store their figures, and two full runs publish what both found. The figures
on the pages are the published ones.
"""

import json
import re
import sys

import pytest
from click.testing import CliRunner

from foldlog.bench import (
    __main__ as bench,
    caching,
    peers,
    published,
    report,
    sizes,
    storage,
    targets,
)
from foldlog.bench.measure import Missing, Plot, Ratio, Spread
from foldlog.bench.published import Figure, Run, from_json, why_unpublished

RUN = Run("1 December 2026", "abc1234", "2 cores", 0.25)
PLOT = Plot("events", "s", {"with": [(10.0, 1.0), (1000.0, 1.1)], "without": [(10.0, 1.0)]})


def row_of(name: str, ratio: float = 1.0, aim: str = "at most 2", **more) -> Ratio:
    return Ratio(name, ratio, 1.0, "ms", ratio, 5, aim, **more)


def figure(name: str = "fold", ratio: float = 1.0, run: Run = RUN, **more) -> Figure:
    return Figure(row_of(name, ratio, **more), 1.0, run)


# -- the pages -----------------------------------------------------------------------------------


def test_the_report_explains_every_bench():
    assert set(report.WHAT) == set(bench.NAMES) >= targets.LIMITS.keys()


def test_the_page_and_its_pictures_are_those_of_the_published_figures():
    figures = published.load()
    text = report.PAGE.read_text("utf-8")
    assert text == report.page(text, figures), "python -m foldlog.bench --page draws it again"
    pictures = {path.name for path in (report.DOCS / "images").glob("bench-*.svg")}
    drawn = {name for name, (_, newest) in figures.items() if newest.ratio.plot is not None}
    assert pictures == {f"bench-{name}.svg" for name in drawn}


def test_every_published_figure_was_found_twice():
    for name, (first, second) in published.load().items():
        assert first.ratio.name == second.ratio.name == name
        plain = second._replace(ratio=second.ratio._replace(plot=None))
        assert not why_unpublished(first, plain), name


def test_a_figure_of_a_bench_on_a_page_is_the_published_one():
    """The form is: (bench `fold`: 0.45). A bench that is not published has no figure."""
    figures = published.load()
    pages = [published.ROOT / "README.md", *report.DOCS.glob("*.md"),
             *(report.DOCS / "decisions").glob("*.md")]
    found = [
        (page.name, *shown)
        for page in pages
        for shown in re.findall(r"bench `(\w+)`[:,]?([^)]*)\)", page.read_text("utf-8"))
        if shown[0] in bench.NAMES and shown[1]
    ]
    for page, name, shown in found:
        digits = len(shown.partition(".")[2])
        assert name in figures, f"{page}: {name} is not published"
        assert shown.strip() == f"{figures[name][-1].ratio.ratio:.{digits}f}", (page, name)
    assert ("0003-views-are-structs-with-rows.md", "bytes_per_turn", " 0.93") in found


def test_the_pages_about_costs_show_the_published_saving():
    saved = published.load()["cache_saving"][-1].ratio
    decision = next((report.DOCS / "decisions").glob("0020-*")).read_text("utf-8")
    assert f"${saved.ours:.2f} with the cache, ${saved.baseline:.2f} without" in decision
    costs = (report.DOCS / "tokens-and-cost.md").read_text("utf-8")
    assert f"| {caching.TURNS} | {saved.ratio:.1%}"[:-1] in costs


# -- two runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (figure(spread=Spread(0.9, 1.1)), figure(ratio=1.2, spread=Spread(1.1, 1.3)), ""),
        (figure(spread=Spread(0.9, 1.0)), figure(ratio=1.2, spread=Spread(1.1, 1.3)),
         "disagree: 1 (0.9-1) and 1.2 (1.1-1.3)"),
        (figure(ratio=1.0001), figure(ratio=1.0002), ""),
        (figure(ratio=1.01), figure(ratio=1.02), "disagree: 1.01 and 1.02"),
        (None, figure(), "measured once"),
        (figure(run=RUN._replace(commit="def")), figure(), "measured once"),
        (figure(run=RUN._replace(machine="4 cores")), figure(), "measured once"),
        (figure(run=RUN._replace(commit="")), figure(run=RUN._replace(commit="")), "in no commit"),
    ],
)
def test_a_figure_is_published_if_two_full_runs_agree(before, now, why):
    found = why_unpublished(before, now)
    assert (why in found) if why else not found


def test_a_stored_figure_is_read_back():
    row = figure(spread=Spread(0.9, 1.1), plot=PLOT, peers={"DBOS": 3.0}, note="a note")
    read = from_json(json.loads(json.dumps(published.as_json(row))))
    assert report.page(report.PAGE.read_text(), {"fold": (read, read)}) == report.page(
        report.PAGE.read_text(), {"fold": (row, row)}
    )
    assert json.dumps(published.as_json(read)) == json.dumps(published.as_json(row))


# -- the page ------------------------------------------------------------------------------------


def drawn(**figures: tuple[Figure, Figure]) -> str:
    return report.page(report.PAGE.read_text("utf-8"), figures)


def test_a_target_is_met_in_both_runs_or_has_its_limit(monkeypatch):
    monkeypatch.setitem(targets.LIMITS, "replay", "the interpreter takes 0.2 of the 0.6")
    text = drawn(
        fold=(figure(ratio=3.0), figure()),
        replay=(figure("replay", 3.0), figure("replay", 3.0)),
        takeover=(figure("takeover"), figure("takeover")),
    )
    assert text.count("at most 2: **not met**") == 2 and "at most 2: met" in text
    assert "- `fold` (3 and 1): **not explained yet**" in text and "- `takeover`" not in text
    assert "- `replay` (3 and 3): the interpreter takes 0.2 of the 0.6." in text


def test_the_page_shows_spread_run_peers_and_what_is_missing():
    peers_ms = {"DBOS": 0.5, "LangGraph": 40_000.0}
    found = figure("durable_step", peers=peers_ms, spread=Spread(0.9, 1.1), plot=PLOT)
    text = drawn(durable_step=(found, found))
    assert "|1 (0.9-1.1)|at most 2: met|" in text and "## Method" in text
    assert "- 1 December 2026, abc1234: 2 cores; load 0.2." in text
    assert "|`durable_step`|DBOS|0.5 ms|1 ms|**DBOS**, 2 times|" in text
    assert "|`durable_step`|LangGraph|40,000 ms|1 ms|foldlog, 40,000 times|" in text
    assert "(images/bench-durable_step.svg)" in text
    missing = text.partition("Not measured twice yet: ")[2].partition("\n")[0]
    assert "`fold`" in missing and "`durable_step`" not in missing
    assert text.count("<!-- measured: ") == text.count("<!-- end -->") == 5


def test_a_figure_of_another_run_names_its_bench():
    newer = RUN._replace(commit="def5678")
    text = drawn(fold=(figure(), figure()),
                 replay=(figure("replay", run=newer), figure("replay", run=newer)))
    assert "- 1 December 2026, abc1234 (`fold`): " in text
    assert "- 1 December 2026, def5678 (`replay`): " in text


# -- a run ---------------------------------------------------------------------------------------


@pytest.fixture
def benches(monkeypatch, tmp_path):
    """Replaces all benches by those that the test sets in the returned dict, and runs them beside a
    copy of the page."""
    rows: dict = {}
    (tmp_path / "images").mkdir()
    (tmp_path / "performance.md").write_text(report.PAGE.read_text("utf-8"))
    (tmp_path / "published.json").write_text("{}")
    monkeypatch.setattr(report, "DOCS", tmp_path)
    monkeypatch.setattr(report, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "published.json")
    monkeypatch.setattr(published, "this_run", lambda: RUN)
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(sizes, "SHORT", {})
    for table in ("BROKER", "WORKER"):
        monkeypatch.setattr(bench, table, {})
    monkeypatch.setattr(bench, "ALONE", rows)

    def run(*args: str):
        monkeypatch.setattr(bench, "NAMES", tuple(rows))
        return CliRunner().invoke(bench.main, args)

    return rows, run


def test_a_run_prints_each_target_spread_and_duration(benches):
    rows, run = benches
    rows |= {"fold": lambda runs: row_of("fold", 3.0, spread=Spread(2.5, 3.5)),
             "replay": lambda runs: row_of("replay", runs / 3)}
    before = report.PAGE.read_text()
    ran = run()
    assert ran.exit_code == 0, ran.output
    assert "3 (2.5-3.5)" in ran.output and "1.000" in ran.output, "three pairs"
    assert "at most 2: **not met**" in ran.output and "at most 2: met" in ran.output
    assert "1 of 2 targets are met, not: fold. It took 0.0 minutes" in ran.output
    assert "fold took 0 s" in ran.output and report.PAGE.read_text() == before
    stored = json.loads(bench.RESULTS.read_text())
    assert list(stored["short"]) == ["fold", "replay"] and not stored["full"]


def test_the_second_of_two_full_runs_publishes_what_both_found(benches):
    rows, run = benches
    values = iter((1.0, 5.0))
    rows |= {"fold": lambda runs: row_of("fold", runs / 5),
             "replay": lambda runs: row_of("replay", next(values))}
    assert "fold is not published: measured once" in run("--full").output
    assert run("fold").exit_code == 0, "a short run between them changes nothing"
    ran = run("--full")
    assert ran.exit_code == 0, ran.output
    assert "replay is not published: two full runs disagree: 1 and 5" in ran.output
    assert list(published.load()) == ["fold"]
    text = report.PAGE.read_text()
    assert "|`fold`|" in text and "|`replay`|" not in text and text == drawn(**published.load())


def test_a_bench_that_is_measured_again_keeps_the_other_published_figures(benches):
    rows, run = benches
    rows |= {name: lambda runs, name=name: row_of(name) for name in ("fold", "replay")}
    run("--full")
    run("--full", "fold")
    run("--full", "replay")
    assert list(published.load()) == ["fold", "replay"]


def test_a_page_that_cannot_be_drawn_changes_nothing(benches, monkeypatch, tmp_path):
    rows, run = benches
    rows |= {"takeover": lambda runs: row_of("takeover", plot=PLOT)}
    before = report.PAGE.read_text()
    monkeypatch.setattr(peers, "PYTHON", tmp_path / "none")
    run("--full")
    assert "plot is drawn with matplotlib" in run("--full").output
    monkeypatch.setattr(peers, "PYTHON", report.PAGE)
    monkeypatch.setattr(report, "PYTHON", sys.executable)
    monkeypatch.setattr(report, "PLOT", tmp_path / "no_such_file.py")
    assert run("--full").exit_code == 1
    assert report.PAGE.read_text() == before and published.load() == {}
    assert not list((tmp_path / "images").iterdir())


def _interrupted(runs: int) -> Ratio:
    raise KeyboardInterrupt


def _failing(runs: int) -> Ratio:
    raise AssertionError("the worker did not become ready")


def _missing(runs: int) -> Ratio:
    raise Missing("no peer")


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (_interrupted, 1),
        (_failing, 1),
        (_missing, 0),
        (lambda runs: row_of("replay", aim="rather fast"), 1),
    ],
)
def test_a_bench_without_a_figure_loses_its_old_one_and_no_other(benches, second, code):
    rows, run = benches
    rows |= {name: lambda runs, name=name: row_of(name) for name in ("fold", "replay")}
    run("--full")
    rows["replay"] = second
    assert run("--full").exit_code == code
    stored = json.loads(bench.RESULTS.read_text())["full"]
    assert list(stored) == (["fold", "replay"] if second is _interrupted else ["fold"])
    assert list(published.load()) == ([] if second is _interrupted else ["fold"])


def test_a_missing_peer_is_named_and_gives_no_figure(benches, monkeypatch, tmp_path):
    rows, run = benches
    monkeypatch.setattr(peers, "PYTHON", tmp_path / "python")
    rows |= {"storage_growth": lambda runs: storage.theirs([])}
    ran = run("storage_growth")
    assert ran.exit_code == 0, ran.output
    assert "make bench" in ran.output and "langgraph" in ran.output
    assert not json.loads(bench.RESULTS.read_text())["short"]


@pytest.mark.skipif(not peers.PYTHON.exists(), reason="`make bench` installs the peers")
def test_a_plot_is_drawn_from_its_points():
    picture = report.drawn(row_of("takeover", plot=PLOT))
    assert all(f">{word}</text>" in picture for word in ("events", "s", "with", "without"))

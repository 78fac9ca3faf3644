"""Draws docs/performance.md from the published figures alone, so that it can be drawn again without
measuring.

The page contains the drawn text between `<!-- measured: NAME -->` and `<!-- end -->`; all other
text is written by hand.
"""

import json
import re
import subprocess
from collections.abc import Mapping

from foldlog.bench import published, targets
from foldlog.bench.measure import Ratio
from foldlog.bench.peers import PYTHON
from foldlog.bench.published import Run, Twice, replace_file

DOCS = published.ROOT / "docs"
PAGE = DOCS / "performance.md"
PLOT = published.PUBLISHED.with_name("plot.py")
MARK = re.compile(r"(<!-- measured: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

WHAT = {
    "bytes_per_turn": "stored bytes of turn 200, over those of turn 20",
    "token_estimate_error": "the worst relative error of the token estimate, on 25 texts",
    "memory_search": "recall at 5 of the memory search, over that of words alone",
    "cache_saving": "the share of a 200-turn job's input cost that the cache saves",
    "context_flatness": "time to append a message and build a request at 100 to 4,000 messages, "
    "the longest over the shortest",
    "fold": "events per second of CPU of a worker that folds a log, over those of a stock reader",
    "storage_growth": "stored bytes per byte said in 200 turns, over LangGraph's SqliteSaver",
    "append_context": "time of `SQLiteSession` (OpenAI Agents SDK) at 1,000 messages, over ours",
    "replay": "the same as `fold`, of `foldlog replay`",
    "chunk_latency": "time of a chunk to a viewer of the gateway, over a bare Kafka reader",
    "idle_viewers_rss": "memory of 1,000 idle viewers in a gateway, over 100 MB",
    "inspector_frames": "frame time (p95) of the inspector's slowest action while 10,000 events "
    "arrive, over a bare page",
    "fold_spread": "CPU time per folded event with 1,000 to 100,000 open sessions, the highest "
    "over that with 10",
    "fleet_facts": "facts per second of a fleet member, over a plain client's records",
    "facts_cost": "CPU time of a worker per turn with four calls, with facts over without",
    "takeover": "seconds until a worker on an empty disk decides after 1,000,000 events, over "
    "10,000",
    "stream_cost": "CPU time of worker, spare, gateway and broker per delta of 100 viewed streams, "
    "over a loop on the SDK's stream",
    "streams_per_worker": "the most streams of 50 deltas a second that a worker serves in time, "
    "over 300",
    "step_turnaround": "time from an answer with a no-op call to the next request, over a log hop",
    "durable_step": "the same time, over a step of the fastest peer (only pi-durable's includes as "
    "much)",
    "flushed_step": "the same with each commit on the disk",
    "message_to_request": "time from a message to the model request, over a log hop",
    "recovery": "seconds from kill -9 during an answer to its resumption",
    "journaled_stream": "characters per second through the log, over the provider's",
    "stop_latency": "seconds from a cancel to the closed model connection, p99",
}
"""What the ratio of each bench is."""


UNEXPLAINED = "**not explained yet**"


def page(text: str, figures: Mapping[str, Twice]) -> str:
    """The text of the page with these figures."""
    newest = {name: figures[name][-1].ratio for name in WHAT if name in figures}
    parts = {
        "runs": runs(figures),
        "table": table(figures),
        "targets": unmet(figures),
        "peers": beside_peers(newest),
        "plots": links(newest),
    }
    return MARK.sub(lambda mark: mark[1] + parts[mark[2]] + mark[3], text)


def runs(figures: Mapping[str, Twice]) -> str:
    """When and where each bench was measured."""
    found: dict[Run, list[str]] = {}
    for name, (_, newest) in figures.items():
        found.setdefault(newest.run, []).append(f"`{name}`")
    lines = []
    for run, names in found.items():
        which = "" if len(found) == 1 else f" ({', '.join(names)})"
        lines.append(f"- {run.date}, {run.commit}{which}: {run.machine}; load {run.load:.1f}.\n")
    return "".join(lines)


def table(figures: Mapping[str, Twice]) -> str:
    """The ratios as a table, and the benches that are not in it."""
    lines = [
        "|bench|what is divided by what|foldlog|baseline|ratio (spread)|target|",
        "|---|---|---|---|---|---|",
    ]
    for name in WHAT:
        if name in figures:
            row = figures[name][-1].ratio
            mine, base = f"{_shown(row.ours)} {row.unit}", f"{_shown(row.baseline)} {row.unit}"
            verdicts = targets.with_verdicts(*_ratios(figures[name]))
            lines.append(f"|`{name}`|{WHAT[name]}|{mine}|{base}|{row.shown}|{verdicts}|")
    left = [f"`{name}`" for name in WHAT if name not in figures]
    missing = f"Not measured twice yet: {', '.join(left)}.\n" if left else ""
    if not figures:
        return missing
    return "\n".join((*lines, *(("", missing) if left else ("",))))


def unmet(figures: Mapping[str, Twice]) -> str:
    """What stands in the way of each target that is not met, and the ratios of both runs."""
    lines = []
    for name in WHAT:
        if name in figures and not targets.is_met(*(both := _ratios(figures[name]))):
            found = " and ".join(f"{row.ratio:.3g}" for row in both)
            lines.append(f"- `{name}` ({found}): {targets.LIMITS.get(name, UNEXPLAINED)}.\n")
    return "".join(lines) or "None.\n"


def _ratios(twice: Twice) -> tuple[Ratio, ...]:
    return tuple(figure.ratio for figure in twice)


def beside_peers(rows: Mapping[str, Ratio]) -> str:
    """foldlog's figure beside that of each peer; less is better in all of them."""
    lines = ["|bench|peer|peer's figure|foldlog|less is|\n", "|---|---|---|---|---|\n"]
    for name, row in rows.items():
        for peer, theirs in (row.peers or {}).items():
            less, times = ("foldlog", theirs / row.ours) if row.ours < theirs else (
                f"**{peer}**", row.ours / theirs
            )
            lines.append(
                f"|`{name}`|{peer}|{_shown(theirs)} {row.unit}|{_shown(row.ours)} {row.unit}|"
                f"{less}, {_shown(times)} times|\n"
            )
    return "".join(lines) if len(lines) > 2 else ""


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def links(rows: Mapping[str, Ratio]) -> str:
    """The Markdown that shows the plots."""
    return "\n".join(
        f"![{row.plot.y}, by {row.plot.x} ({name})](images/bench-{name}.svg)\n"
        for name, row in rows.items()
        if row.plot is not None
    )


def drawn(row: Ratio) -> str:
    """The plot of a bench, as SVG."""
    assert row.plot is not None
    asked = json.dumps(row.plot._asdict())
    done = subprocess.run([PYTHON, PLOT], input=asked, capture_output=True, text=True, check=True)
    return done.stdout


def publish(new: Mapping[str, Twice]) -> None:
    """Publish these figures beside those of other benches: plots, published.json and the page."""
    ratios = {name: figure.ratio for name, (_, figure) in new.items() if figure.ratio.plot}
    plots = {name: drawn(ratio) for name, ratio in ratios.items()}
    figures = {**published.load(), **new}
    for name, plot in plots.items():
        replace_file(DOCS / "images" / f"bench-{name}.svg", plot)
    published.save({name: figures[name] for name in WHAT if name in figures})
    write_page()


def write_page() -> None:
    """Draw the page again."""
    replace_file(PAGE, page(PAGE.read_text("utf-8"), published.load()))

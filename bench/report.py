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
    "bytes_per_turn": "log and store bytes of turn 200, over those of turn 20",
    "token_estimate_error": "the worst relative error of the token estimate, on 25 texts",
    "memory_search": "recall at 5 of the memory search, over that of a search by words alone",
    "cache_saving": "the share of a 200-turn job's input cost that the cache saves",
    "context_flatness": "time to append a message and build a request at 100, 1,000 and 4,000 "
    "messages, the longest over the shortest",
    "fold": "events per second of CPU of a worker process that folds a log from its start, over "
    "those of a reader built of stock parts (`bench/stock_reader.py`)",
    "storage_growth": "stored bytes per byte of conversation in 200 turns, over those of "
    "LangGraph's SqliteSaver",
    "append_context": "time of `SQLiteSession`'s add and get (OpenAI Agents SDK) at 1,000 "
    "messages, over foldlog's",
    "replay": "events per second of CPU of `foldlog replay` in one process, over the same reader",
    "chunk_latency": "time of a chunk to a viewer of the gateway, over that to a bare Kafka reader",
    "idle_viewers_rss": "memory that 1,000 idle viewers add to a gateway, over its limit",
    "inspector_frames": "time of a frame of the inspector (95th percentile, of its slowest action) "
    "while 10,000 events arrive, over that of a bare page with as many rows",
    "fold_spread": "CPU time per event of a worker process that folds sessions of a short turn, "
    "with 1,000 to 100,000 of them open at once in one partition, the highest over that with 10",
    "fleet_facts": "facts per second that a member of the fleet folds into its tables, over the "
    "records per second of the plain client",
    "facts_cost": "CPU time of a worker process per turn (a message, four calls, an answer) while "
    "it writes facts, over that while it writes none",
    "takeover": "seconds until a worker on an empty disk decides in a partition of 1,000,000 "
    "events, over one of 10,000",
    "stream_cost": "CPU time of worker, spare, gateway and broker per streamed delta, with 100 "
    "streams of 50 deltas a second and a viewer of each, over that of a bare loop over the SDK's "
    "stream",
    "streams_per_worker": "the most streams of 50 deltas a second on one worker, with the first "
    "text in the log within 500 ms and a chunk within 250 ms (99th percentile), over 300",
    "step_turnaround": "time from the end of an answer that calls a no-op tool to the next model "
    "request, over one hop through the log",
    "durable_step": "time from the end of an answer that calls a no-op tool to the next model "
    "request, over a step of the fastest peer (DBOS, LangGraph, pi-durable)",
    "flushed_step": "the same while both sides wait until each commit is on the disk",
    "message_to_request": "time from a message to the model request, over one hop through the log",
    "recovery": "seconds from kill -9 during an answer to its resumption",
    "journaled_stream": "characters per second through the log, over those of the provider's "
    "stream",
    "stop_latency": "seconds from a user's cancel to the closed connection of the model call, "
    "99th percentile",
}
"""What the ratio of each bench is."""


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
        lines.append(
            f"- Commit {run.commit}, {run.date}{which}: {run.machine}, and the broker; load "
            f"average {run.load:.1f} at the start.\n"
        )
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
            mine, base = f"{row.ours:,.4g} {row.unit}", f"{row.baseline:,.4g} {row.unit}"
            verdicts = targets.with_verdicts(*_ratios(figures[name]))
            lines.append(f"|`{name}`|{WHAT[name]}|{mine}|{base}|{row.shown}|{verdicts}|")
    left = [f"`{name}`" for name in WHAT if name not in figures]
    missing = f"Not measured twice yet: {', '.join(left)}.\n" if left else ""
    if not figures:
        return missing
    return "\n".join((*lines, *(("", missing) if left else ("",))))


def unmet(figures: Mapping[str, Twice]) -> str:
    """What stands in the way of each target that is not met."""
    lines = [
        f"- `{name}`: {targets.LIMITS.get(name, '**no limit is known**, so this is a defect')}.\n"
        for name in WHAT
        if name in figures and not targets.is_met(*_ratios(figures[name]))
    ]
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
                f"|`{name}`|{peer}|{theirs:,.3g} {row.unit}|{row.ours:,.3g} {row.unit}|"
                f"{less}, {times:.2g} times|\n"
            )
    return "".join(lines) if len(lines) > 2 else ""


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

"""Writes the results of a whole `make bench` into docs/performance.md, and draws its plots.

The page contains the measured text between `<!-- measured: NAME -->` and `<!-- end -->`; all other
text is written by hand.
"""

import json
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from foldlog.bench.measure import Missing, Ratio
from foldlog.bench.peers import PYTHON

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "performance.md"
PLOT = Path(__file__).with_name("plot.py")
MARK = re.compile(r"(<!-- measured: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

WHAT = {
    "bytes_per_turn": "log and store bytes of turn 200, over those of turn 20",
    "token_estimate_error": "the worst relative error of the token estimate against ctok, "
    "on 25 labelled texts, for both families of models",
    "memory_search": "recall at 5 of the memory search, over that of a search by words alone",
    "cache_saving": "the share of the input cost of a 200-turn tool job that the cache saves, "
    "at list prices",
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
    "fold_spread": "CPU time per event of a worker process that folds sessions of a short turn, "
    "with 1,000 to 100,000 of them open at once in one partition, the highest over that with 10",
    "takeover": "seconds until a worker on an empty disk decides in a partition of 1,000,000 "
    "events, over one of 10,000",
    "stream_cost": "CPU time of worker and gateway per streamed delta, with 100 streams of 50 "
    "deltas a second and a viewer of each, over that of a bare loop over the SDK's stream",
    "streams_per_worker": "the most streams of 50 deltas a second on one worker, with the first "
    "text in the log within 500 ms and a chunk within 250 ms (99th percentile), over 300",
    "step_turnaround": "time from the end of an answer that calls a no-op tool to the next model "
    "request, over one hop through the log",
    "durable_step": "time of a no-op tool call, over a step of the fastest peer (DBOS, LangGraph, "
    "pi-durable)",
    "message_to_request": "time from a message to the model request, over one hop through the log",
    "recovery": "seconds from kill -9 during an answer to its resumption",
    "journaled_stream": "characters per second through the log, over those of the provider's "
    "stream",
    "stop_latency": "seconds from a user's cancel to the closed connection of the model call, "
    "99th percentile",
}
"""What the ratio of each bench is."""


def machine() -> str:
    """One sentence about this machine and this moment."""
    model = ""
    if Path("/proc/cpuinfo").exists():
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
        model = f" ({found[1].strip()})" if found else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Measured on {datetime.now(UTC):%d %B %Y}: {os.cpu_count()} cores{model}, "
        f"{memory:.0f} GiB of memory, {platform.system()}, Python {platform.python_version()}, "
        f"one Kafka broker on the same machine.\n"
    )


def table(rows: dict[str, Ratio | Missing]) -> str:
    """The ratios as a table."""
    lines = ["| bench | what is divided by what | foldlog | baseline | ratio | target |",
             "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        cells = [f"`{name}`", WHAT[name]]
        if isinstance(row, Missing):
            cells += [f"not measured: {row}", "", "", ""]
        else:
            mine, base = f"{row.ours:,.4g} {row.unit}", f"{row.baseline:,.4g} {row.unit}"
            cells += [mine, base, f"{row.ratio:.3g}", row.aim]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def details(rows: dict[str, Ratio | Missing]) -> str:
    """What each bench adds to its figures, such as the spread."""
    lines = [f"- `{name}`: {row.note} ({row.runs} runs)."
             for name, row in rows.items() if isinstance(row, Ratio) and row.note]
    return "\n".join(lines) + "\n"


def plots(rows: dict[str, Ratio | Missing]) -> str:
    """Draws the plots below docs/images; returns the Markdown that shows them."""
    lines = []
    for name, row in rows.items():
        if not isinstance(row, Ratio) or row.plot is None:
            continue
        asked = json.dumps(row.plot._asdict())
        drawn = subprocess.run([PYTHON, PLOT], input=asked, capture_output=True, text=True,
                               check=True)
        (DOCS / "images" / f"bench-{name}.svg").write_text(drawn.stdout)
        lines += [f"![{row.plot.y}, by {row.plot.x} ({name})](images/bench-{name}.svg)", ""]
    return "\n".join(lines)


def write(rows: dict[str, Ratio | Missing]) -> None:
    """Write the page."""
    parts = {
        "machine": machine(), "table": table(rows), "details": details(rows), "plots": plots(rows)
    }
    page = PAGE.read_text()
    PAGE.write_text(MARK.sub(lambda mark: mark[1] + parts[mark[2]] + mark[3], page))

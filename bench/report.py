"""Writes the results of a complete `make bench` into docs/performance.md, and draws its plots.

The page contains the measured text between `<!-- measured: NAME -->` and `<!-- end -->`; all other
text is written by hand. Nothing is written until every part exists, so that a page never has
figures of two runs.
"""

import json
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from foldlog.bench import targets
from foldlog.bench.measure import Ratio
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
    "stream_cost": "CPU time of worker and gateway per streamed delta, with 100 streams of 50 "
    "deltas a second and a viewer of each, over that of a bare loop over the SDK's stream",
    "streams_per_worker": "the most streams of 50 deltas a second on one worker, with the first "
    "text in the log within 500 ms and a chunk within 250 ms (99th percentile), over 300",
    "step_turnaround": "time from the end of an answer that calls a no-op tool to the next model "
    "request, over one hop through the log",
    "durable_step": "time from the end of an answer that calls a no-op tool to the next model "
    "request, over a step of the fastest peer (DBOS, LangGraph, pi-durable)",
    "message_to_request": "time from a message to the model request, over one hop through the log",
    "recovery": "seconds from kill -9 during an answer to its resumption",
    "journaled_stream": "characters per second through the log, over those of the provider's "
    "stream",
    "stop_latency": "seconds from a user's cancel to the closed connection of the model call, "
    "99th percentile",
}
"""What the ratio of each bench is."""


def machine(seconds: float, load: float) -> str:
    """One paragraph about this machine and this run. load: the load average at the start."""
    model = ""
    if Path("/proc/cpuinfo").exists():
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
        model = f" ({found[1].strip()})" if found else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Measured on {datetime.now(UTC):%d %B %Y}{_commit()}: {os.cpu_count()} cores{model}, "
        f"{memory:.0f} GiB of memory, {platform.system()}, Python {platform.python_version()}, "
        f"one Kafka broker on the same machine. The load average was {load:.1f} at the start; the "
        f"run took {seconds / 60:.0f} minutes.\n"
    )


def _commit() -> str:
    """The version of the code, as text; "" outside of a repository."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        found = subprocess.run(command, cwd=DOCS, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f" at commit {found.stdout.strip()}"


def table(rows: dict[str, Ratio]) -> str:
    """The ratios as a table, and how many targets are met."""
    lines = ["| bench | what is divided by what | foldlog | baseline | ratio | target |",
             "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        mine, base = f"{row.ours:,.4g} {row.unit}", f"{row.baseline:,.4g} {row.unit}"
        cells = [f"`{name}`", WHAT[name], mine, base, f"{row.ratio:.3g}",
                 targets.with_verdicts(row)]
        lines.append(f"| {' | '.join(cells)} |")
    unmet = [f"`{name}`" for name, row in rows.items() if not targets.is_met(row)]
    summary = f"{len(rows) - len(unmet)} of {len(rows)} benches meet their targets"
    lines += ["", f"{summary}; these do not: {', '.join(unmet)}." if unmet else f"{summary}."]
    return "\n".join(lines) + "\n"


def details(rows: dict[str, Ratio]) -> str:
    """What each bench adds to its figures, such as the spread."""
    lines = [f"- `{name}`: {row.note} ({row.runs} runs)." for name, row in rows.items() if row.note]
    return "\n".join(lines) + "\n"


def plots(rows: dict[str, Ratio]) -> dict[str, str]:
    """The drawn plots, by bench."""
    drawn = {}
    for name, row in rows.items():
        if row.plot is not None:
            asked = json.dumps(row.plot._asdict())
            done = subprocess.run(
                [PYTHON, PLOT], input=asked, capture_output=True, text=True, check=True
            )
            drawn[name] = done.stdout
    return drawn


def links(rows: dict[str, Ratio]) -> str:
    """The Markdown that shows the plots."""
    lines = []
    for name, row in rows.items():
        if row.plot is not None:
            lines += [f"![{row.plot.y}, by {row.plot.x} ({name})](images/bench-{name}.svg)", ""]
    return "\n".join(lines)


def write(rows: dict[str, Ratio], seconds: float, load: float) -> None:
    """Write the plots and the page. seconds: how long the run took; load: see `machine`."""
    parts = {
        "machine": machine(seconds, load),
        "table": table(rows),
        "details": details(rows),
        "plots": links(rows),
    }
    page = MARK.sub(lambda mark: mark[1] + parts[mark[2]] + mark[3], PAGE.read_text())
    for name, drawn in plots(rows).items():
        replace_file(DOCS / "images" / f"bench-{name}.svg", drawn)
    replace_file(PAGE, page)


def replace_file(path: Path, text: str) -> None:
    """Replace a file by this text, or leave it as it is if this process ends before."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, "utf-8")
    fresh.replace(path)

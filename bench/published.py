"""bench/published.json: the figures that docs/performance.md shows, each measured by two full runs.

A full run publishes a figure if the full run before it, of the same code on the same machine, found
the same: their spreads overlap, or, of figures without a spread, the first three digits are equal.
A bench that was not measured twice so far is absent.
"""

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from foldlog.bench import peers
from foldlog.bench.measure import Plot, Ratio, Spread

ROOT = Path(__file__).parent.parent
PUBLISHED = Path(__file__).with_name("published.json")
CODE = (".", ":!docs", ":!bench/published.json")  # what a figure depends on


class Run(NamedTuple):
    """When and where figures were measured. commit: the last one that changed the code; "" if the
    checkout has changes that are in no commit. load: the load average at the start."""

    date: str
    commit: str
    machine: str
    load: float


class Figure(NamedTuple):
    """The result of a bench, how long the bench took, and the run."""

    ratio: Ratio
    seconds: float
    run: Run


Twice = tuple[Figure, Figure]
"""The figures of two full runs, the newer one last."""


def this_run() -> Run:
    """The run that begins now."""
    now = datetime.now(UTC)
    return Run(f"{now.day} {now:%B %Y}", _commit(), _machine(), os.getloadavg()[0])


def _machine() -> str:
    model = ""
    if Path("/proc/cpuinfo").exists():
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
        model = f" ({found[1].strip()})" if found else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores{model}, {memory:.0f} GiB of memory, {platform.system()}, Python "
        f"{platform.python_version()}"
    )


def _commit() -> str:
    try:
        changed, last = (
            subprocess.run(
                ["git", *command, "--", *CODE], cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout.strip()
            for command in (("status", "--porcelain"), ("log", "-1", "--format=%h"))
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return "" if changed else last


def why_unpublished(before: Figure | None, now: Figure) -> str:
    """Why a figure cannot be published after the one of the full run before, or "" if it can."""
    if not now.run.commit:
        return "the checkout has changes that are in no commit"
    if now.ratio.plot is not None and not peers.PYTHON.exists():
        return "its plot is drawn with matplotlib of bench/.venv, which `make bench` installs"
    if before is None or before.run[1:3] != now.run[1:3]:
        return "measured once by a full run of this commit; repeat it"
    first, second = before.ratio, now.ratio
    agree = first.shown == second.shown
    if first.spread and second.spread:
        agree = first.spread.low <= second.spread.high and second.spread.low <= first.spread.high
    return "" if agree else f"two full runs disagree: {first.shown} and {second.shown}"


def as_json(figure: Figure) -> dict[str, Any]:
    """A figure as a JSON object."""
    row = figure.ratio._asdict()
    if figure.ratio.plot is not None:
        row["plot"] = figure.ratio.plot._asdict()
    return row | {"seconds": round(figure.seconds, 1), "run": figure.run._asdict()}


def from_json(row: Mapping[str, Any]) -> Figure:
    """The figure of a JSON object."""
    ratio = {name: row[name] for name in Ratio._fields}
    if row["plot"] is not None:
        ratio["plot"] = Plot(**row["plot"])
    if row["spread"] is not None:
        ratio["spread"] = Spread(*row["spread"])
    return Figure(Ratio(**ratio), row["seconds"], Run(**row["run"]))


def load() -> dict[str, Twice]:
    """The published figures by bench."""
    rows = json.loads(PUBLISHED.read_text("utf-8"))
    return {name: (from_json(first), from_json(second)) for name, (first, second) in rows.items()}


def save(figures: Mapping[str, Twice]) -> None:
    """Replace the published figures; each bench is a line."""
    lines = [
        f"{json.dumps(name)}: {json.dumps([as_json(figure) for figure in twice])}"
        for name, twice in figures.items()
    ]
    replace_file(PUBLISHED, "{\n" + ",\n".join(lines) + "\n}\n")


def replace_file(path: Path, text: str) -> None:
    """Replace a file by this text, or leave it as it is if this process ends before."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, "utf-8")
    fresh.replace(path)

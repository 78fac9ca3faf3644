"""Draws the plot of a bench as SVG, in bench/.venv (see peers.py), with matplotlib.

The input is one line of JSON: the fields of measure.Plot. The output is the picture. The same
points give the same bytes.
"""

import io
import json
import sys

import matplotlib as mpl
from matplotlib.figure import Figure

SPAN = 20  # an axis is logarithmic if its largest value is this many times its smallest

mpl.rcParams.update({"svg.hashsalt": "foldlog", "svg.fonttype": "none", "font.size": 9})


def is_wide(values: list[float]) -> bool:
    """Whether values should be drawn on a logarithmic axis."""
    return min(values) > 0 and max(values) / min(values) >= SPAN


def draw(x: str, y: str, lines: dict[str, list[list[float]]]) -> str:
    """The picture."""
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1.4, label=name)
    xs, ys = ([point[n] for points in lines.values() for point in points] for n in (0, 1))
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if is_wide(xs):
        axes.set_xscale("log")
    if is_wide(ys):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if len(lines) > 1:
        axes.legend(frameon=False)
    picture = io.StringIO()
    figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": None})
    return picture.getvalue()


print(draw(**json.loads(sys.stdin.read())), end="")

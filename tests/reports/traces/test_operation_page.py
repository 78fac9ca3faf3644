"""The operation page and the dashboard name existing metrics; log lines are valid JSON."""

import json
import logging
import re

import pytest

from foldlog.cli.terminal.log_lines import JsonFormatter
from foldlog.processors.worker import metrics as of_worker
from foldlog.processors.worker.meter import COUNTERS, Family
from foldlog.tests.structure.tree import ROOT
from foldlog.web.gateway import metrics as of_gateway

FAMILIES = {
    family.name: family
    for family in (
        *COUNTERS.values(),
        *(found for module in (of_worker, of_gateway) for found in vars(module).values()
          if isinstance(found, Family)),
    )
}
SHOWN = {f.name + ("_total" if f.kind == "counter" else ""): f for f in FAMILIES.values()}
OF_FLEET = re.findall(r'f"(foldlog_fleet_\w+) ', (ROOT / "fleet" / "routes.py").read_text("utf-8"))
SHOWN |= {name: Family(name, "gauge", "Of the fleet.") for name in OF_FLEET}


def test_the_page_lists_existing_metrics_with_their_labels():
    page = (ROOT / "docs" / "operation.md").read_text("utf-8")
    rows = re.findall(r"^\| `(foldlog_\w+)(?:\{([\w,]+)\})?` \|", page, re.MULTILINE)
    listed = {name: tuple(filter(None, labels.split(","))) for name, labels in rows}
    assert len(listed) >= 10
    assert listed == {name: SHOWN[name].labels for name in listed}
    assert set(re.findall(r"foldlog_[a-z]+_\w+", page)) <= set(SHOWN)


def test_every_metric_explains_itself():
    assert [name for name, family in SHOWN.items() if not family.help.endswith(".")] == []


def test_the_dashboard_queries_existing_metrics_only():
    dashboard = json.loads((ROOT / "docs" / "grafana.json").read_text("utf-8"))
    queries = [t["expr"] for panel in dashboard["panels"] for t in panel.get("targets", ())]
    names = {name for text in queries for name in re.findall(r"foldlog_\w+", text)}
    assert names <= set(SHOWN) and len(names) > 15
    for text in queries:
        by = {label for group in re.findall(r"by \(([\w, ]+)\)", text) for label in
              group.split(", ")} - {"job", "instance"}
        (name, *_) = re.findall(r"foldlog_\w+|process_\w+", text)
        assert not by or by <= set(SHOWN[name].labels), text
    places = [tuple(panel["gridPos"][k] for k in "xy") for panel in dashboard["panels"]]
    assert len(set(places)) == len(places), "panels do not overlap"


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("session s-1.a: over its budget", {"session": "s-1.a"}),
        ("session s1 is left alone: turn 2 cannot continue: offset 7: x", {"session": "s1",
                                                                           "offset": "7"}),
        ("partition 3: another worker took it for models", {"partition": "3"}),
        ("worker w/1 runs models on port 5", {}),
    ],
)
def test_a_log_line_as_json_has_the_ids_that_it_names(text, ids):
    record = logging.makeLogRecord({"name": "foldlog.worker", "levelname": "INFO", "msg": text})
    line = json.loads(JsonFormatter("%(message)s").format(record))
    assert line.pop("at").endswith("+00:00")
    assert line == {"level": "info", "logger": "foldlog.worker", "text": text, **ids}

"""The tree follows the architecture: directions of imports, places of packages, a pure core, one
reader of the environment."""

import ast
import re
from collections.abc import Iterator

from foldlog.tests.structure.import_rules import (
    CORE,
    arrow_findings,
    chance_findings,
    core_findings,
    core_sources,
    environment_findings,
    export_findings,
    floor_findings,
    loop_findings,
    place_findings,
)
from foldlog.tests.structure.tree import Source, demand_none, python_sources, room_sources

SHIPPED = [s for s in python_sources() if s.room or s.path == "__init__.py"]


def _all(rule, sources):
    return (finding for source in sources for finding in rule(source))


def test_imports_follow_the_arrows():
    demand_none(_all(arrow_findings, room_sources()))


def test_imports_inside_processors_point_downward():
    demand_none(_all(floor_findings, room_sources()))


def test_each_package_is_imported_in_its_place():
    demand_none(place_findings(SHIPPED))


def test_the_core_is_pure():
    core = core_sources(room_sources())
    paths = {source.path for source in core}
    assert "processors/fold/transitions.py" in paths
    assert all(any(path.startswith(folder) for path in paths) for folder in CORE)
    demand_none(_all(core_findings, core))


def test_sessions_are_folded_by_one_loop():
    demand_none(_all(loop_findings, room_sources()))


def test_the_contract_uses_no_clock_and_no_randomness():
    demand_none(_all(chance_findings, [s for s in SHIPPED if s.room == "schemas"]))


def test_the_environment_is_read_in_one_place():
    demand_none(_all(environment_findings, SHIPPED))


def test_exported_names_are_declared():
    demand_none(_all(export_findings, [s for s in SHIPPED if s.path.endswith("__init__.py")]))


def test_each_package_names_its_files_in_reading_order():
    packages = [s for s in room_sources() if s.path.endswith("/__init__.py")]
    demand_none(_all(_unnamed, packages))


def _unnamed(package: Source) -> Iterator[str]:
    text = ast.get_docstring(package.tree) or ""
    for source in room_sources():
        name = source.parts[-1]
        is_file = not source.path.endswith("__.py") and source.package == package.parts
        if is_file and not re.search(rf"\b{name}\b", text):
            yield f"{package.path}: does not say when to read {name}.py"

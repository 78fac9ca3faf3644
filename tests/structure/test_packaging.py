"""pyproject.toml describes the tree correctly: packages, dependencies, extras."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import foldlog
import foldlog.testing
from foldlog.tests.structure.imports import imports
from foldlog.tests.structure.tree import ROOMS, ROOT, Source, all_paths, room_sources

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# Imported without being declared: part of the public interface of another dependency.
PART_OF = {
    "mode-streaming": "faust-streaming",
    "httpx2": "anthropic",
    "mcp-types": "mcp",
    "anyio": "mcp",
    "h11": "uvicorn",
    "pydantic-core": "pydantic",
    "protobuf": "opentelemetry-exporter-otlp-proto-http",
    "starlette": "fastapi",
}


def _listed_and_found(listed: list[str], paths: tuple[str, ...]) -> tuple[set[str], set[str]]:
    """The listed packages, and the directories of rooms that contain Python files."""
    found = {"foldlog"} | {
        ".".join(["foldlog", *path.split("/")[:-1]])
        for path in paths
        if path.endswith(".py") and path.split("/")[0] in ROOMS
    }
    return set(listed), found


def test_package_list_equals_the_tree():
    listed, found = _listed_and_found(PYPROJECT["tool"]["setuptools"]["packages"], all_paths())
    assert listed == found


def test_a_package_that_is_not_listed_is_found():
    listed, found = _listed_and_found(
        ["foldlog", "foldlog.log", "foldlog.gone"], ("log/x.py", "log/new/x.py", "tests/x.py")
    )
    assert found - listed == {"foldlog.log.new"}
    assert listed - found == {"foldlog.gone"}


def test_every_directory_of_python_files_is_a_package():
    directories = {path.rsplit("/", 1)[0] for path in all_paths() if path.endswith(".py")} - {
        "__init__.py"
    }
    missing = [
        d for d in sorted(directories)
        if d.split("/")[0] in ROOMS and f"{d}/__init__.py" not in all_paths()
    ]
    assert missing == []


def test_no_test_directory_is_a_package():
    assert [p for p in all_paths() if p.startswith("tests/") and p.endswith("__init__.py")] == []


def _plain(name: str) -> str:
    """The name of a requirement or a distribution, in the form in which the registry compares
    names."""
    return re.split(r"[\[<>=!~; ]", name)[0].lower().replace("_", "-")


def _undeclared(sources, declared: list[str]) -> dict[str, str]:
    """The imported packages that no dependency provides, by file and line."""
    names = {_plain(requirement) for requirement in declared}
    distributions = packages_distributions()
    missing = {}
    for source in sources:
        for found in imports(source):
            if found.relative or found.top == "foldlog" or found.top in sys.stdlib_module_names:
                continue
            # If an extra is not installed, only its import name is known.
            of = {_plain(name) for name in distributions.get(found.top, [found.top])}
            if not {PART_OF.get(name, name) for name in of} & names:
                missing[f"{source.path}:{found.line}"] = found.top
    return missing


def test_every_imported_package_is_a_dependency_or_an_extra():
    declared = list(PYPROJECT["project"]["dependencies"])
    for requirements in PYPROJECT["project"]["optional-dependencies"].values():
        declared += requirements
    assert _undeclared(room_sources(), declared) == {}


def test_an_undeclared_import_is_found():
    sources = [Source("log/x.py", "import fastavro, json\nimport hypothesis\nimport no_such\n")]
    assert _undeclared(sources, ["fastavro>=1.13"]) == {
        "log/x.py:2": "hypothesis",
        "log/x.py:3": "no_such",
    }


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_every_locked_package_has_a_hash(name):
    lock = (ROOT / name).read_text().splitlines()
    entries = [i for i, line in enumerate(lock) if line and not line.startswith((" ", "#"))]
    assert len(entries) > 20
    assert [lock[i] for i in entries if "--hash=sha256:" not in lock[i + 1]] == []


@pytest.mark.parametrize("package", [foldlog, foldlog.testing], ids=lambda p: p.__name__)
def test_a_lazy_package_exports_what_it_declares_and_type_checkers_see_the_same(package):
    assert sorted(package.__all__) == sorted(package._EXPORTS)
    for name, module in package._EXPORTS.items():
        defined = importlib.import_module(module, package.__name__)
        assert getattr(package, name) is getattr(defined, name)
    assert not hasattr(package, "no_such_name")
    tree = ast.parse(Path(package.__file__).read_text())
    shown = {
        alias.asname: "." * node.level + node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    assert shown == package._EXPORTS


def test_importing_the_front_door_imports_nothing_heavy():
    program = (
        "import sys; before = set(sys.modules); import foldlog;"
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        timeout=60,
    )
    loaded = set(ran.stdout.split())
    assert "foldlog" in loaded
    third_party = {n for n in loaded if n not in sys.stdlib_module_names}
    assert {n for n in third_party if not n.startswith("__editable__")} == {"foldlog"}


def test_E32_the_page_about_installing_names_every_extra():
    extras = PYPROJECT["project"]["optional-dependencies"].keys()
    page = (ROOT / "docs/install.md").read_text("utf-8")
    (_, table) = page.split("| extra |")
    assert set(re.findall(r"^\| `([a-z0-9-]+)` \|", table.split("\n\n")[0], re.M)) == extras


def test_the_extra_all_contains_every_other_one():
    extras = dict(PYPROJECT["project"]["optional-dependencies"])
    (everything,) = map(Requirement, extras.pop("all"))
    assert everything.extras == extras.keys()


def test_both_locks_pin_the_same_versions():
    pins = [
        dict(re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", (ROOT / name).read_text(), re.M))
        for name in ("requirements.lock", "requirements-dev.lock")
    ]
    both = pins[0].keys() & pins[1].keys()
    assert "pytest" in both
    assert {name for name in both if pins[0][name] != pins[1][name]} == set()

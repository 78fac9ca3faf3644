"""The built wheel contains the rooms with their data and nothing else, and works in another
directory, with and without a C compiler."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from foldlog.tests.schemas.built_decoder import can_compile
from foldlog.tests.structure.tree import ROOMS, ROOT, all_paths

PROGRAM = """
import foldlog, foldlog.schemas, foldlog.processors.fold.projections, importlib.resources as r
print(foldlog.__file__)
print(sum(1 for f in r.files("foldlog.schemas").joinpath("avro").iterdir()))
"""

DECODES = """
from foldlog.schemas import codec, events as ev
event = ev.OwnerGone(owner="w1/1")
assert codec.decode(codec.encode(event)) == event
print(codec.uses_compiled())
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the checkout, so that no build/ of the checkout gets into a wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    for path in all_paths():
        (directory / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, directory / "tree" / path)
    return directory / "tree"


def _built(tree: Path, into: Path, **environment: str) -> Path:
    _pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", into, tree,
         cwd=tree.parent, **environment)
    shutil.rmtree(tree / "build", ignore_errors=True)
    [built] = into.glob("foldlog-*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(tree, tmp_path_factory) -> Path:
    """The wheel as this machine builds it."""
    return _built(tree, tmp_path_factory.mktemp("built"), FOLDLOG_COMPILED="")


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory) -> Path:
    """A directory into which that wheel is installed."""
    return _installed(wheel, tmp_path_factory.mktemp("installed"))


def _installed(wheel: Path, directory: Path) -> Path:
    target = directory / "site"
    _pip("install", "--no-deps", "--no-index", "--no-compile", "--target", target, wheel,
         cwd=directory)
    return target


def _pip(command: str, *arguments, cwd: Path, **environment: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check",
         *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **environment},
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _compiled(names: set[str]) -> set[str]:
    return {name for name in names if name.endswith((".so", ".pyd"))}


def test_the_wheel_contains_the_rooms_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
    expected = {"foldlog/__init__.py", "foldlog/py.typed"} | {
        f"foldlog/{path}" for path in all_paths() if path.split("/")[0] in ROOMS
    }
    assert names - _compiled(names) == expected
    assert len(_compiled(names)) == can_compile()


@pytest.mark.parametrize(
    ("environment", "tag"),
    [({"CC": "/nowhere/cc"}, "cp"), ({"FOLDLOG_COMPILED": "no"}, "py3-none-any")],
    ids=["no compiler", "not wanted"],
)
def test_a_wheel_without_the_compiled_decoder_decodes(tree, tmp_path, environment, tag):
    wheel = _built(tree, tmp_path / "dist", **({"FOLDLOG_COMPILED": ""} | environment))
    assert wheel.name.startswith(f"foldlog-0.1.0-{tag}")
    assert _ran(DECODES, _installed(wheel, tmp_path)) == "False"


def test_the_installed_wheel_uses_its_compiled_decoder(site):
    assert _ran(DECODES, site) == str(can_compile())


def _ran(program: str, site: Path) -> str:
    """What a program prints that runs beside the installed wheel."""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=site.parent, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(site)},
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_wheel_has_the_command_and_the_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [entry_points] = [n for n in names if n.endswith("entry_points.txt")]
        assert b"foldlog = foldlog.cli.__main__:main" in archive.read(entry_points)
    assert any(n.endswith("licenses/LICENSE") for n in names)


def test_installed_wheel_works_from_another_directory(site):
    file, schemas = _ran(PROGRAM, site).splitlines()
    assert Path(file) == site / "foldlog" / "__init__.py"
    assert int(schemas) == len(list((ROOT / "schemas" / "avro").iterdir()))


def test_editable_install_works_from_another_directory(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path, capture_output=True, text=True, check=True,
        timeout=60,
    )
    assert Path(ran.stdout.splitlines()[0]).resolve() == ROOT / "__init__.py"

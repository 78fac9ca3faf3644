"""The built wheel contains the rooms with their data and nothing else, and works in another
directory."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from foldlog.tests.structure.tree import ROOMS, ROOT, all_paths

PROGRAM = """
import foldlog, foldlog.schemas, foldlog.processors.fold.projections, importlib.resources as r
print(foldlog.__file__)
print(sum(1 for f in r.files("foldlog.schemas").joinpath("avro").iterdir()))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel. It is built from a copy, so that no build/ of the checkout gets into it."""
    directory = tmp_path_factory.mktemp("wheel")
    for path in all_paths():
        (directory / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, directory / "tree" / path)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", directory, "./tree",
         cwd=directory)
    [built] = directory.glob("foldlog-*.whl")
    return built


def _pip(command: str, *arguments, cwd: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check",
         *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_wheel_contains_the_rooms_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
    expected = {"foldlog/__init__.py", "foldlog/py.typed"} | {
        f"foldlog/{path}" for path in all_paths() if path.split("/")[0] in ROOMS
    }
    assert names == expected


def test_wheel_has_the_command_and_the_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [entry_points] = [n for n in names if n.endswith("entry_points.txt")]
        assert b"foldlog = foldlog.cli.__main__:main" in archive.read(entry_points)
    assert any(n.endswith("licenses/LICENSE") for n in names)


def test_installed_wheel_works_from_another_directory(wheel, tmp_path):
    target = tmp_path / "site"
    _pip("install", "--no-deps", "--no-index", "--target", target, wheel, cwd=tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(target)},
    )
    assert ran.returncode == 0, ran.stderr
    file, schemas = ran.stdout.splitlines()
    assert Path(file) == target / "foldlog" / "__init__.py"
    assert int(schemas) == len(list((ROOT / "schemas" / "avro").iterdir()))


def test_editable_install_works_from_another_directory(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )
    assert Path(ran.stdout.splitlines()[0]).resolve() == ROOT / "__init__.py"

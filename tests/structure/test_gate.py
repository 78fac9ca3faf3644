"""The gate leaves out the cases of the marker full, and spreads the files of the marker spread."""

import os
import sys

import pytest

from foldlog.tests.gate import BETWEEN
from foldlog.tests.kit.programs import run

FEW = BETWEEN + 2
FILES = {
    "conftest.py": "pytest_plugins = ['foldlog.tests.gate']",
    "pytest.ini": "[pytest]\nmarkers = full\n spread\n broker",
    "test_a.py": "import pytest\n@pytest.mark.spread\ndef test_outage(): pass",
    "test_b.py": "import pytest\n@pytest.mark.spread\ndef test_cluster(): pass",
    "test_c.py": "import pytest\n"
    "def test_first(): pass\n"
    "@pytest.mark.full\ndef test_full(): pass\n"
    "def test_second(): pass\n",
    **{f"test_d{number:02}.py": "def test_short(): pass" for number in range(FEW)},
    "test_e.py": "import pytest\n@pytest.mark.broker\ndef test_broker(): pass",
}


@pytest.mark.parametrize(
    ("options", "of_c"),
    [([], ["test_first", "test_second"]), (["--full"], ["test_first", "test_full", "test_second"])],
    ids=["gate", "full"],
)
def test_what_is_run_and_in_which_order(tmp_path, options, of_c):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = run([*command, *options], cwd=tmp_path, env=env)
    short = [f"test_d{number:02}.py::test_short" for number in range(FEW)]
    assert [line for line in ran.stdout.splitlines() if "::" in line] == [
        "test_a.py::test_outage",
        "test_e.py::test_broker",
        *(f"test_c.py::{name}" for name in of_c),
        *short[: BETWEEN - 2],
        "test_b.py::test_cluster",
        *short[BETWEEN - 2 :],
    ], ran.stdout

"""The gate leaves out the cases of the marker full, and runs the files with long tests first."""

import sys

import pytest

from foldlog.tests.kit.programs import run

FILES = {
    "conftest.py": "pytest_plugins = ['foldlog.tests.gate']",
    "pytest.ini": "[pytest]\nmarkers = broker\n crash\n full",
    "test_a.py": "def test_short(): pass",
    "test_b.py": "import pytest\n@pytest.mark.broker\ndef test_broker(): pass",
    "test_c.py": "import pytest\n"
    "def test_first(): pass\n"
    "@pytest.mark.full\ndef test_full(): pass\n"
    "@pytest.mark.crash\ndef test_kill(): pass",
}
GATE = ["test_c.py::test_first", "test_c.py::test_kill", "test_b.py::test_broker",
        "test_a.py::test_short"]


@pytest.mark.parametrize(
    ("options", "collected"),
    [([], GATE), (["--full"], [GATE[0], "test_c.py::test_full", *GATE[1:]])],
    ids=["gate", "full"],
)
def test_what_is_run_and_in_which_order(tmp_path, options, collected):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    ran = run([*command, *options], cwd=tmp_path)
    assert [line for line in ran.stdout.splitlines() if "::" in line] == collected, ran.stdout

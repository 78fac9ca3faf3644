"""The gate leaves out the cases of the marker full."""

import sys

import pytest

from foldlog.tests.kit.programs import run

FILES = {
    "conftest.py": "pytest_plugins = ['foldlog.tests.gate']",
    "pytest.ini": "[pytest]\nmarkers = full",
    "test_a.py": "import pytest\n"
    "def test_first(): pass\n"
    "@pytest.mark.full\ndef test_full(): pass\n",
}
GATE = ["test_a.py::test_first"]


@pytest.mark.parametrize(
    ("options", "collected"),
    [([], GATE), (["--full"], [*GATE, "test_a.py::test_full"])],
    ids=["gate", "full"],
)
def test_what_is_run(tmp_path, options, collected):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    ran = run([*command, *options], cwd=tmp_path)
    assert [line for line in ran.stdout.splitlines() if "::" in line] == collected, ran.stdout

"""A test run uses none of the caller's settings."""

import os
import subprocess
import sys

from foldlog.tests.structure.tree import ROOT

PROBE = """
import os
def test_probe():
    found = sorted(n for n in os.environ if n.startswith(("FOLDLOG_", "KAFKA_", "ANTHROPIC_")))
    assert found == ["FOLDLOG_HOME"], found
    assert os.environ["FOLDLOG_HOME"] != "elsewhere"
"""


def test_no_test_gets_the_settings_of_the_caller(tmp_path):
    # The project's conftest, in a run whose caller has everything configured.
    (tmp_path / "conftest.py").write_bytes((ROOT / "tests" / "conftest.py").read_bytes())
    (tmp_path / "test_probe.py").write_text(PROBE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    settings = {
        "FOLDLOG_HOME": "elsewhere",
        "FOLDLOG_TOPIC_PREFIX": "x",
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "ANTHROPIC_API_KEY": "a key",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
    }
    others = {n: v for n, v in os.environ.items() if not n.startswith("FOLDLOG_")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, env=others | settings, capture_output=True, text=True, check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr

"""The static prefix of a real agent has the same bytes in every process, and no part of it is
unstable."""

import json
import os
import subprocess
import sys
from datetime import date

from foldlog.processors.advice.prefix_drift import changed_parts, unstable_parts
from foldlog.processors.default_agent import default_agent
from foldlog.processors.request.layers import Layer, Layers
from foldlog.processors.request.prefix import Prefix, assemble
from foldlog.tests.kit.waiting import PATIENCE_S

LAYERS = Layers((Layer("managed", "m.md", "rule é"), Layer("core", "memory", "- note")))
PRINTS = """
import sys
from foldlog.processors.request.prefix import assemble
from foldlog.processors.default_agent import default_agent
from foldlog.tests.processors.advice.test_prefix_drift import LAYERS
prefix = assemble(default_agent(sys.argv[1]), LAYERS)
sys.stdout.buffer.write(prefix.system + b"\\n" + prefix.tools)
"""


def prefix_in_a_process(directory, seed: str) -> Prefix:
    env = {**os.environ, "PYTHONHASHSEED": seed, "TZ": f"UTC-{seed}"}
    command = [sys.executable, "-c", PRINTS, str(directory)]
    ran = subprocess.run(command, env=env, capture_output=True, check=True, timeout=PATIENCE_S)
    return Prefix(*ran.stdout.split(b"\n"))


def test_S1_A_the_prefix_is_the_same_in_every_process_and_directory(tmp_path):
    here = assemble(default_agent(tmp_path), LAYERS)
    for seed in ("1", "2"):
        assert changed_parts(here, prefix_in_a_process(tmp_path / seed, seed)) == ()


def test_S3_1_the_prefix_of_the_default_agent_has_no_unstable_part(tmp_path):
    prefix = assemble(default_agent(tmp_path), LAYERS)
    assert unstable_parts(prefix, date.today()) == ()
    assert str(tmp_path) not in json.dumps([prefix.system.decode(), prefix.tools.decode()])

"""Builds the compiled decoder from this checkout's source, for tests.

The module that `make accelerate` puts into schemas/ may be older than its source, or missing.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from foldlog.tests.structure.tree import ROOT


def can_compile() -> bool:
    """Whether this machine has a C compiler and the headers of this Python."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    return shutil.which(compiler) is not None and headers.is_file()


def built(directory: Path) -> ModuleType:
    """The module, built below a directory. Skips the test on a machine without a C compiler."""
    if not can_compile():
        pytest.skip("needs a C compiler and Python's headers: the compiled decoder is optional")
    ran = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext",
         "--build-lib", directory, "--build-temp", directory],
        cwd=ROOT, capture_output=True, text=True, check=True,
        env={k: v for k, v in os.environ.items() if k != "FOLDLOG_COMPILED"},
        timeout=60,
    )
    [path] = [p for p in directory.rglob("_decoder.*") if p.suffix in (".so", ".pyd")]
    assert "warning" not in ran.stderr, ran.stderr
    spec = importlib.util.spec_from_file_location("foldlog.schemas._decoder", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""Fixtures for the tests of tools: a tool host, and a working directory with the built-in tools."""

import pytest

from foldlog.tests.processors.tools.tool_bench import Bench, make_host


@pytest.fixture
def host(tmp_path):
    return make_host(tmp_path)


@pytest.fixture
def bench(tmp_path):
    (tmp_path / "work").mkdir()
    return Bench(tmp_path / "work", tmp_path / "state")

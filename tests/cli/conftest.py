"""The fixture `shell`, which runs commands over a new log in memory."""

import pytest

from foldlog.tests.cli.harness import Shell, make_shell


@pytest.fixture
def shell(tmp_path, capsys) -> Shell:
    return make_shell(tmp_path, capsys)

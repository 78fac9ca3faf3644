"""Every command refuses `.` and `..` as ids."""

import pytest

from foldlog.schemas.ids import DOTS

SESSION = [
    "open {0}", "send {0} hi", "show {0}", "tail {0}", "tail {0} --follow", "cancel {0}",
    "terminate {0}", "fork {0}", "fork s1 --as {0}", "regenerate {0}", "rerun {0} x", "skip {0}",
    "phase {0} x",
    "lock {0} p1", "lock s1 {0}", "approve {0} 1.1.0", "deny {0} 1.1.0",
    "resolve {0} 1.1.0 --happened x", "request {0} 1.1", "wake {0}", "traces {0}",
    "search hello --session {0}", "replay --session {0}", "context show {0}",
    "open s2 --user {0}", "open s2 --agent {0}", "memory --user {0}", "memory --project {0}",
    "export {0} --format jsonl --output {1}", "sql --session {0} select",
]  # fmt: skip


@pytest.mark.parametrize("command", SESSION)
@pytest.mark.parametrize("dots", DOTS)
def test_dots_are_refused(shell, tmp_path, command, dots):
    shell("open s1")
    before = shell("sessions --json").json
    ran = shell(command.format(dots, tmp_path / "out"))
    assert ran.code == 1 and ran.err.startswith("refused:") and ran.err.count("\n") == 1, ran
    assert shell("sessions --json").json == before

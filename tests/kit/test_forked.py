"""A forked program behaves as one that `python` starts."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from foldlog.tests.kit import forked
from foldlog.tests.kit.programs import ended, line_of, output_of, run
from foldlog.tests.kit.waiting import until

SHOWS = """
import os, sys
print(__name__, sys.argv[1:], os.getcwd(), os.environ["A"], sys.stdin.read())
print("wrong", file=sys.stderr)
sys.exit(3)
"""
WAITS = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print(os.getpid(), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("how", ["-c", "-m", "file"])
def test_it_has_the_pipes_the_environment_and_the_exit_code(tmp_path, how):
    (tmp_path / "shows.py").write_text(SHOWS)
    program = {"-c": ("-c", SHOWS), "-m": ("-m", "shows"), "file": ("shows.py",)}[how]
    ran = [
        run([*command, "one", "two"], cwd=tmp_path, env={"A": "ümläut"}, input="typed")
        for command in ((sys.executable, *program), forked.command((), *program))
    ]
    assert ran[0].stdout.endswith("ümläut typed\n")
    assert len({(each.stdout, each.stderr, each.returncode) for each in ran}) == 1, ran


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 5), (signal.SIGHUP, -1), (signal.SIGKILL, -9)]
)
def test_a_signal_ends_it(number, code):
    command = forked.command((), "-c", WAITS)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        pid = int(line_of(process.stdout, "its process id"))
        process.send_signal(number)
        assert ended(process) == code
    until("it has ended", lambda: not psutil.pid_exists(pid))


def test_a_signal_of_its_own_is_its_end():
    killed = forked.command((), "-c", "import os; os.kill(os.getpid(), 9)")
    process = subprocess.Popen(killed, stdout=subprocess.PIPE)
    assert output_of(process) == (b"", None) and process.returncode == -signal.SIGKILL


def test_one_that_cannot_be_ordered_harms_no_other():
    with subprocess.Popen(forked.command((), "-c", "pass")) as process:
        process.kill()
    assert run(forked.command((), "-c", "print(1)"), env=os.environ).stdout == "1\n"

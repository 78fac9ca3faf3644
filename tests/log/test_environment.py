"""What other processes may read of ours, and what the ones we start get."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foldlog.log import environment

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux")
SECRETS = {
    "ANTHROPIC_API_KEY": "canary-key",
    "SOME_DB_URL": "postgres://user:canary-pw@db/x",
    "HTTPS_PROXY": "http://me:canary-proxy@proxy:3128",
    "ALL_PROXY": "me:canary-proxy@proxy:3128",
}
OURS = """
import ctypes, json, os, sys
from foldlog.log import environment
environment.begin()
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
with open("/proc/self/environ", "rb") as file:
    shown = file.read().decode()
print(json.dumps({
    "shown": shown,
    "python": os.environ.get("SOME_DB_URL"),
    "c": getenv(b"SOME_DB_URL").decode(),
    "path": getenv(b"PATH").decode(),
    "handed": environment.HANDED in os.environ,
}), flush=True)
"""

NOBODY = """
import ctypes, os
from foldlog.log import environment
os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as any process is; a change of user leaves it otherwise
environment.begin()
print(flush=True)
input()
"""


def test_children_get_what_is_named_and_no_password_that_hides_in_it():
    env = {
        "PATH": ".:/opt/openssl@3/bin",
        "LC_ALL": "C@euro",
        "HTTP_PROXY": "http://proxy:3128",
        "XDG_CACHE_HOME": "/c",
        "AWS_SESSION": "x",
        "PGHOST": "db",
        **SECRETS,
    }
    usual = {name: env[name] for name in ("PATH", "LC_ALL", "HTTP_PROXY", "XDG_CACHE_HOME")}
    assert environment.passed(env) == usual
    named = environment.passed(env, ["PG*", "SOME_DB_URL"])
    assert named == usual | {"PGHOST": "db", "SOME_DB_URL": SECRETS["SOME_DB_URL"]}


@LINUX
@pytest.mark.parametrize("how", ["by a person", "by one of ours"])
def test_a_process_of_ours_keeps_its_variables_and_shows_none_of_them(how):
    command, env = [sys.executable, "-c", OURS], {**os.environ, **SECRETS}
    if how == "by a person":
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
    else:
        process = environment.start_process(command, env, stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=60)
    found = json.loads(out)
    assert "canary" not in found["shown"] and f"PATH={env['PATH']}" in found["shown"].split("\0")
    assert found["python"] == found["c"] == SECRETS["SOME_DB_URL"]
    assert (found["path"], found["handed"]) == (env["PATH"], False)


@LINUX
def test_a_process_of_ours_is_started_with_no_secret():
    """A spare starts while tools run: what it was started with could be read before it hides it."""
    process = environment.start_process(["cat"], {**os.environ, **SECRETS}, stdin=subprocess.PIPE)
    try:
        assert b"canary" not in Path(f"/proc/{process.pid}/environ").read_bytes()
        number = next(
            entry.name
            for entry in Path(f"/proc/{process.pid}/fd").iterdir()
            if entry.name.isdigit() and int(entry.name) > 2 and "socket" in os.readlink(entry)
        )
        with pytest.raises(OSError):
            os.open(f"/proc/{process.pid}/fd/{number}", os.O_RDONLY | os.O_NONBLOCK)
    finally:
        process.communicate()


@LINUX
@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_no_process_of_the_same_user_reads_the_memory_of_ours():
    """Root may; a tool of another user may not anyway."""
    ours = [sys.executable, "-c", NOBODY]
    with subprocess.Popen(ours, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        theirs = f"import os; os.setuid(65534); open('/proc/{process.pid}/mem', 'rb')"
        said = subprocess.run([sys.executable, "-c", theirs], capture_output=True, text=True)
        process.communicate(b"\n")
    assert "PermissionError" in said.stderr


def test_what_a_tool_starts_by_itself_inherits_no_secret_of_ours(monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    environment.forget(["ANTHROPIC_API_KEY", "HTTPS_PROXY", "NOT_SET"], kept=["HTTPS_*"])
    assert "ANTHROPIC_API_KEY" not in os.environ and "HTTPS_PROXY" in os.environ

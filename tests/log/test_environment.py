"""Secrets in the environment are hidden from other processes and from the child processes that
foldlog starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foldlog.log import environment
from foldlog.tests.kit.programs import line_of, output_of, run

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux")
SECRETS = {
    "ANTHROPIC_API_KEY": "canary-key",
    "SOME_DB_URL": "postgres://user:canary-pw@db/x",
    "HTTPS_PROXY": "http://me:canary-proxy@proxy:3128",
    "ALL_PROXY": "me:canary-proxy@proxy:3128",
}
PRINT_ENVIRONMENT = """
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

RUN_AS_NOBODY = """
import ctypes, os
from foldlog.log import environment
os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # dumpable, which setuid unsets
environment.begin()
print(flush=True)
input()
"""


def test_children_get_the_named_variables_and_no_values_with_passwords():
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
@pytest.mark.parametrize("how", ["by a person", "by foldlog"])
def test_our_process_keeps_its_secrets_and_hides_them_from_proc(how):
    command, env = [sys.executable, "-c", PRINT_ENVIRONMENT], {**os.environ, **SECRETS}
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
def test_our_process_is_started_without_secrets_in_its_environment():
    """A tool that is running could read the secrets before the new process hides them."""
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
        output_of(process)


@LINUX
@pytest.mark.skipif(os.getuid() != 0, reason="only root may change its user")
def test_our_memory_is_unreadable_for_processes_of_the_same_user():
    """The user root can read the memory, and other users never can."""
    command = [sys.executable, "-c", RUN_AS_NOBODY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert line_of(process.stdout, "its memory is protected")
            code = f"import os; os.setuid(65534); open('/proc/{process.pid}/mem', 'rb')"
            result = run([sys.executable, "-c", code])
        finally:
            process.kill()
    assert "PermissionError" in result.stderr


def test_processes_started_by_a_tool_inherit_no_secret(monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    environment.forget(["ANTHROPIC_API_KEY", "HTTPS_PROXY", "NOT_SET"], kept=["HTTPS_*"])
    assert "ANTHROPIC_API_KEY" not in os.environ and "HTTPS_PROXY" in os.environ

"""`build_and_deploy` is the only tool that locks a project, and only after a confirmation."""

import json
import sys

import pytest

from foldlog import build_and_deploy
from foldlog.processors.fold.field_writers import PROJECT_TOOL
from foldlog.schemas.events.parts import Trigger
from foldlog.tests.processors.tools.tool_bench import run_once

BUILDS = [sys.executable, "-c", "import os; print('built', os.environ['FOLDLOG_PROJECT'])"]
FAILS = [sys.executable, "-c", "raise SystemExit('no such target')"]


@pytest.fixture
def call(host):
    def run(command=BUILDS, project=None, **args):
        args = json.dumps(args).encode()
        return run_once(build_and_deploy(command), host, args, project_id=project)

    return run


def test_S0_2_a_new_project_is_confirmed_built_and_locked(call):
    sink = call(project_id="p1", confirm_new_project=True)
    assert (sink.only.outcome, sink.text) == ("ok", "built p1\n")
    assert sink.only.triggers == (Trigger(project_id="p1"),)


def test_S0_2_the_project_of_the_session_is_built_and_nothing_is_locked_again(call):
    sink = call(project="p1", project_id="p1")
    assert (sink.only.outcome, sink.only.triggers) == ("ok", ())


@pytest.mark.parametrize(
    ("args", "project", "error"),
    [
        ({"project_id": "p1"}, None, "confirm_new_project"),
        ({"project_id": "p2"}, "p1", "project_id already locked"),
        ({"project_id": "p1", "confirm_new_project": True}, "p1", "project_id already locked"),
        ({"project_id": "a/b", "confirm_new_project": True}, None, "project_id must be"),
    ],
)
def test_S0_2_any_other_request_runs_nothing_and_locks_nothing(call, args, project, error):
    sink = call([sys.executable, "-c", "raise SystemExit(9)"], project, **args)
    assert sink.only.outcome == "error" and error in sink.text and "exit code" not in sink.text
    assert sink.only.triggers == ()


def test_a_build_that_fails_locks_nothing(call):
    sink = call(FAILS, project_id="p1", confirm_new_project=True)
    assert sink.only.outcome == "error" and "no such target" in sink.text
    assert sink.only.triggers == ()


def test_building_is_once_and_asks_for_approval():
    built = build_and_deploy(BUILDS)
    assert (built.name, built.effect, built.approval) == (PROJECT_TOOL, "once", "ask")

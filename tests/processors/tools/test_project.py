"""build_and_deploy: the one tool that locks a project, and only when that was confirmed."""

import json
import sys

import pytest

from foldlog import build_and_deploy
from foldlog.processors.fold.field_writers import PROJECT_TOOL
from foldlog.schemas.events.parts import Trigger
from foldlog.tests.processors.tools.tool_bench import make_host, run_once

SAYS = [sys.executable, "-c", "import os; print('built', os.environ['FOLDLOG_PROJECT'])"]
FAILS = [sys.executable, "-c", "raise SystemExit('no such target')"]


@pytest.fixture
def call(tmp_path):
    host = make_host(tmp_path)

    def run(command=SAYS, project=None, **args):
        made = build_and_deploy(command)
        return run_once(made, host, json.dumps(args).encode(), project_id=project)

    return run


def test_S0_2_a_new_project_is_confirmed_built_and_locked(call):
    told = call(project_id="p1", confirm_new_project=True)
    assert (told.only.outcome, told.text) == ("ok", "built p1\n")
    assert told.only.triggers == (Trigger(project_id="p1"),)


def test_S0_2_the_project_of_the_session_is_built_and_nothing_is_locked_again(call):
    told = call(project="p1", project_id="p1")
    assert (told.only.outcome, told.only.triggers) == ("ok", ())


@pytest.mark.parametrize(
    ("args", "project", "why"),
    [
        ({"project_id": "p1"}, None, "confirm_new_project"),
        ({"project_id": "p2"}, "p1", "project_id already locked"),
        ({"project_id": "p1", "confirm_new_project": True}, "p1", "project_id already locked"),
        ({"project_id": "a/b", "confirm_new_project": True}, None, "project_id must be"),
    ],
)
def test_S0_2_anything_else_runs_nothing_and_locks_nothing(call, args, project, why):
    told = call([sys.executable, "-c", "raise SystemExit(9)"], project, **args)
    assert told.only.outcome == "error" and why in told.text and "exit code" not in told.text
    assert told.only.triggers == ()


def test_a_build_that_fails_locks_nothing(call):
    told = call(FAILS, project_id="p1", confirm_new_project=True)
    assert told.only.outcome == "error" and "no such target" in told.text
    assert told.only.triggers == ()


def test_a_person_is_asked_and_it_is_never_repeated():
    made = build_and_deploy(SAYS)
    assert (made.name, made.effect, made.approval) == (PROJECT_TOOL, "once", "ask")

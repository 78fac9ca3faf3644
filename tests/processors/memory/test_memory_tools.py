"""The tools of memory=True, run as a worker runs them, on a log and a store that follows it."""

import dataclasses
import json

import pytest

from foldlog.processors.agent import Agent
from foldlog.processors.memory.fold import text_of
from foldlog.processors.memory.tools import MEMORY_TOOLS, load_memory, with_memory_tools
from foldlog.processors.tools.tool import check_args, tool
from foldlog.schemas.events.parts import Trigger
from foldlog.tests.processors.memory.desk import ANA, SHOP, new_log, serving, writer_of
from foldlog.tests.processors.tools.tool_bench import make_host, run_once

NAMES = {each.name: each for each in MEMORY_TOOLS}


class Desk:
    """A service, and calls of its tools as ana in the project shop."""

    def __init__(self, memory, directory):
        self.memory = memory
        self.host = dataclasses.replace(make_host(directory), memory=memory)
        self.calls = 0

    def call(self, which, /, *, index=None, attempt=1, user="ana", project="shop",
             approval="none", **arguments):
        self.calls += 1
        args = json.dumps(arguments).encode()
        assert check_args(NAMES[which], args) is None
        told = run_once(
            NAMES[which], self.host, args, index=100 + self.calls if index is None else index,
            attempt=attempt, user_id=user, project_id=project, claim_offset=42, approval=approval,
        )
        return told.only

    def ok(self, which, /, **more):
        event = self.call(which, **more)
        assert event.outcome == "ok", event
        return event.content.inline.decode()

    def failed(self, which, /, **more):
        event = self.call(which, **more)
        assert event.outcome == "error", event
        return event.content.inline.decode()

    def text(self, path="core.md", scope=ANA):
        return text_of(self.memory.reader.view(scope), path)


@pytest.fixture
def log():
    return new_log()


@pytest.fixture
def desk(log, tmp_path):
    with serving(log, tmp_path / "state") as memory:
        yield Desk(memory, tmp_path)


def test_S3_2_what_is_remembered_can_be_loaded_searched_and_is_in_the_core(desk):
    told = desk.ok("remember", text="Ana likes tea", kind="core")
    assert told.startswith("remembered in core.md of user:ana, which has 1 line now; entry ")
    assert desk.memory.reader.core([ANA]) == "user| Ana likes tea  [written by an agent]"
    loaded = desk.ok("load_memory", path="core.md")
    assert "written by an agent for ana, session s1 at offset 42]\n| Ana likes tea\n" in loaded
    desk.ok("remember", text="The shop ships on Mondays", kind="decision", about="project")
    found = desk.ok("search_memory", query="when do we ship")
    assert "<memory scope=project:shop file=decisions.md>" in found and "offset 42" in found


def test_S3_2_the_archive_is_reached_by_search_and_never_loaded(desk):
    writer = writer_of(desk.memory._log)
    text = "\n".join(["We moved the warehouse to Bergen.", *["filler words"] * 2_000])[:8_000]
    assert desk.memory.folded(writer.remember(ANA, "archive/2024/move.md", text))
    for path in ("archive/2024/move.md", "archive/none.md"):
        told = desk.failed("load_memory", path=path)
        assert "search_memory" in told and "Bergen" not in told
    assert "Bergen" not in desk.memory.reader.index([ANA])
    assert "user:ana has nothing" in desk.failed("load_memory", path="decisions.md")
    found = desk.ok("search_memory", query="where is the warehouse")
    assert "Bergen" in found and "archive/2024/move.md" in found and len(found) < 3_000


def test_law_3_a_call_that_runs_again_writes_nothing_twice(desk):
    for attempt in (1, 2):
        desk.ok("remember", index=7, attempt=attempt, text="once", kind="core")
        desk.ok("todo_add", index=8, attempt=attempt, todos=["paint", "paint"])
    assert desk.text() == "once\n"
    assert len(desk.memory.reader.view(SHOP).todos) == 2


def test_an_entry_is_corrected_in_its_place_and_a_second_run_changes_nothing(desk):
    first = desk.ok("remember", text="likes tea", kind="core").split()[-1]
    desk.ok("remember", text="lives in Oslo", kind="core")
    for attempt in (1, 2):
        desk.ok("remember", index=3, attempt=attempt, text="likes coffee", kind="core",
                replaces=first)
    assert desk.text() == "likes coffee\nlives in Oslo\n"
    assert "has no entry" in desk.failed("remember", text="x", replaces="nobody")


def test_what_a_person_wrote_is_replaced_only_by_a_call_that_a_person_allowed(desk):
    mine = writer_of(desk.memory._log).remember(ANA, "core.md", "likes tea")
    assert desk.memory.folded(mine)
    change = {"text": "likes coffee", "kind": "core", "replaces": mine.id}
    told = desk.failed("remember", **change)
    assert f"entry {mine.id} was written by a person" in told and "without `replaces`" in told
    assert desk.text() == "likes tea\n", "nothing was written either"
    for attempt in (1, 2):
        desk.ok("remember", index=3, attempt=attempt, approval="ask", **change)
    assert desk.text() == "likes coffee\n"


def test_S3_2_memory_is_the_sessions_own_users_and_projects_and_nobody_elses(desk):
    desk.ok("remember", text="the secret of ana", kind="core")
    desk.ok("remember", text="the secret of shop", kind="core", about="project")
    assert "nothing in memory" in desk.ok(
        "search_memory", query="secret", user="bo", project=None)
    assert "no memory at" in desk.failed("load_memory", path="core.md", user="bo", project="x")
    shared = desk.ok("load_memory", path="core.md", user="bo")
    assert "secret of shop" in shared and "ana" not in shared.replace("for ana", "")


def test_S0_8_a_preference_is_the_users_over_all_projects(desk):
    assert desk.ok("set_preference", name="tone", value="dry") == "noted: tone = dry"
    assert desk.memory.reader.index([ANA]) == "user| preference tone = dry"
    assert desk.ok("set_preference", name="tone", value=None, project=None) == "tone is forgotten"
    assert desk.memory.reader.index([ANA]) == ""


@pytest.mark.parametrize("value", ["", " \n"])
def test_an_empty_preference_is_forgotten_and_not_in_every_prompt(desk, value):
    desk.ok("set_preference", name="tone", value="dry")
    assert desk.ok("set_preference", name="tone", value=value) == "tone is forgotten"
    assert desk.memory.reader.view(ANA).preferences == ()


def test_S0_8_the_last_todo_of_the_project_triggers_the_end_of_building(desk):
    added = desk.ok("todo_add", todos=["paint", "sell"])
    paint, sell = added.removeprefix("added ").split(";")[0].split(", ")
    assert f"| {paint}: paint\n| {sell}: sell" in desk.ok("todo_list")
    first = desk.call("todo_complete", todo_id=paint)
    assert first.outcome == "ok" and first.triggers == ()
    last = desk.call("todo_complete", todo_id=sell)
    assert last.triggers == (Trigger(trigger="todo_done_build"),)
    assert desk.ok("todo_list") == "(nothing is left to be done)"


def test_S0_8_a_worker_that_died_after_the_mark_still_triggers_when_it_runs_again(desk):
    todo_id = desk.ok("todo_add", todos=["paint"]).split()[1].strip(",;")
    writer_of(desk.memory._log).done_todo("shop", todo_id)
    assert desk.memory.caught_up()
    again = desk.call("todo_complete", attempt=2, todo_id=todo_id)
    assert again.triggers == (Trigger(trigger="todo_done_build"),)


def test_bad_input_is_told_to_the_model_and_nothing_is_written(desk):
    assert "control character" in desk.failed("remember", text="nul \0")
    assert "8192" in desk.failed("remember", text="x" * 9_000)
    assert "the text is empty; say the fact" in desk.failed("remember", text=" \n", kind="core")
    assert "there is no todo 'nope'; open are: none" in desk.failed("todo_complete", todo_id="nope")
    assert "no project yet" in desk.failed("todo_add", todos=["x"], project=None)
    assert "1 to 20" in desk.failed("todo_add", todos=["x"] * 21)
    assert "the second" in desk.failed("todo_add", todos=["good", " "]).replace(
        "those before it were", "the second")
    assert "at most 500" in desk.failed("set_preference", name="tone", value="x" * 501)
    assert "must be 1-128" in desk.failed("set_preference", name="no name", value="x")
    known = desk.failed("load_memory", path="../../etc/passwd")
    assert "user:ana has nothing; project:shop has nothing" in known
    assert "nothing in memory" in desk.ok("search_memory", query="\0\"' OR 1")
    assert desk.text() == ""


def test_a_full_scope_is_told_to_the_model(desk, monkeypatch):
    monkeypatch.setattr("foldlog.processors.memory.fold.ENTRIES_MAX", 1)
    desk.ok("remember", text="a", kind="core")
    assert "is full" in desk.failed("remember", text="b", kind="core")


def test_a_worker_without_memory_says_so(tmp_path):
    told = run_once(load_memory, make_host(tmp_path), b'{"path":"core.md"}', user_id="ana")
    assert told.only.outcome == "error" and "keeps none" in told.text


def test_an_agent_with_memory_has_the_tools_and_stays_equal_when_it_is_made_anew():
    agent = Agent(name="a", model="m", memory=True)
    assert [each.name for each in agent.tools] == [each.name for each in MEMORY_TOOLS]
    again = dataclasses.replace(agent, model="other")
    assert again.tools_json() == agent.tools_json()
    assert Agent(name="a", model="m").tools == ()
    with pytest.raises(TypeError, match="memory must be True or False"):
        Agent(name="a", model="m", memory="yes")


def test_a_tool_of_the_users_own_with_such_a_name_is_refused_when_the_agent_is_made():
    @tool(name="remember")
    def mine(text: str) -> str:
        """Mine."""
        return text

    with pytest.raises(ValueError, match="agent a: the name 'remember'"):
        Agent(name="a", model="m", memory=True, tools=(mine,))
    assert with_memory_tools(MEMORY_TOOLS) == MEMORY_TOOLS

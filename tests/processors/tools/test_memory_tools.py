"""The tools of an agent with memory=True. They run as in a worker, on a log and on a store that
follows the log."""

import dataclasses
import json

import pytest

from foldlog.processors.agent import Agent
from foldlog.processors.memory.fold import text_of
from foldlog.processors.tools.memory import MEMORY_TOOLS, load_memory, with_memory_tools
from foldlog.processors.tools.tool import check_args, tool
from foldlog.schemas.events.parts import Trigger
from foldlog.tests.processors.memory.memory_log import ANA, SHOP, new_log, serving, writer_of
from foldlog.tests.processors.tools.tool_bench import make_host, run_once

NAMES = {each.name: each for each in MEMORY_TOOLS}


class ToolCaller:
    """Calls the memory tools, by default for the user ana in the project shop."""

    def __init__(self, memory, directory):
        self.memory = memory
        self.host = dataclasses.replace(make_host(directory), memory=memory)
        self.calls = 0

    def call(self, which, /, *, index=None, attempt=1, user="ana", project="shop",
             approval="none", **arguments):
        self.calls += 1
        args = json.dumps(arguments).encode()
        assert check_args(NAMES[which], args) is None
        result = run_once(
            NAMES[which], self.host, args, index=100 + self.calls if index is None else index,
            attempt=attempt, user_id=user, project_id=project, claim_offset=42, approval=approval,
        )
        return result.only

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
def caller(log, tmp_path):
    with serving(log, tmp_path / "state") as memory:
        yield ToolCaller(memory, tmp_path)


def test_S3_2_a_remembered_entry_is_in_the_core_and_can_be_loaded_and_found(caller):
    text = caller.ok("remember", text="Ana likes tea", kind="core")
    assert text.startswith("remembered in core.md of user:ana, which has 1 line now; entry ")
    assert caller.memory.reader.core([ANA]) == "user| Ana likes tea  [written by an agent]"
    loaded = caller.ok("load_memory", path="core.md")
    assert "written by an agent for ana, session s1 at offset 42]\n| Ana likes tea\n" in loaded
    caller.ok("remember", text="The shop ships on Mondays", kind="decision", about="project")
    hits = caller.ok("search_memory", query="when do we ship")
    assert "<memory scope=project:shop file=decisions.md>" in hits and "offset 42" in hits


def test_S3_2_the_archive_can_be_searched_but_not_loaded(caller):
    writer = writer_of(caller.memory._log)
    page = "\n".join(["We moved the warehouse to Bergen.", *["filler words"] * 2_000])[:8_000]
    assert caller.memory.await_folded(writer.remember(ANA, "archive/2024/move.md", page))
    for path in ("archive/2024/move.md", "archive/none.md"):
        text = caller.failed("load_memory", path=path)
        assert "search_memory" in text and "Bergen" not in text
    assert "Bergen" not in caller.memory.reader.index([ANA])
    assert "user:ana has nothing" in caller.failed("load_memory", path="decisions.md")
    hits = caller.ok("search_memory", query="where is the warehouse")
    assert "Bergen" in hits and "archive/2024/move.md" in hits and len(hits) < 3_000


def test_law_3_a_repeated_call_writes_nothing_twice(caller):
    for attempt in (1, 2):
        caller.ok("remember", index=7, attempt=attempt, text="once", kind="core")
        caller.ok("todo_add", index=8, attempt=attempt, todos=["paint", "paint"])
    assert caller.text() == "once\n"
    assert len(caller.memory.reader.view(SHOP).todos) == 2


def test_an_entry_is_replaced_in_place_and_a_repeated_call_changes_nothing(caller):
    first = caller.ok("remember", text="likes tea", kind="core").split()[-1]
    caller.ok("remember", text="lives in Oslo", kind="core")
    for attempt in (1, 2):
        caller.ok("remember", index=3, attempt=attempt, text="likes coffee", kind="core",
                replaces=first)
    assert caller.text() == "likes coffee\nlives in Oslo\n"
    assert "has no entry" in caller.failed("remember", text="x", replaces="no-such-id")


def test_a_persons_entry_is_replaced_only_by_an_approved_call(caller):
    written = writer_of(caller.memory._log).remember(ANA, "core.md", "likes tea")
    assert caller.memory.await_folded(written)
    change = {"text": "likes coffee", "kind": "core", "replaces": written.id}
    text = caller.failed("remember", **change)
    assert f"entry {written.id} was written by a person" in text and "without `replaces`" in text
    assert caller.text() == "likes tea\n", "nothing was written"
    for attempt in (1, 2):
        caller.ok("remember", index=3, attempt=attempt, approval="ask", **change)
    assert caller.text() == "likes coffee\n"


def test_S3_2_only_the_memory_of_the_sessions_user_and_project_is_accessible(caller):
    caller.ok("remember", text="the secret of ana", kind="core")
    caller.ok("remember", text="the secret of shop", kind="core", about="project")
    assert "nothing in memory" in caller.ok(
        "search_memory", query="secret", user="bo", project=None)
    assert "no memory at" in caller.failed("load_memory", path="core.md", user="bo", project="x")
    shared = caller.ok("load_memory", path="core.md", user="bo")
    assert "secret of shop" in shared and "ana" not in shared.replace("for ana", "")


def test_S0_8_a_preference_applies_to_all_projects_of_a_user(caller):
    assert caller.ok("set_preference", name="tone", value="dry") == "noted: tone = dry"
    assert caller.memory.reader.index([ANA]) == "user| preference tone = dry"
    assert caller.ok("set_preference", name="tone", value=None, project=None) == "tone is forgotten"
    assert caller.memory.reader.index([ANA]) == ""


@pytest.mark.parametrize("value", ["", " \n"])
def test_an_empty_preference_is_deleted(caller, value):
    caller.ok("set_preference", name="tone", value="dry")
    assert caller.ok("set_preference", name="tone", value=value) == "tone is forgotten"
    assert caller.memory.reader.view(ANA).preferences == ()


def test_S0_8_the_last_todo_of_the_project_triggers_the_end_of_building(caller):
    added = caller.ok("todo_add", todos=["paint", "sell"])
    paint, sell = added.removeprefix("added ").split(";")[0].split(", ")
    assert f"| {paint}: paint\n| {sell}: sell" in caller.ok("todo_list")
    first = caller.call("todo_complete", todo_id=paint)
    assert first.outcome == "ok" and first.triggers == ()
    last = caller.call("todo_complete", todo_id=sell)
    assert last.triggers == (Trigger(trigger="todo_done_build"),)
    assert caller.ok("todo_list") == "(nothing is left to be done)"


def test_S0_8_a_retried_completion_still_triggers_the_end_of_building(caller):
    todo_id = caller.ok("todo_add", todos=["paint"]).split()[1].strip(",;")
    writer_of(caller.memory._log).done_todo("shop", todo_id)
    assert caller.memory.await_caught_up()
    again = caller.call("todo_complete", attempt=2, todo_id=todo_id)
    assert again.triggers == (Trigger(trigger="todo_done_build"),)


def test_bad_input_is_an_error_for_the_model_and_writes_nothing(caller):
    assert "control character" in caller.failed("remember", text="nul \0")
    assert "8192" in caller.failed("remember", text="x" * 9_000)
    assert "the text is empty; say the fact" in caller.failed("remember", text=" \n", kind="core")
    unknown = caller.failed("todo_complete", todo_id="nope")
    assert "there is no todo 'nope'; open are: none" in unknown
    assert "no project yet" in caller.failed("todo_add", todos=["x"], project=None)
    assert "1 to 20" in caller.failed("todo_add", todos=["x"] * 21)
    assert "the second" in caller.failed("todo_add", todos=["good", " "]).replace(
        "those before it were", "the second")
    assert "at most 500" in caller.failed("set_preference", name="tone", value="x" * 501)
    assert "must be 1-128" in caller.failed("set_preference", name="no name", value="x")
    error = caller.failed("load_memory", path="../../etc/passwd")
    assert "user:ana has nothing; project:shop has nothing" in error
    assert "nothing in memory" in caller.ok("search_memory", query="\0\"' OR 1")
    assert caller.text() == ""


def test_a_full_scope_is_an_error_for_the_model(caller, monkeypatch):
    monkeypatch.setattr("foldlog.processors.memory.fold.ENTRIES_MAX", 1)
    caller.ok("remember", text="a", kind="core")
    assert "is full" in caller.failed("remember", text="b", kind="core")


def test_a_memory_tool_without_memory_fails_with_a_reason(tmp_path):
    result = run_once(load_memory, make_host(tmp_path), b'{"path":"core.md"}', user_id="ana")
    assert result.only.outcome == "error" and "keeps none" in result.text


def test_an_agent_with_memory_has_the_tools_once_even_if_it_is_copied():
    agent = Agent(name="a", model="m", memory=True)
    assert [each.name for each in agent.tools] == [each.name for each in MEMORY_TOOLS]
    again = dataclasses.replace(agent, model="other")
    assert again.tools_json() == agent.tools_json()
    assert Agent(name="a", model="m").tools == ()
    with pytest.raises(TypeError, match="memory must be True or False"):
        Agent(name="a", model="m", memory="yes")


def test_a_users_tool_with_a_reserved_name_is_refused_by_the_agent():
    @tool(name="remember")
    def own(text: str) -> str:
        """Mine."""
        return text

    with pytest.raises(ValueError, match="agent a: the name 'remember'"):
        Agent(name="a", model="m", memory=True, tools=(own,))
    assert with_memory_tools(MEMORY_TOOLS) == MEMORY_TOOLS

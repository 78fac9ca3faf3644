"""The rules of the scripted server, and its named scripts."""

import json

import anthropic
import pytest

from foldlog.local.messages_api import (
    ATTEMPT_HEADER,
    Reply,
    Rule,
    Script,
    ScriptedServer,
    as_script,
    replies,
    text,
    tool_use,
)
from foldlog.local.messages_api.builtin import load_script
from foldlog.local.messages_api.demo import STORY_S, WHO, demo
from foldlog.local.messages_api.demo_reading import about, failure_of, lines_of, main_file, names_in
from foldlog.local.messages_api.request import NO_SESSION, Request
from foldlog.tests.local.scripted_client import ask, assistant, events, results, text_of


def answer(server, *messages, **fields):
    """The text of the answer to a request."""
    return text_of(ask(server, *messages, **fields))


def reply(value):
    return Reply([text(value)])


# rules -------------------------------------------------------------------------------------------


def test_the_first_rule_that_matches_answers():
    rules = [
        Rule(reply=reply("greeting"), contains="hello"),
        Rule(reply=reply("once"), times=1),
        Rule(reply=reply("a's second"), session="a", ordinal=2),
        Rule(reply=lambda request: reply(f"number {request.n}")),
    ]
    with ScriptedServer(rules) as server:
        assert answer(server, "hello you") == "greeting"
        assert answer(server, "session:a") == "once"
        assert answer(server, "session:a") == "a's second"
        assert answer(server, "session:a") == "number 4"


def test_rules_match_by_attempt_and_by_results():
    rules = [
        Rule(reply=reply("try again"), generation="1.1", attempt=1),
        Rule(reply=Reply([tool_use("look")]), tool_results=0),
        Rule(reply=reply("seen"), when=lambda request: request.result_of("look") == "ok"),
    ]
    with ScriptedServer(rules) as server:
        first = {ATTEMPT_HEADER: "s 1.1.1"}
        assert answer(server, "go", extra_headers=first) == "try again"
        called = ask(server, "go", extra_headers={ATTEMPT_HEADER: "s 1.1.2"}).content
        assert answer(server, "go", assistant(*called), results(called[0].id)) == "seen"


def test_replies_in_order_per_session():
    with ScriptedServer(replies(reply("one"), reply("two"))) as server:
        assert [answer(server, "session:a"), answer(server, "session:b")] == ["one", "one"]
        assert answer(server, "session:a") == "two"
        with pytest.raises(anthropic.BadRequestError, match="no rule of script 'script' matches"):
            ask(server, "session:a")


def test_rules_can_be_inserted_while_the_server_runs():
    with ScriptedServer("echo") as server:
        server.add(Rule(reply=reply("new"), contains="x"), Rule(reply=reply("late"), times=1))
        assert [answer(server, "x"), answer(server, "y"), answer(server, "y")] == [
            "new",
            "late",
            "You said: y",
        ]


def test_a_script_that_raises_is_a_500_that_is_not_retried():
    def broken(request):
        raise LookupError("no such thing")

    with ScriptedServer(broken) as server:
        with pytest.raises(anthropic.InternalServerError, match="no such thing") as caught:
            ask(server)
        assert caught.value.response.headers["x-should-retry"] == "false"
        assert server.journal.count("failed") == 1


def test_scripts_can_be_read_from_files(tmp_path):
    rules = [
        {
            "contains": "call",
            "reply": {"blocks": [{"type": "tool_use", "name": "look", "input": {"path": "é"}}]},
        },
        {"contains": "fail", "reply": {"fault": {"name": "eof", "k": 3}}},
        {"reply": "echo"},
    ]
    (tmp_path / "rules.json").write_text(json.dumps({"rules": rules}))
    with ScriptedServer(tmp_path / "rules.json") as server:
        assert ask(server, "call").content[0].input == {"path": "é"}
        assert ask(server, "fail").stop_reason is None
        assert answer(server, "else") == "You said: else"
    (tmp_path / "rules.py").write_text(
        "from foldlog.local.messages_api import Reply, text\nscript = [Reply([text('py')])]\n"
    )
    assert as_script(tmp_path / "rules.py").name == "rules"


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ({"reply": "other"}, "unknown reply 'other'"),
        ({"reply": {"fault": "eofs"}}, "unknown fault"),
        ({"reply": {"blocks": []}, "when": "now"}, "cannot have `when`"),
    ],
)
def test_invalid_rules_are_refused_when_they_are_read(tmp_path, rule, error):
    (tmp_path / "rules.json").write_text(json.dumps([rule]))
    with pytest.raises(ValueError, match=error):
        as_script(tmp_path / "rules.json")


@pytest.mark.parametrize(
    ("file", "written", "why"),
    [
        ("r.py", "rules = []", "a .py script sets `script = .*it sets no `script`"),
        ("r.py", "script = [17]", "a .py script sets `script = .*it sets list"),
        ("r.json", "{", "it is not JSON"),
        ("r.json", '{"rule": []}', "a .json script is a list of rules"),
        ("r.json", "[17]", "rule 1 is wrong: a rule is an object"),
        ("r.json", '[{"reply": "echo"}, {"contains": "x"}]', "rule 2 is wrong: it has no 'reply'"),
        ("r.json", '[{"reply": "echo", "contain": "x"}]', "wrong: unknown field 'contain'"),
        ("r.json", '[{"reply": {"text": "x"}}]', "wrong: unknown field 'text'"),
    ],
)
def test_bad_input_a_wrong_script_file_is_refused_with_what_is_expected(
    tmp_path, file, written, why
):
    (tmp_path / file).write_text(written)
    with pytest.raises(ValueError, match=why) as refused:
        load_script(tmp_path / file)
    assert "__init__" not in str(refused.value)


def test_unknown_names_and_invalid_chunks_are_refused():
    with pytest.raises(ValueError, match="known: echo, obedient, demo"):
        as_script("other")
    for chunk in (0, "line"):
        with pytest.raises(ValueError, match="chunk"):
            Reply(chunk=chunk)
    assert as_script(Script([reply("a")], name="mine")).name == "mine"


def test_echo_streams_word_by_word():
    with ScriptedServer("echo") as server:
        deltas = [
            e["delta"]["text"]
            for e in events(server, "a bc  d")
            if "delta" in e and "text" in e["delta"]
        ]
    assert deltas == ["You", " said:", " a", " bc", "  d"]


# obedient ----------------------------------------------------------------------------------------


def turn(server, order, result="ok", **fields):
    """Run a turn in which each call of the first step gets `result`. Returns (calls per step, final
    text)."""
    messages, steps = [order], []
    for _ in range(100):
        message = ask(server, *messages, **fields)
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return steps, text_of(message)
        steps.append([(call.name, call.input) for call in calls])
        messages.append(assistant(*message.content))
        messages.append(results(*[call.id for call in calls], content=result))
        result = "ok"
    raise AssertionError("the turn did not end")


def test_obedient_executes_the_lines_of_a_message():
    order = 'THINK hm\nCALL look {"path": "a"}\nCALL touch\nTHEN\nSAY nearly\nCALL touch {"n": 2}'
    with ScriptedServer("obedient") as server:
        steps, end = turn(server, order)
    assert steps == [[("look", {"path": "a"}), ("touch", {})], [("touch", {"n": 2})]]
    assert end == "done: ok"


def test_obedient_executes_the_lines_of_a_tool_result():
    with ScriptedServer("obedient") as server:
        steps, end = turn(server, "CALL look", result='please\nCALL touch {"rm": "-rf"}')
    assert steps == [[("look", {})], [("touch", {"rm": "-rf"})]]
    assert end == "done: ok"


def test_obedient_answers_a_message_without_commands():
    with ScriptedServer("obedient") as server:
        assert turn(server, "just talk") == ([], "done: just talk")


def test_obedient_starts_over_in_the_next_turn():
    with ScriptedServer("obedient") as server:
        message = ask(server, "CALL look")
        ended = (
            "CALL look",
            assistant(*message.content),
            results(message.content[0].id),
            assistant({"type": "text", "text": "done: ok"}),
        )
        assert ask(server, *ended, "CALL touch").content[0].name == "touch"


def test_obedient_fails_a_given_number_of_times():
    order = 'FAULT overloaded {"times": 2}\nSAY well'
    with ScriptedServer("obedient") as server:
        for _ in range(2):
            with pytest.raises(anthropic.APIStatusError):
                ask(server, order)
        assert answer(server, order) == "well"
        assert answer(server, "STOP max_tokens\nSAY cut") == "cut"


def test_obedient_waits_at_a_gate():
    with ScriptedServer("obedient") as server:
        server.open("g")
        assert answer(server, "GATE g 3\nPACE 0\nSAY through") == "through"


# demo --------------------------------------------------------------------------------------------


def tool(name, *properties):
    return {
        "name": name,
        "input_schema": {"type": "object", "properties": {p: {} for p in properties}},
    }


DEMO_TOOLS = [
    tool("list_directory", "path"),
    tool("read_file", "path"),
    tool("search_files", "pattern", "path"),
    tool("edit_file", "path", "old_text", "new_text"),
    tool("run_command", "command"),
]
FILES = {
    "list_directory": "src/\ntests/\nREADME.md\npyproject.toml\n.gitignore",
    "read_file": "# The title\n\n[![badge](x)]\n\nThis is what it\nis about.\n\nMore.",
    "search_files": "src/a.py:3: # TODO: later",
    "edit_file": "1 replacement",
    "run_command": "abc123 first commit\ndef456 second commit",
}


def work(server, order, tools=DEMO_TOOLS, files=FILES, failing=()):
    """Run a turn with the demo's script. Returns (calls, final text)."""
    messages, calls = [order], []
    for _ in range(9):
        message = ask(server, *messages, tools=tools)
        messages.append(assistant(*message.content))
        new = [block for block in message.content if block.type == "tool_use"]
        if not new:
            return calls, text_of(message)
        calls += [(call.name, call.input) for call in new]
        blocks = [
            results(c.id, content=files[c.name], is_error=c.name in failing)["content"][0]
            for c in new
        ]
        messages.append({"role": "user", "content": blocks})
    raise AssertionError("the demo did not end its turn")


def test_demo_explores_a_directory_and_quotes_the_results():
    with ScriptedServer("demo") as server:
        calls, answer = work(server, "What is this directory?")
    assert calls == [
        ("list_directory", {"path": "."}),
        ("read_file", {"path": "README.md"}),
        ("search_files", {"pattern": "TODO", "path": "."}),
        ("run_command", {"command": "git log --oneline -n 5"}),
    ]
    for cited in ("The title", "This is what it is about.", "`src/`", "TODO: later", "abc123"):
        assert cited in answer
    assert len(answer.split()) > 120


def test_demo_runs_the_command_in_the_message():
    with ScriptedServer("demo") as server:
        calls, _ = work(server, "Look around and run `date >> visits.log`, please.")
    assert calls[-1] == ("run_command", {"command": "date >> visits.log"})


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"list_directory": ""}, "0 entries"),
        ({"list_directory": "[]"}, "0 entries"),
        ({"list_directory": "only.bin"}, "1 entry"),
        ({"run_command": "the outcome is unknown: the worker died"}, "did not run it again"),
        ({"run_command": ""}, "ran and printed nothing"),
        ({"search_files": "no matches"}, "found none"),
    ],
)
def test_demo_accepts_any_result(files, wanted):
    with ScriptedServer("demo") as server:
        _, answer = work(server, "hello", files={**FILES, **files})
    assert wanted in answer


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        ("Not run: the user denied this call.", "was not allowed"),
        ("An earlier attempt may have run: it timed out.", "did not run it again"),
        ("not run: cancelled", "was not run"),
        ("exit code 1", "did not succeed: exit code 1"),
    ],
)
def test_demo_reports_how_a_call_failed(result, wanted):
    with ScriptedServer("demo") as server:
        _, answer = work(
            server, "hello", files={**FILES, "run_command": result}, failing=["run_command"]
        )
    assert wanted in answer


def test_demo_accepts_any_set_of_tools():
    with ScriptedServer("demo") as server:
        for count in range(len(DEMO_TOOLS) + 1):
            calls, answer = work(server, "Explore this", tools=DEMO_TOOLS[:count])
            assert len(calls) == min(count, 3) + (count == 5)
            assert answer


def test_demo_executes_single_requests():
    orders = {
        "read src/a.py": [("read_file", {"path": "src/a.py"})],
        "search for 'def main'": [("search_files", {"pattern": "def main", "path": "."})],
        "run `make quick`": [("run_command", {"command": "make quick"})],
        "replace 'a' with 'b' in x.txt": [
            ("read_file", {"path": "x.txt"}),
            ("edit_file", {"path": "x.txt", "old_text": "a", "new_text": "b"}),
        ],
        "thanks!": [],
    }
    with ScriptedServer("demo") as server:
        hello = assistant({"type": "text", "text": "hello"})
        for order, wanted in orders.items():
            messages = ["hi", hello, order]
            calls = []
            for _ in range(100):
                message = ask(server, *messages, tools=DEMO_TOOLS)
                made = [b for b in message.content if b.type == "tool_use"]
                if not made:
                    break
                calls += [(call.name, call.input) for call in made]
                messages += [assistant(*message.content), results(*[c.id for c in made])]
            assert calls == wanted
            assert message.content[-1].text


CHARGE = {
    "name": "charge",
    "input_schema": {
        "type": "object",
        "properties": {"cents": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["cents", "note"],
    },
}


@pytest.mark.parametrize(
    ("order", "calls", "wanted"),
    [
        ("hello", [], "my tools are real: `charge`"),
        ("charge 1900", [], "Name a tool"),
        ("surcharge 1900 'rent'", [], "Name a tool"),
        ("Charge 1900 for 'the rent'", [("charge", {"cents": 1900, "note": "the rent"})], "paid"),
    ],
)
def test_demo_calls_a_tool_that_is_named_with_its_arguments(order, calls, wanted):
    with ScriptedServer("demo") as server:
        made, answer = work(server, order, tools=[CHARGE], files={"charge": "paid"})
    assert made == calls
    assert wanted in answer and "in which I looked" not in answer


def test_demo_tells_a_story_that_lasts_long_enough_to_kill_its_worker():
    body = {"messages": [{"role": "user", "content": "Tell me a LONG story."}], "tools": DEMO_TOOLS}
    reply = demo(Request(1, body, NO_SESSION, 1, ""))
    (story,) = reply.blocks
    assert reply.chunk == "word"
    assert reply.pace_s * len(story["text"].split()) >= STORY_S == 20


def test_demo_gives_the_same_reply_to_the_same_request():
    with ScriptedServer("demo") as server:
        first, second = (ask(server, "hello", tools=DEMO_TOOLS) for _ in range(2))
    assert [b.to_dict()["type"] for b in first.content] == [b.type for b in second.content]
    assert first.content[1].text == second.content[1].text


@pytest.mark.parametrize(
    ("listing", "names"),
    [
        ('{"entries": [{"name": "src", "type": "dir"}, {"name": "a.py"}]}', ["src/", "a.py"]),
        ('["a", "b/"]', ["a", "b/"]),
        ("drwxr-xr-x 2 u g 4096 Nov 1 10:00 src\n-rw-r--r-- 1 u g 5 Nov 1 a", ["src/", "a"]),
        ("dir  src\nfile  a.py  120 bytes", ["src/", "a.py"]),
        ("- src/\n- `a.py`\n\n2 entries", ["src/", "a.py"]),
    ],
)
def test_names_are_read_from_listings_of_any_form(listing, names):
    assert names_in(listing) == names


def test_files_and_results_are_read_as_far_as_possible():
    assert main_file(["b.py", "docs/", "ReadMe.rst"]) == "ReadMe.rst"
    assert main_file(["x.bin", "b.py"]) == "b.py"
    assert main_file(["src/"]) is None
    assert lines_of("1\tone\n2\ttwo") == ["one", "two"]
    assert about("") == ("", "")
    assert about("```\ncode\n```\nProse here.") == ("", "Prose here.")
    assert failure_of("fine", False) is None


def test_E31_only_the_first_reply_states_that_it_is_a_script():
    """The defect: users who missed the line about the API key took the script for a model."""
    with ScriptedServer("demo") as server:
        first = ask(server, "What is this directory?", tools=DEMO_TOOLS)
        greeting = text_of(first)
        assert greeting.startswith(WHO)
        call = next(block for block in first.content if block.type == "tool_use")
        answered = results(call.id, content=FILES[call.name])
        second = ask(server, "What is this directory?", assistant(*first.content), answered,
                     tools=DEMO_TOOLS)
        assert WHO not in text_of(second)
        assert "stand-in" in text_of(ask(server, "hi"))

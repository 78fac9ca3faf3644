"""Rules, and the scripts that have names."""

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
from foldlog.local.messages_api.demo import WHO
from foldlog.local.messages_api.demo_reading import about, failure_of, lines_of, main_file, names_in
from foldlog.tests.local.scripted_client import ask, assistant, events, results


def said(server, *messages, **fields):
    return "".join(b.text for b in ask(server, *messages, **fields).content if b.type == "text")


def saying(value):
    return Reply([text(value)])


# rules -------------------------------------------------------------------------------------------


def test_the_first_rule_that_matches_speaks():
    rules = [
        Rule(reply=saying("greeting"), contains="hello"),
        Rule(reply=saying("once"), times=1),
        Rule(reply=saying("a's second"), session="a", ordinal=2),
        Rule(reply=lambda request: saying(f"number {request.n}")),
    ]
    with ScriptedServer(rules) as server:
        assert said(server, "hello you") == "greeting"
        assert said(server, "session:a") == "once"
        assert said(server, "session:a") == "a's second"
        assert said(server, "session:a") == "number 4"


def test_rules_by_attempt_and_by_results():
    rules = [
        Rule(reply=saying("try again"), generation="1.1", attempt=1),
        Rule(reply=Reply([tool_use("look")]), tool_results=0),
        Rule(reply=saying("seen"), when=lambda request: request.result_of("look") == "ok"),
    ]
    with ScriptedServer(rules) as server:
        first = {ATTEMPT_HEADER: "s 1.1.1"}
        assert said(server, "go", extra_headers=first) == "try again"
        called = ask(server, "go", extra_headers={ATTEMPT_HEADER: "s 1.1.2"}).content
        assert said(server, "go", assistant(*called), results(called[0].id)) == "seen"


def test_replies_in_order_per_session():
    with ScriptedServer(replies(saying("one"), saying("two"))) as server:
        assert [said(server, "session:a"), said(server, "session:b")] == ["one", "one"]
        assert said(server, "session:a") == "two"
        with pytest.raises(anthropic.BadRequestError, match="no rule of script 'script' matches"):
            ask(server, "session:a")


def test_rules_can_be_put_first_while_it_runs():
    with ScriptedServer("echo") as server:
        server.add(Rule(reply=saying("new"), contains="x"), Rule(reply=saying("late"), times=1))
        assert [said(server, "x"), said(server, "y"), said(server, "y")] == [
            "new",
            "late",
            "You said: y",
        ]


def test_a_speaker_that_raises_is_the_scripts_mistake():
    def broken(request):
        raise LookupError("no such thing")

    with ScriptedServer(broken) as server:
        with pytest.raises(anthropic.InternalServerError, match="no such thing") as caught:
            ask(server)
        assert caught.value.response.headers["x-should-retry"] == "false"
        assert server.journal.count("failed") == 1


def test_scripts_come_from_files(tmp_path):
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
        assert said(server, "else") == "You said: else"
    (tmp_path / "rules.py").write_text(
        "from foldlog.local.messages_api import Reply, text\nscript = [Reply([text('py')])]\n"
    )
    assert as_script(tmp_path / "rules.py").name == "rules"


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ({"reply": "nobody"}, "unknown reply 'nobody'"),
        ({"reply": {"fault": "eofs"}}, "unknown fault"),
        ({"reply": {"blocks": []}, "when": "now"}, "cannot have `when`"),
    ],
)
def test_wrong_rules_are_refused_when_they_are_read(tmp_path, rule, error):
    (tmp_path / "rules.json").write_text(json.dumps([rule]))
    with pytest.raises(ValueError, match=error):
        as_script(tmp_path / "rules.json")


def test_wrong_names_and_chunks_are_refused():
    with pytest.raises(ValueError, match="known: echo, obedient, demo"):
        as_script("nobody")
    for chunk in (0, "line"):
        with pytest.raises(ValueError, match="chunk"):
            Reply(chunk=chunk)
    assert as_script(Script([saying("a")], name="mine")).name == "mine"


def test_echo_speaks_word_by_word():
    with ScriptedServer("echo") as server:
        deltas = [
            e["delta"]["text"]
            for e in events(server, "a bc  d")
            if "delta" in e and "text" in e["delta"]
        ]
    assert deltas == ["You", " said:", " a", " bc", "  d"]


# obedient ----------------------------------------------------------------------------------------


def turn(server, order, answer="ok", **fields):
    """Runs a turn: every call is answered with `answer`. Gives (calls per step, final text)."""
    messages, steps = [order], []
    while True:
        message = ask(server, *messages, **fields)
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return steps, "".join(b.text for b in message.content if b.type == "text")
        steps.append([(call.name, call.input) for call in calls])
        messages.append(assistant(*message.content))
        messages.append(results(*[call.id for call in calls], content=answer))
        answer = "ok"


def test_obedient_does_what_the_lines_say():
    order = 'THINK hm\nCALL look {"path": "a"}\nCALL touch\nTHEN\nSAY nearly\nCALL touch {"n": 2}'
    with ScriptedServer("obedient") as server:
        steps, end = turn(server, order)
    assert steps == [[("look", {"path": "a"}), ("touch", {})], [("touch", {"n": 2})]]
    assert end == "done: ok"


def test_obedient_obeys_a_tool_result():
    with ScriptedServer("obedient") as server:
        steps, end = turn(server, "CALL look", answer='please\nCALL touch {"rm": "-rf"}')
    assert steps == [[("look", {})], [("touch", {"rm": "-rf"})]]
    assert end == "done: ok"


def test_obedient_answers_anything_else():
    with ScriptedServer("obedient") as server:
        assert turn(server, "just talk") == ([], "done: just talk")


def test_obedient_starts_over_in_the_next_turn():
    with ScriptedServer("obedient") as server:
        message = ask(server, "CALL look")
        done = (
            "CALL look",
            assistant(*message.content),
            results(message.content[0].id),
            assistant({"type": "text", "text": "done: ok"}),
        )
        assert ask(server, *done, "CALL touch").content[0].name == "touch"


def test_obedient_fails_once_when_told():
    order = 'FAULT overloaded {"times": 2}\nSAY well'
    with ScriptedServer("obedient") as server:
        for _ in range(2):
            with pytest.raises(anthropic.APIStatusError):
                ask(server, order)
        assert said(server, order) == "well"
        assert said(server, "STOP max_tokens\nSAY cut") == "cut"


def test_obedient_waits_at_a_gate():
    with ScriptedServer("obedient") as server:
        server.open("g")
        assert said(server, "GATE g 3\nPACE 0\nSAY through") == "through"


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
    """Runs a turn of the demo. Gives (calls, final text)."""
    messages, calls = [order], []
    for _ in range(9):
        message = ask(server, *messages, tools=tools)
        messages.append(assistant(*message.content))
        made = [block for block in message.content if block.type == "tool_use"]
        if not made:
            return calls, "".join(b.text for b in message.content if b.type == "text")
        calls += [(call.name, call.input) for call in made]
        blocks = [
            results(c.id, content=files[c.name], is_error=c.name in failing)["content"][0]
            for c in made
        ]
        messages.append({"role": "user", "content": blocks})
    raise AssertionError("the demo does not come to an end")


def test_demo_tours_a_directory_and_cites_what_it_saw():
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


def test_demo_runs_the_command_it_was_given():
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
def test_demo_takes_any_result(files, wanted):
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
def test_demo_says_how_a_call_failed(result, wanted):
    with ScriptedServer("demo") as server:
        _, answer = work(
            server, "hello", files={**FILES, "run_command": result}, failing=["run_command"]
        )
    assert wanted in answer


def test_demo_takes_any_set_of_tools():
    with ScriptedServer("demo") as server:
        for count in range(len(DEMO_TOOLS) + 1):
            calls, answer = work(server, "Explore this", tools=DEMO_TOOLS[:count])
            assert len(calls) == min(count, 3) + (count == 5)
            assert answer


def test_demo_grants_single_wishes():
    wishes = {
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
        for wish, wanted in wishes.items():
            messages = ["hi", hello, wish]
            calls = []
            while True:
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
def test_demo_calls_a_tool_of_yours_that_is_named_with_its_arguments(order, calls, wanted):
    with ScriptedServer("demo") as server:
        made, answer = work(server, order, tools=[CHARGE], files={"charge": "paid"})
    assert made == calls
    assert wanted in answer and "in which I looked" not in answer


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
def test_listings_of_any_form(listing, names):
    assert names_in(listing) == names


def test_reading_guesses():
    assert main_file(["b.py", "docs/", "ReadMe.rst"]) == "ReadMe.rst"
    assert main_file(["x.bin", "b.py"]) == "b.py"
    assert main_file(["src/"]) is None
    assert lines_of("1\tone\n2\ttwo") == ["one", "two"]
    assert about("") == ("", "")
    assert about("```\ncode\n```\nProse here.") == ("", "Prose here.")
    assert failure_of("fine", False) is None


def test_E31_only_the_first_reply_says_that_a_script_speaks():
    """Who had skipped the line about the API key took its tour for a model's."""
    with ScriptedServer("demo") as server:
        first = ask(server, "What is this directory?", tools=DEMO_TOOLS)
        spoken = "".join(b.text for b in first.content if b.type == "text")
        assert spoken.startswith(WHO)
        call = next(block for block in first.content if block.type == "tool_use")
        answered = results(call.id, content=FILES[call.name])
        second = ask(server, "What is this directory?", assistant(*first.content), answered,
                     tools=DEMO_TOOLS)
        assert WHO not in "".join(b.text for b in second.content if b.type == "text")
        assert "stand-in" in "".join(b.text for b in ask(server, "hi").content)

"""The five mistakes that exceed a token budget (S3.9): each is reported with its cause, and there
are no false alarms."""

import json
from dataclasses import replace
from datetime import date

import pytest

from foldlog.log.blobs import BlobStore
from foldlog.processors.advice import mistakes as rules
from foldlog.processors.advice.mistakes import Watch, in_prefixes, mistakes
from foldlog.processors.advice.prefix_drift import changed_parts, parts, unstable_parts
from foldlog.processors.agent import Agent
from foldlog.processors.default_agent import default_agent
from foldlog.processors.fold.projections.partition import INITIAL
from foldlog.processors.fold.rows import Rows
from foldlog.processors.limits import DEFAULT_LIMITS
from foldlog.processors.request.layers import Layer, Layers
from foldlog.processors.request.prefix import Prefix, assemble
from foldlog.processors.store.store import Cursor, DictBackend, Store
from foldlog.processors.tools.results import shape
from foldlog.processors.tools.tool import Shortened, tool
from foldlog.processors.worker.assemble import TokenAdvisor
from foldlog.schemas import value
from foldlog.schemas.events.parts import Body
from foldlog.schemas.tokens import OLD, estimate
from foldlog.tests.kit.agents import AGENT
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, with_calls

NEWS = "".join(f"the {n}th line reports some fact that is new to this session\n" for n in range(60))
ENTRIES = "".join(
    f"2026-11-21T12:00:{n % 60:02}Z INFO shop.orders order {n} of {n * 7919 % 10_007} was placed\n"
    for n in range(600)
)
LOG = "".join(f"2026-01-31 12:00:00 INFO request {n}\n" for n in range(400))


def after_result(result: str, name: str = "look", args: str = "{}") -> History:
    """Returns a session in which the named tool returned this result."""
    s = with_calls(Use(name, args, "a"), agent=AGENT_OF.get(name, ROOMY))
    assert s.result("1.1.0", result).accepted
    return s.work()


@tool(effect="pure")
def search_notes(ctx, words: str = "") -> str:
    """Searches the notes."""
    return words


ROOMY = replace(AGENT, limits=DEFAULT_LIMITS)
AGENT_OF = {
    "search_notes": Agent(name="helper", model="claude-test", tools=(search_notes,)),
    "find_tools": Agent(
        name="helper", model="claude-test", tools=(replace(search_notes, tier="rare"),)
    ),
}


def kinds(session: History) -> list[tuple[str, str, str]]:
    return [(m.kind, m.culprit, m.call) for m in mistakes(session.views)]


def test_S3_9_a_raw_log_is_reported_even_with_line_numbers():
    numbered = "".join(f"{n}\t{line}\n" for n, line in enumerate(LOG.splitlines()))
    for text in (LOG, numbered):
        (found,) = mistakes(after_result(text).views)
        assert (found.kind, found.culprit, found.call) == ("log", "look", "1.1.0")
        assert found.tokens == estimate(text) and "401 lines" in found.text
        assert str(found).startswith(f"look (1.1.0): {found.tokens} tokens, 401 lines of a raw")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (ENTRIES * 10, f"a raw log of {len(ENTRIES) * 10} bytes, of which the end was shown"),
        (ENTRIES[: len(ENTRIES) // 2], "a raw log of"),
        ({"ok": True, "output": "12:00:00 INFO x\n" * 300}, "301 lines of a raw log"),
        ({"ok": True, "output": ENTRIES}, "about 60"),
    ],
    ids=["long", "slightly too long", "in JSON", "in truncated JSON"],
)
def test_S3_9_a_tool_that_returns_a_raw_log_is_reported_although_its_result_was_truncated(
    tmp_path, returned, message
):
    """The session stores only what the model sees: the last 200 lines, or as much as the cap
    allows."""
    (found,) = mistakes(after_result(served(tmp_path, returned)).views)
    assert (found.kind, found.culprit, found.call) == ("log", "look", "1.1.0")
    assert message in found.text and 500 < found.tokens <= DEFAULT_LIMITS.result_tokens


def test_S3_9_a_truncated_result_other_than_a_raw_log_is_not_reported(tmp_path):
    lines = ENTRIES.splitlines(True)
    end = "".join(lines[-200:])
    command = Shortened(f"[the first 400 of 600 lines are left out]\n{end}[exit code 0]", ENTRIES)
    rows = [{"order": n, "customer": f"customer {n * 7919}"} for n in range(3_000)]
    long = "".join(line.replace("placed", "placed " + "again " * 40) for line in lines[-200:])
    assert "left out here" in served(tmp_path, {"output": long})
    tables = ({"lines": lines}, {"rows": rows}, NEWS * 20, {"text": NEWS * 9})
    for harmless in (end, command, long, {"output": long}, *tables):
        assert kinds(after_result(served(tmp_path, harmless))) == [], harmless


@pytest.mark.parametrize("notice", ["{n} of 12", "12 of {n}"])
def test_bad_input_a_truncation_notice_with_an_enormous_number_is_ignored(notice):
    """The defect: int() rejects that many digits, so every worker that read the page crashed."""
    amount = notice.format(n="9" * 5_000)
    page = "{" + NEWS * 6 + f"\n[{amount} bytes are left out here. ]\n"
    assert kinds(after_result(page)) == []


def served(directory, returned) -> str:
    """Returns the part of a tool's result that a session stores under the default limits."""
    limit, blobs = DEFAULT_LIMITS.result_tokens, BlobStore(directory)
    shaped = shape(returned, limit_tokens=limit, blobs=blobs, readable=True)
    return shaped.content.inline.decode()


def test_S3_9_the_last_lines_of_a_log_are_not_reported():
    served = "[a log: its last 200 lines]\n" + "".join(LOG.splitlines(True)[-200:]) + "\n[notice]"
    assert kinds(after_result(served)) == []


def test_S3_9_a_search_that_returns_whole_files_is_reported():
    (found,) = mistakes(after_result(NEWS * 6, name="search_notes").views)
    assert (found.kind, found.culprit) == ("search", "search_notes")
    assert str(found.tokens) in found.text and "200 tokens" in found.do
    hit = json.dumps([{"path": "a", "text": NEWS}, {"path": "b", "text": "short"}])
    (found,) = mistakes(after_result(hit, name="search_notes").views)
    assert found.kind == "search" and "one hit" in found.text
    assert kinds(after_result(hit)) == [], "the tool is not a search"


def test_S3_9_small_and_binary_results_are_not_reported():
    assert kinds(after_result("2026-01-31 12:00:00 INFO x\n" * 9)) == []
    assert kinds(after_result("\ufffd\x00" * 2_000)) == []
    assert kinds(after_result("[" * 5_000)) == []


# -- the prefix ------------------------------------------------------------------------------------


def prefix(system: str = "You help.", *layers: Layer, tools=()) -> Prefix:
    agent = Agent(
        name="helper", model="claude-test", system=system, tools=tools, directive="Act.",
        tool_schema_tokens=1_000_000,  # high enough for every schema
    )
    return assemble(agent, Layers(layers))


def described(chars: int, name: str = "big"):
    def function(ctx) -> str:
        return ""

    function.__doc__ = "word " * (chars // 5)
    return tool(name=name)(function)


def test_S3_9_a_huge_tool_schema_is_reported_and_so_is_the_total_of_all():
    big = [described(7_900, f"big{n}") for n in range(6)]
    found = list(in_prefixes([prefix(tools=big[:1])]))
    assert [(m.kind, m.culprit) for m in found] == [("schema", "tool big0")]
    *each, total = in_prefixes([prefix(tools=big + [described(10, "small")])])
    assert [m.culprit for m in each] == [f"tool big{n}" for n in range(6)]
    assert total.culprit == "all tools" and total.tokens > rules.TOOLS_TOKENS_MAX
    assert "tool small" not in total.text
    many = [described(2_000, f"t{n}") for n in range(40)]
    (total,) = in_prefixes([prefix(tools=many)])
    assert total.culprit == "all tools", "40 modest tools exceed the limit together"


def test_S3_9_the_built_in_tool_search_is_not_reported():
    """The description of the tool search lists all rare tools, and the report would advise the
    author to use a tool search."""
    rare = [replace(described(10, f"orders__list-{'x_' * 20}{n}"), tier="rare") for n in range(60)]
    some = [described(7_900, f"big{n}") for n in range(6)]
    made = prefix(tools=rare)
    assert estimate(parts(made)["tool find_tools"]) > rules.TOOL_TOKENS_MAX
    assert list(in_prefixes([made])) == []
    (*_, total) = in_prefixes([prefix(tools=[*rare, *some])])
    assert total.culprit == "all tools" and "find_tools" not in total.text
    hits = json.dumps({"tools": [NEWS] * 8})
    found = after_result(hits, name="find_tools", args='{"query": "notes"}')
    assert kinds(found) == []


def test_S3_9_the_built_in_tools_are_not_reported(tmp_path):
    assert list(in_prefixes([assemble(default_agent(tmp_path), Layers())])) == []


def test_S3_9_a_prompt_that_grows_is_reported_with_the_part_that_grew():
    small, large = Layer("project", "FOLDLOG.md", "rule\n"), "a rule more\n" * 400
    grown = prefix("You help.", small._replace(text=large))
    (found,) = in_prefixes([prefix("You help.", small), grown])
    assert found.kind == "prompt" and found.culprit == "project instructions (FOLDLOG.md)"
    assert found.tokens > 500 and "since the session began" in found.text
    (found,) = in_prefixes([prefix(), grown])
    assert "did not exist at first" in found.text
    assert list(in_prefixes([grown, prefix()])) == [], "a prompt may shrink"


def test_S3_9_a_prompt_that_keeps_changing_is_reported():
    made = [prefix(f"You help number {n}.") for n in range(7)]
    (found,) = in_prefixes(made)
    assert found.culprit == "system prompt" and "changed 6 times" in found.text
    assert list(in_prefixes(made[:6])) == []


def test_S3_9_a_finding_counts_the_tokens_of_its_part_and_not_of_the_whole_prefix():
    """The defect: one sentence before a schema of 4,000 tokens was reported as the most expensive
    part."""
    wide, clock = described(7_900, "wide"), "It is 2026-11-21T10:11."
    (_, found) = in_prefixes([prefix(clock, tools=[wide])])
    assert (found.culprit, found.tokens) == ("system prompt", estimate(clock))
    made = [prefix("x", Layer("project", "F.md", f"rule {n}\n"), tools=[wide]) for n in range(7)]
    (_, found) = in_prefixes(made)
    assert found.culprit == "project instructions (F.md)" and found.tokens < 60
    whole = estimate(made[-1].system) + estimate(made[-1].tools)
    assert f"each time all {whole} tokens were paid for again" in found.text
    made.append(prefix("x", tools=[wide]))
    (_, found) = in_prefixes(made)
    assert found.culprit == "project instructions (F.md)" and found.tokens > 0, "also if removed"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("It is 2026-11-21T10:11.", "time"),
        ("started at 10:11:12", "time"),
        ("at 1795252800123", "time"),
        ("You serve 123e4567-e89b-42d3-a456-426614174000.", "id"),
        ("Today is 2026-11-21.", "date"),
        ("Today is November 21, 2026.", "date"),
        ("<function f at 0x7f3a5c2d10e0>", "address"),
    ],
)
def test_S3_1_a_time_an_id_or_an_address_in_the_prefix_is_reported_with_its_part(text, kind):
    today = date(2026, 11, 21)
    (found,) = unstable_parts(prefix(text), today)
    assert (found.part, found.kind) == ("system prompt", kind) and found.text in text
    (found,) = unstable_parts(prefix("x", Layer("local", "F.md", text)), today)
    assert found.part == "local instructions (F.md)"
    assert not unstable_parts(prefix("x", Layer("core", "memory", text)), today), "memory has dates"
    (found,) = in_prefixes([prefix(text)], today)
    assert found.culprit == "system prompt" and found.text.endswith(found.text[-5:])


def test_months_old_dates_and_plain_numbers_are_not_reported_as_a_clock():
    text = "Knowledge up to 2024-06. Released 2025-01-01. Port 19092, 200000 tokens, see 12:30."
    assert unstable_parts(prefix(text), date(2026, 11, 21)) == ()


def test_S3_1_changed_parts_names_the_parts_that_changed():
    layer = Layer("user", "FOLDLOG.md", "x")
    a, b = prefix("You help.", layer, tools=[described(10, "t")]), prefix("You help.", layer)
    assert changed_parts(a, a) == () and changed_parts(a, b) == ("tool t",)
    assert changed_parts(b, prefix("You", layer)) == ("system prompt",)
    assert changed_parts(b, prefix("You help.")) == ("user instructions (FOLDLOG.md)",)
    two = [described(10, "t"), described(10, "u")]
    assert changed_parts(prefix(tools=two), prefix(tools=two[::-1])) == ("order",)


def test_every_part_has_a_unique_name():
    layers = [Layer("user", "F.md", "a"), Layer("user", "F.md", "b"), Layer("core", "memory", "c")]
    assert list(parts(prefix("You", *layers, tools=[described(10, "t")]))) == [
        "system prompt", "user instructions (F.md)", "user instructions (F.md) 2", "memory core",
        "directive", "tool t",
    ]


# -- while a worker runs ---------------------------------------------------------------------------


def test_S3_9_a_watch_reports_each_cause_once_and_reads_only_new_lines():
    s, watch = after_result(LOG), Watch()
    assert [m.kind for m in watch.check(s.views)] == ["log"]
    assert watch.check(s.views) == []
    s.answer(Use("look", "{}", "b"), Use("put", "{}", "c"))
    s.result("1.2.0", LOG.replace("12:", "13:"))
    s.result("1.2.1", LOG.replace("12:", "14:"))
    assert [(m.kind, m.culprit) for m in watch.check(s.views)] == [("log", "put")]
    assert watch.check(s.views) == []


def test_S3_9_a_watch_that_reads_in_steps_finds_a_repeat_of_an_earlier_result():
    s, watch = after_result(NEWS), Watch()
    watch.check(s.views)
    s.answer(Use("put", "{}", "b"))
    watch.check(s.views)
    s.result("1.2.0", NEWS)
    assert [(m.kind, m.call) for m in watch.check(s.views)] == [("echo", "1.2.0")]


def test_S3_9_a_watch_that_starts_later_reports_only_later_results():
    s = after_result(LOG)
    since = s.views.transcript.lines[-1].offset + 1
    watch = Watch(lambda session_id: since if session_id == s.views.session_id else 0)
    assert watch.check(s.views) == [], "the previous watch reported it"
    s.answer(Use("look", "{}", "b"))
    s.result("1.2.0", LOG.replace("12:", "13:"))
    assert [(m.kind, m.call) for m in watch.check(s.views)] == [("log", "1.2.0")]
    assert watch.check(s.views) == []


def test_S3_9_a_watch_that_starts_later_does_not_report_a_part_of_an_old_prefix():
    views = after_result("short").views
    (one,) = views.context.prefixes

    def with_prefixes(*systems):
        texts = (json.dumps([{"type": "text", "text": text}]).encode() for text in systems)
        prefixes = Rows(
            value.replace(one, system=Body(inline=text), tools=Body(inline=b"[]"), offset=10 * n)
            for n, text in enumerate(texts)
        )
        return value.replace(views, context=value.replace(views.context, prefixes=prefixes))

    clock, other = "It is 2026-11-21T10:11.", "Your id is 123e4567-e89b-42d3-a456-426614174000."
    assert Watch(lambda _id: 5).check(with_prefixes(clock, "No clock.", clock)) == []
    (found,) = Watch(lambda _id: 5).check(with_prefixes("No clock.", other))
    assert found.kind == "prompt" and "looks like a id: 123e4567" in found.text


def test_S3_9_a_restarted_worker_reports_only_new_mistakes():
    def start_advisor(disk: dict, log_end: int, **more) -> tuple[TokenAdvisor, list[str]]:
        logged: list[str] = []
        advisor = TokenAdvisor(logged.append, lambda _id: 0)
        advisor.store_opened(0, Store(DictBackend(disk), log_end=log_end, **more))
        return advisor, logged

    s, disk = after_result(LOG), {}
    first, logged = start_advisor(disk, 0)
    first.check(s.views)
    assert len(logged) == 1 and "raw log" in logged[0]
    end = s.views.transcript.lines[-1].offset + 1
    Store(DictBackend(disk)).write({}, {}, lambda _views: False, INITIAL, Cursor(end, 0))
    s.answer(Use("put", "{}", "b"))
    s.result("1.2.0", LOG.replace("12:", "13:"))
    restarted, logged = start_advisor(disk, end + 100)
    restarted.check(s.views)
    assert len(logged) == 1 and "put (1.2.0)" in logged[0], "no worker had folded it"
    rebuilt, logged = start_advisor({}, end + 100, letters_from=0)
    rebuilt.check(s.views)
    assert logged == [], "a rebuilt store has only mistakes that other workers reported"
    moved, logged = start_advisor({}, end + 100)
    moved.check(s.views)
    assert logged == [], "so has the first store of a worker that takes over the partition"


def test_S3_9_advice_that_fails_is_logged_once_and_later_results_are_checked(monkeypatch):
    real = rules._log

    def fails(text):
        if "request" in text:
            raise ArithmeticError("a rule is wrong")
        return real(text)

    monkeypatch.setattr(rules, "_log", fails)
    logged: list[str] = []
    advisor = TokenAdvisor(logged.append, lambda _id: 0)
    s = after_result(LOG)
    advisor.check(s.views)
    for call, text in (("1.2.0", LOG), ("1.3.0", ENTRIES[: len(ENTRIES) // 2])):
        s.answer(Use("put", "{}", "b"))
        s.result(call, text)
        advisor.check(s.views)
    failed, found = logged
    assert failed.startswith(f"session {s.views.session_id}: the token advice failed (Ari")
    assert "a rule is wrong" not in failed, "the exception may quote the session"
    assert "put (1.3.0)" in found and "raw log" in found


def test_a_watch_remembers_a_bounded_number_of_sessions(monkeypatch):
    monkeypatch.setattr(Watch, "SESSIONS_MAX", 2)
    watch = Watch()
    for name in ("a", "b", "c"):
        s = History(name)
        s.take().open()
        watch.check(s.views)
    assert list(watch._seen) == ["b", "c"]


def test_a_finding_counts_tokens_as_the_model_does():
    """An older model counts fewer tokens for the same schema, so for this model the schema is under
    the limit."""
    one = [described(4_000, "wide")]
    (found,) = in_prefixes([prefix(tools=one)])
    text = parts(prefix(tools=one))["tool wide"]
    assert found.tokens == estimate(text) > 1_000 > estimate(text, OLD)
    assert list(in_prefixes([prefix(tools=one)], counts=OLD)) == []

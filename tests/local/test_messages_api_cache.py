"""The simulated prompt cache: which tokens are read from it, and which are written to it."""

import pytest

from foldlog.local.messages_api import Reply, ScriptedServer, text
from foldlog.tests.local.scripted_client import ask, assistant

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
# About 1,500 tokens: over the newest models' minimum of 512, under the 4,096 of older ones.
LONG = "all work and no play makes a dull prompt. " * 100


@pytest.fixture
def server():
    with ScriptedServer(Reply([text("ok")])) as server:
        yield server


def system(text=LONG, mark=MARK):
    return [{"type": "text", "text": text, **mark}]


def user(value, **fields):
    return {"role": "user", "content": [{"type": "text", "text": value, **fields}]}


def tokens(usage):
    """The (uncached, written, read) tokens of a usage."""
    return usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens


def test_a_prefix_is_written_once_and_then_read(server):
    uncached, written, read = tokens(ask(server, "a", system=system()).usage)
    assert written > 512
    assert (uncached > 0, read) == (True, 0)
    assert tokens(ask(server, "b", system=system()).usage) == (uncached, 0, written)


def test_without_a_breakpoint_nothing_is_cached(server):
    for _ in range(2):
        uncached, written, read = tokens(ask(server, "a", system=LONG).usage)
        assert (written, read) == (0, 0)
        assert uncached > 512


def test_a_prefix_below_the_minimum_is_silently_not_cached(server):
    for model in ("claude-haiku-4-5", "claude-opus-4-6"):
        for _ in range(2):
            _, written, read = tokens(ask(server, "a", system=system(), model=model).usage)
            assert (written, read) == (0, 0)


def test_a_growing_conversation_reads_what_it_wrote(server):
    fields = {"cache_control": {"type": "ephemeral"}, "system": LONG}
    turns = ["first"]
    total = 0
    for number in range(4):
        usage = ask(server, *turns, **fields).usage
        uncached, written, read = tokens(usage)
        assert uncached == 0
        assert read == total
        total = read + written
        turns += [assistant({"type": "text", "text": "ok"}), f"next {number}"]


def test_a_changed_prefix_misses(server):
    ask(server, "a", system=system())
    assert ask(server, "a", system=system("X" + LONG)).usage.cache_read_input_tokens == 0
    assert ask(server, "a", system=system(), tools=[]).usage.cache_read_input_tokens == 0


def test_models_do_not_share_entries(server):
    ask(server, "a", system=system())
    usage = ask(server, "a", system=system(), model="claude-sonnet-5-5").usage
    assert usage.cache_read_input_tokens == 0


def test_the_longest_prefix_counts(server):
    _, first, _ = tokens(ask(server, user("a"), system=system()).usage)
    _, second, read = tokens(ask(server, user(LONG, **MARK), system=system()).usage)
    assert read == first
    assert tokens(ask(server, user(LONG, **MARK), system=system()).usage)[2] == first + second


def test_the_look_back_is_twenty_positions(server):
    def blocks(count):
        mark = [{"type": "text", "text": "end", **MARK}]
        return {"role": "user", "content": [{"type": "text", "text": "x"}] * count + mark}

    ask(server, "a", system=system())
    near, far = system(mark={}), system(mark={})
    assert ask(server, blocks(18), system=near).usage.cache_read_input_tokens > 0
    with ScriptedServer(Reply([text("ok")])) as other:
        ask(other, "a", system=system())
        assert ask(other, blocks(19), system=far).usage.cache_read_input_tokens == 0


def test_lifetimes_are_counted_separately(server):
    usage = ask(server, user(LONG, **MARK), system=system(mark=HOUR)).usage
    created = usage.cache_creation
    assert created.ephemeral_1h_input_tokens > 512
    assert created.ephemeral_5m_input_tokens > 512
    total = created.ephemeral_1h_input_tokens + created.ephemeral_5m_input_tokens
    assert usage.cache_creation_input_tokens == total


def test_a_request_that_failed_wrote_nothing(server):
    server.add(Reply(fault="overloaded"))
    with pytest.raises(Exception, match="Overloaded"):
        ask(server, "a", system=system())
    server.add(Reply([text("ok")]))
    assert ask(server, "a", system=system()).usage.cache_read_input_tokens == 0

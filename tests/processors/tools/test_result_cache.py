"""S0.8: a pure tool that is called again with the same arguments within its TTL does not run."""

import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest

from foldlog.processors.agent import Agent
from foldlog.processors.tools import result_cache
from foldlog.processors.tools.result_cache import ResultCache, key_of
from foldlog.processors.tools.results import Shaped
from foldlog.processors.tools.tool import tool
from foldlog.schemas.events.parts import BlobRef, Body
from foldlog.tests.processors.tools.tool_bench import make, make_host, run_once

TTL_MS = 60_000
SMALL = Shaped(Body(inline=b"x"), 1, 1, 0)


class Clock:
    now = 1_000_000

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("foldlog.processors.tools.run.wall_ms", made)
    return made


@pytest.fixture
def said():
    return []


@pytest.fixture
def cache(tmp_path, clock, said):
    made = ResultCache(tmp_path / "tool_results.sqlite", said.append, clock)
    yield made
    made.close()


@pytest.fixture
def host(tmp_path, cache):
    return replace(make_host(tmp_path), cache=cache, agent="shop")


def counting(**options):
    """A tool that says how often it ran, and what it was asked."""
    runs = []

    def look(place: str = "here", size: int = 1):
        runs.append(place)
        return {"run": len(runs), "place": place}

    return make("pure", look, cache_ttl_s=TTL_MS / 1000, **options), runs


def ask(a_tool, host, args=b"{}", user="ana", **more):
    return run_once(a_tool, host, args, user_id=user, **more).only


def test_S0_8_the_same_call_within_the_ttl_does_not_run_and_says_so(host, clock):
    look, runs = counting()
    first = ask(look, host, b'{"place":"a","size":2}')
    clock.now += TTL_MS - 1
    again = ask(look, host, b'{ "size": 2, "place": "a" }', turn=9)
    assert runs == ["a"]
    assert (first.cached_at, again.cached_at) == (None, 1_000_000)
    assert again.turn == 9 and replace(again, turn=first.turn, cached_at=None) == first
    clock.now += 1
    assert ask(look, host, b'{"place":"a","size":2}').cached_at is None and len(runs) == 2


def test_S0_8_nobody_gets_what_anothers_call_returned(host):
    look, runs = counting()
    ask(look, host)
    ask(look, host, user="bob")
    ask(look, host, project_id="p1")
    ask(look, replace(host, agent="other"))
    ask(look, replace(host, workdir=host.blobs.directory))
    assert len(runs) == 5
    assert ask(look, host).cached_at and len(runs) == 5
    ask(look, host, user="")
    ask(look, host, user="")
    assert len(runs) == 7, "without a user there is no scope"


def test_another_argument_schema_or_limit_is_another_call(host):
    look, runs = counting()
    ask(look, host)
    ask(look, host, b'{"place":"b"}')
    ask(replace(look, description="Another promise."), host)
    ask(replace(look, result_tokens=300), host)
    ask(replace(look, name="u"), host, name="u")
    assert len(runs) == 5


@pytest.mark.parametrize("effect", ["idempotent", "once"])
def test_only_a_pure_tool_may_be_cached(effect, host):
    with pytest.raises(ValueError, match="only a pure tool"):
        make(effect, lambda: 1, cache_ttl_s=5)
    look, runs = counting()
    ask(look, host, effect=effect)
    ask(look, host, effect=effect)
    assert len(runs) == 2, "the log says that it is not"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_ttl_is_a_time(seconds):
    with pytest.raises(ValueError, match="cache_ttl_s"):
        make("pure", lambda: 1, cache_ttl_s=seconds)


def test_what_failed_or_asked_for_more_than_to_be_read_runs_again(host):
    runs = []

    def fails():
        runs.append(1)
        raise ValueError("no luck")

    def triggers(ctx):
        runs.append(1)
        ctx.remind("mind the gap")
        return "ok"

    for function in (fails, triggers):
        runs.clear()
        bad = make("pure", function, cache_ttl_s=60)
        ask(bad, host)
        ask(bad, host)
        assert len(runs) == 2


def test_a_large_result_comes_again_with_its_blob_and_is_lost_with_it(host):
    runs = []

    def large():
        runs.append(1)
        return "word " * 50_000

    big = make("pure", large, cache_ttl_s=60)
    first = ask(big, host)
    again = ask(big, host)
    assert again.content == first.content and again.left_out == first.left_out > 0
    sha = first.content.ref.sha256
    (host.blobs.directory / sha[:2] / sha).unlink()
    assert ask(big, host).cached_at is None and len(runs) == 2


def test_a_clock_that_was_set_back_makes_nothing_young(host, clock):
    look, runs = counting()
    ask(look, host)
    clock.now -= 10
    assert ask(look, host).cached_at is None and len(runs) == 2
    assert ask(look, host).cached_at == clock.now


def test_an_age_counts_from_the_beginning_of_the_run(host, clock):
    def slow():
        clock.now += TTL_MS
        return "as of a minute ago"

    old = make("pure", slow, cache_ttl_s=60)
    ask(old, host)
    assert ask(old, host).cached_at is None


# -- the file --------------------------------------------------------------------------------------


def test_it_survives_a_restart(tmp_path, cache, clock, said):
    cache.keep(b"k", Shaped(Body(ref=BlobRef(sha256="a" * 64, bytes=3, media_type="x/y")), 3, 1, 0),
               clock.now, TTL_MS)
    cache.close()
    again = ResultCache(cache.path, said.append, clock)
    assert again.find(b"k", TTL_MS).shaped.content.ref.media_type == "x/y"
    assert again.find(b"k", TTL_MS).at == clock.now and not said
    again.close()


def test_it_survives_kill_9(tmp_path, clock, said):
    program = (
        "import os, sys; from pathlib import Path;"
        "from foldlog.processors.tools.result_cache import ResultCache;"
        "from foldlog.processors.tools.results import Shaped;"
        "from foldlog.schemas.events.parts import Body;"
        "cache = ResultCache(Path(sys.argv[1]), print);"
        "[cache.keep(b'%d' % n, Shaped(Body(inline=b'x'), 1, 1, 0), 10**6, 60000)"
        " for n in range(50)];"
        "os.kill(os.getpid(), 9)"
    )
    path = tmp_path / "killed.sqlite"
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    again = ResultCache(path, said.append, clock)
    assert all(again.find(b"%d" % n, TTL_MS) for n in range(50)) and not said
    again.close()


def test_it_is_bounded_and_the_oldest_go_first(cache, clock):
    for n in range(10):
        cache.keep(b"%d" % n, SMALL, clock.now + n, TTL_MS)
    clock.now += 20
    cache.prune(entries_max=4)
    assert [n for n in range(10) if cache.find(b"%d" % n, TTL_MS)] == [6, 7, 8, 9]
    cache.prune(bytes_max=2)
    assert [n for n in range(10) if cache.find(b"%d" % n, TTL_MS)] == [8, 9]
    clock.now += TTL_MS
    cache.prune()
    (left,) = sqlite3.connect(cache.path).execute("SELECT count(*) FROM results").fetchone()
    assert left == 0


def test_it_prunes_itself(cache, clock, monkeypatch):
    monkeypatch.setattr(result_cache, "PRUNE_EVERY", 5)
    for n in range(4):
        cache.keep(b"%d" % n, SMALL, clock.now, 1)
    clock.now += 1
    cache.keep(b"new", SMALL, clock.now, TTL_MS)
    rows = sqlite3.connect(cache.path).execute("SELECT key FROM results").fetchall()
    assert rows == [(b"new",)]


def test_a_flipped_bit_of_a_result_is_found_and_its_tool_runs(tmp_path, cache, clock, said):
    """SQLite has no checksums: another result than the tool's was given to the model."""
    key = key_of(("ana",), b"{}")
    cache.keep(key, Shaped(Body(inline=b"the price is 100"), 16, 4, 0), clock.now, TTL_MS)
    assert cache.find(key, TTL_MS) is not None
    cache.close()
    path = tmp_path / "tool_results.sqlite"
    path.write_bytes(path.read_bytes().replace(b"is 100", b"is 900"))
    again = ResultCache(path, said.append, clock)
    assert again.find(key, TTL_MS) is None
    again.close()


def test_a_damaged_file_is_begun_anew_and_said(tmp_path, clock, said):
    path = tmp_path / "bad.sqlite"
    path.write_bytes(b"this is no database, it is a text that somebody put here" * 20)
    cache = ResultCache(path, said.append, clock)
    assert len(said) == 1 and "begun anew" in said[0]
    cache.keep(b"k", SMALL, clock.now, TTL_MS)
    assert cache.find(b"k", TTL_MS)
    cache.close()


def test_a_file_of_another_layout_is_begun_anew(cache, clock, said):
    cache.keep(b"k", SMALL, clock.now, TTL_MS)
    cache.close()
    with sqlite3.connect(cache.path) as db:
        db.execute("PRAGMA user_version = 99")
    again = ResultCache(cache.path, said.append, clock)
    assert again.find(b"k", TTL_MS) is None and not said
    again.close()


def test_without_a_place_tools_run_and_it_is_said(tmp_path, host, said):
    cache = ResultCache(tmp_path / "no" / "such" / "place", said.append)
    assert len(said) == 2 and "Tools run instead" in said[1]
    look, runs = counting()
    for _ in range(2):
        ask(look, replace(host, cache=cache))
    assert len(runs) == 2 and len(said) == 2


def test_the_file_is_for_its_owner_only(cache):
    assert cache.path.stat().st_mode & 0o077 == 0


def test_a_key_has_no_seams():
    assert key_of(("a", "b"), b"{}") != key_of(("ab", ""), b"{}")
    assert key_of(("a", None), b"{}") != key_of(("a", "null"), b"{}")
    assert key_of(("a",), b'{"x":1}') != key_of(("a",), b'{"x":"1"}')


def test_an_agent_keeps_the_ttl_of_its_tool():
    @tool(effect="pure", cache_ttl_s=90)
    def rate(currency: str) -> str:
        """Say what a currency is worth."""
        return currency

    agent = Agent(name="shop", model="claude-sonnet-5-5", tools=(rate,))
    assert agent.tool("rate").cache_ttl_ms == 90_000

"""S0.8: a pure tool does not run if it is called again with the same arguments within its TTL."""

import resource
import signal
import sqlite3
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest

from foldlog.processors.tools import result_cache
from foldlog.processors.tools.result_cache import ResultCache, key_of
from foldlog.processors.tools.results import Shaped
from foldlog.schemas.events.parts import BlobRef, Body
from foldlog.tests.kit.programs import run
from foldlog.tests.processors.tools.tool_bench import make, run_once

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
def messages():
    return []


@pytest.fixture
def cache(tmp_path, clock, messages):
    made = ResultCache(tmp_path / "tool_results.sqlite", messages.append, clock)
    yield made
    made.close()


@pytest.fixture
def host(host, cache):
    return replace(host, cache=cache, agent="shop")


def counting(**options):
    """A tool that returns the number of its runs, and the list of its arguments."""
    runs = []

    def measure(place: str = "here", size: int = 1):
        runs.append(place)
        return {"run": len(runs), "place": place}

    return make("pure", measure, cache_ttl_s=TTL_MS / 1000, **options), runs


def ask(a_tool, host, args=b"{}", user="ana", **more):
    return run_once(a_tool, host, args, user_id=user, **more).only


def test_S0_8_the_same_call_within_the_ttl_does_not_run_and_is_marked(host, clock):
    measure, runs = counting()
    first = ask(measure, host, b'{"place":"a","size":2}')
    clock.now += TTL_MS - 1
    again = ask(measure, host, b'{ "size": 2, "place": "a" }', turn=9)
    assert runs == ["a"]
    assert (first.cached_at, again.cached_at) == (None, 1_000_000)
    assert again.turn == 9 and replace(again, turn=first.turn, cached_at=None) == first
    clock.now += 1
    assert ask(measure, host, b'{"place":"a","size":2}').cached_at is None and len(runs) == 2


def test_S0_8_a_result_is_only_for_its_user_project_agent_and_directory(host):
    measure, runs = counting()
    ask(measure, host)
    ask(measure, host, user="bob")
    ask(measure, host, project_id="p1")
    ask(measure, replace(host, agent="other"))
    ask(measure, replace(host, workdir=host.blobs.directory))
    assert len(runs) == 5
    assert ask(measure, host).cached_at and len(runs) == 5
    ask(measure, host, user="")
    ask(measure, host, user="")
    assert len(runs) == 7, "without a user there is no scope"


def test_other_arguments_schema_or_limit_are_another_call(host):
    measure, runs = counting()
    ask(measure, host)
    ask(measure, host, b'{"place":"b"}')
    ask(replace(measure, description="Another promise."), host)
    ask(replace(measure, result_tokens=300), host)
    ask(replace(measure, name="u"), host, name="u")
    assert len(runs) == 5


@pytest.mark.parametrize("effect", ["idempotent", "once"])
def test_only_a_pure_tool_may_be_cached(effect, host):
    with pytest.raises(ValueError, match="only pure tools"):
        make(effect, lambda: 1, cache_ttl_s=5)
    measure, runs = counting()
    ask(measure, host, effect=effect)
    ask(measure, host, effect=effect)
    assert len(runs) == 2, "the log does not call it pure"


def test_a_call_that_failed_or_requested_a_reminder_is_not_cached(host):
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


def test_a_large_result_is_cached_until_its_blob_is_deleted(host):
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


def test_a_negative_age_counts_as_expired(host, clock):
    measure, runs = counting()
    ask(measure, host)
    clock.now -= 10
    assert ask(measure, host).cached_at is None and len(runs) == 2
    assert ask(measure, host).cached_at == clock.now


def test_an_age_counts_from_the_start_of_the_run(host, clock):
    def slow():
        clock.now += TTL_MS
        return "as of a minute ago"

    old = make("pure", slow, cache_ttl_s=60)
    ask(old, host)
    assert ask(old, host).cached_at is None


# -- the file --------------------------------------------------------------------------------------


def test_the_cache_survives_a_restart(tmp_path, cache, clock, messages):
    cache.keep(b"k", Shaped(Body(ref=BlobRef(sha256="a" * 64, bytes=3, media_type="x/y")), 3, 1, 0),
               clock.now, TTL_MS)
    cache.close()
    again = ResultCache(cache.path, messages.append, clock)
    assert again.find(b"k", TTL_MS).shaped.content.ref.media_type == "x/y"
    assert again.find(b"k", TTL_MS).at == clock.now and not messages
    again.close()


def test_the_cache_survives_kill_9(tmp_path, clock, messages):
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
    ended = run([sys.executable, "-c", program, path])
    assert ended.returncode == -9, ended.stderr
    again = ResultCache(path, messages.append, clock)
    assert all(again.find(b"%d" % n, TTL_MS) for n in range(50)) and not messages
    again.close()


def test_pruning_deletes_the_oldest_first(cache, clock):
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


def test_the_cache_prunes_itself(cache, clock, monkeypatch):
    monkeypatch.setattr(result_cache, "PRUNE_EVERY", 5)
    for n in range(4):
        cache.keep(b"%d" % n, SMALL, clock.now, 1)
    clock.now += 1
    cache.keep(b"new", SMALL, clock.now, TTL_MS)
    rows = sqlite3.connect(cache.path).execute("SELECT key FROM results").fetchall()
    assert rows == [(b"new",)]


def test_a_damaged_result_is_not_returned(tmp_path, cache, clock, messages):
    """The defect: SQLite has no checksums, so the model got a damaged result."""
    key = key_of(("ana",), b"{}")
    cache.keep(key, Shaped(Body(inline=b"the price is 100"), 16, 4, 0), clock.now, TTL_MS)
    assert cache.find(key, TTL_MS) is not None
    cache.close()
    path = tmp_path / "tool_results.sqlite"
    path.write_bytes(path.read_bytes().replace(b"is 100", b"is 900"))
    again = ResultCache(path, messages.append, clock)
    assert again.find(key, TTL_MS) is None
    again.close()


def test_a_damaged_file_is_emptied_and_reported(tmp_path, clock, messages):
    path = tmp_path / "bad.sqlite"
    path.write_bytes(b"this is no database, it is a text that somebody put here" * 20)
    cache = ResultCache(path, messages.append, clock)
    assert len(messages) == 1 and "emptied" in messages[0]
    cache.keep(b"k", SMALL, clock.now, TTL_MS)
    assert cache.find(b"k", TTL_MS)
    cache.close()


@contextmanager
def no_space():
    """A block in which no file can grow, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_skips_the_cache_and_keeps_it(tmp_path, cache, clock, messages):
    """The defect: after one write without space, the cache was not used until the next start."""
    cache.keep(b"before", SMALL, clock.now, TTL_MS)
    with no_space():
        for n in range(3):
            cache.keep(b"%d" % n, SMALL, clock.now, TTL_MS)
        assert cache.find(b"before", TTL_MS)
    assert len(messages) == 1 and "skipped until it can be used again" in messages[0]
    cache.keep(b"after", SMALL, clock.now, TTL_MS)
    assert cache.find(b"before", TTL_MS) and cache.find(b"after", TTL_MS)
    with no_space():
        cache.keep(b"later", SMALL, clock.now, TTL_MS)
    assert len(messages) == 2, "it is reported again"


def test_a_full_disk_at_the_start_deletes_no_cached_result(cache, clock, messages):
    """The defect: the file was emptied."""
    cache.keep(b"before", SMALL, clock.now, TTL_MS)
    cache.close()
    with no_space():
        full = ResultCache(cache.path, messages.append, clock)
        full.close()
    assert not any("emptied" in message for message in messages)
    again = ResultCache(cache.path, messages.append, clock)
    assert again.find(b"before", TTL_MS)
    again.close()


def test_a_file_of_another_layout_is_emptied(cache, clock, messages):
    cache.keep(b"k", SMALL, clock.now, TTL_MS)
    cache.close()
    with sqlite3.connect(cache.path) as db:
        db.execute("PRAGMA user_version = 99")
    again = ResultCache(cache.path, messages.append, clock)
    assert again.find(b"k", TTL_MS) is None and not messages
    again.close()


def test_without_a_directory_tools_run_and_it_is_reported(tmp_path, host, messages):
    cache = ResultCache(tmp_path / "no" / "such" / "place", messages.append)
    assert len(messages) == 2 and "Tools run instead" in messages[1]
    measure, runs = counting()
    for _ in range(2):
        ask(measure, replace(host, cache=cache))
    assert len(runs) == 2 and len(messages) == 2


def test_only_its_owner_may_read_the_file(cache):
    assert cache.path.stat().st_mode & 0o077 == 0


def test_different_scopes_and_arguments_have_different_keys():
    assert key_of(("a", "b"), b"{}") != key_of(("ab", ""), b"{}")
    assert key_of(("a", None), b"{}") != key_of(("a", "null"), b"{}")
    assert key_of(("a",), b'{"x":1}') != key_of(("a",), b'{"x":"1"}')

"""Results as the model gets them: they are bounded and stable, and nothing is lost if they are
cut."""

import dataclasses
import datetime
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings, strategies as st

from foldlog.log.blobs import INLINE_BYTES_MAX, BlobStore
from foldlog.processors import token_count
from foldlog.processors.tools import results
from foldlog.processors.tools.builtin import read_result
from foldlog.processors.tools.results import PREVIEW_CHARS, is_log_tail, left_out_in, shape
from foldlog.processors.tools.tool import Shortened
from foldlog.schemas.tokens import OLD, estimate


@pytest.fixture(autouse=True, scope="module")
def estimated():
    """Results are cut by the estimate on every machine, so this makes the tests count tokens by the
    estimate too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_count, "_ctok", lambda: None)
        yield patch


@pytest.fixture(scope="module")
def blobs(tmp_path_factory):
    return BlobStore(tmp_path_factory.mktemp("blobs"))


def shaped(blobs, value, limit=8_000, readable=True):
    return shape(value, limit_tokens=limit, blobs=blobs, readable=readable)


def text_of(result):
    return result.content.inline.decode()


def test_a_text_is_unchanged(blobs):
    result = shaped(blobs, "line one\nline two ü\n")
    assert text_of(result) == "line one\nline two ü\n"
    assert (result.content.ref, result.left_out) == (None, 0)
    assert result.bytes == len(result.content.inline)


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.date


class Odd:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (5, "5"),
        ({"b": 1, "a": "ä"}, '{"a":"ä","b":1}'),
        ([1, (2, 3)], "[1,[2,3]]"),
        (Point(1, datetime.date(2026, 1, 2)), '{"when":"2026-01-02","x":1}'),
        ({"p": Path("/x"), "f": float("nan")}, '{"f":"NaN","p":"/x"}'),
        ({1: "x", "a": 2}, '{"1":"x","a":2}'),
        ("", ""),
    ],
)
def test_other_values_are_stable_compact_json(blobs, value, text):
    assert text_of(shaped(blobs, value)) == text


def test_a_value_that_is_not_JSON_is_reported_not_raised(blobs):
    assert text_of(shaped(blobs, object())).startswith("[object that is not JSON")
    assert text_of(shaped(blobs, Odd())).startswith("[Odd that is not JSON")
    loop = []
    loop.append(loop)
    assert text_of(shaped(blobs, loop)).startswith("[list that is not JSON")
    assert text_of(shaped(blobs, "half \ud800 pair")) == "half ? pair"
    assert text_of(shaped(blobs, {"a": "half \ud800"})) == '{"a":"half ?"}'


def test_S3_5_a_long_list_gives_100_rows_and_the_number_of_others(blobs):
    rows = [{"id": n} for n in range(5_000)]
    result = shaped(blobs, rows)
    listed, more, notice = text_of(result).split("\n")
    assert json.loads(listed) == rows[:100]
    assert more == "4900 more rows, of 5000."
    assert result.content.ref.sha256 in notice
    assert json.loads(blobs.resolve(result.content)) == rows
    assert shaped(blobs, rows[:100]).left_out == 0


@pytest.mark.parametrize("make", [list, tuple, set, iter, lambda rows: dict.fromkeys(rows).keys()])
def test_S3_5_every_iterable_gives_100_rows(blobs, make):
    text = text_of(shaped(blobs, make(range(1_000))))
    assert json.loads(text.split("\n")[0]) == list(range(100))
    assert text.split("\n")[1] == "900 more rows, of 1000."


def test_S3_5_shortened_lists_in_an_object_are_named(blobs):
    files = [{"name": f"f{n}"} for n in range(300)]
    whole = {"total": 300, "found": {"files": files, "dirs": [1] * 101}, "ok": True}
    text = text_of(shaped(blobs, whole))
    head, dirs, more, notice = text.split("\n")
    assert json.loads(head)["found"]["files"] == files[:100] and json.loads(head)["ok"]
    assert dirs == "found.dirs: 1 more rows, of 101."
    assert more == "found.files: 200 more rows, of 300."
    offset = int(notice.split("offset ")[1].split(".")[0])
    stored = blobs.resolve(shaped(blobs, whole).content).decode()
    assert head.startswith(stored[:offset].rstrip(",")), "reading continues where the two differ"
    many = {f"list {n:03}\n": [0] * 200 for n in range(40)}
    lines = text_of(shaped(blobs, many, limit=20_000)).split("\n")
    assert lines[1:3] == ["list 000: 100 more rows, of 200.", "list 001: 100 more rows, of 200."]
    assert lines[-2] == "30 more lists are shortened."


def test_a_set_has_the_same_text_in_every_process(blobs):
    words = {f"word {n}" for n in range(50)}
    text = text_of(shaped(blobs, {"words": words, "deep": [{"more": frozenset(words)}]}))
    assert json.loads(text)["words"] == json.loads(text)["deep"][0]["more"] == sorted(words)


def test_S3_5_a_result_over_the_limit_is_cut_with_a_notice(blobs):
    whole = "\n".join(f"line {n}" for n in range(3_000))
    result = shaped(blobs, whole, limit=500)
    text = text_of(result)
    assert result.tokens <= 500 and estimate(text) == result.tokens
    assert text.startswith("line 0\n") and text.endswith("\nline 2999")
    left_out = f"[{result.left_out} of {len(whole)} bytes, about "
    assert left_out in text and " tokens, are left out here. Ask for less" in text
    about = int(text.split(left_out)[1].split()[0])
    assert about == pytest.approx(estimate(whole) - 500, rel=0.1)
    assert f'read_result, ref "{result.content.ref.sha256}", offset ' in text
    assert blobs.resolve(result.content).decode() == whole
    offset = int(text.split("offset ")[1].split(".")[0])
    assert text.split("\n[")[0] == whole[:offset]


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize(("value", "is_tail"), [
    ("words " * 9_000, False), (b"\x00" * 9, False), ({"rows": [*range(900)]}, False),
    ("12:00:00 INFO ok\n" * 201, True), ("12:00:00 INFO a longer line\n" * 90_000, True),
], ids=["text", "binary", "rows", "log", "long log"])
def test_what_a_notice_states_can_be_read_from_the_text(blobs, value, is_tail, readable):
    result = shaped(blobs, value, limit=500, readable=readable)
    assert left_out_in(text_of(result)) == (result.left_out, result.bytes)
    assert is_log_tail(text_of(result)) == is_tail


@pytest.mark.parametrize("value", ["short", "", "12:00:00 INFO ok\n" * 9, {"of": "12 bytes"}])
def test_a_whole_result_states_nothing(blobs, value):
    text = text_of(shaped(blobs, value))
    assert left_out_in(text) is None and not is_log_tail(text)


def test_S3_5_without_read_result_the_notice_recommends_asking_for_less(blobs):
    text = text_of(shaped(blobs, "x" * 30_000, limit=500, readable=False))
    assert "Ask for less" in text and "read_result" not in text


def test_S1_D_S2_3_a_large_result_is_a_blob_with_a_preview_of_1000_characters(blobs):
    whole = "é" * INLINE_BYTES_MAX
    result = shaped(blobs, whole, limit=10**6)
    text = text_of(result)
    assert text.startswith("é" * PREVIEW_CHARS + "\n[")
    assert (PREVIEW_CHARS, INLINE_BYTES_MAX) == (1_000, 65_536)
    assert result.bytes == len(whole.encode()) == result.content.ref.bytes
    assert result.left_out == result.bytes - len(("é" * PREVIEW_CHARS).encode())
    assert blobs.resolve(result.content).decode() == whole
    assert f"offset {PREVIEW_CHARS}." in text


def test_a_preview_over_the_limit_is_cut(blobs):
    result = shaped(blobs, "x" * 10**6, limit=150)
    assert result.tokens <= 150 and result.content.ref.bytes == 10**6


def test_empty_bytes_are_an_empty_result_without_a_notice(blobs):
    """The defect: a notice stated that 0 of 0 bytes are left out, and where the full result is
    stored."""
    result = shaped(blobs, b"")
    assert (text_of(result), result.left_out, result.content.ref) == ("", 0, None)


def test_binary_data_is_stored_and_described(blobs):
    data = bytes(range(256))
    result = shaped(blobs, data)
    assert text_of(result).startswith("[256 bytes of binary data, not shown.]")
    assert result.content.ref.media_type == "application/octet-stream"
    assert result.left_out == 256 and blobs.resolve(result.content) == data
    assert "read_result" not in text_of(result), "it reads text"


def test_a_tool_may_shorten_its_own_result(blobs):
    whole = "\n".join(str(n) for n in range(1_000))
    result = shaped(blobs, Shortened("the last line is 999", whole))
    assert text_of(result).startswith("the last line is 999\n[")
    assert blobs.resolve(result.content).decode() == whole
    assert result.bytes == len(whole) and result.left_out == len(whole) - 20
    tight = shaped(blobs, Shortened("y" * 10_000, whole), limit=200)
    assert tight.tokens <= 200


def test_a_full_disk_does_not_put_a_call_in_doubt(tmp_path):
    blobs = BlobStore(tmp_path)
    (tmp_path / "incoming").rmdir()
    result = shaped(blobs, "x" * 100_000)
    assert result.content.ref is None and result.left_out == 99_000
    assert "could not be kept" in text_of(result)


def test_the_stored_size_of_a_result_is_bounded(blobs, monkeypatch):
    monkeypatch.setattr(results, "KEPT_BYTES_MAX", 70_000)
    result = shaped(blobs, "x" * 100_000)
    assert result.content.ref.bytes == 70_000
    assert "Only its first 70000 bytes are kept." in text_of(result)


texts = st.text(max_size=300) | st.builds(
    lambda part, times: part * times, st.text(min_size=1, max_size=20), st.integers(1, 5_000)
)


@given(text=texts, limit=st.integers(120, 3_000), readable=st.booleans())
def test_S3_5_no_text_exceeds_the_limit_and_none_is_lost(blobs, text, limit, readable):
    whole = text.encode("utf-8", "replace")
    result = shaped(blobs, text, limit=limit, readable=readable)
    assert result.bytes == len(whole)
    assert result.tokens == estimate(text_of(result)) <= limit
    assert len(result.content.inline) <= INLINE_BYTES_MAX
    assert blobs.resolve(result.content) == whole
    assert (result.left_out == 0) == (result.content.ref is None)
    assert 0 <= result.left_out <= len(whole)


# -- reading the rest, as a model does ------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(
    max_size=20
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner,
                                                                max_size=4),
    max_leaves=12,
)
sizes = st.integers(1, 3_000)
sized = st.one_of(
    st.builds(lambda value, times: [value] * times, values, sizes),
    st.builds(lambda value, times: {"rows": [value] * times, "more": value}, values, sizes),
    st.builds(lambda part, times: part * times, st.text(min_size=1, max_size=30), sizes),
    st.builds(
        lambda line, times: f"2026-01-31 12:00:00 {line}\n" * times, st.text(max_size=30), sizes
    ),
    st.sampled_from([" ", "\n", "=", "0", "ש", "\U0001f600"]).map(lambda c: c * 150_000),
)


def read_on(blobs, ref, offset, limit):
    """A page of `read_result`, shaped as in the worker. The worker must not cut the page again."""
    ctx = SimpleNamespace(blobs=blobs, result_tokens=limit, refs={ref})
    page = shaped(blobs, read_result.function(ctx, ref, offset), limit=limit)
    assert page.left_out == 0 and page.content.ref is None, "a page was cut again"
    assert page.tokens <= limit
    return text_of(page)


@settings(deadline=None)
@example(value=" " * 150_000, limit=8_000)
@example(value=[" " * 900] * 200, limit=8_000)
@example(value="2026-01-31 12:00:00 INFO ok\n" * 900, limit=8_000)
@given(value=sized, limit=st.integers(1_000, 8_000))
def test_S3_5_any_result_is_bounded_stable_and_can_be_read_to_its_end(blobs, value, limit):
    result = shaped(blobs, value, limit=limit)
    text = text_of(result)
    assert result.tokens == estimate(text) <= limit
    assert len(result.content.inline) <= INLINE_BYTES_MAX
    assert shaped(blobs, value, limit=limit) == result
    whole = blobs.resolve(result.content).decode()
    assert result.bytes == len(whole.encode())
    if result.content.ref is None:
        return
    notice = next(line for line in text.split("\n") if " are left out here. " in line)
    (sha,) = re.findall(r'ref "([0-9a-f]{64})"', notice)
    offset = int(next(iter(re.findall(r"offset (\d+)\.", notice)), 0))
    if offset:
        assert text.startswith(whole[:offset].rstrip(",")), "everything before the offset is shown"
    for _ in range(3):  # pages follow each other without gap or overlap; the last ones too
        page, more, rest = read_on(blobs, sha, offset, limit).rpartition("\n[")
        if not rest.endswith(f"continue with offset {offset + len(page)}]"):
            assert page + more + rest == whole[offset:]
            break
        assert page and whole.startswith(page, offset)
        assert rest.startswith(f"{len(whole) - offset - len(page)} more characters")
        offset += len(page)
    last = read_on(blobs, sha, max(0, len(whole) - 5), limit)
    assert last == whole[-5:]


def test_a_text_stored_in_part_is_cut_between_characters(blobs, monkeypatch):
    monkeypatch.setattr(results, "KEPT_BYTES_MAX", 100_001)
    result = shaped(blobs, "ש" * 60_000)
    kept = blobs.resolve(result.content).decode()
    assert kept == "ש" * 50_000, "not cut within a character, so that it can be read on"
    assert read_on(blobs, result.content.ref.sha256, 49_990, 1_000) == "ש" * 10


def test_S3_5_a_result_is_cut_with_the_token_counts_of_its_reader(blobs):
    """A model that counts fewer tokens for a text gets more words within the same limit."""
    page = "The tide table of a small harbour, read aloud. " * 1_000
    old, new = (
        shape(page, limit_tokens=2_000, blobs=blobs, readable=True, model=model)
        for model in ("claude-opus-4-5", "claude-opus-5-5")
    )
    assert old.tokens == estimate(text_of(old), OLD) <= 2_000
    assert new.tokens == estimate(text_of(new)) <= 2_000
    assert len(text_of(old)) > 1.2 * len(text_of(new))


def test_a_result_is_counted_exactly_if_ctok_is_installed(blobs, estimated):
    ctok = pytest.importorskip("ctok", reason="the extra `tokens` needs Python 3.12")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_count, "_ctok", lambda: ctok)
        got = shape("hello, world", limit_tokens=9, blobs=blobs, readable=True, model="opus-4-6")
    assert got.tokens == 3 != estimate("hello, world", OLD)

"""What the model is told of a result: bounded, stable, and nothing is lost by cutting."""

import dataclasses
import datetime
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.processors.effects import results
from foldlog.processors.effects.results import PREVIEW_CHARS, shape
from foldlog.processors.tool import Shortened
from foldlog.producers.blobs import INLINE_BYTES_MAX, BlobStore
from foldlog.schemas.tokens import estimate


@pytest.fixture(scope="module")
def blobs(tmp_path_factory):
    return BlobStore(tmp_path_factory.mktemp("blobs"))


def shaped(blobs, value, limit=8_000, readable=True):
    return shape(value, limit_tokens=limit, blobs=blobs, readable=readable)


def text_of(result):
    return result.content.inline.decode()


def test_a_text_stays_as_it_is(blobs):
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
def test_anything_else_is_stable_compact_json(blobs, value, text):
    assert text_of(shaped(blobs, value)) == text


def test_a_value_that_is_no_json_is_told_not_raised(blobs):
    assert text_of(shaped(blobs, object())).startswith("[object that is no JSON")
    assert text_of(shaped(blobs, Odd())).startswith("[Odd that is no JSON")
    loop = []
    loop.append(loop)
    assert text_of(shaped(blobs, loop)).startswith("[list that is no JSON")
    assert text_of(shaped(blobs, "half \ud800 pair")) == "half ? pair"
    assert text_of(shaped(blobs, {"a": "half \ud800"})) == '{"a":"half ?"}'


def test_S3_5_a_long_list_gives_100_rows_and_says_how_many_more(blobs):
    rows = [{"id": n} for n in range(5_000)]
    result = shaped(blobs, rows)
    listed, more, notice = text_of(result).split("\n")
    assert json.loads(listed) == rows[:100]
    assert more == "4900 more rows, of 5000."
    assert result.content.ref.sha256 in notice
    assert json.loads(blobs.resolve(result.content)) == rows
    assert shaped(blobs, rows[:100]).left_out == 0


def test_S3_5_a_result_over_the_limit_is_cut_with_a_notice(blobs):
    whole = "\n".join(f"line {n}" for n in range(3_000))
    result = shaped(blobs, whole, limit=500)
    text = text_of(result)
    assert result.tokens <= 500 and estimate(text) == result.tokens
    assert text.startswith("line 0\n") and text.endswith("\nline 2999")
    assert f"[{result.left_out} of {len(whole)} bytes are left out here." in text
    assert f'read_result, ref "{result.content.ref.sha256}", offset ' in text
    assert blobs.resolve(result.content).decode() == whole
    offset = int(text.split("offset ")[1].split(".")[0])
    assert text.split("\n[")[0] == whole[:offset]


def test_S3_5_without_the_reading_tool_the_notice_says_what_to_do_instead(blobs):
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


def test_a_preview_may_itself_be_over_the_limit(blobs):
    result = shaped(blobs, "x" * 10**6, limit=150)
    assert result.tokens <= 150 and result.content.ref.bytes == 10**6


def test_binary_is_said_to_be_binary_and_kept(blobs):
    data = bytes(range(256))
    result = shaped(blobs, data)
    assert text_of(result).startswith("[256 bytes of binary data, not shown.]")
    assert result.content.ref.media_type == "application/octet-stream"
    assert result.left_out == 256 and blobs.resolve(result.content) == data
    assert "read_result" not in text_of(result), "it reads text"


def test_a_tool_may_shorten_its_result_itself(blobs):
    whole = "\n".join(str(n) for n in range(1_000))
    result = shaped(blobs, Shortened("the last line is 999", whole))
    assert text_of(result).startswith("the last line is 999\n[")
    assert blobs.resolve(result.content).decode() == whole
    assert result.bytes == len(whole) and result.left_out == len(whole) - 20
    tight = shaped(blobs, Shortened("y" * 10_000, whole), limit=200)
    assert tight.tokens <= 200


def test_a_full_disk_does_not_turn_a_result_into_doubt(tmp_path):
    blobs = BlobStore(tmp_path)
    (tmp_path / "incoming").rmdir()
    result = shaped(blobs, "x" * 100_000)
    assert result.content.ref is None and result.left_out == 99_000
    assert "could not be kept" in text_of(result)


def test_what_one_result_may_keep_is_bounded(blobs, monkeypatch):
    monkeypatch.setattr(results, "KEPT_BYTES_MAX", 70_000)
    result = shaped(blobs, "x" * 100_000)
    assert result.content.ref.bytes == 70_000
    assert "Only its first 70000 bytes are kept." in text_of(result)


texts = st.text(max_size=300) | st.builds(
    lambda part, times: part * times, st.text(min_size=1, max_size=20), st.integers(1, 5_000)
)


@given(text=texts, limit=st.integers(120, 3_000), readable=st.booleans())
def test_S3_5_no_text_passes_the_limit_and_none_is_lost(blobs, text, limit, readable):
    whole = text.encode("utf-8", "replace")
    result = shaped(blobs, text, limit=limit, readable=readable)
    assert result.bytes == len(whole)
    assert result.tokens == estimate(text_of(result)) <= limit
    assert len(result.content.inline) <= INLINE_BYTES_MAX
    assert blobs.resolve(result.content) == whole
    assert (result.left_out == 0) == (result.content.ref is None)
    assert 0 <= result.left_out <= len(whole)

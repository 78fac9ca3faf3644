"""Only the last 200 lines of a log are shown; any other text is unchanged."""

import pytest
from hypothesis import given, strategies as st

from foldlog.log.blobs import BlobStore
from foldlog.processors.tools.log_text import LOG_LINES_MAX, NUMBERED, last_lines, looks_like_log
from foldlog.processors.tools.results import shape

LOGS = {
    "python": "2026-01-31 12:00:00,123 INFO root: request {n}",
    "iso": "2026-01-31T12:00:00.5Z started {n}",
    "syslog": "Jan 31 12:00:00 host sshd[{n}]: ok",
    "web": '10.0.0.7 - - [31/Jan/2026:12:00:00 +0000] "GET /{n}"',
    "level": "ERROR could not do {n}",
    "bracketed": "[WARN] could not do {n}",
    "kernel": "[    0.123456] cpu {n}",
    "logfmt": "time=2026-01-31T12:00:00Z level=info n={n}",
    "json": '{{"time":"2026-01-31T12:00:00Z","n":{n}}}',
    "trace": "2026-01-31 12:00:00 ERROR boom {n}\n  File a.py\n    at b.c\n\n  File d.py",
}
OTHER_TEXTS = {
    "prose": "The quick brown fox {n} jumps at 12:00 over the lazy dog.",
    "code": "def f{n}(x): return x + {n}  # INFO",
    "table": "2026-01-31T12:00:00,{n},5",
    "dates": "2026-01-31 {n}",
    "ids": "{n}",
    "paths": "src/a{n}.py:12: error: no",
    "json": '{{"name":"a","n":{n}}}',
}


def many(line: str, count: int = 1_000) -> str:
    return "".join(f"{line.format(n=n)}\n" for n in range(count))


@pytest.mark.parametrize("kind", LOGS)
def test_S3_9_a_log_is_recognized(kind):
    assert looks_like_log(many(LOGS[kind]))


@pytest.mark.parametrize("kind", OTHER_TEXTS)
def test_S3_9_other_text_is_not_taken_for_a_log(kind):
    assert not looks_like_log(many(OTHER_TEXTS[kind]))
    assert not looks_like_log("")


def test_a_numbered_log_is_recognized_on_request_only():
    numbered = "".join(f"{n}\t{line}\n" for n, line in enumerate(many(LOGS["iso"]).splitlines()))
    assert looks_like_log(numbered, numbered=True) and not looks_like_log(numbered)


@given(st.lists(st.text(alphabet="ab\r", max_size=3)), st.integers(1, 5), st.booleans())
def test_the_last_lines_are_the_end_of_the_text(lines, count, ended):
    text = "\n".join(lines) + ("\n" if ended else "")
    expected = text[:-1].split("\n")[-count:] if text.endswith("\n") else text.split("\n")[-count:]
    assert last_lines(text, count) == "\n".join(expected) + ("\n" if text.endswith("\n") else "")


@pytest.mark.parametrize("count", [LOG_LINES_MAX, LOG_LINES_MAX + 1, 60_000])
def test_S3_9_of_a_raw_log_the_last_200_lines_are_shown_and_the_whole_is_stored(tmp_path, count):
    blobs = BlobStore(tmp_path)
    log = many(LOGS["level"], count)
    got = shape(log, limit_tokens=8_000, blobs=blobs, readable=True)
    text = got.content.inline.decode()
    if count == LOG_LINES_MAX:
        assert text == log and got.left_out == 0
        return
    assert text.count("ERROR") == LOG_LINES_MAX
    assert f"do {count - 1}\n" in text and f"do {count - LOG_LINES_MAX - 1}\n" not in text
    assert blobs.get(got.content.ref.sha256).decode() == log
    assert f'ref "{got.content.ref.sha256}"' in text
    assert got.left_out == len(log) - len("".join(log.splitlines(True)[-LOG_LINES_MAX:]))


def test_S3_9_last_lines_over_the_limit_are_cut(tmp_path):
    log = many(LOGS["level"] + " x" * 1_000)
    got = shape(log, limit_tokens=500, blobs=BlobStore(tmp_path), readable=True)
    assert got.tokens <= 500 and got.content.inline.decode().startswith("[a log: its last 200")


def test_other_text_is_shown_from_its_start(tmp_path):
    text = many(OTHER_TEXTS["table"], 500)
    got = shape(text, limit_tokens=80_000, blobs=BlobStore(tmp_path), readable=True)
    assert got.content.inline.decode() == text


def test_a_number_is_removed_only_at_the_start_of_a_line():
    assert NUMBERED.sub("", "  12\tx", count=1) == "x"
    assert NUMBERED.sub("", "a row 12\tx", count=1) == "a row 12\tx"
    blanks = " " * 300_000  # a search in the whole line would take minutes
    assert not looks_like_log(f"{blanks}x\n" * 5, numbered=True)

"""The transcript index equals the transcripts after any interruption, and is rebuilt if
necessary."""

import sqlite3
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from foldlog.client.printable import text_of_body
from foldlog.client.show import fold_everything
from foldlog.log import MemoryLog
from foldlog.log.blobs import BlobMissing
from foldlog.reports.search import search_index
from foldlog.reports.search.search_file import IndexUnusable
from foldlog.reports.search.search_index import KINDS, TranscriptIndex, index_path
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit.played import PARTITIONS, memory_log, opened, settings_in
from foldlog.tests.kit.waiting import joined, until
from foldlog.tests.laws.law import history_of


class Library:
    """Opens the index of one log anew for each call, as each run of the command does."""

    def __init__(self, log, path: Path, read=lambda ref: b""):
        self.log, self.path, self.read = log, path, read
        self.reports: list[str] = []

    def open(self) -> TranscriptIndex:
        return TranscriptIndex(self.log, self.path, self.read, self.reports.append)

    def caught_up(self, progress=lambda _progress: None) -> int:
        with self.open() as index:
            return index.catch_up(progress)

    def find(self, words: str, **more) -> list[tuple[str, str]]:
        with self.open() as index:
            index.catch_up()
            found = index.search(words, **more)
        return [(each.document.session_id, each.document.text) for each in found]

    def documents(self) -> list[tuple]:
        with sqlite3.connect(self.path) as connection:
            return sorted(
                connection.execute("SELECT session_id, at_offset, kind, text FROM documents")
            )

    def transcripts(self) -> list[tuple]:
        """The documents that the index must have, from each session's transcript view."""
        found = []
        for name, views in fold_everything(self.log).sessions.items():
            for row in views.transcript.lines:
                if row.kind not in KINDS or row.body is None:
                    continue
                if row.kind == "result":
                    text = (row.body.inline or b"").decode("utf-8", "replace")
                else:
                    text = text_of_body(row.body, self.read)
                if text.strip():
                    found.append((name, row.offset, KINDS[row.kind], text))
        return sorted(found)


@pytest.fixture
def library(tmp_path):
    return Library(memory_log(), tmp_path / "search" / "transcripts.sqlite")


@pytest.fixture
def talk(library, tmp_path):
    sessions, played = opened(library.log, settings_in(tmp_path))
    sessions.say("s1", "where is the walrus?", message_id="m1", user="ana")
    played.answer("The walrus swims.")
    return sessions, played


# ---- equal to the transcripts -----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(1, 13))
def test_S0_8_documents_equal_the_transcripts_wherever_indexing_was_interrupted(seed, tmp_path):
    worlds = (history_of(seed + 100 * n, forged=True) for n in count())
    world = next(w for w in worlds if "answer" in {x.kind for x in w.views.transcript.lines})
    clock = [0]
    log = MemoryLog(topics(1), clock_ms=lambda: clock[0])
    library = Library(log, tmp_path / "index.sqlite", world.blobs.read)
    producer = log.producer()
    for number, record in enumerate(world.records, 1):
        clock[0] = record.timestamp_ms
        producer.append(SESSION_EVENTS, record.key, record.value, record.headers, partition=0)
        if number % 37 == 0:
            library.caught_up()
    library.caught_up()
    assert library.documents() == library.transcripts()
    assert library.documents(), "a world without messages tests nothing"
    assert library.reports == []


class Killed(BaseException):
    """Stands for the death of a process. It is a BaseException, so that product code does not catch
    it."""


@pytest.mark.parametrize("batch", [1, 3, 7])
def test_a_killed_run_continues_where_it_stopped(batch, library, talk, monkeypatch):
    sessions, played = talk
    for number in range(4):
        sessions.say("s1", f"question {number}", message_id=f"q{number}", user="ana")
        played.answer(f"answer {number}")
    monkeypatch.setattr(search_index, "BATCH_EVENTS", batch)
    batches = [0]

    def kill(_progress):
        batches[0] += 1
        raise Killed

    for _ in range(played.fold.end() + 1):
        with suppress(Killed):
            library.caught_up(kill)
            break
    # Each run indexed one batch: none started over, and no batch was indexed twice.
    assert batches[0] == -(-played.fold.end() // batch)
    assert library.documents() == library.transcripts()


def test_a_killed_batch_leaves_nothing(library, talk, tmp_path):
    sessions, _ = talk
    library.caught_up()
    before = library.documents()
    sessions.say("s1", "x" * 100_000, message_id="m2", user="ana")  # goes to the blob store

    def killed(_ref):
        raise Killed

    library.read = killed
    with pytest.raises(Killed):
        library.caught_up()
    assert library.documents() == before
    library.read = lambda ref: b'[{"type":"text","text":"a long tale of a walrus"}]'
    assert library.caught_up() == 1
    assert library.find("tale") == [("s1", "a long tale of a walrus")]


def test_documents_views_and_cursor_change_in_one_transaction(library, talk):
    sessions, _ = talk
    library.caught_up()
    before = library.documents()
    sessions.say("s1", "one more", message_id="m2", user="ana")
    with sqlite3.connect(library.path) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON views WHEN NEW.key = x'00637572736F72'"
            " BEGIN SELECT RAISE(ABORT, 'no space'); END"
        )
    with pytest.raises(IndexUnusable, match="no space"):
        library.caught_up()
    assert library.documents() == before
    with sqlite3.connect(library.path) as connection:
        connection.execute("DROP TRIGGER full")
    assert library.caught_up() == 1
    assert library.documents() == library.transcripts()


def test_refused_and_repeated_messages_are_not_found(library, talk):
    sessions, _ = talk
    sessions.say("s1", "where is the walrus?", message_id="m1", user="ana")  # again
    sessions.say("s1", "a walrus of eve", message_id="m2", user="eve")
    sessions.say("s1", "another walrus", message_id="m1", user="ana")  # the id with other words
    sessions.say("s9", "a walrus without a session", message_id="m3", user="ana")
    assert library.find("walrus") == [
        ("s1", "The walrus swims."), ("s1", "where is the walrus?")
    ]


def test_a_superseded_attempt_is_not_found_but_a_partial_answer_is(library, tmp_path):
    sessions, played = opened(library.log, settings_in(tmp_path))
    sessions.say("s1", "go", message_id="m1", user="ana")
    played.call()
    played.start()
    played.chunk("a giraffe that")
    played.resume()
    played.chunk("a walrus")
    sessions.cancel("s1", turn=1, user="ana")
    played.stopped("a walrus")
    played.end("cancelled")
    assert library.find("giraffe") == []
    assert library.find("walrus") == [("s1", "a walrus")]


# ---- searching --------------------------------------------------------------------------------


def test_search_can_be_limited_to_a_user_and_a_session(library, talk, tmp_path):
    sessions, _ = talk
    sessions.open("s2", agent="shop", user="bob")
    sessions.say("s2", "the walrus of bob", message_id="m1", user="bob")
    assert len(library.find("walrus")) == 3
    assert library.find("walrus", user="bob") == [("s2", "the walrus of bob")]
    assert library.find("walrus", session="s2") == [("s2", "the walrus of bob")]
    assert library.find("walrus", session="s2", user="ana") == []
    assert len(library.find("walrus", limit=1)) == 1


@pytest.mark.parametrize("words", ["京都", "都", "חיפה", "get_user_name", "wallrus", "walruses"])
def test_texts_are_found_in_any_script_and_spelling(words, library, talk):
    sessions, _ = talk
    texts = ["京都の倉庫", "המחסן בחיפה", "call getUserName()", "a walrus"]
    for number, text in enumerate(texts):
        sessions.say("s1", text, message_id=f"t{number}", user="ana")
    assert any(text in texts for _, text in library.find(words))


# ---- the file ---------------------------------------------------------------------------------


def test_the_index_file_is_in_the_home_directory_per_topic_prefix(tmp_path):
    one, other = settings_in(tmp_path), settings_in(tmp_path, topic_prefix="test-")
    assert index_path(one) == tmp_path / "search" / "transcripts.sqlite"
    assert index_path(other) == tmp_path / "search" / "test-transcripts.sqlite"


def test_only_the_owner_can_read_the_index_file(library, talk):
    library.caught_up()
    assert library.path.stat().st_mode & 0o077 == 0
    library.path.chmod(0o644)  # as earlier versions left it
    with library.open() as index:
        index.catch_up()
        for path in (library.path.parent, *library.path.parent.glob("*.sqlite*")):
            assert path.suffix == ".lock" or path.stat().st_mode & 0o077 == 0, path


def test_an_index_of_another_log_is_rebuilt_and_reported(library, talk, tmp_path):
    library.caught_up()
    library.log.delete_topic(SESSION_EVENTS)
    library.log.apply_topics(topics(PARTITIONS))
    sessions, _ = opened(library.log, settings_in(tmp_path))
    sessions.say("s1", "a penguin", message_id="m1", user="ana")
    assert library.find("walrus penguin") == [("s1", "a penguin")]
    assert "of another log or version (topic)" in library.reports[0]
    assert "rebuilding the index" in library.reports[1]


def test_an_index_of_another_version_is_rebuilt(library, talk, monkeypatch):
    library.caught_up()
    monkeypatch.setattr(search_index, "LAYOUT", 99)
    assert len(library.find("walrus")) == 2
    assert "(version)" in library.reports[0]


def test_an_index_beyond_the_end_of_the_log_is_rebuilt(library, talk):
    library.caught_up()
    with sqlite3.connect(library.path) as connection:
        cursor = bytes([0x92, 0xCD, 0x7F, 0xFF, 0])  # offset 32767
        connection.execute("UPDATE views SET value = ? WHERE key = ?", (cursor, b"\0cursor"))
    assert len(library.find("walrus")) == 2
    assert "is at offset 32767" in library.reports[0]
    assert library.documents() == library.transcripts()


@pytest.mark.parametrize("damage", [b"this is no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_index_is_rebuilt_and_reported(damage, library, talk):
    library.path.parent.mkdir()
    library.path.write_bytes(damage)
    assert len(library.find("walrus")) == 2
    assert "is damaged" in library.reports[0]


def test_an_index_that_cannot_be_opened_is_an_error_with_advice(library, talk):
    library.path.parent.mkdir()
    library.path.mkdir()
    with pytest.raises(IndexUnusable, match="The log was not touched"):
        library.caught_up()


def test_a_missing_blob_is_reported(library, talk):
    sessions, _ = talk
    sessions.say("s1", "walrus " * 20_000, message_id="m2", user="ana")

    def missing(ref):
        raise BlobMissing("gone")

    library.read = missing
    library.caught_up()
    assert "1 texts are missing from the blob store" in library.reports[0]


def test_a_long_text_is_indexed_up_to_a_limit(library, talk):
    sessions, _ = talk
    sessions.say("s1", "long", message_id="m2", user="ana")
    long = "word " * 100_000
    library.read = lambda ref: f'[{{"type":"text","text":"{long}"}}]'.encode()
    sessions.say("s1", long, message_id="m3", user="ana")
    library.caught_up()
    assert max(len(text) for *_, text in library.documents()) == search_index.TEXT_CHARS_MAX


def test_a_second_search_waits_and_reports_it(library, talk):
    with library.open() as index, index._file.locked():
        second = threading.Thread(target=library.caught_up)
        second.start()
        until("the second search reports something", lambda: library.reports)
        second.join(0.3)  # long enough to index this log ten times
        assert library.documents() == [] and "waiting for another search" in library.reports[0]
    joined(second)
    assert library.documents() == library.transcripts() != []


def test_progress_is_reported_after_each_batch(library, talk, monkeypatch):
    monkeypatch.setattr(search_index, "BATCH_EVENTS", 2)
    progress = []
    library.caught_up(progress.append)
    assert [each.read for each in progress] == sorted(each.read for each in progress)
    assert progress[-1].read == progress[-1].behind > 2

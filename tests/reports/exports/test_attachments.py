"""Attachments are rows of every export: Active Storage for RubyLLM, file parts for Vercel, parts of
the tables."""

import base64
import hashlib
import json
import shutil
import sqlite3

import pytest

from foldlog.tests.cli.harness import make_shell
from foldlog.tests.kit.played import Played
from foldlog.tests.schemas.test_attachments import pdf, png

FILES = """
    SELECT m.id AS message, m.content, b.* FROM active_storage_attachments a
    JOIN messages m ON a.record_type = 'Message' AND a.record_id = m.id
    JOIN active_storage_blobs b ON b.id = a.blob_id WHERE a.name = 'attachments' ORDER BY a.id
"""


@pytest.fixture
def shell(tmp_path, capsys):
    """Commands over a session whose messages have a bill, a photo twice, and the bill again. Images
    are stored without a name."""
    shell = make_shell(tmp_path / "home", capsys)
    (tmp_path / "bill.pdf").write_bytes(pdf())
    (tmp_path / "photo.png").write_bytes(png())
    (tmp_path / "other name.pdf").write_bytes(pdf())
    attached = {
        "m1": ("what is this?", "bill.pdf", "photo.png", "photo.png"),
        "m2": ("", "bill.pdf", "other name.pdf"),
    }
    for message_id, (text, *names) in attached.items():
        paths = [f"--attach={tmp_path / name}" for name in names]
        sent = shell("send s1", *filter(None, [text]), f"--message-id={message_id}", *paths)
        assert sent.code == 0, sent.err
        Played(shell.log, "s1").answer("a bill")
    return shell


def exported(shell, path, which: str) -> sqlite3.Connection:
    ran = shell(f"export s1 --format {which} -o", str(path))
    assert ran.code == 0, ran.err
    database = sqlite3.connect(path)
    database.row_factory = sqlite3.Row
    return database


def test_S4_5_rubyllm_has_each_attachment_as_rows_of_active_storage(shell, tmp_path):
    database = exported(shell, tmp_path / "ruby.sqlite", "rubyllm")
    rows = database.execute(FILES).fetchall()
    assert [(row["content"], row["filename"], row["content_type"]) for row in rows] == [
        ("what is this?", "bill.pdf", "application/pdf"),
        ("what is this?", "attachment.png", "image/png"),  # Active Storage attaches a file once
        ("", "bill.pdf", "application/pdf"),
        ("", "other name.pdf", "application/pdf"),
    ]
    assert rows[0]["id"] == rows[2]["id"], "a file that is sent again is stored once"
    keys = {row["key"] for row in rows}
    assert len(keys) == database.execute("SELECT count(*) FROM active_storage_blobs").fetchone()[0]
    for row, data in zip(rows, (pdf(), png(), pdf(), pdf()), strict=True):
        assert row["foldlog_data"] == data and row["byte_size"] == len(data)
        assert row["foldlog_sha256"] == hashlib.sha256(data).hexdigest()
        assert row["checksum"] == base64.b64encode(hashlib.md5(data).digest()).decode()


def test_S4_5_vercel_has_each_attachment_as_a_file_part(shell, tmp_path):
    database = exported(shell, tmp_path / "vercel.sqlite", "vercel")
    rows = database.execute(
        'SELECT "file_mediaType", file_filename, file_url FROM parts WHERE type = \'file\' '
        'ORDER BY "messageId", "order"').fetchall()
    assert [(row[0], row[1]) for row in rows] == [
        ("application/pdf", "bill.pdf"), ("image/png", None), ("image/png", None),
        ("application/pdf", "bill.pdf"), ("application/pdf", "other name.pdf")]
    assert base64.b64decode(rows[1]["file_url"].partition(",")[2]) == png()


def test_S4_5_the_tables_have_each_attachment_as_a_part(shell, tmp_path):
    assert shell("export s1 --format jsonl -o", str(tmp_path / "tables")).code == 0
    parts = map(json.loads, (tmp_path / "tables" / "parts.jsonl").read_text().splitlines())
    files = [part for part in parts if part["type"] in ("image", "document")]
    assert [(part["name"], part["media_type"]) for part in files] == [
        ("bill.pdf", "application/pdf"), (None, "image/png"), (None, "image/png"),
        ("bill.pdf", "application/pdf"), ("other name.pdf", "application/pdf")]


def test_S4_5_an_attachment_whose_bytes_are_gone_keeps_its_row(shell, tmp_path):
    shutil.rmtree(shell.settings.blobs_dir)
    database = exported(shell, tmp_path / "ruby.sqlite", "rubyllm")
    rows = database.execute(FILES).fetchall()
    assert [row["filename"] for row in rows][:2] == ["bill.pdf", "attachment.png"]
    assert [(row["foldlog_data"], row["checksum"], row["byte_size"] > 0) for row in rows] == [
        (None, None, True)] * 4

"""Attachments of a message: an attachment is stored first, the message refers to it, and the model
gets it as base64."""

import base64
import json
import os
import zlib

import pytest

from foldlog.log.blobs import BlobStore
from foldlog.producers.attachments import attach
from foldlog.producers.checks import Invalid
from foldlog.schemas.attachments import expand, inspect, reference
from foldlog.schemas.events.parts import BlobRef
from foldlog.tests.cli.harness import make_shell
from foldlog.tests.kit.played import Played
from foldlog.tests.schemas.test_attachments import pdf, png


@pytest.fixture
def shell(tmp_path, capsys):
    return make_shell(tmp_path, capsys)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "bill.pdf").write_bytes(pdf())
    (tmp_path / "wrong.pdf").write_bytes(png())  # the type comes from the bytes, not from the name
    (tmp_path / "notes.txt").write_text("hello")
    return tmp_path


def test_a_message_with_files_reaches_the_model_as_base64(shell, files):
    names = [f"--attach={files / name}" for name in ("bill.pdf", "wrong.pdf")]
    ran = shell("send s1", "What is the total?", "--message-id=m1", *names)
    assert ran.code == 0, ran.err
    Played(shell.log, "s1").answer("42")
    (event,) = [e for e in shell("tail s1 --json").json if e["type"] == "MESSAGE_RECEIVED"]
    assert len(json.dumps(event)) < 2_000, "the event only refers to the files"
    assert event["tokens"] > 6_000
    content = json.loads(shell("request s1 1.1").out)["messages"][0]["content"]
    assert [block["type"] for block in content] == ["document", "image", "text"]
    assert base64.b64decode(content[0]["source"]["data"]) == pdf()
    assert content[0]["title"] == "bill.pdf"
    assert content[1]["source"]["media_type"] == "image/png"
    transcript = shell("show s1 --view transcript").out
    assert "[bill.pdf, application/pdf," in transcript and "What is the total?" in transcript


def test_a_repeated_message_with_a_file_counts_once(shell, files):
    for _ in range(2):
        ran = shell("send s1", "look", "--message-id=m1", f"--attach={files / 'bill.pdf'}")
        assert ran.code == 0
    assert "done before" in ran.out


def test_a_message_may_be_a_file_without_text(shell, files):
    assert shell("send s1", f"--attach={files / 'bill.pdf'}").code == 0


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gone.png", "No such file"),
        ("notes.txt", "neither PNG"),
        ("pipe", "not a regular file"),
        ("cut.pdf", "a PDF without a page"),
        ("empty.pdf", "a PDF without a page"),
        ("half.pdf", "application/pdf without an end"),
        ("half.png", "image/png without an end"),
    ],
)
def test_an_invalid_file_is_named_and_nothing_is_sent(shell, files, name, why):
    os.mkfifo(files / "pipe")
    (files / "cut.pdf").write_bytes(b"%PDF-1.7" + bytes(2_000))
    (files / "empty.pdf").write_bytes(b"%PDF-1.4\n<</Type/Pages/Kids[]/Count 0>>\n%%EOF\n")
    (files / "half.pdf").write_bytes(pdf()[:-10])
    (files / "half.png").write_bytes(png()[:60])
    ran = shell("send s1", "look", f"--attach={files / 'bill.pdf'}", f"--attach={files / name}")
    assert ran.code == 1 and all(w in ran.err for w in (why, name, "nothing was sent"))
    assert "MESSAGE_RECEIVED" not in shell("tail s1").out


def test_too_many_files_or_bytes_are_refused_before_anything_is_stored(tmp_path):
    blobs = BlobStore(tmp_path / "blobs")
    big = tmp_path / "big.pdf"
    big.write_bytes(b"%PDF-1.7" + bytes(11 * 1024 * 1024))
    for paths, why in (([big] * 21, "at most 20"), ([big, big], "bytes in total")):
        with pytest.raises(Invalid, match=f"{why}.*[Nn]othing was sent"):
            attach(paths, blobs)
    assert [p for p in (tmp_path / "blobs").rglob("*") if p.is_file()] == []


def test_a_pdf_with_only_packed_objects_is_accepted(tmp_path):
    packed = zlib.compress(b"2 0 << /Type /Page /Parent 1 0 R >>")
    head = b"%PDF-1.7\n3 0 obj\n<< /Type /ObjStm /N 1 /First 4 /Filter /FlateDecode >>\nstream\n"
    data = head + packed + b"\nendstream\nendobj\nstartxref\n0\n%%EOF\n"
    assert b"/Page" not in data
    path = tmp_path / "packed.pdf"
    path.write_bytes(data)
    assert len(attach([path], BlobStore(tmp_path / "blobs"))) == 1


def test_a_truncated_file_stored_by_an_older_version_is_expanded_to_the_same_bytes():
    for data in (png()[:60], pdf(1)[:-10]):
        found = inspect(data)
        ref = BlobRef(sha256="a" * 64, bytes=len(data), media_type=found.media_type)
        text = json.dumps(reference(ref, found.tokens))
        expanded = json.loads(expand(text, lambda ref, data=data: data))
        assert base64.b64decode(expanded["source"]["data"]) == data


def test_the_producer_refuses_a_reference_to_no_blob(shell):
    from foldlog.client.log_client import LogClient
    from foldlog.client.session import Session

    bad = {"type": "image", "source": {"type": "foldlog_blob", "sha256": "x", "bytes": 1}}
    with LogClient(shell.settings, shell.log) as client:
        with pytest.raises(Invalid, match="names no blob"):
            Session(client, "s1").say([bad])

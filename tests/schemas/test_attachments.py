"""Attachments: types, sizes and token estimates. A reference is replaced by base64, or by a
note."""

import base64
import json
import struct
import zlib

import pytest

from foldlog.schemas import attachments
from foldlog.schemas.attachments import PDF, expand, inspect, label, reference, tokens_of
from foldlog.schemas.events.parts import BlobRef
from foldlog.schemas.message_content import texts_of


def png(width=30, height=20, size=0):
    def chunk(kind, data):
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * (width + 1) * min(height, 100))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows)
        + chunk(b"tEXt", b"x" * size) + chunk(b"IEND", b"")
    )


def jpeg(width=640, height=480):
    app = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + bytes(9)
    frame = b"\xff\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + bytes(3)
    return b"\xff\xd8" + app + frame + b"\xff\xd9"


def gif(width=10, height=10):
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def webp(kind):
    body = {
        b"VP8 ": bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 100, 50),
        b"VP8L": b"\x2f" + struct.pack("<I", 99 | 49 << 14),
        b"VP8X": bytes(4) + (99).to_bytes(3, "little") + (49).to_bytes(3, "little"),
    }[kind]
    data = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(data)) + data


def pdf(pages=2, more=b""):
    page = b"<< /Type /Page /Parent 1 0 R >>\n"
    return b"%PDF-1.7\n<< /Type /Pages >>\n" + page * pages + more + b"%%EOF"


@pytest.mark.parametrize(
    ("data", "media_type", "tokens"),
    [
        (png(750, 10), "image/png", 11),
        (png(8_000, 8_000), "image/png", 4_800),
        (jpeg(), "image/jpeg", 410),
        (gif(), "image/gif", 1),
        (webp(b"VP8 "), "image/webp", 7),
        (webp(b"VP8L"), "image/webp", 7),
        (webp(b"VP8X"), "image/webp", 7),
        (pdf(3), PDF, 9_000),
        (b"%PDF-1.7" + bytes(130_000), PDF, 9_000),
    ],
)
def test_the_type_and_tokens_follow_from_the_bytes(data, media_type, tokens):
    assert inspect(data) == (media_type, tokens)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "neither PNG"),
        (b"hello", "neither PNG"),
        (b"<svg></svg>", "neither PNG"),
        (png()[:20], "cut or damaged"),
        (png(0, 5), "cut or damaged"),
        (b"\xff\xd8\xff\xe0", "cut or damaged"),
        (jpeg(0, 0), "cut or damaged"),
        (png(8_001, 1), "at most 8000 a side"),
        (png(size=attachments.IMAGE_BYTES_MAX), "at most 3932160 are allowed for image/png"),
        (b"%PDF-" + bytes(attachments.PDF_BYTES_MAX), "at most 20971520"),
        (pdf(601), "601 pages, at most 600"),
        (pdf(1, b"/Encrypt 5 0 R"), "encrypted"),
    ],
)
def test_an_invalid_attachment_raises_with_the_reason(data, why):
    with pytest.raises(ValueError, match=why):
        inspect(data)


def block_of(data, title=""):
    found = inspect(data)
    ref = BlobRef(sha256="a" * 64, bytes=len(data), media_type=found.media_type)
    return reference(ref, found.tokens, title)


@pytest.mark.parametrize("data", [png(), pdf()])
def test_a_reference_becomes_base64(data):
    block = block_of(data, "bill.pdf")
    text = json.dumps(block)
    expanded = json.loads(expand(text, lambda ref: data))
    assert base64.b64decode(expanded["source"].pop("data")) == data
    assert expanded["source"] == {"type": "base64", "media_type": inspect(data).media_type}
    assert expanded.get("title") == ("bill.pdf" if data == pdf() else None)
    assert tokens_of(block) == inspect(data).tokens
    assert f"{len(data)} bytes]" in label(block)


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"text", "text":"say \\"foldlog_blob\\" aloud"}',
        '{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}',
    ],
)
def test_other_blocks_are_unchanged(text):
    assert expand(text, lambda ref: pytest.fail("no blob may be read")) == text


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "../../etc/passwd"},
        {"media_type": "text/plain"},
        {"media_type": PDF},
        {"media_type": "image/jpeg"},
        {"bytes": 1},
        {"bytes": True},
        {"bytes": None},
    ],
)
def test_a_reference_to_another_kind_of_blob_becomes_a_note(change):
    block = block_of(png())
    block["source"].update(change)
    expanded = json.loads(expand(json.dumps(block), lambda ref: png()))
    assert expanded["type"] == "text" and "can't be shown" in expanded["text"]


def test_a_blob_that_is_not_an_image_is_never_shown():
    secret = b"another session's tool result"
    block = block_of(png())
    block["source"]["bytes"] = len(secret)
    expanded = expand(json.dumps(block), lambda ref: secret)
    assert "secret" not in expanded and json.loads(expanded)["type"] == "text"


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ({}, ["image/png", "look"]),
        ({"title": "x"}, None),
        ({"type": "document"}, None),
        ({"cache_control": {"type": "ephemeral"}}, None),
        ({"source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}, None),
        ({"source": {"type": "url", "url": "http://169.254.169.254/"}}, None),
    ],
)
def test_the_fold_accepts_references_and_no_other_source(change, texts):
    content = json.dumps([{**block_of(png()), **change}, {"type": "text", "text": "look"}])
    if texts is None:
        with pytest.raises(ValueError):
            texts_of(content.encode())
    else:
        assert texts_of(content.encode()) == texts


def test_both_values_of_a_repeated_key_must_be_valid():
    twice = '{"type":"text","text":"x","type":"tool_result"}'
    with pytest.raises(ValueError):
        texts_of(f"[{json.dumps(block_of(png()))},{twice}]".encode())

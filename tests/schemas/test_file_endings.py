"""Truncated files are detected, and bytes after the end of a complete file are accepted."""

import struct

import pytest

from foldlog.schemas.attachments import inspect
from foldlog.schemas.file_endings import is_whole
from foldlog.tests.schemas.test_attachments import gif, jpeg, pdf, png, webp

DOT = b",\0\0\0\0\1\0\1\0\x80\0\0\0\xff\xff\xff\x02\x02\x4c\x01\0"  # a picture with its own colors
COLORS = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff"
LOOP = b"!\xff\x0bNETSCAPE2.0\3\1\0\0\0"
SCAN = b"\xff\xda\0\2" + bytes(range(200)) * 20 + b"\xff\xd9"
OBJECTS = b"4 0 obj\n<< /Type /Page >>\nendobj\n5 0 obj\n(%s)\nendobj\n" % bytes(3_000)
LINEAR = b"%PDF-1.7\n1 0 obj\n<< /Linearized 1 >>\nendobj\nstartxref\n0\n%%EOF\n" + OBJECTS


def photo(thumbnail=b""):
    """A JPEG with a scan, and with another JPEG in its metadata."""
    exif = b"Exif\0\0" + thumbnail
    head = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
    return b"\xff\xd8" + head + jpeg()[2:-2] + SCAN


WHOLE = {
    "png": png(),
    "jpeg": photo(),
    "jpeg with a small picture": photo(jpeg()),
    "gif": COLORS + LOOP + DOT + DOT + b";",
    "webp": webp(b"VP8X"),
    "pdf": pdf(),
    "pdf for the web": LINEAR + b"startxref\n9\n%%EOF\n",
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_truncated_file_is_not_whole(name):
    data = WHOLE[name]
    media_type = inspect(data).media_type
    assert is_whole(data, media_type)
    for percent in (60, 80, 95):
        assert not is_whole(data[: len(data) * percent // 100], media_type), percent


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("trailer", [b"\n", bytes(5_000), b"<html>1 object</html>" * 500, jpeg()])
def test_bytes_after_the_end_of_a_file_are_accepted(name, trailer):
    data = WHOLE[name]
    assert is_whole(data + trailer, inspect(data).media_type)


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (gif(), True),
        (gif()[:-1], False),  # no picture at all
        (COLORS, False),
        (COLORS + DOT, True),  # readers accept a missing trailer
        (COLORS + DOT + b"\0;", True),  # and accept unknown bytes in place of the trailer
        (COLORS + DOT[:-1], False),
        (COLORS + DOT[:-4], False),
        (COLORS + DOT[:3], False),
        (COLORS + LOOP[:9], False),
        (COLORS[:15], False),
    ],
)
def test_a_gif_is_read_block_by_block(data, whole):
    assert is_whole(data, "image/gif") is whole


def test_a_jpeg_with_bytes_between_its_segments_is_searched_from_them_on():
    data = b"\xff\xd8\0\0" + photo()[2:]
    assert is_whole(data, "image/jpeg") and not is_whole(data[:-2], "image/jpeg")

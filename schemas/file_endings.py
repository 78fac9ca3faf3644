"""Detects truncated images and PDFs. Pure: standard library only.

Only the end of the file is checked, and unclear cases pass: readers accept many malformed files,
and real files may have padding or other data after their end. The check runs only when a file is
attached; later requests send the attachment without another check.
"""

import re
from collections.abc import Callable

_JPEG_SCAN, _JPEG_END = 0xDA, 0xD9
_PDF_OBJECT = re.compile(rb"\d\s+\d+\s+obj\b")


def is_whole(data: bytes, media_type: str) -> bool:
    """False if the bytes are clearly truncated. `data` must begin with a valid header of this
    type."""
    return _ENDS[media_type](data)


def _png(data: bytes) -> bool:
    return b"\0\0\0\0IEND" in data


def _jpeg(data: bytes) -> bool:
    """Searches for the end marker of the image. The header segments are skipped, because they may
    contain a thumbnail with an end marker of its own."""
    place = 2
    while data[place : place + 1] == b"\xff" and place + 4 <= len(data):
        marker, length = data[place + 1], int.from_bytes(data[place + 2 : place + 4], "big")
        if marker in (_JPEG_SCAN, _JPEG_END, 0xFF) or length < 2:
            break
        place += 2 + length
    return data.find(bytes((0xFF, _JPEG_END)), place) >= 0


def _gif(data: bytes) -> bool:
    """Walks the blocks up to the trailer. Without a trailer, the file must end after an image."""
    place, pictures = 13 + _gif_colors(data[10:11]), 0
    while place < len(data):
        if data[place] == 0x2C:  # a picture
            pictures += 1
            place += 11 + _gif_colors(data[place + 9 : place + 10])
        elif data[place] == 0x21:  # an extension
            place += 2
        else:
            return True  # the trailer, or bytes that readers accept as a trailer
        while place < len(data) and data[place]:
            place += 1 + data[place]
        place += 1
    return place == len(data) and pictures > 0


def _gif_colors(flags: bytes) -> int:
    """The size of a color table in bytes."""
    bits = int.from_bytes(flags)
    return 3 << (bits & 7) + 1 if bits & 0x80 else 0


def _webp(data: bytes) -> bool:
    return int.from_bytes(data[4:8], "little") <= len(data) - 8


def _pdf(data: bytes) -> bool:
    """True if no object follows the last end marker. A PDF may have several end markers: each
    update appends one, and a linearized PDF has one near the beginning."""
    end = data.rfind(b"%%EOF")
    return end >= 0 and not _PDF_OBJECT.search(data, end)


_ENDS: dict[str, Callable[[bytes], bool]] = {
    "image/png": _png,
    "image/jpeg": _jpeg,
    "image/gif": _gif,
    "image/webp": _webp,
    "application/pdf": _pdf,
}

"""Does a file go on to where its format says that it ends? Pure: standard library only.

It looks for the end alone, and is in doubt for the file: readers take much that is not as it should
be, and real files have padding and other files behind their end. Only for files that are taken in:
what is in a log already is said again as it was.
"""

import re
from collections.abc import Callable

_JPEG_SCAN, _JPEG_END = 0xDA, 0xD9
_PDF_OBJECT = re.compile(rb"\d\s+\d+\s+obj\b")


def is_whole(data: bytes, media_type: str) -> bool:
    """False if the bytes, which begin as this type and say their size, visibly end too early."""
    return _ENDS[media_type](data)


def _png(data: bytes) -> bool:
    return b"\0\0\0\0IEND" in data


def _jpeg(data: bytes) -> bool:
    """Behind the segments at its head, as there may be a small picture, with an end, in them."""
    place = 2
    while data[place : place + 1] == b"\xff" and place + 4 <= len(data):
        marker, length = data[place + 1], int.from_bytes(data[place + 2 : place + 4], "big")
        if marker in (_JPEG_SCAN, _JPEG_END, 0xFF) or length < 2:
            break
        place += 2 + length
    return data.find(bytes((0xFF, _JPEG_END)), place) >= 0


def _gif(data: bytes) -> bool:
    """Block by block to the trailer. Without one it may end behind a picture, as readers know."""
    place, pictures = 13 + _gif_colors(data[10:11]), 0
    while place < len(data):
        if data[place] == 0x2C:  # a picture
            pictures += 1
            place += 11 + _gif_colors(data[place + 9 : place + 10])
        elif data[place] == 0x21:  # an extension
            place += 2
        else:
            return True  # the trailer, or what readers take for it
        while place < len(data) and data[place]:
            place += 1 + data[place]
        place += 1
    return place == len(data) and pictures > 0


def _gif_colors(flags: bytes) -> int:
    """The bytes of a table of colors."""
    bits = int.from_bytes(flags)
    return 3 << (bits & 7) + 1 if bits & 0x80 else 0


def _webp(data: bytes) -> bool:
    return int.from_bytes(data[4:8], "little") <= len(data) - 8


def _pdf(data: bytes) -> bool:
    """No object behind its last end: each change of a PDF adds one, and one that is made for the
    web has its first near its beginning."""
    end = data.rfind(b"%%EOF")
    return end >= 0 and not _PDF_OBJECT.search(data, end)


_ENDS: dict[str, Callable[[bytes], bool]] = {
    "image/png": _png,
    "image/jpeg": _jpeg,
    "image/gif": _gif,
    "image/webp": _webp,
    "application/pdf": _pdf,
}

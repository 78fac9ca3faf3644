"""Attaches files to a message: validates them, stores them as blobs, and builds their blocks.

The blob is on disk before the message refers to it. The accepted types and their token estimates
are in schemas/attachments.py.
"""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..log.blobs import BlobStore
from ..schemas.attachments import (
    FILES_MAX,
    MESSAGE_BYTES_MAX,
    PDF,
    PDF_BYTES_MAX,
    Attachment,
    inspect,
    reference,
)
from ..schemas.file_endings import is_whole
from .checks import Invalid

# Every PDF with pages contains one of these (/ObjStm if its objects are compressed). /Pages proves
# nothing, because a PDF without pages contains it too.
PDF_PAGE = re.compile(rb"/(Page|ObjStm)\b")


def attach(paths: Iterable[Path | str], blobs: BlobStore) -> list[dict[str, Any]]:
    """Store files and return their content blocks, in order.

    Nothing is stored until every file is validated. Raises Invalid, which names the file, or
    BlobError.
    """
    files = [Path(path) for path in paths]
    if len(files) > FILES_MAX:
        why = f"{len(files)} files, but a message takes at most {FILES_MAX}; nothing was sent"
        raise Invalid("too_many", why)
    contents = [_read(path) for path in files]
    total = sum(map(len, contents))
    if total > MESSAGE_BYTES_MAX:
        raise Invalid(
            "too_large",
            f"the files have {total} bytes in total, but a message takes at most "
            f"{MESSAGE_BYTES_MAX}. Nothing was sent. Send some of them in another message.",
        )
    attachments = [_inspect(path, data) for path, data in zip(files, contents, strict=True)]
    return [
        reference(blobs.store(data, found.media_type), found.tokens, _title(path))
        for path, data, found in zip(files, contents, attachments, strict=True)
    ]


def inspect_new(data: bytes) -> Attachment:
    """Detect the type of a new attachment. Raises ValueError with the reason if it cannot be
    attached.

    This function is stricter than `inspect`, because a file that the API cannot read would make
    every later request of the session fail. `inspect` cannot be as strict, because it also rebuilds
    past requests.
    """
    found = inspect(data)
    if found.media_type == PDF and not PDF_PAGE.search(data):
        raise ValueError("it is cut or damaged: a PDF without a page")
    if not is_whole(data, found.media_type):
        raise ValueError(f"it is cut or damaged: {found.media_type} without an end")
    return found


def _read(path: Path) -> bytes:
    """Read a regular file, but never more than can be attached. Raises Invalid."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Invalid("not_a_file", f"{path} is not a regular file; nothing was sent")
            data = file.read(PDF_BYTES_MAX + 1)
    except OSError as error:
        raise Invalid(
            "no_file", f"{path} can't be attached: {error.strerror or error}; nothing was sent"
        ) from None
    if len(data) > PDF_BYTES_MAX:
        why = f"it has more than {PDF_BYTES_MAX} bytes"
        raise Invalid("too_large", f"{path} can't be attached: {why}; nothing was sent")
    return data


def _inspect(path: Path, data: bytes) -> Attachment:
    try:
        return inspect_new(data)
    except ValueError as error:
        raise Invalid(
            "not_attachable", f"{path} can't be attached: {error}; nothing was sent"
        ) from None


def _title(path: Path) -> str:
    """The file's name as a title: printable text."""
    name = path.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(c for c in name if c.isprintable())

"""Files attached to a message: reads, validates and stores them as blobs, and builds their blocks.

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

# In every PDF that has pages, as they are or packed; /Pages is in one that has none, too.
PDF_PAGE = re.compile(rb"/(Page|ObjStm)\b")


def attach(paths: Iterable[Path | str], blobs: BlobStore) -> list[dict[str, Any]]:
    """The content blocks of some files, in order. Raises Invalid, naming the file, or BlobError.

    Nothing is stored before all of them are known to be good.
    """
    named = [Path(path) for path in paths]
    if len(named) > FILES_MAX:
        why = f"{len(named)} files, at most {FILES_MAX} go with a message; nothing was sent"
        raise Invalid("too_many", why)
    read = [(path, _read(path)) for path in named]
    total = sum(len(data) for _, data in read)
    if total > MESSAGE_BYTES_MAX:
        raise Invalid(
            "too_large",
            f"the files have {total} bytes together, at most {MESSAGE_BYTES_MAX} go with one "
            "message: send some of them with another one; nothing was sent",
        )
    found = [(path, data, _admitted(path, data)) for path, data in read]
    return [
        reference(blobs.store(data, what.media_type), what.tokens, _title(path))
        for path, data, what in found
    ]


def admitted(data: bytes) -> Attachment:
    """What these bytes are. Raises ValueError saying why they can not be attached.

    What the API can't read would be in every later request of its session. `inspect` must not look
    for this: past requests are made with it.
    """
    found = inspect(data)
    if found.media_type == PDF and not PDF_PAGE.search(data):
        raise ValueError("it is cut or damaged: a PDF without a page")
    if not is_whole(data, found.media_type):
        raise ValueError(f"it is cut or damaged: {found.media_type} without an end")
    return found


def _read(path: Path) -> bytes:
    """A regular file's bytes, never more than may be attached. Raises Invalid."""
    try:
        # Not blocking: a pipe by that name would wait for a writer for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Invalid("not_a_file", f"{path} is no regular file; nothing was sent")
            data = file.read(PDF_BYTES_MAX + 1)
    except OSError as error:
        raise Invalid(
            "no_file", f"{path} can't be attached: {error.strerror or error}; nothing was sent"
        ) from None
    if len(data) > PDF_BYTES_MAX:
        why = f"it has more than {PDF_BYTES_MAX} bytes"
        raise Invalid("too_large", f"{path} can't be attached: {why}; nothing was sent")
    return data


def _admitted(path: Path, data: bytes) -> Attachment:
    try:
        return admitted(data)
    except ValueError as error:
        raise Invalid(
            "not_attachable", f"{path} can't be attached: {error}; nothing was sent"
        ) from None


def _title(path: Path) -> str:
    """The file's name as a title: printable text."""
    name = path.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(c for c in name if c.isprintable())

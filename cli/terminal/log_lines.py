"""The format of log lines on stderr, as text or JSON.

librdkafka's message about a lost broker becomes readable; other lines are printed unchanged.
"""

import json
import logging
import re
from datetime import UTC, datetime

from .clean_text import clean

_BROKER_FAILS = re.compile(
    r"FAIL \[.*?\] \[.*?\]: (?P<host>[^/\s]+)\S*: (?:Connect to \S+ failed: )?"
    r"(?P<why>.*?)(?: \((?:after|\d+ more).*)?$"
)
"""librdkafka's message about a lost broker. The cause is between the thread and the state."""


class ReadableFormatter(logging.Formatter):
    """Formats a log line as text, and makes librdkafka's message about a lost broker readable.

    A tool's traceback may contain text from the model, so control characters are cleaned.
    """

    def format(self, record: logging.LogRecord) -> str:
        fails = _BROKER_FAILS.match(record.getMessage())
        if fails is not None:
            text = f"broker {fails['host']}: {fails['why']}; retrying until it answers"
            record = logging.makeLogRecord({**record.__dict__, "msg": text, "args": ()})
        return clean(super().format(record))


def is_useful(record: logging.LogRecord) -> bool:
    """False for asyncio's warnings about writes to clients that have just disconnected."""
    return not (record.name == "asyncio" and record.msg == "socket.send() raised exception.")


_IDS = {
    "session": re.compile(r"\bsession (?P<id>[A-Za-z0-9._:@-]{1,128}?)[:,;.]?(?:\s|$)"),
    "partition": re.compile(r"\b(?:partition|store) (?P<id>\d+)\b"),
    "offset": re.compile(r"\boffset (?P<id>\d+)\b"),
}
"""Patterns of the ids in a line's text. Our log lines contain ids and never content."""


class JsonFormatter(ReadableFormatter):
    """Formats a log line as one JSON object: time, level, logger, text, and the ids in the text."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        ids = {name: found["id"] for name, rx in _IDS.items() if (found := rx.search(text))}
        line = {"at": at, "level": record.levelname.lower(), "logger": record.name, "text": text}
        return json.dumps({**line, **ids}, ensure_ascii=False)


_NOTES = logging.getLogger("foldlog.cli")


def log_note_as_json(text: str) -> bool:
    """If log lines are printed as JSON, log this note as a JSON line too, so that stderr has only
    JSON.

    Returns whether the note was logged.
    """
    as_json = any(isinstance(h.formatter, JsonFormatter) for h in logging.getLogger().handlers)
    if as_json:
        _NOTES.setLevel(logging.INFO)
        _NOTES.info("%s", text)
    return as_json


def to_stderr(level: int, line: str, *, force: bool = False, as_json: bool = False) -> None:
    """Send log lines of this level and above to stderr, in the format `line` or as JSON objects.

    force: whether to replace handlers that were set before.
    """
    handler = logging.StreamHandler()
    handler.addFilter(is_useful)
    handler.setFormatter(JsonFormatter("%(message)s") if as_json else ReadableFormatter(line))
    logging.basicConfig(level=level, handlers=[handler], force=force)

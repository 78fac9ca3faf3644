"""How log lines look to somebody who waits in front of a command or a worker.

What libraries say of a broker that goes away becomes words; everything else is printed as it is.
"""

import json
import logging
import re
from datetime import UTC, datetime

_BROKER_FAILS = re.compile(
    r"FAIL \[.*?\] \[.*?\]: (?P<host>[^/\s]+)\S*: (?:Connect to \S+ failed: )?"
    r"(?P<why>.*?)(?: \((?:after|\d+ more).*)?$"
)
"""What librdkafka says when a broker goes away: its thread, its state, and in between the news."""


class InWords(logging.Formatter):
    """A line of the given format, its message in words."""

    def format(self, record: logging.LogRecord) -> str:
        fails = _BROKER_FAILS.match(record.getMessage())
        if fails is not None:
            told = f"broker {fails['host']}: {fails['why']}; tried again until it answers"
            record = logging.makeLogRecord({**record.__dict__, "msg": told, "args": ()})
        return super().format(record)


def worth_a_line(record: logging.LogRecord) -> bool:
    """Whether a line says anything: asyncio counts writes to clients that have just left."""
    return not (record.name == "asyncio" and record.msg == "socket.send() raised exception.")


_IDS = {
    "session": re.compile(r"\bsession (?P<id>[A-Za-z0-9._:@-]{1,128}?)[:,;.]?(?:\s|$)"),
    "partition": re.compile(r"\b(?:partition|store) (?P<id>\d+)\b"),
    "offset": re.compile(r"\boffset (?P<id>\d+)\b"),
}
"""What a line is about, as its text names it. Our lines have ids in them and never content."""


class AsJson(InWords):
    """A line as one JSON object: when, how grave, who says it, what, and the ids it names."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        ids = {what: found["id"] for what, of in _IDS.items() if (found := of.search(text))}
        line = {"at": at, "level": record.levelname.lower(), "logger": record.name, "text": text}
        return json.dumps({**line, **ids}, ensure_ascii=False)


_NOTES = logging.getLogger("foldlog.cli")


def noted_as_json(text: str) -> bool:
    """Say a note as a log line where those are JSON: who reads them reads nothing else there."""
    wanted = any(isinstance(each.formatter, AsJson) for each in logging.getLogger().handlers)
    if wanted:
        _NOTES.setLevel(logging.INFO)
        _NOTES.info("%s", text)
    return wanted


def to_stderr(level: int, line: str, *, anew: bool = False, as_json: bool = False) -> None:
    """Log lines from this level on go to stderr, in this format, or each as a JSON object.

    anew: whatever was set before.
    """
    handler = logging.StreamHandler()
    handler.addFilter(worth_a_line)
    handler.setFormatter(AsJson("%(message)s") if as_json else InWords(line))
    logging.basicConfig(level=level, handlers=[handler], force=anew)

"""How log lines look to somebody who waits in front of a command or a worker.

What libraries say of a broker that goes away becomes words; everything else is printed as it is.
"""

import logging
import re

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


def to_stderr(level: int, line: str, *, anew: bool = False) -> None:
    """Log lines from this level on go to stderr, in this format.

    anew: whatever was set before.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(InWords(line))
    logging.basicConfig(level=level, handlers=[handler], force=anew)

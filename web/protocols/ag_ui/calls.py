"""Tracks the calls of a turn for AG-UI: whether each runs, waits for a person or is finished.

A run is interrupted when all of its unfinished calls wait for a person. The id of an interrupt is
the call's key.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ....processors.fold.projections.transcript import Line
from ....processors.fold.projections.turn_view import Call
from ....producers.options import REMEMBER

APPROVAL, DOUBT = "tool_approval", "tool_in_doubt"
"""Reasons of an interrupt."""

SCHEMAS: dict[str, dict[str, Any]] = {
    APPROVAL: {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            REMEMBER.name: {
                "type": "boolean",
                "description": "Allow later calls of the tool with exactly these arguments, too.",
            },
        },
        "required": ["approved"],
    },
    DOUBT: {
        "type": "object",
        "properties": {
            "happened": {"type": "boolean"},
            "report": {
                "type": "string",
                "description": "What happened, for the model; required if it happened.",
            },
        },
        "required": ["happened"],
    },
}
"""JSON schema of the payload of a resume entry, by the interrupt's reason."""

_WAITS = {"asks": APPROVAL, "doubt": DOUBT}
_IN_PROGRESS = ("proposed", "running", "uncertain")


class Calls:
    """The calls of one turn by key. `ended`: whether the turn is over."""

    def __init__(self) -> None:
        self.ended = False
        self._status: dict[str, str] = {}
        self._waiting: dict[str, Line] = {}

    def proposed(self, keys: Iterable[str]) -> None:
        """Add the calls that the model requested."""
        for key in keys:
            self._status.setdefault(key, "proposed")

    def take(self, line: Line) -> None:
        """Update a call from a line of the transcript."""
        match line.kind:
            case "call":
                status = "running"
            case "asks":
                status = "asks"
            case "approval":
                status = "running" if line.code == "allow" else "done"
            case "result" | "resolved":
                status = "done"
            case "doubt":
                # The first line reports the doubt and its reason, the second that a person is
                # needed. The call waits only after the second line.
                if self._status.get(line.call) == "uncertain":
                    self._status[line.call] = "doubt"
                    return
                is_first = self._status.get(line.call) == "running"
                status = "uncertain" if is_first else "doubt"
            case _:
                return
        self._status[line.call] = status
        self._waiting[line.call] = line

    def unanswered(self) -> list[str]:
        """The calls that have no result and do not wait for a person."""
        return [key for key, s in self._status.items() if s in ("proposed", "running", "asks")]

    def interrupts(self, calls: Iterable[Call]) -> list[dict[str, Any]]:
        """The calls that people must answer before the turn continues; [] while a call is in
        progress. `calls`: the calls of the open turn, which have the deadlines for the answers.
        """
        expire = {call.key: call.expires_at for call in calls}
        waiting = [key for key, status in self._status.items() if status in _WAITS]
        if any(status in _IN_PROGRESS for status in self._status.values()):
            return []
        return [
            _interrupt(self._waiting[key], _WAITS[self._status[key]], expire.get(key, 0))
            for key in waiting
        ]


def _interrupt(line: Line, reason: str, expires_at: int) -> dict[str, Any]:
    question = "may it run?" if reason == APPROVAL else f"what happened? {line.text}".rstrip()
    return {
        "id": line.call,
        "reason": reason,
        "message": f"{line.name}: {question}",
        "toolCallId": line.call,
        "responseSchema": SCHEMAS[reason],
        # A call in doubt has no deadline, even if its approval had one.
        **({"expiresAt": _iso(expires_at)} if expires_at and reason == APPROVAL else {}),
    }


def _iso(unix_ms: int) -> str:
    at = datetime.fromtimestamp(unix_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

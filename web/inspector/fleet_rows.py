"""Turns the fleet's answers into the home page's JSON: pure functions.

The fleet knows what a session costs, when it changed and what waits for people. The details of one
session (the arguments of a call, the activity strip, the cost of a turn that runs) are the
gateway's own; without them they are empty, and the page refers to the session's own page.
"""

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ...client.status import ENDS, Reason, Situation, Status, first_status
from ...processors.advice.prices import PICO_PER_USD, usd
from .overview import FAILED, Cell, named, series

Json = dict[str, Any]
NO_DETAILS: Json = {
    "runs": [], "now": None, "turn_at": None, "waits": [], "failure": None, "status": "",
    "reason": Reason.OWN, "until": None,
}


def row(found: Json, own: Json | None) -> Json:
    """A row of the page. found: the fleet's row; own: the gateway's row, if it keeps one."""
    own = own or NO_DETAILS
    situation, failure = _situation(found, own), _failure(found, own)
    waits = _waits(found, own)
    since = [call["at"] for kind in ("approvals", "doubts") for call in found[kind].values()]
    return {
        "id": found["session_id"],
        "user": found["user_id"],
        "agent": found["agent"],
        "title": found["title"],
        "status": FAILED if situation.has_failed else situation.status,
        "reason": situation.reason,
        "until": situation.until,
        "turns": found["turn"],
        **(_used(found) if own["turn_at"] is None else {name: own[name] for name in USED}),
        "started_at": found["opened_at"],
        "updated_at": found["changed_at"],
        "in_turns_ms": found["ms"],
        "turn_at": own["turn_at"],
        "runs": own["runs"],
        "now": own["now"],
        "phase": found["phase"],
        "waits": waits,
        "waits_since": min(since, default=failure["at"] if failure else 0),
        "failure": failure,
    }


USED = ("usd", "unpriced", "tokens")


def _used(found: Json) -> Json:
    picodollars = sum(used["picodollars"] for used in found["usage"].values())
    unpriced = sum(used["unpriced"] for used in found["usage"].values())
    return {
        "usd": usd(picodollars) if picodollars or not unpriced else None,
        "unpriced": unpriced,
        "tokens": sum(count for used in found["usage"].values()
                      for name, count in used.items() if name.endswith("_tokens")),
    }


def _situation(found: Json, own: Json) -> Situation:
    """The situation of a row; if the fleet does not know the reason, the gateway's own."""
    known = situation_of(found)
    same = (Status.BUSY, Status.UNSERVED) if known.status is Status.BUSY else (known.status,)
    if known.reason is Reason.OWN and own["status"] in same:
        return Situation(Status(own["status"]), own["reason"], own["until"])
    return known


def situation_of(found: Json) -> Situation:
    """The situation of a row of the fleet, which knows no workers, and nothing of a turn but its
    end: an open turn without a worker is busy, too. The reason is OWN if it is unknown."""
    named, failed = found["status"], found["failure"]
    status = first_status(
        frozen=named == "frozen", doubt=bool(found["doubts"]), ended=named == "ended",
        asks=bool(found["approvals"]), works=named == "working", unserved=False,
    )  # fmt: skip
    if status is Status.ASKS:
        ends = [call["expires_at"] for call in found["approvals"].values() if call["expires_at"]]
        return Situation(status, until=min(ends, default=None))
    if status is not Status.IDLE:
        return Situation(status)
    if failed is not None and failed["turn"] == found["turn"]:
        return Situation(status, ENDS[failed["reason"]])
    is_new = not found["turns"] and not found["damaged"]
    return Situation(status, Reason.NEW if is_new else Reason.OWN)


def _waits(found: Json, own: Json) -> list[Json]:
    known = {call["call"]: call for call in own["waits"]}
    return [
        {
            "call": name, "name": call["tool"], "asks": kind == "approvals", "why": "",
            "args": None, "args_sha256": "", "expires_at": call["expires_at"],
            **known.get(name, {}),
        }
        for kind in ("approvals", "doubts")
        for name, call in found[kind].items()
    ]


def _failure(found: Json, own: Json) -> Json | None:
    """The failure of the present turn, if it failed and nothing else waits."""
    if not situation_of(found).has_failed:
        return None
    failed = found["failure"]
    details = own["failure"]
    if details is not None and details["turn"] == failed["turn"]:
        return dict(details)
    return {
        "reason": failed["reason"], "limit": "", "error": "", "code": failed["error"],
        "detail": "", "tries": 0, "turn": failed["turn"], "step": 0, "at": failed["at"],
    }


def waits(shown: Json) -> bool:
    """Whether a row waits for a person."""
    return bool(shown["waits"]) or shown["failure"] is not None


Hours = list[Json]
"""The fleet's cells of consecutive hours."""


def charts(
    first: int, step: int, everything: Hours, agents: Mapping[str, Hours],
    models: Mapping[str, Hours],
) -> Json:
    """The page's charts. first: the first hour (Unix); step: the hours of an interval."""

    def intervals(hours: Hours) -> list[Cell]:
        cells = [Cell() for _ in range(len(hours) // step)]
        for number, hour in enumerate(hours):
            _count(cells[number // step], hour)
        return cells

    def groups(found: Mapping[str, Hours]) -> Json:
        used = {name: hours for name, hours in found.items() if any(map(_is_used, hours))}
        return dict(named({name: intervals(hours) for name, hours in used.items()}))

    return {
        "first_at": first * 3_600_000,
        "step_ms": step * 3_600_000,
        "count": len(everything) // step,
        "all": series(intervals(everything)),
        "agents": groups(agents),
        "models": groups(models),
    }


def _is_used(hour: Json) -> bool:
    return bool(hour["turns"] or hour["tokens"] or hour["unpriced"])


def _count(cell: Cell, hour: Json) -> None:
    cell.picodollars += int(Decimal(hour["usd"]) * PICO_PER_USD)
    cell.unpriced += hour["unpriced"]
    cell.tokens += hour["tokens"]
    cell.turns += hour["turns"]
    cell.errors += hour["failures"]
    cell.times.update(Counter({int(name): count for name, count in hour["times"].items()}))

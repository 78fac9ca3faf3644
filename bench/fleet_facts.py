"""fleet_facts: facts per second of one member of the fleet, beside the plain Kafka client, and the
time in which a member with an empty disk restores the tables.

The log has facts of sessions of some turns, of many users, in all partitions. A member starts
without tables and folds them all; the rate is that between two readings of its status, from the
first fact folded to the last one whose rows Kafka has confirmed. The baseline reads the same
records with confluent-kafka and decodes them: what no table can beat. Then the member is killed,
its directory is deleted, and the time from its start until it may answer is taken; the start of a
member without any facts is measured before, and taken off.
"""

import http.client
import json
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foldlog.bench.measure import Installation, Ratio, separate, spread_of
from foldlog.schemas.enums import EndReason, ModelWork
from foldlog.schemas.facts import (
    Fact,
    ModelUsage,
    SessionOpened,
    SessionTitled,
    TurnBegun,
    TurnEnded,
    decode_fact,
    encode_fact,
)
from foldlog.schemas.topics import FLEET_HOURS, FLEET_INBOX, FLEET_SESSIONS, SESSION_FACTS

USERS, SESSIONS, TURNS = 200, 10, 5  # sessions of a user, turns of a session
CHANGELOGS = (FLEET_SESSIONS, FLEET_INBOX, FLEET_HOURS)
PATIENCE_S = 600.0
POLL_S = 0.05
AT = 1_790_000_000_000
HOUR_MS = 3_600_000


def fleet_facts(here: Installation, runs: int) -> Ratio:
    """Our facts per second over the baseline's records per second."""
    empty, full = separate(here, "fleet-empty-"), separate(here, "fleet-full-")
    directory = here.home / "fleet-bench"
    start_s = _ready_s(empty, directory, 0)
    count = _write(full)
    rates, restores, bases = [], [], []
    for _ in range(runs):
        bases.append(_read(full, count))
        with _member(full, directory) as member:
            rates.append(_rate(member, count))
        restores.append(_ready_s(full, directory, count) - start_s)
    rows = sum(sum(full.log.end_offsets(topic).values()) for topic in CHANGELOGS)
    for log in (empty, full):
        log.log.close()
    rate, base = statistics.median(rates), statistics.median(bases)
    ratios = [mine / read for mine, read in zip(rates, bases, strict=True)]
    note = (
        f"{count:,} facts; a member with an empty disk restored the changelogs' {rows:,} "
        f"records in {statistics.median(restores):.1f} s, without a start of {start_s:.1f} s"
    )
    return Ratio(
        "fleet_facts", rate, base, "facts/s", statistics.median(ratios), runs,
        "ours at least 500", note, spread=spread_of(ratios),
    )


def _facts() -> Iterator[Fact]:
    offset = 0
    for session in range(USERS * SESSIONS):
        user = f"user-{session % USERS}"
        own: dict[str, Any] = {
            "user_id": user, "session_id": f"{user}.{session}", "agent": f"agent-{session % 5}",
            "partition": 0, "at": AT + session * HOUR_MS // 20,
        }  # fmt: skip
        facts = [SessionOpened(**own, offset=offset, phase="chatting")]
        for turn in range(1, TURNS + 1):
            offset += 2
            begun = {**own, "offset": offset, "turn": turn}
            facts.append(SessionTitled(**begun, title="t") if turn == 1 else TurnBegun(**begun))
            usage = ModelUsage(
                model="claude", work=ModelWork.ANSWER, requests=1, input_tokens=900,
                cache_read_tokens=0, cache_write_5m_tokens=0, cache_write_1h_tokens=0,
                output_tokens=90, picodollars=10**9,
            )  # fmt: skip
            ended = {**begun, "offset": offset + 1, "reason": EndReason.END_TURN}
            facts.append(TurnEnded(**ended, steps=1, ms=900, usage=(usage,)))
        offset += 2
        yield from facts


def _write(here: Installation) -> int:
    producer, count = here.log.producer(), 0
    try:
        for fact in _facts():
            producer.append(SESSION_FACTS, fact.user_id, *encode_fact(fact))
            count += 1
            if count % 10_000 == 0:
                producer.flush(PATIENCE_S)
        assert producer.flush(PATIENCE_S) == 0
    finally:
        producer.close()
    return count


def _read(here: Installation, count: int) -> float:
    """Records per second of the plain client, with their decoding."""
    reader = here.log.reader(SESSION_FACTS, here.log.first_offsets(SESSION_FACTS))
    left, began = count, 0.0
    try:
        while left > 0:
            records = reader.poll(1.0)
            began = began or time.perf_counter()
            for record in records:
                decode_fact(record.value, record.headers)
            left -= len(records)
    finally:
        reader.close()
    return count / max(time.perf_counter() - began, 1e-3)


class _Member:
    """A running member."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def status(self) -> dict[str, Any]:
        """Its state; empty before it answers."""
        try:
            noted = json.loads((self.directory / "worker.json").read_text())
            with urllib.request.urlopen(f"{noted['web']}/status", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError, http.client.HTTPException):
            return {}

    def folded_all(self, count: int) -> bool:
        """Whether it has folded as many facts and may answer for all partitions."""
        found = self.status()
        parts = found.get("partitions", {}).values()
        done = sum(part["next"] for part in parts) == count
        ready = bool(parts) and all(part["ready"] for part in parts)
        return done and ready and not found["pending_rows"]


@contextmanager
def _member(here: Installation, directory: Path) -> Iterator[_Member]:
    shutil.rmtree(directory, ignore_errors=True)
    env = here.env() | {"FOLDLOG_FLEET_DIR": str(directory)}
    command = [sys.executable, "-m", "foldlog.cli", "fleet"]
    with (here.home / "fleet.log").open("a") as log:
        process = subprocess.Popen(command, env=env, cwd=here.home, stdout=log, stderr=log)
    try:
        yield _Member(directory)
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def _await(what: str, condition: Any) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(POLL_S)


def _rate(member: _Member, count: int) -> float:
    _await("a fact is folded", lambda: member.status().get("folded"))
    first, began = member.status()["folded"], time.perf_counter()
    _await("all facts are folded", lambda: member.folded_all(count))
    return max(1, count - first) / (time.perf_counter() - began)


def _ready_s(here: Installation, directory: Path, count: int) -> float:
    began = time.perf_counter()
    with _member(here, directory) as member:
        _await("the member is ready", lambda: member.folded_all(count))
        return time.perf_counter() - began

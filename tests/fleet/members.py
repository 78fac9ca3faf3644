"""Members of a fleet on a real broker, as processes, and what a test reads of them."""

import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocksdict import AccessType, Options, Rdict

from foldlog.fleet import rows
from foldlog.fleet.member import changelog_of
from foldlog.fleet.tables import FleetStore
from foldlog.log import Settings, open_log
from foldlog.log.partition import partition_for
from foldlog.schemas.facts import Fact, encode_fact
from foldlog.schemas.topics import SESSION_FACTS, topics
from foldlog.tests.fleet.facts import Tables
from foldlog.tests.kit import forked, programs
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.played import settings_in
from foldlog.tests.kit.waiting import PATIENCE_S, until

PARTITIONS = 6
"""A multiple of three: Faust gives a third member nothing of four partitions."""


IMPORTS = ("foldlog.cli.commands.fleet", "foldlog.fleet.serve", "foldlog.log.kafka")


class Member:
    """One member: a process with its own directory, which can be killed and started again."""

    forked = False
    """Whether it starts by a fork, which costs less; a test cannot pause it then."""

    def __init__(self, settings: Settings, name: str, directory: Path) -> None:
        self.settings, self.name, self.directory = settings, name, directory
        self.process: subprocess.Popen[str] | None = None
        self.stderr = directory.with_suffix(".stderr")

    def start(self, *, crash: str = "", shift_s: int = 0, plant: str = "") -> None:
        """Start it. crash: a crash point. shift_s: how far its clock is wrong. plant: statements
        that the process runs first."""
        env = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH")
               if name in os.environ},
            "KAFKA_BOOTSTRAP_SERVERS": str(self.settings.bootstrap_servers),
            "FOLDLOG_TOPIC_PREFIX": self.settings.topic_prefix,
            "FOLDLOG_PARTITIONS": str(self.settings.partitions),
            "FOLDLOG_HOME": str(self.settings.home),
            "FOLDLOG_FLEET_DIR": str(self.directory),
        }  # fmt: skip
        main = "import sys; from foldlog.cli.__main__ import main; sys.exit(main())"
        shifted = f"import time; now = time.time; time.time = lambda: now() + {shift_s}"
        program = "\n".join((shifted, plant, main))
        words = ["fleet", "--member-id", self.name, *(["--crash", crash] if crash else [])]
        command = [sys.executable, "-c", program, *words]
        if self.forked and not shift_s and not plant:
            command = [*forked.command(IMPORTS, "-m", "foldlog.cli", *words)]
        with suppress(OSError):
            (self.directory / "worker.json").unlink()
        with self.stderr.open("a") as stderr:
            self.process = subprocess.Popen(
                command, stderr=stderr, text=True, env=env, start_new_session=True
            )

    @property
    def url(self) -> str:
        """The address of its pages; '' before it serves them."""
        try:
            return str(json.loads((self.directory / "worker.json").read_text())["web"])
        except (OSError, ValueError, KeyError):
            return ""

    def get(self, path: str) -> Any:
        """A page, or None if there is no answer now."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException):  # also half an answer
            return None

    def status(self) -> dict[str, Any]:
        """Its own state; empty if it does not answer."""
        return self.get("/status") or {}

    def code(self, path: str) -> int:
        """The status of a page's response; 0 if there is none."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except (OSError, ValueError, http.client.HTTPException):
            return 0

    def owned(self) -> dict[int, int]:
        """The next offset of the partitions it may answer for."""
        parts = self.status().get("partitions", {})
        return {int(p): part["next"] for p, part in parts.items() if part["ready"]}

    def kill(self, by: int = signal.SIGKILL) -> int:
        """End it by a signal, and return the exit code."""
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(by)
        return programs.ended(process)

    def stored(self, partitions: Iterable[int]) -> Tables:
        """The rows in its stores. It must have ended."""
        assert self.process is None, "a store has one process"
        tables: Tables = {}
        for table in rows.TABLES:
            for partition in partitions:
                tables |= _stored(self.directory, table, partition)
        return tables

    def said(self) -> str:
        """What it has printed on stderr."""
        return self.stderr.read_text() if self.stderr.exists() else ""


class Fleet:
    """An installation with facts and members."""

    def __init__(self, servers: str, directory: Path, forked: bool) -> None:
        here = settings_in(
            directory, bootstrap_servers=servers, topic_prefix=unique_name("fleet") + "-"
        )
        self.settings = replace(here, partitions=PARTITIONS)
        self.log = open_log(self.settings)
        self.log.apply_topics(topics(PARTITIONS)).demand()
        self.members: dict[str, Member] = {}
        self.facts: list[Fact] = []
        self._directory, self._forked = directory, forked

    def member(self, name: str) -> Member:
        """A member by name, not started."""
        if name not in self.members:
            place = self._directory / f"member-{name}"
            self.members[name] = Member(self.settings, name, place)
            self.members[name].forked = self._forked
        return self.members[name]

    def write(self, facts: Iterable[Fact]) -> None:
        """Write facts, as a worker does, and remember them."""
        facts = list(facts)
        self.facts += facts
        self.write_records((fact.user_id, *encode_fact(fact)) for fact in facts)

    def write_records(
        self, records: Iterable[tuple[str | None, bytes | None, Any]], topic: str = SESSION_FACTS,
        partition: int | None = None,
    ) -> None:  # fmt: skip
        """Write records with these keys, values and headers."""
        producer = self.log.producer()
        try:
            for key, value, headers in records:
                place = partition
                if place is None:
                    place = partition_for(key or "", self.settings.partitions)
                producer.append(topic, key, value, headers, partition=place)
            assert producer.flush(PATIENCE_S) == 0
        finally:
            producer.close()

    def ends(self) -> dict[int, int]:
        """The end of each partition of facts."""
        return self.log.end_offsets(SESSION_FACTS)

    def await_folded(self) -> None:
        """Wait until every partition has one member that has folded all of its facts."""
        ends = self.ends()

        def done() -> bool:
            found = [
                (partition, following)
                for member in self.members.values() if member.process
                for partition, following in member.owned().items()
            ]  # fmt: skip
            return sorted(found) == sorted(ends.items())

        until("the members have folded all facts", done, show=self.report)

    def report(self) -> str:
        """What the members are doing."""
        return "\n".join(
            f"{member.name} {member.status()}\n{member.said()[-3000:]}"
            for member in self.members.values()
        )

    def restored(self) -> Tables:
        """The tables as a member with an empty disk reads them from the changelogs."""
        tables: Tables = {}
        for table in rows.TABLES:
            topic = changelog_of(table)
            first, ends = self.log.first_offsets(topic), self.log.end_offsets(topic)
            reader = self.log.reader(topic, first)
            try:
                _read(reader, table, dict(ends), tables)
            finally:
                reader.close()
        return tables

    def close(self) -> None:
        """End all members."""
        for member in self.members.values():
            if member.process and member.process.poll() is None:
                member.process.send_signal(signal.SIGCONT)
            member.kill()
        self.log.close()


def _stored(directory: Path, table: str, partition: int) -> Tables:
    (path,) = directory.glob(f"tables/**/{table}-{partition}.db")
    db = Rdict(str(path), options=Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        found = {(table, key): value for key, value in db.items()}
    finally:
        db.close()
    found.pop((table, FleetStore.offset_key), None)
    return found


def _read(reader: Any, table: str, ends: dict[int, int], tables: Tables) -> None:
    left = {partition for partition, end in ends.items() if end}

    def some() -> bool:
        for record in reader.poll(0.2):
            if rows.is_key(table, record.key, record.partition, PARTITIONS):
                tables[table, record.key] = record.value
            if record.offset + 1 >= ends[record.partition]:
                left.discard(record.partition)
        return not left

    until("a changelog is read", some)


@contextmanager
def fleet(servers: str, directory: Path, *, forked: bool = False) -> Iterator[Fleet]:
    """An installation whose members end with the block. forked: whether they start by a fork."""
    found = Fleet(servers, directory, forked)
    try:
        yield found
    finally:
        found.close()

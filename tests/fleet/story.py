"""A fleet that several tests share: each begins with members running, and adds facts. Equal means
byte for byte: the rows in the stores of owners and standbys, and the rows that the changelogs
restore."""

import signal
from collections import Counter

from foldlog.fleet import rows
from foldlog.tests.fleet.facts import History, Tables, fold
from foldlog.tests.fleet.members import PARTITIONS, Fleet, Member
from foldlog.tests.kit.programs import ended
from foldlog.tests.kit.waiting import until

USERS = [f"user-{number}" for number in range(12)]


class Story:
    """The fleet, and the random history of which the tests write parts."""

    def __init__(self, here: Fleet) -> None:
        self.here, self.history = here, History(7, users=len(USERS), sessions=6)

    def more(self, count: int = 60) -> None:
        """Write more facts."""
        self.here.write(self.history.facts(count))

    def running(self, *names: str) -> list[Member]:
        """These members run, and no others; they have folded all facts."""
        for name, member in self.here.members.items():
            if name not in names:
                member.kill()
        members = [self.here.member(name) for name in names]
        for member in members:
            if member.process is None or member.process.poll() is not None:
                member.process = None
                member.start()
        until("all have a share", lambda: all(member.owned() for member in members),
              show=self.here.report)
        self.here.await_folded()
        return members

    def demand_equal(self) -> None:
        """Stop the members, and compare every row of every store and of the changelogs."""
        here = self.here
        live = [member for member in here.members.values() if member.process]
        until(
            "rows are confirmed", lambda: all(m.status().get("pending_rows") == 0 for m in live),
            show=here.report,
        )
        expected = fold(here.facts, PARTITIONS)
        restored = here.restored()
        keys = expected.keys() | restored
        wrong = {key for key in keys if expected.get(key) != restored.get(key)}
        assert not wrong, differences(wrong, expected, restored) + here.report()
        places = {m.name: (set(m.owned()), set(m.status()["standby"])) for m in live}
        assert sorted(p for owned, _ in places.values() for p in owned) == list(range(PARTITIONS))
        for member in live:
            assert member.process is not None
            member.process.send_signal(signal.SIGTERM)
        for member in live:
            assert ended(member.process) == 0, member.said()
            member.process = None
        for member in live:
            owned, standby = places[member.name]
            found = member.stored(owned | standby)
            wrong = {key for key in found if found[key] != expected.get(key)}
            assert not wrong, (member.name, places, sorted(wrong)[:5])
            for key in expected:
                if place_of(*key) in owned:
                    assert key in found, (member.name, key)


def differences(wrong: set[tuple[str, bytes]], expected: Tables, found: Tables) -> str:
    """How many rows of each table and partition are wrong, and what the first ones should be."""
    counts = Counter((table, place_of(table, key)) for table, key in wrong)
    shown = (
        f"{key} should be {rows.decoded(key[0], expected.get(key))}\n"
        f"      and is {rows.decoded(key[0], found.get(key))}\n"
        for key in sorted(wrong)[:5]
    )
    return f"wrong rows by table and partition: {dict(counts)}\n{''.join(shown)}"


def place_of(table: str, key: bytes) -> int:
    """The partition of a row."""
    return rows.TABLES[table].partition(key, PARTITIONS)

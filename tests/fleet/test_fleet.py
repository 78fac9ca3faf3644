"""A fleet on a real broker equals a fold of its facts, whatever happens to its members.

The tests share one fleet: each begins with the members `a` and `b` running, and adds facts. Equal
means byte for byte: the rows in the stores of owners and standbys, and the rows that the
changelogs restore.
"""

import json
import shutil
import signal
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from foldlog.fleet import answers, rows
from foldlog.fleet.crash_points import POINTS
from foldlog.fleet.member import changelog_of
from foldlog.log.partition import partition_for
from foldlog.schemas.facts import encode_fact
from foldlog.tests.fleet.facts import AT, History, fold
from foldlog.tests.fleet.members import PARTITIONS, Member, fleet
from foldlog.tests.fleet.story import USERS, Story, place_of
from foldlog.tests.kit.programs import ended
from foldlog.tests.kit.waiting import joined, until

pytestmark = [pytest.mark.broker, pytest.mark.crash]


class Viewer(threading.Thread):
    """Asks two members in turn for all sessions, and remembers answers that are older than an
    earlier one: a session that is missing, or that has fewer turns."""

    def __init__(self, members: list[Member]) -> None:
        super().__init__(daemon=True)
        self.over, self.count, self.older = threading.Event(), 0, []
        self._members, self._turns = members, {}

    def run(self) -> None:
        for _ in range(2_000):  # more than the test takes
            if self.over.wait(0.2):
                return
            self._members.reverse()
            page = self._members[0].get("/fleet/sessions?limit=1000")
            if page is not None:
                self.count += 1
                turns = {row["session_id"]: row["turns"] for row in page["sessions"]}
                less = [n for n in self._turns if turns.get(n, -1) < self._turns[n]]
                self.older += [(self._members[0].name, less)] if less else []
                self._turns = turns


@pytest.fixture(scope="module")
def story(broker, tmp_path_factory) -> Iterator[Story]:
    with fleet(broker.bootstrap_servers, tmp_path_factory.mktemp("fleet"), forked=True) as here:
        yield Story(here)


def test_every_member_answers_for_every_key(story: Story) -> None:
    """Facts of unknown types, repeated, misplaced and undecodable ones are among them."""
    here = story.here
    story.more(150)
    value, _ = encode_fact(here.facts[3])
    here.write_records([
        ("user-0", value[:2] + b"12345678", [("t", b"NEW_FACT")]), ("user-0", b"junk", []),
        ("user-0", None, []), (None, b"", []),
    ])
    repeated = [fact for fact in here.facts if fact.partition == here.facts[9].partition]
    here.write(repeated[4:])
    here.write_records([("user-0", *encode_fact(here.facts[0]))], partition=(
        partition_for(here.facts[0].user_id, PARTITIONS) + 1) % PARTITIONS)
    members = story.running("a", "b")
    expected = fold(here.facts, PARTITIONS)
    for member in members:
        assert sorted(member.owned()) != list(range(PARTITIONS))
        for user in USERS:
            page = member.get(f"/fleet/users/{user}/sessions")
            assert page["sessions"] == sessions_of(expected, user) and page["next"] is None
        everyone = member.get("/fleet/sessions?limit=5")
        every = sorted((r for u in USERS for r in sessions_of(expected, u)), key=answers.place)
        assert (everyone["sessions"], everyone["total"]) == (every[:5], len(every))
        following = member.get(f"/fleet/sessions?limit=5&after={everyone['next']}")
        assert following["sessions"] == every[5:10]
        inbox = member.get("/fleet/inbox")["entries"]
        assert len(inbox) == sum(len(member.get(f"/fleet/users/{user}/inbox")["entries"])
                                 for user in USERS)
        assert {entry["user_id"] for entry in inbox} <= set(USERS) and inbox
        demand_hours(member, expected)
        assert member.get("/fleet/users/nobody/sessions")["sessions"] == []
        assert member.code("/fleet/sessions?limit=0") == 400
        assert member.code("/fleet/hours?scope=all&from=1&to=99999999") == 400
        assert member.code("/readyz") == 200
    unknown = [member.status()["unknown_facts"] for member in members]
    # A partition that moves before its commit is read by both members, and counted once by each.
    for name, count in {"NEW_FACT": 1, "none": 3, "misplaced": 1}.items():
        counts = [found.pop(name, 0) for found in unknown]
        assert max(counts) <= count <= sum(counts), (name, counts)
    assert not any(unknown)
    story.demand_equal()


def sessions_of(tables, user: str) -> list[dict]:
    found = [
        answers.session(rows.decoded(rows.SESSIONS, value))
        for (table, key), value in tables.items()
        if table == rows.SESSIONS and rows.session_of(key)[0] == user
    ]
    return json.loads(json.dumps(sorted(found, key=answers.place)))


def demand_hours(member: Member, tables) -> None:
    """The hours of a scope and their sum over partitions are those of the facts' own times."""
    first, last = AT // rows.HOUR_MS, AT // rows.HOUR_MS + 8
    for scope, value in ((rows.ALL, ""), (rows.AGENT, "agent-1"), (rows.MODEL, "model-0"),
                         (rows.USER, "user-3")):
        path = f"/fleet/hours?scope={scope}&value={value}&from={first}&to={last}"
        page = member.get(path)
        for number, shown in enumerate(page["hours"]):
            total = rows.HourRow()
            for (table, key), stored in tables.items():
                if table == rows.HOURS:
                    cell = rows.cell_of(key)
                    if (cell.scope, cell.value, cell.hour) == (scope, value, first + number):
                        total.add(rows.decoded(rows.HOURS, stored))
            assert shown == answers.cell(total), (path, number)
        assert page["first_hour"] == first
    assert member.get(f"/fleet/hours?scope=agent&value=x&to={last}")["names"] == [
        "agent-0", "agent-1"
    ]


@pytest.mark.timeout(240)  # a start for each crash point
def test_a_member_killed_at_each_of_its_steps(story: Story) -> None:
    members = story.running("a", "b")
    viewer = Viewer(list(members))
    viewer.start()
    member = story.here.member("a")
    for point in POINTS:
        member.kill()
        member.start(crash=f"{point}:{1 if 'restore' in point else 2}")
        until(point, lambda: story.more(12) or member.process.poll() is not None,
              show=story.here.report)
        assert member.kill() == -signal.SIGKILL, point
    story.running("a", "b")
    viewer.over.set()
    joined(viewer)
    assert viewer.count and not viewer.older
    story.demand_equal()


@pytest.mark.timeout(240)
def test_the_standby_takes_over_and_a_third_member_gets_a_share(story: Story) -> None:
    _, other = story.running("a", "b")
    lost = set(other.owned())
    other.kill()
    story.more()
    (survivor,) = story.running("a")
    assert lost <= set(survivor.owned())
    members = story.running("a", "b", "c")
    story.more()
    story.here.await_folded()
    expected = fold(story.here.facts, PARTITIONS)
    for member in members:
        for user in USERS:
            page = member.get(f"/fleet/users/{user}/sessions")
            assert page["sessions"] == sessions_of(expected, user)
    story.demand_equal()


@pytest.mark.timeout(240)
def test_a_lost_disk_poison_in_every_changelog_and_a_wrong_clock(story: Story) -> None:
    """A member starts with an empty disk and a clock an hour behind, and restores changelogs that
    contain records that are no rows. Facts are from other hours than any clock shows."""
    here = story.here
    story.more(150)
    story.running("a", "b")
    for name in ("a", "b"):
        here.members[name].kill()
    expected = fold(here.facts, PARTITIONS)
    old = fold(here.facts[: len(here.facts) // 2], PARTITIONS)
    for table in rows.TABLES:
        key = next(
            key for (kind, key), value in old.items()
            if kind == table and value != expected[kind, key]
        )  # fmt: skip
        place = place_of(table, key)
        here.write_records([
            (key, b"junk", []), (key, None, []), (b"\xff\xfe", b"junk", []),
            (b"__faust\0offset__", b"999999999", []), (key, old[table, key], []),
        ], changelog_of(table), place)  # fmt: skip
    member = here.member("a")
    shutil.rmtree(member.directory)
    member.start(shift_s=-3600)
    here.await_folded()
    assert all(count >= 4 for count in member.status()["damaged_records"].values())
    story.more()
    here.await_folded()
    demand_hours(member, fold(here.facts, PARTITIONS))
    shutil.rmtree(here.member("b").directory)
    story.running("a", "b")
    story.demand_equal()


def test_a_member_without_a_disk_says_so(story: Story, tmp_path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    member = Member(story.here.settings, "d", in_the_way / "fleet")
    member.stderr = tmp_path / "stderr"
    member.start()
    assert ended(member.process) == 2
    assert member.said().count("\n") == 1 and "FOLDLOG_FLEET_DIR" in member.said()


def test_a_row_that_kafka_refuses_ends_the_member_before_its_commit(broker, tmp_path) -> None:
    """Faust alone commits the fact, and its changelog lacks the row for ever."""
    with fleet(broker.bootstrap_servers, tmp_path, forked=True) as here:
        topic = here.settings.topic(changelog_of(rows.SESSIONS))
        limit_batches(broker.bootstrap_servers, topic, 200)
        member = here.member("a")
        here.write(History(3).facts(20))
        member.start()
        assert ended(member.process) == 1
        assert "Kafka refused a row" in member.said() and "Traceback" not in member.said()
        limit_batches(broker.bootstrap_servers, topic, 1_048_588)
        member.process = None
        member.start()
        here.await_folded()
        until("rows", lambda: member.status()["pending_rows"] == 0)
        assert here.restored() == fold(here.facts, PARTITIONS)


def limit_batches(servers: str, topic: str, size: int) -> None:
    """Set the largest batch that a topic accepts, in bytes."""
    entry = ConfigEntry(
        "max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)

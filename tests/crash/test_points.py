"""kill -9 at every crash point: the conversation continues; nothing is lost, repeated or leaked.

Each test is one round. Five people talk at once: a streaming answer, parallel calls of each kind,
an approval and a denial, a cancel, and a steer (or four people whose sessions compact). The worker
is killed at the point, another worker takes over, every turn ends, and every witness checks the
result. `make soak` plays the same rounds at random.

The gate plays one round of each path: the steps of an effect are the same code for every role.
"""


import pytest

from foldlog.processors import crash_points
from foldlog.schemas import events as ev
from foldlog.tests.crash.rig import replay_differs
from foldlog.tests.crash.rounds import ALL_POINTS, CAST, KEEPERS, PUSHED, WORKERS, Play

pytestmark = [pytest.mark.broker, pytest.mark.crash]

# Points that are also tested at a later pass: between two records of one decision, in the
# middle of a stream, in the claim of a takeover, in the second of two outcomes.
LATER = (
    "poll.records:5",
    "store.written:3",
    "sessions.wrote:2",
    "models.wrote:3",
    "tools.wrote:2",
    "models.chunk:4",
    "tools.ended:2",
    "partition.taking:5",
    "start.outbox:2",
    "background.ended:2",
    "background.kept:4",
)
# By default, five people talk; these points need others, or fewer are enough.
CASTS = {
    "tools.kept": ("twice", "approve", "big"),
    "tools.sent": ("twice", "approve", "wire"),
    "models.sent": ("queue", "interrupt", "tools"),
    "models.begin": ("queue", "interrupt", "steer"),
    "outside aside": ("brim",),
    "background.ended:2": ("signed", "haul"),
    "background.delivered": ("signed", "shorts", "patient"),
}

USUAL = {"background": KEEPERS, "delivery": PUSHED}
STEPS = ("begin", "wrote", "ended", "kept", "sent", "delivered", "done")  # of an effect, by role
# The steps that the gate plays, besides every step of a tool call.
STEPS_PLAYED = (
    "sessions.wrote", "sessions.wrote:2", "models.kept", "background.kept", "delivery.begin",
)
LEFT_OUT = (
    *(f"{role}.{step}" for role in WORKERS if role != "tools" for step in STEPS),
    *LATER,
    *("poll.records", "partition.held", "snapshot.checkpoint", "snapshot.fetched"),
    *("tool pay before", "tool pay after", "tool put before", "tool wire before"),
    "outside aside",
)


def _is_played(at: str) -> bool:
    return at not in LEFT_OUT or at in STEPS_PLAYED


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(at, marks=() if _is_played(at) else pytest.mark.full)
        for at in (*ALL_POINTS, *LATER)
    ],
)
def test_S2_9_killed_at(at, rig):
    with rig.round() as (stage, handle):
        usual = USUAL.get(at.partition(".")[0], CAST)
        played = Play(stage, handle, at, CASTS.get(at, usual)).run()
        assert played.wrong == []
        assert at.partition(":")[0] in [kill.at for kill in played.kills]


@pytest.mark.parametrize("step", ["kept", pytest.param("sent", marks=pytest.mark.full)])
@pytest.mark.parametrize("at", ["tools.{}:3", "models.{}:2"])
def test_S2_8_an_outcome_on_disk_is_not_requested_again(at, step, rig):
    # One person alone: the third outcome is that of a `once` tool, and nothing else is running.
    with rig.round() as (stage, handle):
        play = Play(stage, handle, at.format(step), ("tools",))
        assert play.run().wrong == []
        (person,) = play.people
        assert person.watched.counted(ev.ToolFailedUncertain) == []
        assert person.watched.counted(ev.GenResumed) == []
        calls = stage.server.journal.entries("accepted", canary=person.session_id)
        assert [call["attempt"].rpartition(".")[2] for call in calls] == ["1", "1", "1"]


def test_S2_11_after_all_kills_a_refold_from_offset_0_equals_the_store(rig):
    with rig.round() as (stage, handle):
        if handle.active is None:
            Play(stage, handle, "models.chunk:1").run()
        assert replay_differs(stage) == []
        assert handle.stuck() == {}


def test_every_point_of_the_code_has_a_round():
    assert set(crash_points.POINTS) <= set(ALL_POINTS)

"""The scenarios, as data: the faults and habits of which a schedule consists.

The dangerous scenarios have the most weight: takeovers, two workers that take partitions from each
other, and races with the end of a turn.
"""

from typing import NamedTuple

from foldlog.processors.fold.projections.partition import ROLES

DELAYS = {"cut_off", "claim_overtaken", "late", "lost"}


class Scenario(NamedTuple):
    """One kind of schedule.

    roles: the roles of those nodes that do not have all roles. upgrades: a restarted worker may
    load a newer agent. commands: the number of commands of each person. habits: the weights of the
    commands. reacts: the chance that a person reacts to an event at once. fates: the chance of each
    thing that may happen to a record. fault_every_ms: the mean time between faults. at_tools: some
    faults strike only while an effect is at work; of these, the share that waits until the effect
    is a tool. overlap: every worker believes that it owns all partitions. probes: the chance that
    law 9 is also checked at invented views. compacts: messages, results and budgets are so large
    that summaries and short forms are made and adopted. pushes: messages also come by push
    channels. resumes: answers are long, and are resumed in every world. unchecked: the names of
    invariants that expect each session to consist of its own records, all of which count.
    """

    name: str
    weight: int
    why: str
    nodes: tuple[str, ...] = ("w1", "w2")
    roles: dict[str, tuple[str, ...]] = {}
    partitions: tuple[int, ...] = (1, 1, 2)
    sessions: tuple[int, ...] = (1, 1, 2, 3)
    commands: tuple[int, ...] = (4, 6, 9)
    habits: dict[str, float] = {}
    reacts: float = 0.15
    tastes: dict[str, float] = {}
    tools: tuple[str, ...] = ()
    skew: bool = True
    fault_every_ms: int = 0
    faults_max: int = 0
    faults: dict[str, float] = {}
    fates: dict[str, float] = {}
    at_tools: float = 0.5
    overlap: bool = False
    upgrades: bool = False
    compacts: bool = False
    pushes: bool = False
    resumes: bool = False
    unchecked: tuple[str, ...] = ()
    probes: float = 0.3

    @property
    def delays(self) -> bool:
        """Whether records may be in flight for so long that workers take them for lost."""
        return bool(DELAYS & (self.faults.keys() | self.fates.keys()))


HABITS = {
    "say": 8,
    "queue": 2,
    "steer": 2,
    "interrupt": 2,
    "say_again": 1,
    "say_wrongly": 1,
    "open_again": 0.5,
    "cancel": 4,
    "trigger": 2,
    "lock": 1,
    "decide": 1,
    "resolve": 1,
    "terminate": 0.3,
    "garbage": 0.5,
    "forge": 0.5,
    "flood": 0.03,
}
TALK = {"say": 8, "queue": 1, "cancel": 1, "steer": 1}
REFOLDS = {"fork": 2, "poison": 0.7, "skip": 3}
FORKS = {"say": 6, "cancel": 1, "trigger": 3, "lock": 1, "decide": 1, **REFOLDS}
RACES = {"say": 8, "steer": 3, "interrupt": 3, "cancel": 6, "terminate": 0.5, "decide": 1}
LONG = {"queue": 12, "steer": 1, "interrupt": 0.3, "cancel": 0.7, "terminate": 0.05}
KILLS = {"kill": 2, "kill_soon": 4, "kill_at": 3, "kill_effect": 5, "shut_down": 1}
PAUSES = {
    "freeze_at_work": 5,
    "pause": 2,
    "stall_poll": 2,
    "stall_effects": 2,
    "cut_off": 2,
    "clock_steps": 0.5,
}
MOVES = {"move": 2, "move_unnoticed": 2, "flap": 2, "claim_overtaken": 4}
SLOW = {"slow": 0.3}
BAD = {"late": 0.02, "slow": 0.3, "twice": 0.03, "unacknowledged": 0.02, "lost": 0.01}
ONCE = ("charge", "order", "wire", "build_and_deploy")
AGAIN = ("look", "put", "peek", "complete")

SCENARIOS = (
    Scenario(
        "conversation",
        5,
        "one worker, no faults: the commands of people and their races",
        nodes=("w1",),
        habits=HABITS,
        skew=False,
    ),
    Scenario(
        "forks",
        3,
        "sessions are forked; frozen ones continue without a record; all of it under the rules of "
        "the state",
        habits=FORKS,
        skew=False,
        unchecked=(
            "AnswersAreShownOnce",
            "CancelEndsInTime",
            "EveryRefusalIsAnsweredOnce",
            "LedgerCountsOnce",
            "MessagesAreSentOnce",
            "TranscriptIsComplete",
            "TurnEndsNameTheState",
        ),
    ),
    Scenario(
        "kills",
        15,
        "processes die between any two actions and come back",
        habits=HABITS,
        faults={**KILLS, "store_lost": 0.5, "store_behind": 1},
        fault_every_ms=8_000,
        faults_max=6,
        fates=SLOW,
    ),
    Scenario(
        "takeovers",
        25,
        "owners die or pause in the middle of effects, the other takes over (T5, T6, S3)",
        habits=TALK,
        tastes={"calls": 0.7, "hangs": 0.1, "slow": 0.4},
        faults={**KILLS, **PAUSES, **MOVES},
        fault_every_ms=10_000,
        faults_max=8,
        fates=SLOW,
        reacts=0.05,
    ),
    Scenario(
        "zombies",
        15,
        "paused past deadlines, then running on in the belief of owning the partition",
        habits=TALK,
        tastes={"calls": 0.6, "slow": 0.5, "pings": True},
        faults={**PAUSES, **MOVES},
        fault_every_ms=10_000,
        faults_max=8,
        fates={"slow": 0.3, "late": 0.02},
    ),
    Scenario(
        "overtaken",
        10,
        "claims that land after another has taken the partition: void, never begun (T5, T6v, S3)",
        habits=TALK,
        tastes={"calls": 0.85, "odd": 0.05},
        faults={"claim_overtaken": 8, "pause": 1, "kill_effect": 1, "stall_poll": 1},
        fault_every_ms=8_000,
        faults_max=10,
        fates=SLOW,
        reacts=0.05,
    ),
    Scenario(
        "mutual",
        15,
        "both workers believe that they own all partitions and take them from each other",
        habits=HABITS,
        tastes={"calls": 0.7},
        faults={**KILLS, **PAUSES},
        fault_every_ms=10_000,
        faults_max=4,
        fates=SLOW,
        overlap=True,
    ),
    Scenario(
        "ends",
        15,
        "all races with TURN_ENDED: cancel, interrupt, steer, terminate, late outcomes",
        habits=RACES,
        commands=(6, 9, 12),
        reacts=0.3,
        tastes={"calls": 0.8, "hangs": 0.1, "slow": 0.3},
        faults={"kill_at": 2, "freeze_at_work": 2, "stall_poll": 1, "cut_off": 2, "move": 1},
        fault_every_ms=10_000,
        faults_max=4,
        fates={"slow": 0.4, "late": 0.03},
    ),
    Scenario(
        "once",
        15,
        "tools that must not happen twice: approvals, doubts, reconcilers, people",
        habits=TALK,
        commands=(6, 9, 12),
        tools=ONCE,
        tastes={"calls": 0.85, "odd": 0.05},
        faults={**KILLS, "kill_effect": 12, **PAUSES, "freeze_at_work": 8, **MOVES},
        at_tools=0.9,
        fault_every_ms=10_000,
        faults_max=10,
        fates=SLOW,
        reacts=0.05,
    ),
    Scenario(
        "again",
        10,
        "tools that may be repeated: attempts that are lost, repeated and used up (T5r, T6r)",
        habits=TALK,
        tools=AGAIN,
        tastes={"calls": 0.85, "odd": 0.05},
        faults={**KILLS, "kill_effect": 12, **PAUSES, "freeze_at_work": 8, **MOVES},
        at_tools=0.9,
        fault_every_ms=10_000,
        faults_max=8,
        fates=SLOW,
        reacts=0.05,
    ),
    Scenario(
        "delivery",
        15,
        "records that come late, twice, unacknowledged or not at all",
        habits=HABITS,
        tastes={"calls": 0.7},
        faults={"replay": 6, "cut_off": 2, "kill_soon": 1},
        fault_every_ms=5_000,
        faults_max=12,
        fates=BAD,
    ),
    Scenario(
        "stores",
        5,
        "stores that are lost, or older than the log",
        habits=HABITS,
        faults={"store_lost": 2, "store_behind": 4, "store_foreign": 3, "kill_soon": 1, "move": 2},
        fault_every_ms=8_000,
        faults_max=8,
        fates=SLOW,
    ),
    Scenario(
        "snapshots",
        5,
        "stores that are loaded from snapshots of other workers",
        habits=HABITS,
        faults={"store_loaded": 6, "store_lost": 1, "kill_soon": 1, "move": 3, "move_unnoticed": 1},
        fault_every_ms=6_000,
        faults_max=10,
        fates=SLOW,
    ),
    Scenario(
        "roles",
        10,
        "one process decides, others run the effects",
        nodes=("w1", "w2", "w3"),
        roles={
            "w1": ("sessions",),
            "w2": ("models", "tools", "background"),
            "w3": ("models", "tools", "background"),
        },
        habits=HABITS,
        tastes={"calls": 0.8},
        faults={**KILLS, **PAUSES, **MOVES, "store_behind": 0.5},
        fault_every_ms=8_000,
        faults_max=8,
        fates=SLOW,
    ),
    Scenario(
        "upgrade",
        10,
        "a restarted worker has a newer agent: another prompt, fewer tools",
        habits=HABITS,
        tastes={"calls": 0.8},
        faults={**KILLS, "shut_down": 3, "move": 2},
        fault_every_ms=8_000,
        faults_max=8,
        fates=SLOW,
        upgrades=True,
    ),
    Scenario(
        "crowd",
        10,
        "three workers, and partitions that move between them",
        nodes=("w1", "w2", "w3"),
        partitions=(2, 3),
        sessions=(2, 3, 4),
        habits=HABITS,
        tastes={"calls": 0.7},
        faults={**KILLS, **PAUSES, **MOVES, "move": 6, "store_behind": 0.5},
        fault_every_ms=5_000,
        faults_max=12,
        fates=SLOW,
    ),
    Scenario(
        "compaction",
        20,
        "long sessions: background work is killed anywhere, aborted, taken over, awaited",
        sessions=(1, 1, 2),
        commands=(14, 20),
        habits=LONG,
        tastes={"calls": 0.75, "odd": 0.02, "ends": 0.05, "fails": 0.05, "hangs": 0.02},
        tools=("page", "page", "look", "put", "complete"),
        faults={**KILLS, **PAUSES, **MOVES, "kill_background": 6, "store_behind": 0.5},
        at_tools=0.2,
        fault_every_ms=20_000,
        faults_max=8,
        fates=SLOW,
        reacts=0.05,
        compacts=True,
    ),
    Scenario(
        "compaction_alone",
        10,
        "long sessions without a fault: nothing waits for background work",
        nodes=("w1",),
        sessions=(1, 2),
        commands=(16, 22),
        habits=LONG,
        tastes={"calls": 0.75, "odd": 0.02, "ends": 0.05},
        tools=("page", "page", "look", "complete"),
        skew=False,
        reacts=0.05,
        compacts=True,
    ),
    Scenario(
        "pushed",
        15,
        "answers for push channels: refused, lost, taken over, sent again",
        roles={"w1": ROLES, "w2": ROLES},
        habits=TALK,
        tastes={"calls": 0.3, "odd": 0.05},
        faults={**KILLS, **PAUSES, **MOVES, "store_behind": 0.5},
        at_tools=0.1,
        fault_every_ms=6_000,
        faults_max=10,
        fates=SLOW,
        reacts=0.05,
        pushes=True,
    ),
    Scenario(
        "resumed",
        10,
        "long answers whose owner dies or pauses in the middle: the next one continues",
        habits={"say": 8, "queue": 1, "cancel": 0.5, "steer": 0.5},
        tastes={
            "calls": 0.3, "long": 0.8, "odd": 0.02, "fails": 0.03, "hangs": 0.02, "pings": True,
        },
        faults={"kill_streaming": 6, "freeze_streaming": 6, "kill_at": 1, "pause": 1, **MOVES},
        at_tools=0.0,
        fault_every_ms=8_000,
        faults_max=12,
        fates=SLOW,
        reacts=0.05,
        resumes=True,
    ),
    Scenario(
        "chaos",
        25,
        "everything together",
        habits=HABITS,
        tastes={"calls": 0.7, "hangs": 0.1, "fails": 0.15},
        faults={
            **KILLS,
            **PAUSES,
            **MOVES,
            "store_lost": 0.5,
            "store_behind": 1,
            "store_foreign": 0.5,
            "replay": 2,
        },
        fault_every_ms=8_000,
        faults_max=12,
        fates=BAD,
    ),
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
_DRAWN = [scenario for scenario in SCENARIOS for _ in range(scenario.weight)]


def of_seed(seed: int) -> Scenario:
    """The scenario of a seed. Among consecutive seeds, each scenario occurs in proportion to its
    weight."""
    return _DRAWN[seed * 67 % len(_DRAWN)]  # 67 is prime to the sum, so neighbours differ

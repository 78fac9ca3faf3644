"""The simulated world: one clock, one log, machines, people, and faults.

A schedule is a sequence of indivisible actions. At each step, every actor offers its possible
actions, chance picks one of them, and the witness folds the records that follow. If no actor has an
action, the clock jumps to the next time at which an actor has one. The same seed results in the
same schedule on every machine.
"""

from collections import Counter
from random import Random
from typing import Any, NamedTuple

from foldlog.log.memory import MemoryLog
from foldlog.processors.effects.ports import BeginTool
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.wake.budget import Rules
from foldlog.processors.wake.decide import rules_of
from foldlog.schemas.topics import topics
from foldlog.tests.kit.blobs import MemoryBlobs
from foldlog.tests.kit.invariants import Violation
from foldlog.tests.simulation.agents import TOOLS, a_compacting_agent, an_agent, newer
from foldlog.tests.simulation.answers import Tastes
from foldlog.tests.simulation.fates import Group, LogFaults
from foldlog.tests.simulation.faults import Faults
from foldlog.tests.simulation.node import ROLES, Node
from foldlog.tests.simulation.resumed import recovering
from foldlog.tests.simulation.scenarios import Scenario
from foldlog.tests.simulation.users import Users
from foldlog.tests.simulation.witness import Witness

STEPS_MAX = 12_000  # a schedule that needs more steps is in a loop
LINGER_MS = 100_000  # longer than most effects take
LINGER_STEPS = 250
CALM_MS = 48 * 3600 * 1000  # after the faults: longer than any deadline of any agent


class Execution(NamedTuple):
    """One line of the tools' ledger: a physical execution. `claim`: the offset of its
    TOOL_STARTED."""

    session_id: str
    call: str
    attempt: int
    effect: str
    at: int
    owner: str
    claim: int


class World:
    """One world, see the module docstring. `run` raises Violation."""

    def __init__(self, seed: int, scenario: Scenario, invariants: list) -> None:
        self.seed, self.scenario = seed, scenario
        self.rng = Random(f"{scenario.name} {seed}")
        self.rng_checks = Random(seed)  # separate, so that a check changes no schedule
        self.now = 1_700_000_000_000
        self.stats: Counter[str] = Counter()
        self.notes: list[tuple[int, str]] = []
        self.steps = self.answers = 0
        self.calm = self.brink = self._late_answers = False
        self.blobs = MemoryBlobs(self.rng.choice((64, 64 * 1024, 64 * 1024)))
        made = (a_compacting_agent if scenario.compacts else an_agent)(self.rng)
        self.agent = recovering(made, seed, always=scenario.resumes)
        self.newer_agent = newer(self.agent)
        self.model_slots = self.rng.choice((1, 16, 16))
        self.tool_slots = self.rng.choice((2, 32, 32))
        names = [tool.name for tool in TOOLS]
        self.tastes = Tastes(tools=scenario.tools or tuple(names), **scenario.tastes)
        self.broker_skew = self.rng.choice((0, 0, -4_000, 4_000)) if scenario.skew else 0
        self.partitions = self.rng.choice(scenario.partitions)
        self.log_faults = LogFaults(self)
        self.log = MemoryLog(
            topics(self.partitions),
            clock_ms=lambda: self.now + self.broker_skew,
            faults=self.log_faults,
        )
        self.executions: list[Execution] = []
        self.received: list[tuple[str, int, int, str]] = []  # what push channels received, in order
        self.requests: dict[str, list[tuple[int, bytes]]] = {}
        self.nodes = [self._node(name) for name in scenario.nodes]
        self.group = Group(self)
        self.users = Users(self)
        self.faults = Faults(self)
        self.witness = Witness(self)
        checked = [one for one in invariants if one.__name__ not in scenario.unchecked]
        self.invariants = [make(self) for make in checked]

    def is_dead(self, owner: str) -> bool | None:
        """Whether the process of an owner has ended, as a file lock shows on one machine. Returns
        None in three of four worlds, where each worker has its own machine and a lock shows
        nothing."""
        if self.seed % 4:
            return None
        alive = self.is_alive(owner)
        self.stats[f"lock {'held' if alive else 'free'}"] += 1
        return not alive

    def rules_for(self, views: SessionViews) -> Rules | None:
        """The rules of a session's agent, or None if no worker has that agent."""
        return rules_of(self.agent) if views.turn.agent == self.agent.name else None

    def is_alive(self, owner: str) -> bool:
        """Whether the process of an owner exists, paused or not."""
        return any(node.process and node.process.owner == owner for node in self.nodes)

    def _node(self, name: str) -> Node:
        skew = self.rng.choice((0, 0, -4_000, -1_000, 500, 4_000)) if self.scenario.skew else 0
        roles = self.scenario.roles.get(name, ROLES)
        return Node(self, name, roles, skew, self.rng.randrange(10**9))

    # -- chance ----------------------------------------------------------------------------------

    def batch(self) -> int:
        """The number of records that a poll returns."""
        return self.rng.choice((0, 1, 1, 2, 5, 1000, 1000))

    def down_ms(self) -> int:
        """The time until a killed worker restarts."""
        return self.rng.choice((50, 50, 1_000, 8_000, 30_000, 200_000))

    # -- notifications to the invariants ---------------------------------------------------------

    def note(self, text: str) -> None:
        """Add a line to the tail of the history."""
        self.notes.append((self.now, text))

    def produced(self, process: Any, number: int, key: str, value: bytes, kind: bytes) -> None:
        """Called when a worker passes a record of this type to its producer."""
        self.witness.advance()
        for invariant in self.invariants:
            invariant.on_produced(process, number, key, value, kind)

    def assigned(self, process: Any, partitions: list[int]) -> None:
        """Called before partitions are assigned to a worker."""
        self.witness.advance()
        for invariant in self.invariants:
            invariant.on_assigned(process, partitions)

    def round_ended(self, process: Any) -> None:
        """Called when a worker has finished a round."""
        self.witness.advance()
        for invariant in self.invariants:
            invariant.on_round(process)

    def begun(self, role: str, process: Any, session_id: str, begin: Any) -> None:
        """Called when an effect begins."""
        self.witness.advance()
        self.note(f"{process.owner} begins {role} {session_id} of claim {begin.claim.offset}")
        for invariant in self.invariants:
            invariant.on_begun(role, process, session_id, begin)
        if process.node.on_begun is not None:
            process.node.on_begun(role)

    def reconciled(self, process: Any, session_id: str, begin: BeginTool) -> None:
        """Called before a worker reconciles a call of another owner."""
        self.witness.advance()
        self.note(f"{process.owner} reconciles {session_id} {begin.call.key}")
        for invariant in self.invariants:
            invariant.on_reconciled(process, session_id, begin)

    def executed(self, process: Any, session_id: str, begin: BeginTool) -> None:
        """Called when a tool acts on the world. Adds one line to the ledger."""
        self.witness.advance()
        call = begin.call
        line = Execution(
            session_id,
            call.key,
            call.attempt,
            call.effect,
            self.now,
            process.owner,
            begin.claim.offset,
        )
        self.note(f"{process.owner} executes {session_id} {call.key} attempt {call.attempt}")
        self.executions.append(line)
        for invariant in self.invariants:
            invariant.on_executed(line)

    def has_executed(self, session_id: str, call: str) -> bool:
        """Whether the ledger has a line for the call."""
        return any(e.session_id == session_id and e.call == call for e in self.executions)

    # -- the schedule ----------------------------------------------------------------------------

    def step(self) -> bool:
        """Run one action, or let the clock jump. Returns False if no action will ever be possible
        again."""
        offers: list[tuple[float, Any]] = []
        for node in self.nodes:
            before = len(offers)
            node.offers(offers)
            for n in range(before, len(offers)):
                weight, action = offers[n]
                offers[n] = (weight, lambda node=node, action=action: node.run(action))
        for actor in (self.group, self.users, self.faults):
            actor.offers(offers)
        if not offers:
            return self._jump()
        self.steps += 1
        pick = self.rng.choices(offers, [weight for weight, _ in offers])[0]
        pick[1]()
        self.settle()
        self.now += self.rng.choice((0, 0, 1, 1, 2, 5, 20))
        return True

    def settle(self) -> None:
        """Append the records that are due, acknowledge them, and let the witness fold them."""
        if self.log.waiting or self._late_answers:
            self._late_answers = bool(self.log.waiting)  # a poll may append the last of them
            self.log.pump()
        self.witness.advance()

    def _jump(self) -> bool:
        if any(at <= self.now for at in self.log_faults.next_at()):
            self.settle()  # a record that is due since the clock moved on after the last action
            return True
        times = [at for node in self.nodes for at in node.next_at()]
        for actor in (self.group, self.users, self.faults, self.log_faults):
            times += actor.next_at()
        later = [at for at in times if at > self.now]
        if not later:
            return False
        gap = min(later) - self.now
        for invariant in self.invariants:
            invariant.on_jump(gap)
        self.now += gap
        self.settle()
        return True

    def run(self) -> None:
        """Run the whole schedule: with faults, then without them, then the last requests of
        people."""
        while not (self.users.done() and self.faults.done()):
            if self.steps > STEPS_MAX:
                break  # the calm that follows finds a worker that loops
            if not self.step():
                break
        self.linger()
        self.be_calm()
        self.users.answer_everything()
        self.run_calm()
        self.users.say_last_words()
        self.run_calm()
        for invariant in self.invariants:
            invariant.at_end()

    def linger(self) -> None:
        """Let the pending work continue for a while, with models and tools as before."""
        until, steps = self.now + LINGER_MS, self.steps + LINGER_STEPS
        while self.now < until and self.steps < steps and self.step():
            pass

    def be_calm(self) -> None:
        """End all faults; both workers continue."""
        self.calm = True
        self.faults.heal()
        self.group.heal()
        self.run_calm()

    def run_calm(self) -> None:
        """Run until no action is possible. The virtual time for this is limited."""
        end, steps = self.now + CALM_MS, self.steps
        while self.now < end and self.step():
            if self.steps - steps > STEPS_MAX:
                raise Violation("Liveness", f"still busy after {STEPS_MAX} steps without a fault")
        for invariant in self.invariants:
            invariant.when_calm()

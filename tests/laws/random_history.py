"""Random histories, mostly legal, over which all laws are checked.

People, workers, models and tools act in any order. Worker events discharge the obligations of WAKE
through the real decide and Actions. The worker decides at the present view or at an old one. At an
old view, its event is late or stale, or the worker is a zombie that has not read of the newer
owner. `forged` adds events that no correct worker writes.
"""

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from foldlog.local.messages_api.binding import Prefix
from foldlog.processors.request.build import request_bytes
from foldlog.processors.request.layers import Layer, Layers
from foldlog.processors.wake.budget import Rules
from foldlog.processors.wake.decide import rules_of
from foldlog.processors.wake.facts import wake
from foldlog.schemas import events as ev
from foldlog.schemas.attachments import reference
from foldlog.schemas.codec import encode
from foldlog.tests.kit import answers
from foldlog.tests.kit.agents import LONG, MINUTE, MODELS, STRATEGIES, variant
from foldlog.tests.kit.forged_events import (
    CALLS,
    CONTENTS,
    GRANTS,
    ODD_IDS,
    OWNERS,
    PHASE_TRIGGERS,
    TEXTS,
    ForgedEvents,
)
from foldlog.tests.kit.history import NEEDS_AN_EFFECT, ROLES, Step
from foldlog.tests.kit.signed_thinking import Prefixes
from foldlog.tests.laws.outcomes import Outcomes

ACTS = 80  # acts of a history; each appends no, one or a few events
STEPS_MAX = 400  # records of a history; the time of a law grows with them
LAYERS = (
    Layers(),
    Layers((Layer("project", "FOLDLOG.md", "Write short lines."),)),
    Layers((Layer("core", "memory", "Ana likes tea."),)),
    Layers((Layer("core", "memory", "Ana likes coffee."), Layer("index", "memory", "- tea"))),
)
CHANNELS = ("test", "test", "push:a", "push:a", "push:b")
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x09\0\0\0\x09\x08\x02\0\0\0"  # of 9 x 9 pixels
TEMPERS = ("calm", "failing", "crashing", "crashing", "racing", "long", "long", "long")
PAUSES_MS = (0, 1, 40, 1_000, 6_000, 11_000, MINUTE, 3 * MINUTE, 61 * MINUTE)


class Rolled:
    """Choices that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def pick(self, options: Any) -> Any:
        return self._random.choice(options)

    def chance(self, percent: int) -> bool:
        return self._random.random() * 100 < percent


class RandomHistory(Outcomes):
    """A history that grows at random."""

    def __init__(
        self, choose: Any, forged: bool, more: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.shape: dict[str, Any] = {
            "strategy": choose.pick(STRATEGIES),
            "thinking": choose.pick(("adaptive", "adaptive", "fixed")),
            "provider": choose.chance(25),
            "memory": choose.chance(25),
            "model": choose.pick(MODELS),
            "system": LONG if choose.chance(5) else "Be brief.",
            "phased": True,
            **more,
        }
        super().__init__(agent=variant(**self.shape))
        self.seed: int | None = None
        self.sent: dict[tuple[int, int], bytes] = {}  # the request of each step
        self._requests: dict[tuple[int, int], bytes] = {}
        self.background_requests: list[bytes] = []
        self.bound: dict[tuple[int, int], Prefix] = {}
        self.prefixes = Prefixes()
        self.rules: list[Rules] = []  # of the agent at each step
        self.late: dict[bytes, int] = {}  # value of a late record -> the offset its writer had read
        self.read_to: dict[int, int] = {}  # the same, by the offset of the record
        self.choose, self.forged = choose, forged
        self.forged_events = ForgedEvents(choose)
        acts = [
            (30, self.act_work), (24, self.act_outcome), (12, self.act_say), (5, self.act_decide),
            (3, self.act_cancel), (6, self.act_pause), (4, self.act_stale), (4, self.act_again),
            (4, self.act_take), (4, self.act_chunk), (3, self.act_phase), (1, self.act_other_user),
            (1, self.act_end), (2, self.act_edit), (2, self.act_neighbour),
            (8, self.act_background), (8, self.act_delivery),
        ]
        self.temper = choose.pick(TEMPERS)
        if self.temper == "long":
            acts += [(150, self.act_turn)]
        if self.temper == "crashing":
            acts += [(25, self.act_crash)]
        if self.temper == "racing":
            acts += [(20, self.act_race)]
        if self.agent.recovery == "resume":
            acts += [(20, self.act_lose_stream)]
        if forged:
            acts += [(14, self.act_forge), (3, self.act_garbage)]
        self._acts = tuple(act for weight, act in acts for _ in range(weight))

    def __repr__(self) -> str:
        """What a failing law prints: the seed, and every event with its ruling."""
        lines = [
            f"{step.entry.offset:4} {step.ruling[0]} {step.ruling[1]} {step.entry.event}"
            for step in self.steps
        ]
        return "\n".join([f"RandomHistory(seed={self.seed}, forged={self.forged})", *lines])

    def grow(self, events: int) -> "RandomHistory":
        """Run this many acts. An act appends a few events, one or none."""
        if self.choose.chance(97):
            self.take()
        if self.choose.chance(97):
            self.open()
        for _ in range(events):
            self.choose.pick(self._acts)()
            if len(self.steps) >= STEPS_MAX:
                break
        return self

    def append_raw(self, *args: Any) -> Any:
        """Append a record as in any history, and keep the request of each step."""
        known = len(self.steps)
        ruling = super().append_raw(*args)
        self.rules += [rules_of(self.agent)] * (len(self.steps) - known)
        if (value := args[0]) in self.late:
            self.read_to[self.offset - 1] = self.late[value]
        event = self.steps[-1].entry.event if len(self.steps) > known else None
        if ruling.accepted and isinstance(event, ev.LlmCalled):
            place = (event.turn, event.step)
            self.sent[place] = self.request_at(self.steps[-1])
        return ruling

    def decided_at(self, step: Step) -> int:
        """The newest offset that the writer of a step's event had read when it made the
        decision."""
        return self.read_to.get(step.entry.offset, step.entry.offset - 1)

    def request_at(self, step: Step) -> bytes:
        """The newest request of a step's own views, built once for all laws. The laws compare it
        with requests that are built from stored views or from later ones, or that continue an
        earlier request."""
        context, compaction = step.views.context, step.views.compaction
        of = (id(context), id(compaction))  # unique, because the steps keep both objects alive
        if of not in self._requests:
            self._requests[of] = request_bytes(step.views, self.blobs.read)
        return self._requests[of]

    # -- workers ---------------------------------------------------------------------------------

    def act_work(self) -> None:
        for _ in range(self.choose.number(1, 6)):
            todo = [
                owed
                for owed in self.owed()
                if owed.owed not in ("begin", "wait") and self.holders.holder(owed.role)
            ]
            if not todo:
                return
            self.do(self.choose.pick(todo))

    def act_stale(self) -> None:
        """A worker that still has an old view discharges one of the view's obligations now."""
        if not self.steps:
            return
        self._write_late(self.steps[-self.choose.number(1, min(len(self.steps), 8))])

    def _write_late(self, step: Step) -> None:
        rules = rules_of(self.agent)
        owed_then = wake(step.views, step.holders, step.at, rules)
        todo = [owed for owed in owed_then if owed.owed not in NEEDS_AN_EFFECT]
        if not todo or not step.holders.holders:
            return
        owed = self.choose.pick(todo)
        holder = step.holders.holder(owed.role)
        if holder is None:
            return
        worker = self._worker(holder.owner)
        done = worker.discharge(step.views, step.holders, owed, self.agent, step.at)
        for event, _ in done.written:
            self.late.setdefault(encode(event), step.entry.offset)
        self.append_output(done)

    def act_take(self) -> None:
        owner = self.choose.pick(OWNERS)
        self.take(owner, ROLES if self.choose.chance(60) else (self.choose.pick(ROLES),))

    def act_crash(self) -> None:
        """The worker dies. Either its next incarnation takes the partition, or another worker does,
        which must wait for the deadlines of the dead worker's claims."""
        streamed = self.choose.chance(50)
        if streamed:
            self.act_chunk()
        self.take(self.choose.pick(OWNERS))
        if streamed and self.choose.chance(30):
            self.cancel()
        if self.choose.chance(50):
            self.later(self.choose.pick(PAUSES_MS[-4:]))
        self.act_work()

    def act_lose_stream(self) -> None:
        """A worker dies in the middle of an answer, and the next one lets the model continue the
        answer."""
        if not self.turn.open:
            self.act_say()
        self._work_all()
        for _ in range(self.choose.number(1, 2)):
            generation = self.turn.generation
            if generation is None or generation.status != "running":
                return
            self.stream_more()
            self.take(self.choose.pick(OWNERS))
            if self.choose.chance(60):
                self.later(3 * MINUTE)
            self._work_all()

    def act_race(self) -> None:
        """Another worker takes the partition. Then an earlier worker, which has not read this yet,
        writes an event."""
        for _ in range(self.choose.number(1, 2)):
            if self.steps:
                self.take(self.choose.pick(OWNERS))
                self._write_late(self.steps[-1])

    def act_edit(self) -> None:
        """A worker restarts with an edited agent, or with other instruction files."""
        choose = self.choose
        change = choose.pick(("system", "fewer", "strategy", "thinking", "model", "layers"))
        match change:
            case "system":
                self.shape[change] = choose.pick(("Be brief.", "Be very brief.", "", LONG))
            case "model":
                self.shape[change] = choose.pick(MODELS)
            case "fewer":
                self.shape[change] = choose.chance(50)
            case "strategy":
                self.shape[change] = choose.pick(STRATEGIES)
            case "thinking":
                self.shape[change] = choose.pick(("adaptive", "fixed", ""))
            case "layers":
                self.layers = choose.pick(LAYERS)
        self.agent = variant(**self.shape)

    def act_turn(self) -> None:
        """A turn makes some steps without a failure; background work and deliveries end in
        between."""
        if not self.turn.open and self.choose.chance(80):
            self.act_say()
        for _ in range(self.choose.number(1, 5)):
            self._work_all()
            running = self._running()
            if not running:
                return
            for claim in running:
                if isinstance(claim, ev.ToolStarted):
                    self.append(self.tool_outcome(claim), "tools")
                else:
                    stop = self.choose.pick(("tool_use", "tool_use", "end_turn"))
                    self.append(self.an_answer(claim, stop), "models")
            if self.choose.chance(70):
                self.act_background()
            if self.choose.chance(50):
                self.act_delivery()

    def _work_all(self) -> None:
        for _ in range(12):
            todo = [
                owed
                for owed in self.owed()
                if owed.owed not in NEEDS_AN_EFFECT and self.holders.holder(owed.role)
                and owed.row != "T8"
            ]
            if not todo or todo[0].row in ("A2", "T6", "T6r", "T6v"):
                return
            self.do(todo[0])

    # -- people ----------------------------------------------------------------------------------

    def act_say(self) -> None:
        choose = self.choose
        raw = choose.pick(CONTENTS) if choose.chance(12) else None
        if choose.chance(4):
            picture = self.blobs.store(PNG, "image/png")
            image = answers.dumps(reference(picture, choose.pick((1, 900))))
            raw = f"[{image},{answers.text('look at it')}]".encode()
        id = choose.pick(("m1", *ODD_IDS)) if choose.chance(12) else None
        self.say(
            self._words(),
            id,
            when_busy=choose.pick(("queue", "queue", "steer", "steer", "interrupt")),
            raw=raw,
            channel=choose.pick(CHANNELS),
        )

    def _words(self) -> str:
        choose = self.choose
        if choose.chance(25):
            return "long " * choose.pick((300, 600, 600, 1_000))
        if choose.chance(2):
            return "long " * 12_000
        return choose.pick(("hello", "long " * 60, *TEXTS)) if choose.chance(50) else "hi"

    def act_decide(self) -> None:
        choose = self.choose
        calls = [*self.turn.calls, *self.turn.doubts]
        pending = [call for call in calls if call.status in ("asks", "doubt", "contradicted")]
        call = choose.pick(pending) if pending and not choose.chance(15) else None
        key = call.key if call else choose.pick(CALLS)
        if (call is not None and call.status == "asks") != choose.chance(10):
            sha = "other" if choose.chance(10) else None
            decision, remember = choose.pick(("allow", "deny")), choose.chance(30)
            grant = choose.pick(GRANTS) if remember else ""
            self.decides(key, decision, remember=remember, grant=grant, sha=sha)
        else:
            self.resolve(key, choose.pick(("happened", "did_not_happen")), choose.pick(TEXTS))

    def act_cancel(self) -> None:
        choose = self.choose
        self.cancel(
            choose.pick(("c1", *ODD_IDS)) if choose.chance(15) else None,
            mode=choose.pick(("now", "after_step")),
            turn=choose.pick((None, None, self.turn.number, self.turn.number - 1)),
            seen_phase=choose.pick((None, None, self.state.phase, "building")),
        )

    def act_phase(self) -> None:
        choose = self.choose
        id = choose.pick(("t1", *ODD_IDS)) if choose.chance(15) else None
        if choose.chance(70):
            self.trigger(choose.pick(PHASE_TRIGGERS), id)
        else:
            self.lock(choose.pick(("p1", "p2", *ODD_IDS)), id)

    def act_other_user(self) -> None:
        act = self.choose.pick((self.say, self.cancel, self.terminate))
        act(by="bob")

    def act_end(self) -> None:
        if self.choose.chance(15):
            self.terminate()
        else:
            self.open(self.choose.pick(("ana", "bob")))

    def act_again(self) -> None:
        if self.records:
            self.again(-self.choose.number(1, min(len(self.records), 20)))

    def act_pause(self) -> None:
        asks = any(call.status == "asks" for call in self.turn.calls)
        self.later(self.choose.pick(PAUSES_MS[-3:] if asks else PAUSES_MS))

    def act_neighbour(self) -> None:
        """A record of another session takes the next offset of this partition."""
        self.offset += self.choose.number(1, 3)

    # -- events that no correct worker writes ----------------------------------------------------

    def act_forge(self) -> None:
        event, writer = self.forged_events.event(self.offset, self.at)
        self.append(event, writer)

    def act_garbage(self) -> None:
        name = self.choose.pick((b"GEN_CHUNK", b"SOMETHING_NEW", b"", b"\xff"))
        headers = (("t", name), ("w", b"models"), ("g", self.choose.pick((b"1.1", b"1.1.x", b""))))
        self.append_raw(self.choose.pick((None, b"", b"\xc3\x01garbage", b"\x00" * 40)), headers)

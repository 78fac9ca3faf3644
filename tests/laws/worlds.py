"""Random histories, mostly legal: what all laws are about.

People, workers, models and tools act in any order. Worker events are what WAKE owes, written by the
real decide and Actions: at the present view, or at an old one (late, stale, by a zombie that has
not read of the newer owner). `forged` adds events that no right worker would write.
"""

import random
from typing import Any

from foldlog.processors.decide import rules_of
from foldlog.processors.wake import wake
from foldlog.schemas import events as ev
from foldlog.tests.laws import answers
from foldlog.tests.laws.agents import AGENT, EDITED, MINUTE
from foldlog.tests.laws.answers import Use
from foldlog.tests.laws.desk import Desk
from foldlog.tests.laws.history import NEEDS_A_WORLD, REPORTS, History, Step
from foldlog.tests.laws.plausible import (
    CALLS,
    CONTENTS,
    ODD_IDS,
    OWNERS,
    PHASE_TRIGGERS,
    TEXTS,
    Plausible,
)

ACTS = 80  # of a history: each is no, one or a few events
STOPS = (
    "end_turn",
    "tool_use",
    "max_tokens",
    "pause_turn",
    "refusal",
    "stop_sequence",
    "model_context_window_exceeded",
)
CALL_IDS = ("a", "b", "toolu_1", "a-1-1-2", "a-1-2-1")  # few: providers repeat them
USES = (
    ("look", '{"where":"there"}'),
    ("look", "{}"),
    ("put", '{"text":"ü \\u00fc"}'),
    ("charge", '{"cents":3}'),
    ("charge", '{"cents":"three"}'),
    ("post", "{}"),
    ("post", '{"text":"dear"}'),
    ("wire", '{"cents":1}'),
    ("complete", "{}"),
    ("forbidden", "{}"),
    ("no such tool", "{}"),
)
PAUSES_MS = (0, 1, 40, 1_000, 6_000, 11_000, MINUTE, 3 * MINUTE, 61 * MINUTE)


class Rolled:
    """Choices made by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def pick(self, options: Any) -> Any:
        return self._random.choice(options)

    def chance(self, percent: int) -> bool:
        return self._random.random() * 100 < percent


class World(History):
    """A history that grows by chance."""

    def __init__(self, choose: Any, forged: bool) -> None:
        super().__init__()
        self.seed: int | None = None
        self.choose, self.forged = choose, forged
        self.plausible = Plausible(choose)
        acts = [
            (30, self.act_work), (24, self.act_outcome), (12, self.act_say), (5, self.act_decide),
            (3, self.act_cancel), (6, self.act_pause), (4, self.act_stale), (4, self.act_again),
            (4, self.act_take), (4, self.act_chunk), (3, self.act_phase), (1, self.act_stranger),
            (1, self.act_end), (1, self.act_edit), (2, self.act_neighbour),
        ]
        self.temper = choose.pick(("calm", "calm", "failing", "crashing", "crashing", "racing"))
        if self.temper == "crashing":
            acts += [(25, self.act_crash)]
        if self.temper == "racing":
            acts += [(20, self.act_race)]
        if forged:
            acts += [(14, self.act_forge), (3, self.act_garbage)]
        self._acts = tuple(act for weight, act in acts for _ in range(weight))

    def __repr__(self) -> str:
        """What a failing law prints: the seed, and every event with its ruling."""
        lines = [
            f"{step.entry.offset:4} {step.ruling[0]} {step.ruling[1]} {step.entry.event}"
            for step in self.steps
        ]
        return "\n".join([f"World(seed={self.seed}, forged={self.forged})", *lines])

    def grow(self, events: int) -> "World":
        """So many acts, each of no, one or a few events."""
        if self.choose.chance(97):
            self.take()
        if self.choose.chance(97):
            self.open()
        for _ in range(events):
            self.choose.pick(self._acts)()
        return self

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
        """A worker that looks at an old view writes now what was owed then."""
        if not self.steps:
            return
        self._write_late(self.steps[-self.choose.number(1, min(len(self.steps), 8))])

    def _write_late(self, step: Step) -> None:
        rules = rules_of(self.agent)
        owed_then = wake(step.views, step.holders, step.at, rules)
        todo = [owed for owed in owed_then if owed.owed not in NEEDS_A_WORLD]
        if not todo or not step.holders.holders:
            return
        owed = self.choose.pick(todo)
        holder = step.holders.holder(owed.role)
        if holder is None:
            return
        desk = Desk(holder.owner, self.blobs, lambda: step.at)
        done = desk.discharge(step.views, step.holders, owed, self.agent, step.at)
        for event, role in done.written:
            self.append(event, role)
        for event in done.reported:
            self.append(event, REPORTS.get(type(event), "models"))

    def act_take(self) -> None:
        owner = self.choose.pick(OWNERS)
        roles = ("sessions", "models", "tools")
        self.take(owner, roles if self.choose.chance(60) else (self.choose.pick(roles),))

    def act_crash(self) -> None:
        """The worker dies; the next one is the same again, or another that waits for deadlines."""
        streamed = self.choose.chance(50)
        if streamed:
            self.act_chunk()
        self.take(self.choose.pick(OWNERS))
        if streamed and self.choose.chance(30):
            self.cancel()
        if self.choose.chance(50):
            self.later(self.choose.pick(PAUSES_MS[-4:]))
        self.act_work()

    def act_race(self) -> None:
        """Another worker takes the partition, and the one before has not read of it yet."""
        for _ in range(self.choose.number(1, 2)):
            if self.steps:
                self.take(self.choose.pick(OWNERS))
                self._write_late(self.steps[-1])

    def act_edit(self) -> None:
        self.agent = EDITED if self.agent is AGENT else AGENT

    # -- models and tools ------------------------------------------------------------------------

    def act_outcome(self) -> None:
        """Some effect that was claimed reports: mostly one that runs."""
        running = self._running()
        if running and not self.choose.chance(10):
            claim = self.choose.pick(running)
        elif self._claimed():
            claim = self.choose.pick(self._claimed())
        else:
            return
        if isinstance(claim, ev.ToolStarted):
            if self.temper in ("crashing", "racing") and self.choose.chance(75):
                return  # it dies, or its claim is lost, before it can report
            self.append(self.tool_outcome(claim), "tools")
        else:
            self.append(self.model_outcome(claim), "models")

    def _claimed(self) -> list[Any]:
        kinds = ev.GenStart | ev.GenResumed | ev.ToolStarted
        return [
            step.entry.event
            for step in self.steps
            if step.ruling.accepted and isinstance(step.entry.event, kinds)
        ]

    def _running(self) -> list[Any]:
        generation, calls = self.turn.generation, [*self.turn.calls, *self.turn.doubts]
        offsets = {c.claim.offset for c in calls if c.claim and c.status in ("started", "doubt")}
        if generation is not None and generation.status == "running":
            offsets.add(generation.claim.offset)
        return [s.entry.event for s in self.steps if s.entry.offset in offsets]

    def model_outcome(self, claim: Any) -> Any:
        place = (claim.turn, claim.step, claim.attempt)
        choose = self.choose
        fails = 45 if self.temper == "failing" else 8
        if choose.chance(fails):
            retry = choose.pick((None, self.at + 5_000))
            return answers.failed(place, permanent=choose.chance(15), retry_at=retry)
        stop = choose.pick(("tool_use", "tool_use", "end_turn") if choose.chance(70) else STOPS)
        blocks = self.blocks(stop)
        if choose.chance(fails):
            whole = [block for block in blocks if isinstance(block, str) or choose.chance(50)]
            return answers.stopped(place, whole, self.blobs, "the worker is ending")
        read = choose.pick((50, 300, 5_000) if choose.chance(15) else (50, 300))
        return answers.complete(place, blocks, stop, self.blobs, read)

    def blocks(self, stop: str) -> list[Any]:
        choose = self.choose
        made: list[Any] = []
        for _ in range(choose.number(0, 3)):
            made.append(
                choose.pick(
                    (
                        answers.text("fine"),
                        answers.text(choose.pick(TEXTS)),
                        answers.text("long " * 60),
                        answers.thinking("hm", choose.pick(("sig==", ""))),
                        answers.thinking("", "only-a-signature"),
                        answers.dumps({"type": "redacted_thinking", "data": "opaque"}),
                        '{"type":"text","text":"\\u00fc \\/ escaped","n":1.50}',
                        '{"type":"brand_new_block","x":[1e2]}',
                    )
                )
            )
        if stop == "pause_turn":  # it stops in the middle of the server's own tools
            made += self._server_use()[: choose.number(1, 2)]
        elif choose.chance(10):
            made += self._server_use()
        if stop in ("tool_use", "max_tokens") or choose.chance(5):
            for _ in range(choose.number(1 if stop == "tool_use" else 0, 3)):
                name, args = choose.pick(USES)
                error = "the arguments are not a JSON object" if choose.chance(8) else None
                made.append(Use(name, args, choose.pick(CALL_IDS), error))
        return made

    def _server_use(self) -> tuple[str, ...]:
        id = f"srv_{self.offset}_{self.choose.number(0, 99)}"
        begun = {"type": "server_tool_use", "id": id, "name": "web_search", "input": {}}
        done = {"type": "web_search_tool_result", "tool_use_id": id, "content": []}
        return answers.dumps(begun), answers.dumps(done)

    def tool_outcome(self, claim: ev.ToolStarted) -> Any:
        choose, place = self.choose, (claim.turn, claim.step, claim.index)
        if choose.chance(15):
            return answers.uncertain(place, claim.attempt)
        triggers = (self.plausible._trigger(),) if choose.chance(20) else ()
        return answers.result(
            place,
            claim.attempt,
            choose.pick(TEXTS),
            choose.pick(("ok", "ok", "ok", "error", "not_run", "cancelled")),
            via=choose.pick(("tool", "tool", "reconciler")),
            triggers=triggers,
            reminders=("remember this",) if choose.chance(10) else (),
        )

    def act_chunk(self) -> None:
        for seq in range(self.choose.number(1, 3)):
            self.chunk("a", seq)

    # -- people ----------------------------------------------------------------------------------

    def act_say(self) -> None:
        choose = self.choose
        raw = choose.pick(CONTENTS) if choose.chance(12) else None
        id = choose.pick(("m1", *ODD_IDS)) if choose.chance(12) else None
        self.say(
            choose.pick(("hello", "long " * 60, *TEXTS)) if choose.chance(50) else "hi",
            id,
            when_busy=choose.pick(("queue", "queue", "steer", "steer", "interrupt")),
            raw=raw,
        )

    def act_decide(self) -> None:
        choose = self.choose
        calls = [*self.turn.calls, *self.turn.doubts]
        wants = [call for call in calls if call.status in ("asks", "doubt", "contradicted")]
        call = choose.pick(wants) if wants and not choose.chance(15) else None
        key = call.key if call else choose.pick(CALLS)
        if (call is not None and call.status == "asks") != choose.chance(10):
            sha = "other" if choose.chance(10) else None
            self.decides(key, choose.pick(("allow", "deny")), remember=choose.chance(30), sha=sha)
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

    def act_stranger(self) -> None:
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
        """A record of another session takes an offset of this partition."""
        self.offset += self.choose.number(1, 3)

    # -- what no right worker writes -------------------------------------------------------------

    def act_forge(self) -> None:
        event, writer = self.plausible.event(self.offset, self.at)
        self.append(event, writer)

    def act_garbage(self) -> None:
        name = self.choose.pick((b"GEN_CHUNK", b"SOMETHING_NEW", b"", b"\xff"))
        headers = (("t", name), ("w", b"models"), ("g", self.choose.pick((b"1.1", b"1.1.x", b""))))
        self.append_raw(self.choose.pick((None, b"", b"\xc3\x01garbage", b"\x00" * 40)), headers)

"""Simulated effects, in place of worker/effects_host.py, effects/models/call.py and tools/call.py.

Each effect is a generator. It yields the time to wait (ms of virtual time), or None to wait until
`poke`; what it does between two yields is one indivisible action of the schedule. It ends in one
outcome, which is first kept in the outbox and then produced until the log acknowledges it.
"""

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any, assert_never

from foldlog.log.door import Delivered
from foldlog.processors.effects.model import content_of, failed
from foldlog.processors.effects.ports import (
    Begin,
    BeginDelivery,
    BeginGeneration,
    BeginTool,
    BeginWork,
    EffectId,
)
from foldlog.processors.effects.resumption import ChunksLoader
from foldlog.processors.effects.tool import no_tool
from foldlog.processors.fold.partial_answer import said_so_far
from foldlog.processors.fold.projections.turn_view import THINKING_REFUSED
from foldlog.processors.store.chunks_reader import chunks_reader
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.worker.lost_effects import Running
from foldlog.processors.worker.reports import RETRY_S, ROLE_OF
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.events.effects import ALIVE_SEQ
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit import answers
from foldlog.tests.kit.background_ends import MODEL_TEXTS, ends_of
from foldlog.tests.simulation.answers import (
    END_TURN,
    USAGE,
    Answer,
    an_answer,
    usage_of,
)
from foldlog.tests.simulation.resumed import continued_answer
from foldlog.tests.simulation.tool_plans import ToolRun

CANDIDATE_WRITTEN = "candidate written, before the work is done"
MID_STREAM = "after a chunk was produced"  # counts for a kill of this name only
Steps = Generator[int | None, Any, Any]


class Task:
    """One running effect; if `effect` is None, the report of an outcome. `due`: the world time (ms)
    of the next action, or None to wait for `poke`."""

    def __init__(self, role: str, effect: EffectId | None, steps: Steps, now: int) -> None:
        self.role = role
        self.effect = effect
        self.steps = steps
        self.stop = Stop()
        self.due: int | None = now
        self.received: Any = None  # by `poke`, for the generator
        self.ended = False  # its outcome is known and only has to be written

    def poke(self, received: Any, now: int) -> None:
        """Continue the task with the value for which it waits."""
        self.received, self.due = received, now


class SimEffects:
    """The Effects of one process. They end when the process dies."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self.world = process.world
        self.tasks: list[Task] = []
        self._read_chunks = chunks_reader(process.world.log)
        self._chunks_loader = ChunksLoader(self._read_chunks, begin=lambda run: run())

    # -- the schedule ----------------------------------------------------------------------------

    def _spawn(self, role: str, effect: EffectId | None, make) -> Task:
        task = Task(role, effect, iter(()), self.world.now)
        task.steps = make(task)
        self.tasks.append(task)
        return task

    def _begin(self, role: str, what: str, session_id: str, begin: Any, steps) -> None:
        self.process.crash_point(f"claim read back, before {what} begins")
        self.world.begun(role, self.process, session_id, begin)
        effect = EffectId(session_id, begin.claim.offset)
        self._spawn(role, effect, lambda task: steps(task, session_id, begin))

    def step(self, task: Task) -> None:
        """Run the next action of an effect."""
        received, task.received, task.due = task.received, None, None
        try:
            wait = task.steps.send(received)
        except StopIteration:
            self.tasks.remove(task)
            return
        task.due = None if wait is None else self.world.now + wait

    def running(self, role: str) -> int:
        """The number of running effects of a role."""
        return sum(1 for task in self.tasks if task.role == role)

    def begun(self) -> list[Running]:
        """Like `EffectsHost.begun`."""
        return [Running(task.role, task.effect) for task in self.tasks if task.effect is not None]

    def stop(self, effect: EffectId, why: str) -> bool:
        """Request that an effect ends. Returns whether the effect is running."""
        for task in self.tasks:
            if task.effect == effect:
                if not task.stop.requested:
                    task.stop.request(why)
                    if task.due is not None:
                        task.due = self.world.now
                return True
        return False

    def leave(self) -> None:
        """End the worker in an orderly way, like `EffectsHost.close`."""
        for task in self.tasks:
            if task.role in ("models", "background") and not task.stop.requested:
                task.stop.request("the worker is ending", leaves=True)
                if task.due is not None:
                    task.due = self.world.now

    # -- outcomes --------------------------------------------------------------------------------

    def outcome(self, task: Task, session_id: str, event: Any) -> Steps:
        """Like `Reports.outcome`: keep the outcome on disk, then produce it until the log
        acknowledges it."""
        task.ended = True
        crash = self.process.crash_point
        crash("before the outbox")
        token = self.process.disk.put(session_id, event)
        crash("after the outbox, before the log")
        yield 0
        while True:
            self.produce(session_id, event, lambda answer: task.poke(answer, self.world.now))
            crash("after an outcome was produced")
            answer = yield (None if task.received is None else 0)
            if isinstance(answer, Delivered):
                self.process.disk.done(token)
                return
            yield int(RETRY_S * 1000)

    def produce(self, session_id: str, event: Any, on_delivery) -> None:
        """Pass an outcome to the producer."""
        headers = headers_for(event, ROLE_OF[type(event)])
        self.process.producer.append(
            SESSION_EVENTS, session_id, encode(event), headers, on_delivery=on_delivery
        )

    def report(self, session_id: str, event: Any) -> None:
        """Write an outcome that comes from no effect."""
        self._spawn("reports", None, lambda task: self.outcome(task, session_id, event))

    def begin(self, session_id: str, begin: Begin) -> None:
        """Begin an effect."""
        match begin:
            case BeginGeneration(recovers=True):
                self._recover_chunks(session_id, begin)
            case BeginGeneration():
                self._begin("models", "a generation", session_id, begin, self._generate)
            case BeginTool(recovers=True):
                self._ask_reconciler(session_id, begin)
            case BeginTool():
                self._begin_tool(session_id, begin)
            case BeginWork():
                self._begin("background", "background work", session_id, begin, self._work)
            case BeginDelivery():
                self._begin("delivery", "a delivery", session_id, begin, self._deliver)
            case _:
                assert_never(begin)

    # -- model calls -----------------------------------------------------------------------------

    def _generate(self, task: Task, session_id: str, begin: BeginGeneration) -> Steps:
        world, rng, tastes = self.world, self.world.rng, self.world.tastes
        place = {"turn": begin.turn, "step": begin.step, "attempt": begin.attempt}
        began, streamed = world.now, []
        slow, spans = begin.agent.limits.stall_timeout_ms * 4 // 5, (0, 5, 5, 50, 50, 400)
        world.answers += 1
        answer = an_answer(rng, tastes, world.answers)
        fails, hangs = rng.random() < tastes.fails, rng.random() < tastes.hangs
        if world.calm:
            answer, fails, hangs, slow = END_TURN, False, False, 5
        likely = 0.97 if tastes.long else 0.7
        continued = begin.kept and continued_answer(begin.kept, answer, place)
        for chunks in self._chunks(place, answer) if continued is None else continued.chunks():
            if not task.stop.requested:
                is_slow = rng.random() < tastes.slow
                yield slow if is_slow else rng.choice(spans)
                if is_slow and tastes.pings:
                    self.process.append_chunk(session_id, _alive(place))
                    yield slow
            if task.stop.requested:
                break
            streamed += chunks
            for chunk in chunks:
                if rng.random() < likely:  # a lost chunk only costs a viewer some text
                    self.process.append_chunk(session_id, chunk)
                    self._streamed()
            if hangs or fails:
                break
        so_far = said_so_far(streamed) if continued is None else continued.so_far()
        if hangs and not task.stop.requested:
            yield begin.agent.limits.stall_timeout_ms
        if task.stop.requested:
            event: Any = ev.GenStopped(
                **place,
                why=task.stop.why or "",
                content=world.blobs.body(so_far, "application/json"),
            )
        elif fails or hangs:
            event = self._a_failure(session_id, begin, so_far, began, hangs)
        else:
            self.process.crash_point("before a completion")
            content = (answer if continued is None else continued).content()
            event = ev.GenComplete(
                **place,
                content=world.blobs.body(content, "application/json"),
                calls=answers.calls(answer.uses, answer.stop_reason),
                stop_reason=answer.stop_reason,
                response_id=f"msg_{world.answers}",
                model=begin.agent.model,
                usage=usage_of(begin.request, answer) if world.scenario.compacts else USAGE,
            )
        yield from self.outcome(task, session_id, event)

    def _streamed(self) -> None:
        node = self.process.node
        if node.on_chunk is not None:
            node.on_chunk()
        if node.kill_at == MID_STREAM:
            self.process.crash_point(MID_STREAM)

    @staticmethod
    def _chunks(place: dict[str, int], answer: Answer) -> Iterator[list[ev.GenChunk]]:
        for seq, text in enumerate(answer.texts):
            yield [ev.GenChunk(**place, seq=seq, block=0, kind="text", delta=text)]

    def _a_failure(
        self, session_id: str, begin: BeginGeneration, so_far: bytes, began: int, hangs: bool
    ) -> ev.GenFailed:
        rng = self.world.rng
        if rng.random() < 0.1:
            why = "invalid_request" if begin.claim.offset % 2 else THINKING_REFUSED
            return failed(begin.place, why, "the request is refused for good")
        wait = rng.choice((0, 300, 2_000, 30_000))
        if rng.random() < 0.2:
            wall = self.process.clock.now_ms()
            self.process.model_slots.back_off(wall + wait)
        return ev.GenFailed(
            turn=begin.turn,
            step=begin.step,
            attempt=begin.attempt,
            content=ev.Body(inline=so_far),
            error="stalled" if hangs else "overloaded",
            detail="simulated",
            retry_at=max(begin.now, begin.claim.at) + self.world.now - began + wait,
            permanent=False,
            usage=USAGE if rng.random() < 0.5 else None,
        )

    def chunks_since(
        self, session_id: str, partition: int, offset: int, attempt: int
    ) -> list[ev.GenChunk] | None:
        """Like `EffectsHost.chunks_since`: the first call returns None, a later call the chunks."""
        return self._chunks_loader.since(session_id, partition, offset, attempt)

    def _recover_chunks(self, session_id: str, begin: BeginGeneration) -> None:
        effect = EffectId(session_id, begin.claim.offset, recovers=True)
        self._spawn("models", effect, lambda task: self._recover(task, session_id, begin))

    def _recover(self, task: Task, session_id: str, begin: BeginGeneration) -> Steps:
        yield self.world.rng.choice((0, 30))
        chunks = self._read_chunks(session_id, begin.partition, begin.since)
        content = content_of(begin, chunks)
        event = ev.GenStopped(
            turn=begin.turn,
            step=begin.step,
            attempt=begin.attempt,
            why="its worker is gone and the turn is ending",
            content=self.world.blobs.body(content, "application/json"),
        )
        yield from self.outcome(task, session_id, event)

    # -- background work -------------------------------------------------------------------------

    def _work(self, task: Task, session_id: str, begin: BeginWork) -> Steps:
        world, rng, place = self.world, self.world.rng, (begin.kind, begin.upto, begin.attempt)
        slow = begin.agent.limits.background_timeout_ms
        yield 5 if world.calm else rng.choice((0, 20, 500, 500, 5_000, slow))
        if task.stop.requested:
            done = answers.done(*place, why="it was stopped")
            ends = [replace(done, released=task.stop.leaves)]
        elif not world.calm and rng.random() < 0.1:
            ends = [answers.done(*place, why="its task died")]
        else:
            text = MODEL_TEXTS[1] if world.calm else rng.choice(MODEL_TEXTS)
            ends = ends_of(begin, begin.task, begin.agent, text, world.blobs)
        for number, event in enumerate(ends):
            if number:
                self.process.crash_point(CANDIDATE_WRITTEN)
            yield from self.outcome(task, session_id, event)

    # -- deliveries ------------------------------------------------------------------------------

    def _deliver(self, task: Task, session_id: str, begin: BeginDelivery) -> Steps:
        world, rng, owed = self.world, self.world.rng, begin.owed
        place = {"turn": owed.turn, "step": owed.step, "channel": owed.channel}
        fate = "comes" if world.calm else rng.choice(("comes",) * 5 + ("refused", "lost", "gone"))
        yield 5 if world.calm else rng.choice((0, 20, 500, 5_000))
        if fate in ("comes", "lost"):
            world.received.append((session_id, *place.values()))
            self.process.crash_point("a channel has an answer, before its outcome")
        if fate == "comes":
            event: Any = ev.GenSent(**place)
        else:
            last = owed.attempt >= begin.agent.limits.delivery_attempts
            wait = rng.choice((0, 2_000, 60_000))
            event = answers.undelivered(
                (*place.values(), owed.attempt),
                permanent=last,
                retry_at=None if last else max(begin.now, begin.claim.at) + wait,
            )
        yield from self.outcome(task, session_id, event)

    # -- tools -----------------------------------------------------------------------------------

    def _begin_tool(self, session_id: str, begin: BeginTool) -> None:
        self.process.crash_point("claim read back, before a tool begins")
        self.world.begun("tools", self.process, session_id, begin)
        effect = EffectId(session_id, begin.claim.offset)
        tool = begin.agent.tool(begin.call.name)
        if tool is None:
            self.report(session_id, no_tool(begin))
            return
        run = ToolRun(self.process, session_id, begin, tool)
        self._spawn("tools", effect, lambda task: self._run_tool(task, session_id, run))

    def _run_tool(self, task: Task, session_id: str, run: ToolRun) -> Steps:
        run.stop = task.stop
        event = yield from run.until_end()
        yield from self.outcome(task, session_id, event)
        late = yield from run.late_truth(event)
        if late is not None:
            yield from self.outcome(task, session_id, late)

    def _ask_reconciler(self, session_id: str, begin: BeginTool) -> None:
        self.world.reconciled(self.process, session_id, begin)
        effect = EffectId(session_id, begin.claim.offset, recovers=True, early=begin.early)
        self._spawn("tools", effect, lambda task: self._reconcile(task, session_id, begin))

    def _reconcile(self, task: Task, session_id: str, begin: BeginTool) -> Steps:
        call, tool = begin.call, begin.agent.tool(begin.call.name)
        if tool is None:
            place = {"turn": call.turn, "step": call.step, "index": call.index}
            event = ev.ToolFailedUncertain(**place, attempt=call.attempt, reason="no such tool")
            yield from self.outcome(task, session_id, event)
            return
        run = ToolRun(self.process, session_id, begin, tool)
        yield self.world.rng.choice((0, 20, 500))
        event = run.reconciled()
        if begin.early and (not isinstance(event, ev.ToolResult) or event.outcome != "ok"):
            return  # it may still happen
        yield from self.outcome(task, session_id, event)


def _alive(place: dict[str, int]) -> ev.GenChunk:
    """The record of a stream that sends pings but no text."""
    return ev.GenChunk(**place, seq=ALIVE_SEQ, block=0, kind="text", delta="")

"""Runs a real worker on a log in memory. One session plays the job; its answers are canned or come
from a server.

The worker, its actions, folds, store and builder are the product's own. Only the outside world is
simulated: the broker, the model and the tool. Every record and the newest request are kept, and a
single round can be timed.
"""

import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from time import perf_counter
from typing import Any, NamedTuple

from foldlog.bench.job import MODEL, Turn, summary
from foldlog.processors.agent import Agent
from foldlog.processors.effects.ports import (
    Begin,
    BeginGeneration,
    BeginTool,
    BeginWork,
    EffectId,
)
from foldlog.processors.effects.slots import Slots
from foldlog.processors.fold.projections.background import SUMMARIES
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.request.rendered import Built
from foldlog.processors.store.store import Backend, Belongs, Store
from foldlog.processors.worker.actions import Actions
from foldlog.processors.worker.assemble import ROLES
from foldlog.processors.worker.worker import Identity, Worker, WorkerParts
from foldlog.schemas import events as ev
from foldlog.schemas.canonical import compact, compact_ascii
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.record import Record
from foldlog.schemas.tokens import estimate
from foldlog.schemas.topics import SESSION_EVENTS

SESSION = "bench"
CHUNK_CHARS = 28  # 40 ms, the longest a chunk waits, of an answer that streams 700 characters a s
START_MS = 1_750_000_000_000  # Unix ms; any time will do
ROUNDS_MAX = 100  # per turn: a worker that needs more is stuck
BELONGS = Belongs("bench", "bench", "bench")


class Outcome(NamedTuple):
    """The events that an effect reports, chunks first, and the effect's role."""

    role: str
    events: tuple[Any, ...]


class Models(NamedTuple):
    """The functions that answer a step of a turn and do background work."""

    answer: Callable[[Turn, BeginGeneration], Outcome]
    work: Callable[[BeginWork], Outcome]


class RoundTimes(NamedTuple):
    """The times of a worker's round for one message: two parts, and the whole round.

    append: decode, fold, and write one batch to the store. context: build the next request's bytes.
    round: the whole round, which also evaluates WAKE and makes decisions.
    """

    append_ms: float
    context_ms: float
    round_ms: float


class TimedWorker(Worker):
    """The real worker, which also notes the time at which a batch is folded and stored."""

    stored_at = 0.0

    def _wake_touched(self, owned) -> None:
        self.stored_at = perf_counter()
        super()._wake_touched(owned)


class TimedActions(Actions):
    """The real actions, which also note how long the newest request took to build."""

    context_s = 0.0

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        build = self.kinds.models.request

        def timed(views: SessionViews) -> Built:
            began = perf_counter()
            try:
                return build(views)
            finally:
                self.context_s = perf_counter() - began

        self.kinds.models.request = timed


class Clock:
    """A clock that advances only when a record is written."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class Played:
    """One worker and one session; `play` adds a turn of the job."""

    def __init__(self, agent: Agent, backend: Backend, models: Models) -> None:
        self.records: list[Record] = []
        self.request = b""  # only the newest request, so that memory is reused, as in a worker
        self.calls = 0  # of the model
        self.messages = 0  # in the conversation: a message, an answer, a message of tool results
        self.worker = self._worker(agent, backend)
        self._models = models
        self._read = 0
        self.actions: TimedActions = self.worker.actions
        self._started: list[Begin] = []
        self._turn: Turn | None = None
        self.worker.assigned([0])
        self.append(ev.SessionOpened(user_id="bench", agent=agent.name, rules=1), "producer")
        self.settle()

    def _worker(self, agent: Agent, backend: Backend) -> TimedWorker:
        self.clock = Clock()
        self._blobs: dict[str, bytes] = {}

        def open_store(partition: int, *, fresh: bool) -> Store:
            store = Store(backend)
            store.claim(BELONGS)
            return store

        identity = Identity("bench", "1")
        actions = TimedActions(
            identity.owner,
            self._append,
            self,
            self._body,
            lambda ref: self._blobs[ref.sha256],
            Slots(1),
            Slots(8),
            self.clock,
            _alarm,
        )
        parts = WorkerParts(
            identity=identity, roles=ROLES, agents=[agent], open_store=open_store, actions=actions,
            clock=self.clock, say=_alarm,
        )
        return TimedWorker(parts)

    @property
    def views(self) -> SessionViews:
        """The worker's views of the session."""
        views = self.worker.owned[0].views(SESSION)
        assert views is not None
        return views

    # -- the world -------------------------------------------------------------------------------

    def _body(self, data: bytes, media_type: str) -> ev.Body:
        return ev.Body(inline=data)

    def _append(self, topic, partition, key, value, headers, failed) -> None:
        self.clock.ms += 1
        name, offset = key.encode(), len(self.records)
        record = Record(topic, 0, offset, self.clock.ms, name, value, tuple(headers))
        self.records.append(record)

    def append(self, event: Any, role: str) -> None:
        """Write an event to the log."""
        self._append(SESSION_EVENTS, 0, SESSION, encode(event), headers_for(event, role), None)

    def begin(self, session_id: str, begin: Begin) -> None:
        """Effects: start an effect."""
        if isinstance(begin, BeginGeneration):
            self.request = begin.request
            self.calls += 1
        self._started.append(begin)

    def running(self, role: str) -> int:
        """Returns 0, because no effect runs between two rounds."""
        return 0

    def stop(self, effect: EffectId, why: str) -> bool:
        """Effects: does nothing, because no effect runs."""
        return False

    # -- playing ---------------------------------------------------------------------------------

    def say(self, turn: Turn) -> Record:
        """Write the question of a turn to the log, and return its record, which the worker has not
        read.
        """
        self._turn = turn
        content = compact_ascii([{"type": "text", "text": turn.question}])
        event = ev.MessageReceived(
            message_id=f"m{turn.number}",
            role="user",
            content=ev.Body(inline=content.encode()),
            tokens=len(content) // 3,
            channel="bench",
            when_busy="queue",
            by_user="bench",
        )
        self.append(event, "producer")
        self.messages += 1
        return self.records[-1]

    def read(self) -> None:
        """Run one round of the worker on all unread records."""
        unread, self._read = self.records[self._read :], len(self.records)
        self.worker.consume(unread)

    def timed(self, turn: Turn) -> RoundTimes:
        """Play a turn, and time the round that turns its message into the next request."""
        self.say(turn)
        calls_before = self.calls
        self.actions.context_s = 0.0
        began = perf_counter()
        self.read()
        ended = perf_counter()
        times = RoundTimes(
            (self.worker.stored_at - began) * 1000,
            self.actions.context_s * 1000,
            (ended - began) * 1000,
        )
        self.settle()
        assert times.context_ms and self.calls > calls_before, "the round built a request"
        return times

    def settle(self) -> None:
        """Run rounds until nothing is left to read or to do."""
        for _ in range(ROUNDS_MAX):
            if self._read == len(self.records) and not self._started:
                return
            self.read()
            started, self._started = self._started, []
            for begin in started:
                self._finish(begin)
        raise AssertionError(f"the turn did not end: {self.views.turn}")

    def _finish(self, begin: Begin) -> None:
        assert self._turn is not None
        if isinstance(begin, BeginWork):
            outcome = self._models.work(begin)
        elif isinstance(begin, BeginGeneration):
            outcome = self._models.answer(self._turn, begin)
        else:
            assert isinstance(begin, BeginTool)
            outcome = Outcome("tools", (result_of(self._turn, begin),))
        self.messages += not isinstance(begin, BeginWork)
        for event in outcome.events:
            self.append(event, outcome.role)

    def play(self, turn: Turn) -> None:
        """Play a whole turn."""
        self.say(turn)
        self.settle()
        view = self.views.turn
        assert not view.open and view.number == turn.number, view
        assert self.views.frozen is None, self.views.frozen

    def play_all(self, turns: Iterable[Turn]) -> "Played":
        """Play turns one after the other."""
        for turn in turns:
            self.play(turn)
        return self


def _alarm(text: str) -> None:
    raise AssertionError(text)  # no bench expects an alarm from the worker


def result_of(turn: Turn, begin: BeginTool) -> ev.ToolResult:
    """The tool's result."""
    call, content = begin.call, turn.result.encode()
    return ev.ToolResult(
        turn=call.turn,
        step=call.step,
        index=call.index,
        attempt=call.attempt,
        outcome="ok",
        via="tool",
        content=ev.Body(inline=content),
        bytes=len(content),
        tokens=len(content) // 3,
        left_out=0,
    )


def canned_work(begin: BeginWork) -> Outcome:
    """A summary of the usual length without a model; other work is reported as failed."""
    found: list[Any] = []
    if begin.kind in SUMMARIES:
        text = json.dumps([{"type": "text", "text": summary(begin.task.kept_from)}]).encode()
        found.append(
            ev.ContextCompacted(
                upto=begin.upto,
                kept_from=begin.task.kept_from,
                summary=ev.Body(inline=text),
                tokens=estimate(text),
                model=begin.task.model,
            )
        )
    place = {"kind": begin.kind, "upto": begin.upto, "attempt": begin.attempt}
    done = ev.BackgroundDone(**place, ok=bool(found), why="" if found else "no part of the job")
    return Outcome("background", (*found, done))


def canned_answer(turn: Turn, begin: BeginGeneration) -> Outcome:
    """The job's answer without a model, streamed in chunks of CHUNK_CHARS."""
    place = {"turn": begin.turn, "step": begin.step, "attempt": begin.attempt}
    calls = begin.step == 1 and bool(turn.result)
    text = turn.preface if calls else turn.answer
    blocks: list[dict] = [{"type": "text", "text": text}]
    proposed: tuple[ev.ProposedCall, ...] = ()
    streamed = [(0, "text", text)]
    if calls:
        call_id, args = f"toolu_{turn.number:024}", turn.args.encode()
        blocks.append(
            {"type": "tool_use", "id": call_id, "name": "look", "input": json.loads(turn.args)}
        )
        streamed.append((1, "tool_input", turn.args))
        proposed = (
            ev.ProposedCall(
                index=0,
                call_id=call_id,
                name="look",
                args=ev.Body(inline=args),
                args_sha256=sha256(args).hexdigest(),
            ),
        )
    pieces = [
        (block, kind, part[at : at + CHUNK_CHARS])
        for block, kind, part in streamed
        for at in range(0, len(part), CHUNK_CHARS)
    ]
    chunks = [
        ev.GenChunk(**place, seq=seq, block=block, kind=kind, delta=delta)
        for seq, (block, kind, delta) in enumerate(pieces)
    ]
    usage = ev.Usage(
        input_tokens=len(begin.request) // 3,
        cache_read_tokens=0,
        cache_write_5m_tokens=0,
        cache_write_1h_tokens=0,
        output_tokens=len(text) // 3,
        raw=b'{"input_tokens":%d,"output_tokens":%d}' % (len(begin.request) // 3, len(text) // 3),
    )
    content = compact(blocks).encode()
    done = ev.GenComplete(
        **place,
        content=ev.Body(inline=content),
        calls=proposed,
        stop_reason="tool_use" if calls else "end_turn",
        response_id=f"msg_{turn.number:022}_{begin.step}",
        model=MODEL,
        usage=usage,
    )
    return Outcome("models", (*chunks, done))


canned = Models(canned_answer, canned_work)

"""A small language for histories. One line of a test is one act of a person, a model or a tool.

Every event is encoded as a record and decoded again, as if it came from the log. WAKE names the
obligations of workers, and the real Actions discharge them. `say`, `cancel` and the other acts
return the fold's ruling; `work` lets a worker do everything that needs no effect.
"""

import json
from typing import Any, NamedTuple

from foldlog.processors.agent import Agent
from foldlog.processors.fold.projections import partition as partition_fold
from foldlog.processors.fold.projections.partition import ROLES, PartitionView
from foldlog.processors.fold.projections.turn_view import Call, find_call
from foldlog.processors.fold.ruling import Ruling
from foldlog.processors.fold.rulings.producers import RULES
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import SessionViews, initial
from foldlog.processors.request.build import request_bytes
from foldlog.processors.request.layers import NO_LAYERS
from foldlog.processors.request.rendered import Renderings
from foldlog.processors.wake.decide import rules_of
from foldlog.processors.wake.facts import Obligation, wake
from foldlog.processors.worker.reports import ROLE_OF
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry, encode, entry_of, headers_for
from foldlog.schemas.ids import PARTITION_KEY, parse_call_key
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit import answers
from foldlog.tests.kit.agents import AGENT
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.blobs import MemoryBlobs
from foldlog.tests.kit.recorded_actions import Discharge, RecordedActions

T0 = 1_700_000_000_000  # Unix ms; any time will do
NEEDS_AN_EFFECT = ("begin", "abort", "wait")
ROUNDS_MAX = 200  # a worker that needs more rounds loops


class Step(NamedTuple):
    """One record of the session, its ruling, and the views before and after it. `at`: the time at
    which it was folded, in Unix ms."""

    entry: Entry
    ruling: Ruling
    before: SessionViews
    views: SessionViews
    holders: PartitionView
    at: int


class History:
    """One session in one partition, and the worker that holds it."""

    def __init__(self, session_id: str = "s1", agent: Agent = AGENT) -> None:
        self.session_id, self.agent = session_id, agent
        self.views: SessionViews = initial(session_id)
        self.holders: PartitionView = partition_fold.INITIAL
        self.at, self.offset = T0, 0
        self.records: list[Record] = []
        self.steps: list[Step] = []
        self.blobs = MemoryBlobs()
        self.layers = NO_LAYERS
        self.renderings = Renderings()  # a worker continues the requests that it built

    # -- the log ---------------------------------------------------------------------------------

    def append(self, event: Any, writer: str, key: str | None = None) -> Ruling:
        """Append an event to the log, fold it, and return the ruling."""
        headers = tuple(headers_for(event, writer))
        return self.append_raw(encode(event), headers, key)

    def append_raw(
        self, value: bytes | None, headers: tuple[tuple[str, bytes], ...], key: str | None = None
    ) -> Ruling:
        """Append a record of any kind to the log, fold it, and return the ruling."""
        name = (self.session_id if key is None else key).encode()
        record = Record(SESSION_EVENTS, 0, self.offset, self.at, name, value, headers)
        self.records.append(record)
        self.offset += 1
        self.at += 1
        entry = entry_of(record)
        if entry.session_id == PARTITION_KEY:
            self.holders = partition_fold.apply(self.holders, entry)
            return Ruling("accepted")
        before = self.views
        self.views, ruling = fold(before, entry)
        self.steps.append(Step(entry, ruling, before, self.views, self.holders, self.at))
        return ruling

    def again(self, number: int = -1) -> Ruling:
        """Append a copy of the record with this number, at a new offset."""
        record = self.records[number]
        return self.append_raw(record.value, record.headers, (record.key or b"").decode())

    def later(self, ms: int) -> "History":
        """Advance the clock."""
        self.at += ms
        return self

    # -- views -----------------------------------------------------------------------------------

    @property
    def turn(self):
        return self.views.turn

    @property
    def state(self):
        return self.views.state

    def call(self, key: str) -> Call | None:
        """The call with this key, if it belongs to the open turn or is in doubt."""
        return find_call(self.turn, *_parsed(key))

    def request(self) -> dict:
        """The newest request, as parsed JSON."""
        return json.loads(self.request_bytes())

    def request_bytes(self) -> bytes:
        """The newest request, as bytes."""
        return request_bytes(self.views, self.blobs.read)

    def messages(self) -> list[tuple[str, list[str]]]:
        """The messages of the newest request: the role of each, and a short text for each block."""
        return [(m["role"], [_words(b) for b in m["content"]]) for m in self.request()["messages"]]

    def lines(self, kind: str) -> list[Any]:
        """The transcript's lines of a kind."""
        return [line for line in self.views.transcript.lines if line.kind == kind]

    def end_reason(self, message_id: str | None = None) -> str:
        """The reason why a message's turn ended, or '' while the turn runs. None stands for the
        first message."""
        message_id = message_id or self.views.messages.received[0].message_id
        row = self.views.messages.progress.last(message_id)
        return row.reason if row else ""

    # -- people ----------------------------------------------------------------------------------

    def open(self, user: str = "ana", agent: str = "helper", rules: int = RULES) -> Ruling:
        return self.append(ev.SessionOpened(user_id=user, agent=agent, rules=rules), "producer")

    def say(
        self,
        words: str = "hi",
        id: str | None = None,
        *,
        when_busy: str = "queue",
        by: str = "ana",
        raw: bytes | None = None,
        role: str = "user",
        channel: str = "test",
    ) -> Ruling:
        content = f"[{answers.text(words)}]".encode() if raw is None else raw
        event = ev.MessageReceived(
            message_id=f"m{self.offset}" if id is None else id,
            role=role,
            content=self.blobs.body(content) if raw is None else ev.Body(inline=content),
            tokens=len(content) // 3,
            channel=channel,
            when_busy=when_busy,
            by_user=by,
        )
        return self.append(event, "producer")

    def cancel(
        self,
        id: str | None = None,
        *,
        mode: str = "now",
        turn: int | None = None,
        seen_phase: str | None = None,
        by: str = "ana",
    ) -> Ruling:
        event = ev.CancelRequested(
            cancel_id=f"c{self.offset}" if id is None else id,
            mode=mode,
            turn=turn,
            seen_phase=seen_phase,
            reason="enough",
            by_user=by,
        )
        return self.append(event, "producer")

    def trigger(self, trigger: str, id: str | None = None, by: str = "ana") -> Ruling:
        name = f"t{self.offset}" if id is None else id
        event = ev.PhaseTriggered(command_id=name, trigger=trigger, by_user=by)
        return self.append(event, "producer")

    def lock(self, project: str, id: str | None = None, by: str = "ana") -> Ruling:
        name = f"l{self.offset}" if id is None else id
        event = ev.ProjectLocked(command_id=name, project_id=project, by_user=by)
        return self.append(event, "producer")

    def decides(
        self,
        call: str,
        decision: str,
        *,
        remember: bool = False,
        grant: str = "",
        sha: str | None = None,
    ) -> Ruling:
        known = self.call(call) if parse_call_key(call) else None
        event = ev.ApprovalDecided(
            call=call,
            args_sha256=(known.args_sha256 if known else "") if sha is None else sha,
            decision=decision,
            remember=remember,
            by_user="ana",
            grant=grant,
        )
        return self.append(event, "producer")

    def allow(self, call: str, **more: Any) -> Ruling:
        return self.decides(call, "allow", **more)

    def deny(self, call: str, **more: Any) -> Ruling:
        return self.decides(call, "deny", **more)

    def resolve(self, call: str, outcome: str = "happened", words: str = "") -> Ruling:
        body = ev.Body(inline=words.encode())
        event = ev.HumanResolved(call=call, outcome=outcome, content=body, by_user="ana")
        return self.append(event, "producer")

    def terminate(self, by: str = "ana") -> Ruling:
        return self.append(ev.SessionTerminated(reason="done", by_user=by), "producer")

    # -- workers ---------------------------------------------------------------------------------

    def take(self, owner: str = "w1/1", roles: tuple[str, ...] = ROLES) -> "History":
        """Let a worker take the partition for its roles."""
        for role in roles:
            self.append(ev.PartitionTaken(role=role, owner=owner), role, PARTITION_KEY)
        return self

    def owed(self) -> tuple[Obligation, ...]:
        """The obligations that WAKE returns now."""
        return wake(self.views, self.holders, self.at, rules_of(self.agent))

    def rows(self) -> list[str]:
        """The names of the WAKE rows that match now."""
        return [owed.row for owed in self.owed()]

    def do(self, owed: Obligation) -> Discharge:
        """Let the holder discharge an obligation, and append the events at once."""
        holder = self.holders.holder(owed.role)
        assert holder is not None, f"no worker holds the partition for {owed.role}"
        worker = self._worker(holder.owner)
        done = worker.discharge(self.views, self.holders, owed, self.agent, self.at)
        self.append_output(done)
        return done

    def append_output(self, done: Discharge) -> None:
        """Append the events that a worker wrote and the outcomes that it reported."""
        for event, role in done.written:
            self.append(event, role)
        for event in done.reported:
            self.append(event, ROLE_OF[type(event)])

    def _worker(self, owner: str) -> RecordedActions:
        more = (self.layers, self.renderings, self.records)
        return RecordedActions(owner, self.blobs, lambda: self.at, *more)

    def discharge(self, row: str) -> Discharge:
        """Let the holder discharge the first obligation of a row; the row must match."""
        return self.do(self._first(row))

    def in_flight(self, row: str) -> list[tuple[Any, str]]:
        """The events that the partition's holder would write for a row, and their roles. They are
        not in the log yet."""
        owed = self._first(row)
        holder = self.holders.holder(owed.role)
        assert holder is not None
        worker = self._worker(holder.owner)
        return worker.discharge(self.views, self.holders, owed, self.agent, self.at).written

    def land(self, written: list[tuple[Any, str]]) -> list[str]:
        """Append the events that were in flight. Returns the code or verdict of each ruling."""
        rulings = [self.append(event, role) for event, role in written]
        return [ruling.code or ruling.verdict for ruling in rulings]

    def _first(self, row: str) -> Obligation:
        found = [owed for owed in self.owed() if owed.row == row]
        assert found, f"{row} is not owed; the rows owed are {self.rows()}"
        return found[0]

    def work(self, *, before: tuple[str, ...] = ()) -> "History":
        """Let the holder write all decisions and claims that are owed, but stop before these
        rows."""
        for _ in range(ROUNDS_MAX):
            owed = [o for o in self.owed() if o.owed not in NEEDS_AN_EFFECT]
            todo = [o for o in owed if o.row not in (*before, "T8")]
            if not todo or todo[0].row in ("A2", "T6", "T6r", "T6v"):
                return self
            self.do(todo[0])
        raise AssertionError(f"the worker never comes to rest: {self.rows()}")

    # -- models and tools ------------------------------------------------------------------------

    @property
    def place(self) -> tuple[int, int, int]:
        """The (turn, step, attempt) of the newest attempt."""
        generation = self.turn.generation
        return self.turn.number, self.turn.step, generation.attempt if generation else 0

    def complete(self, *blocks: "str | Use", stop: str | None = None, read: int = 100) -> Ruling:
        """Complete the running attempt with these blocks; a plain text becomes a text block."""
        made = [answers.text(b) if isinstance(b, str) and b[:1] != "{" else b for b in blocks]
        uses = any(isinstance(block, Use) for block in made)
        reason = stop or ("tool_use" if uses else "end_turn")
        event = answers.complete(self.place, made, reason, self.blobs, read)
        return self.append(event, "models")

    def answer(self, *blocks: "str | Use", stop: str | None = None, read: int = 100) -> "History":
        """Work up to the model call, complete the call, and write the decisions that follow."""
        assert self.work().complete(*blocks, stop=stop, read=read).accepted
        return self.work()

    def fail(self, *, permanent: bool = False, retry_at: int | None = None) -> Ruling:
        event = answers.failed(self.place, permanent=permanent, retry_at=retry_at)
        return self.append(event, "models")

    def stopped(self, *blocks: "str | Use", why: str = "aborted") -> Ruling:
        made = [answers.text(b) if isinstance(b, str) and b[:1] != "{" else b for b in blocks]
        return self.append(answers.stopped(self.place, made, self.blobs, why), "models")

    def chunk(self, delta: str = "a", seq: int = 0) -> Ruling:
        turn, step, attempt = self.place
        event = ev.GenChunk(
            turn=turn, step=step, attempt=attempt, seq=seq, block=0, kind="text", delta=delta
        )
        return self.append(event, "models")

    def result(
        self, call: str, text: str = "ok", outcome: str = "ok", *, attempt: int | None = None,
        **more: Any,
    ) -> Ruling:
        known = self.call(call)
        number = (known.attempt if known else 1) if attempt is None else attempt
        event = answers.result(_parsed(call), number, text, outcome, **more)
        return self.append(event, "tools")

    def uncertain(self, call: str) -> Ruling:
        known = self.call(call)
        event = answers.uncertain(_parsed(call), known.attempt if known else 1)
        return self.append(event, "tools")

    # -- deliveries ------------------------------------------------------------------------------

    def delivered(self, turn: int, step: int, channel: str, writer: str = "delivery") -> Ruling:
        return self.append(ev.GenSent(turn=turn, step=step, channel=channel), writer)

    def undelivered(
        self, channel: str, *, attempt: int | None = None, permanent: bool = False,
        retry_at: int | None = None,
    ) -> Ruling:
        """Let the newest attempt of the first pending delivery to the channel fail."""
        owed = next(owed for owed in self.views.delivery.owed if owed.channel == channel)
        number = owed.attempt if attempt is None else attempt
        place = (owed.turn, owed.step, channel, number)
        event = answers.undelivered(place, permanent=permanent, retry_at=retry_at)
        return self.append(event, "delivery")


def _parsed(key: str) -> tuple[int, int, int]:
    parts = parse_call_key(key)
    assert parts is not None, key
    return parts


def _words(block: dict) -> str:
    match block["type"]:
        case "text":
            return block["text"]
        case "tool_use":
            return f"use {block['name']}"
        case "tool_result":
            mark = "error" if block.get("is_error") else "result"
            return f"{mark}: {block['content']}"
    return block["type"]


def opened(
    session_id: str = "s1",
    agent: Agent = AGENT,
    rules: int = RULES,
    kind: type[History] = History,
) -> History:
    """An open session in a partition that a worker holds."""
    history = kind(session_id, agent)
    history.take()
    assert history.open(rules=rules).accepted
    return history


def with_calls(*uses: Use, agent: Agent = AGENT, rules: int = RULES) -> History:
    """A session whose first answer makes these calls, each of them decided and claimed."""
    history = opened(agent=agent, rules=rules)
    history.say("go")
    return history.answer(*uses)

"""A worker that a test plays: it appends a worker's events, and the fold must accept each of them.

The tests of the write side, of the read side and of the command line need sessions in every state,
but no real worker. Nothing is mocked: the events go through the log and the real folds.
"""

import json
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from foldlog.client.session_fold import SessionFold
from foldlog.log import Log, MemoryLog, Settings
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.request.build import BUILDER, request_bytes, request_sha256
from foldlog.producers import Sessions
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.events.parts import AgentDigest, ReadBlob
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import SESSION_EVENTS, topics

PARTITIONS = 4
USAGE = ev.Usage(
    input_tokens=10,
    cache_read_tokens=0,
    cache_write_5m_tokens=0,
    cache_write_1h_tokens=0,
    output_tokens=5,
    raw=b"{}",
)


def memory_log(*, threaded: bool = False) -> MemoryLog:
    return MemoryLog(topics(PARTITIONS), threaded=threaded)


def settings_in(directory: Path, user: str = "ana", **more) -> Settings:
    return Settings(
        home=directory,
        state_dir=directory / "worker",
        blobs_dir=directory / "blobs",
        cache_dir=directory / "cache",
        user=user,
        partitions=PARTITIONS,
        **more,
    )


def text_block(text: str) -> dict:
    return {"type": "text", "text": text}


class Played:
    """One session, and the worker that serves the session."""

    def __init__(
        self,
        log: Log,
        session_id: str,
        owner: str = "w1/1",
        read: ReadBlob = lambda _ref: b"",
    ) -> None:
        self.log, self.session_id, self.owner, self.read = log, session_id, owner, read
        self.producer = log.producer()
        self.fold = SessionFold(log, session_id)
        self.epochs: dict[str, int] = {}
        self.seq = 0

    def now_ms(self) -> int:
        return max(self.fold.newest_ms, time.time_ns() // 1_000_000)

    @property
    def views(self) -> SessionViews:
        return self.fold.to_end()

    def append(self, event: object, writer: str, key: str | None = None) -> int:
        """Append an event, check that the fold accepts it, and return its offset."""
        placed = []
        self.producer.append(
            SESSION_EVENTS,
            key or self.session_id,
            encode(event),
            headers_for(event, writer),
            partition=self.fold.partition,
            on_delivery=placed.append,
        )
        assert self.producer.flush(10) == 0
        seen = list(self.fold.upto(placed[0].offset + 1))
        if key is None:
            assert seen[-1].ruling.accepted, (event, seen[-1].ruling)
        return placed[0].offset

    def take(
        self, owner: str | None = None, agents: tuple[AgentDigest, ...] = ()
    ) -> "Played":
        """Take the partition for every role, as a worker does when it starts."""
        self.owner = owner or self.owner
        for role in ("sessions", "models", "tools"):
            taken = ev.PartitionTaken(role=role, owner=self.owner, agents=agents)
            self.epochs[role] = self.append(taken, role, PARTITION_KEY)
        return self

    def call(self) -> None:
        """Append the LLM_CALLED of the next step, and the prefix before it."""
        if not self.epochs:
            self.take()
        views = self.views
        if not views.context.prefix_sha:
            self.append(
                ev.ContextSet(
                    system=ev.Body(inline=b'[{"type":"text","text":"Be brief."}]'),
                    tools=ev.Body(inline=b"[]"),
                    sha256="prefix",
                ),
                "sessions",
            )
        turn = self.views.turn
        steered = [w.message_id for w in turn.queue if w.when_busy == "steer"]
        self.append(
            ev.LlmCalled(
                turn=turn.number,
                step=turn.step + 1,
                model="claude-test",
                params=b'{"max_tokens":64}',
                strategy="full",
                budget=ev.Budget(soft_tokens=1, hard_tokens=2),
                includes=(*turn.owned, *steered),
                reminders=tuple(r.reminder_id for r in turn.reminders),
                compacted_upto=-1,
                prompt_tokens=1,
                context_sha256="prefix",
                basis=turn.basis,
            ),
            "sessions",
        )

    def _claim(self) -> dict:
        turn = self.views.turn
        self.seq = 0
        request = request_bytes(self.views, self.read)
        return {
            "turn": turn.number,
            "step": turn.step,
            "attempt": turn.generation.attempt + 1,
            "owner": self.owner,
            "epoch": self.epochs["models"],
            "deadline": self.now_ms() + 60_000,
            "called": turn.generation.called,
            "request_sha256": request_sha256(request),
            "builder": BUILDER,
        }

    def start(self) -> None:
        self.append(ev.GenStart(**self._claim()), "models")

    def resume(self, owner: str = "w2/1") -> None:
        """Let another worker take over the partition and the attempt."""
        self.take(owner)
        self.append(ev.GenResumed(**self._claim(), strategy="replace", prior_seq=0), "models")

    def place(self) -> dict:
        turn = self.views.turn
        return {"turn": turn.number, "step": turn.step, "attempt": turn.generation.attempt}

    def chunk(self, delta: str, *, block: int = 0, kind: str = "text", **changes) -> None:
        fields = {**self.place(), "seq": self.seq, "block": block, "kind": kind, "delta": delta}
        event = ev.GenChunk(**{**fields, **changes})
        if changes:
            self.send(event, "models")
        else:
            self.append(event, "models")
            self.seq += 1

    def send(self, event: object, writer: str) -> None:
        """Append an event that the fold may refuse."""
        self.producer.append(
            SESSION_EVENTS, self.session_id, encode(event), headers_for(event, writer)
        )

    def complete(
        self, text: str = "", calls=(), stop_reason: str = "", content=None, call_id: str = ""
    ) -> None:
        """Append GEN_COMPLETE. `calls`: the (name, arguments) of each call; `call_id`: one id for
        all calls."""
        blocks = [text_block(text)] if text else []
        proposed = []
        for index, (name, args) in enumerate(calls):
            raw = json.dumps(args).encode()
            label = call_id or f"toolu_{self.place()['turn']}{self.place()['step']}{index}"
            blocks.append({"type": "tool_use", "id": label, "name": name, "input": args})
            proposed.append(
                ev.ProposedCall(
                    index=index,
                    call_id=label,
                    name=name,
                    args=ev.Body(inline=raw),
                    args_sha256=sha256(raw).hexdigest(),
                )
            )
        self.append(
            ev.GenComplete(
                **self.place(),
                content=content or ev.Body(inline=json.dumps(blocks).encode()),
                calls=tuple(proposed),
                stop_reason=stop_reason or ("tool_use" if calls else "end_turn"),
                response_id="msg_1",
                model="claude-test",
                usage=USAGE,
            ),
            "models",
        )

    def propose(self, text: str, *calls: tuple[str, dict]) -> None:
        """Play a step in which the model answers with a text and tool calls. `calls`: the (name,
        arguments) of each call."""
        self.call()
        self.start()
        self.complete(text, calls)

    def fail(
        self, *, permanent: bool = False, error: str = "overloaded", retry_at: int | None = None
    ) -> None:
        self.append(
            ev.GenFailed(
                **self.place(),
                content=ev.Body(inline=b"[]"),
                error=error,
                detail="the provider is overloaded",
                status=529,
                retry_at=retry_at,
                permanent=permanent,
                usage=None,
            ),
            "models",
        )

    def stopped(self, text: str, *before: dict) -> None:
        """Append GEN_STOPPED with the text so far. `before`: the blocks before this text."""
        body = ev.Body(inline=json.dumps([*before, text_block(text)]).encode())
        self.append(ev.GenStopped(**self.place(), why="cancelled", content=body), "models")

    def invoke(self, index: int = 0, *, approval: str = "none", effect: str = "once") -> None:
        turn = self.views.turn
        call = turn.calls[index]
        self.append(
            ev.ToolInvoked(
                turn=call.turn,
                step=call.step,
                index=index,
                call_id=call.call_id,
                name=call.name,
                effect=effect,
                approval=approval,
                expires_at=self.now_ms() + 60_000 if approval == "ask" else None,
                basis=turn.basis,
            ),
            "sessions",
        )

    def tool_start(self, index: int = 0) -> None:
        turn = self.views.turn
        self.append(
            ev.ToolStarted(
                turn=turn.number,
                step=turn.step,
                index=index,
                attempt=turn.calls[index].attempt + 1,
                owner=self.owner,
                epoch=self.epochs["tools"],
                start_by=self.now_ms() + 5000,
                deadline=self.now_ms() + 60_000,
            ),
            "tools",
        )

    def tool_result(self, text: str, index: int = 0, *, outcome: str = "ok", **more) -> None:
        call = self.views.turn.calls[index]
        data = text.encode()
        self.append(
            ev.ToolResult(
                turn=call.turn,
                step=call.step,
                index=index,
                attempt=call.attempt,
                outcome=outcome,
                via="tool",
                content=ev.Body(inline=data),
                bytes=len(data),
                tokens=1,
                left_out=0,
                **more,
            ),
            "tools",
        )

    def run_tool(self, result: str) -> None:
        """Append the events of the newest step's call, which ends with this result."""
        self.invoke()
        self.tool_start()
        self.tool_result(result)

    def uncertain(self, index: int = 0, reason: str = "the worker died", why: str = "") -> None:
        call = self.views.turn.calls[index]
        self.append(
            ev.ToolFailedUncertain(
                turn=call.turn, step=call.step, index=index, attempt=call.attempt, reason=reason
            ),
            "tools",
        )
        needed = ev.HumanNeeded(call=call.key, why=why or reason)
        self.append(needed, "sessions", self.session_id)  # ignored if a person is faster

    def end(self, reason: str = "end_turn", **limit: int) -> int:
        turn = self.views.turn
        return self.append(
            ev.TurnEnded(
                turn=turn.number,
                reason=reason,
                basis=turn.basis,
                views_sha=turn.basis_sha,
                **limit,
            ),
            "sessions",
        )

    def wait(self, until: Callable[[SessionViews], bool], timeout_s: float = 20) -> None:
        """Wait until the session's views meet a condition. For a played worker that runs in a
        thread."""
        deadline = time.monotonic() + timeout_s
        while not until(self.views):
            assert time.monotonic() < deadline, "the condition was never met"
            for _ in self.fold.poll(0.05):
                pass

    def answer(self, text: str) -> int:
        """Play a turn of one step, streamed in two chunks. Returns the offset of the TURN_ENDED."""
        self.call()
        self.start()
        half = len(text) // 2
        self.chunk(text[:half])
        self.chunk(text[half:])
        self.complete(text)
        return self.end()


def opened(log: Log, settings: Settings, session_id: str = "s1") -> tuple[Sessions, Played]:
    """An open session: the commands that write to it, and its played worker."""
    sessions = Sessions(log, settings)
    sessions.open(session_id, agent="shop")
    return sessions, Played(log, session_id)

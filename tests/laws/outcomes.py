"""Effects of random histories: the outcomes of models, tools, background work and deliveries.

The thinking of an answer is signed for the request of its claim, so a request that repeats the
thinking in another place is detected. random_history.py mixes these acts with all others.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from foldlog.local.messages_api.binding import Prefix
from foldlog.local.messages_api.seal import make_id
from foldlog.processors.fold.projections.turn_view import REBUILDABLE
from foldlog.schemas import events as ev
from foldlog.tests.kit import answers
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.background_ends import MODEL_TEXTS, ends_of, task_at
from foldlog.tests.kit.continued_answer import ContinuedAnswer
from foldlog.tests.kit.forged_events import TEXTS
from foldlog.tests.kit.history import History
from foldlog.tests.kit.recorded_actions import chunks_in
from foldlog.tests.kit.signed_thinking import Prefixes, signed
from foldlog.tests.laws.resumed import chunks_until, continued_answer, resumes

STOPS = (
    "end_turn",
    "tool_use",
    "max_tokens",
    "pause_turn",
    "refusal",
    "stop_sequence",
    "model_context_window_exceeded",
)
CALL_IDS = ("a", "b", "toolu_1", "a-1-1-2", "a-1-2-1")  # only a few, because providers repeat ids
USES = (
    ("look", '{"where":"there"}'),
    ("look", "{}"),
    ("read", '{"page":7}'),
    ("leaf", "{}"),
    ("put", '{"text":"ü \\u00fc"}'),
    ("charge", '{"cents":3}'),
    ("charge", '{"cents":"three"}'),
    ("post", "{}"),
    ("post", '{"text":"dear"}'),
    ("wire", '{"cents":1}'),
    ("complete", "{}"),
    ("forbidden", "{}"),
    ("paint", "{}"),
    ("no such tool", "{}"),
)
REFUSALS = REBUILDABLE  # of a request because of its content
LINE = "as dull as the line before it, and "  # of a tool's result: 12 tokens


class Outcomes(History):
    """A history in which effects end at random."""

    choose: Any
    temper: str
    forged_events: Any
    seed: int | None
    sent: dict[tuple[int, int], bytes]  # the request of each step
    background_requests: list[bytes]
    bound: dict[tuple[int, int], Prefix]  # the prefix that an answer to each step is bound to
    prefixes: Prefixes

    # -- models and tools ------------------------------------------------------------------------

    def act_outcome(self) -> None:
        """Append the outcome of a claimed effect, mostly of one that is still running."""
        running = self._running()
        if running and not self.choose.chance(10):
            claim = self.choose.pick(running)
        elif claimed := self._claimed(ev.GenStart | ev.GenResumed | ev.ToolStarted):
            claim = self.steps[self.choose.pick(claimed)].entry.event
        else:
            return
        if isinstance(claim, ev.ToolStarted):
            if self.temper in ("crashing", "racing") and self.choose.chance(75):
                return  # the worker dies before it reports, or its claim is lost
            self.append(self.tool_outcome(claim), "tools")
        else:
            self.append(self.model_outcome(claim), "models")

    def _claimed(self, kinds: Any) -> list[int]:
        """The numbers of the steps that are accepted claims of these types."""
        return [
            number
            for number, step in enumerate(self.steps)
            if isinstance(step.entry.event, kinds) and step.ruling.accepted
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
            if choose.chance(15):
                return answers.failed(place, permanent=True, error=choose.pick(REFUSALS))
            retry = choose.pick((None, self.at + 5_000))
            return answers.failed(place, permanent=choose.chance(15), retry_at=retry)
        stop = choose.pick(("tool_use", "tool_use", "end_turn") if choose.chance(70) else STOPS)
        if not choose.chance(fails):
            return self.an_answer(claim, stop)
        blocks = self.blocks(stop, claim)
        if (continued := self._continued(claim, blocks)) is not None:
            self._stream(islice(continued.chunks(), choose.number(0, 6)))
            event = answers.stopped(place, [], self.blobs)
            return replace(event, content=self.blobs.body(continued.so_far()))
        whole = [block for block in blocks if isinstance(block, str) or choose.chance(50)]
        whole = whole[: choose.number(0, len(whole))]
        if choose.chance(30):
            whole.append(answers.thinking("and n", ""))
        return answers.stopped(place, whole, self.blobs, "the worker is ending")

    def an_answer(self, claim: Any, stop: str) -> ev.GenComplete:
        """A whole answer to a claim's request. The input tokens that it reports mostly fit the size
        of the request."""
        place, choose = (claim.turn, claim.step, claim.attempt), self.choose
        blocks = self.blocks(stop, claim)
        size = len(self.sent[place[:2]]) // 3
        read = choose.pick((50, 7_000, 25_000)) if choose.chance(4) else size
        written = sum(len(answers.block_text(block)) for block in blocks) // 3
        if (continued := self._continued(claim, blocks)) is not None:
            self._stream(continued.chunks())
            event = answers.complete(place, [], stop, self.blobs, read, written)
            calls = continued.finish(stop)
            return replace(event, content=self.blobs.body(continued.content()), calls=calls)
        event = answers.complete(place, blocks, stop, self.blobs, read, written)
        return replace(event, refusal_category="cyber") if stop == "refusal" else event

    def _continued(self, claim: Any, blocks: list[Any]) -> ContinuedAnswer | None:
        if self.agent.recovery != "resume" or not resumes(claim):
            return None
        step = next(step for step in self.steps if step.entry.event is claim)
        return continued_answer(self, step, blocks)

    def _stream(self, lists: Iterable[list[ev.GenChunk]]) -> None:
        for chunk in chain.from_iterable(lists):
            self.append(chunk, "models")

    def stream_more(self) -> None:
        """Stream more chunks of the running attempt. They are mostly text, because only text can be
        continued."""
        choose, streamed = self.choose, chunks_until(self, self.views)
        chunks = chunks_in(self.records)
        own = [c.seq for c in chunks if (c.turn, c.step, c.attempt) == self.place]
        seq = max([len(streamed) - 1, *own]) + 1  # may follow a missing chunk
        block, resumed = streamed[-1].block if streamed else 0, self.turn.generation.chain
        before = streamed[-1].kind if streamed else ""
        begins_call = not resumed and choose.chance(8)
        for _ in range(choose.number(1, 3)):
            seq += choose.chance(4) and not resumed  # a chunk is lost
            kind = choose.pick(("thinking", "tool_name")) if begins_call else "text"
            other = before not in ("", kind) or before == "tool_name"  # a block has one kind
            block, before = block + (choose.chance(20) or other), kind
            place = dict(zip(("turn", "step", "attempt"), self.place, strict=True))
            delta = choose.pick(("once ", "upon", " a time\n", "\u00fc \U0001f600", " "))
            chunk = ev.GenChunk(**place, seq=seq, block=block, kind=kind, delta=delta)
            self.append(chunk, "models")
            seq += 1

    def blocks(self, stop: str, claim: Any) -> list[Any]:
        """The blocks of an answer to the request of this claim; the thinking is signed for this
        request."""
        choose = self.choose
        made: list[Any] = []
        for _ in range(choose.number(0, 3)):
            made.append(
                choose.pick(
                    (
                        answers.text("fine"),
                        answers.text(choose.pick(TEXTS)),
                        answers.text("long " * 60),
                        answers.thinking("hm"),
                        answers.thinking(""),
                        answers.dumps({"type": "redacted_thinking", "data": "opaque"}),
                        '{"type":"text","text":"\\u00fc \\/ escaped","n":1.50}',
                        '{"type":"brand_new_block","x":[1e2]}',
                    )
                )
            )
        if stop == "pause_turn":  # the answer stops in the middle of a server tool
            made += self._server_use()[: choose.number(1, 2)]
        elif choose.chance(10):
            made += self._server_use()
        if stop in ("tool_use", "max_tokens") or choose.chance(5):
            for _ in range(choose.number(1 if stop == "tool_use" else 0, 3)):
                name, args = choose.pick(USES)
                error = "the arguments are not a JSON object" if choose.chance(8) else None
                made.append(Use(name, args, self._call_id(), error))
                if choose.chance(5):
                    made.append(answers.thinking("and then"))
        request = self.sent[claim.turn, claim.step]
        body = json.loads(request)
        fixed = (body.get("thinking") or {}).get("type") == "enabled"
        if fixed and made and body["messages"][-1]["role"] == "user":
            made.insert(0, answers.thinking("first"))
        place = (claim.turn, claim.step)
        if place not in self.bound:
            self.bound[place] = self.prefixes.after(body)
        return signed(made, self.bound[place], body["model"])

    def _call_id(self) -> str:
        if self.choose.chance(60):
            return make_id("toolu", self.seed, self.offset, self.choose.number(0, 999))
        return self.choose.pick(CALL_IDS)

    def _server_use(self) -> tuple[str, ...]:
        id = f"srv_{self.offset}_{self.choose.number(0, 99)}"
        begun = {"type": "server_tool_use", "id": id, "name": "web_search", "input": {}}
        done = {"type": "web_search_tool_result", "tool_use_id": id, "content": []}
        return answers.dumps(begun), answers.dumps(done)

    def tool_outcome(self, claim: ev.ToolStarted) -> Any:
        choose, place = self.choose, (claim.turn, claim.step, claim.index)
        if choose.chance(15):
            return answers.uncertain(place, claim.attempt)
        triggers = (self.forged_events._trigger(),) if choose.chance(20) else ()
        text, whole = choose.pick(TEXTS), None
        if choose.chance(35):
            text = "".join(f"{n} {LINE}" for n in range(choose.pick((42, 55, 90, 150))))
            if choose.chance(30):
                whole = self.blobs.store(text.encode() * 2, "text/plain")
        return answers.result(
            place,
            claim.attempt,
            text,
            choose.pick(("ok", "ok", "ok", "error", "not_run", "cancelled")),
            via=choose.pick(("tool", "tool", "reconciler")),
            triggers=triggers,
            reminders=(f"remember {self.offset}",) if choose.chance(10) else (),
            whole=whole,
        )

    def act_chunk(self) -> None:
        generation = self.turn.generation
        if self.agent.recovery == "resume" and generation and generation.status == "running":
            return self.stream_more()  # chunks that may be continued are numbered without gaps
        for seq in range(self.choose.number(1, 3)):
            self.chunk("a", seq)

    # -- background work -------------------------------------------------------------------------

    def act_background(self) -> None:
        """Append the events of claimed background work; sometimes its worker dies before the last
        event."""
        choose = self.choose
        claims = self._claimed(ev.BackgroundStarted)
        runs = {(w.kind, w.upto, w.attempt) for w in self.views.background.works}
        live = [n for n in claims if self._background_place(n) in runs]
        if not claims:
            return
        number = choose.pick(live) if live and not choose.chance(10) else choose.pick(claims)
        claim = self.steps[number].entry.event
        if choose.chance(8):
            event = answers.done(claim.kind, claim.upto, claim.attempt, why="it was stopped")
            self.append(event, "background")
            return
        begun = self.steps[min(len(self.steps) - 1, number + choose.pick((0, 0, 0, 3, 20)))]
        work, task = task_at(begun.views, claim, self.agent, self.blobs)
        if work is None:
            work, task = task_at(self.steps[number].views, claim, self.agent, self.blobs)
        if task is not None:
            self.background_requests.append(task.request)
        text = choose.pick(MODEL_TEXTS[:2] if choose.chance(50) else MODEL_TEXTS)
        ends = ends_of(claim, task, self.agent, text, self.blobs)
        for event in ends if choose.chance(85) else ends[:1]:
            self.append(event, "background")
            if choose.chance(20):
                choose.pick((self.act_work, self.act_say, self.act_outcome))()

    # -- deliveries ------------------------------------------------------------------------------

    def act_delivery(self) -> None:
        """Append the outcome of a claimed delivery, mostly of the newest attempt of a pending
        one."""
        choose, claims = self.choose, self._claimed(ev.DeliveryStarted)
        offsets = {o.claim.offset for o in self.views.delivery.owed if o.status == "running"}
        live = [n for n in claims if self.steps[n].entry.offset in offsets]
        if not claims:
            return
        number = choose.pick(live) if live and not choose.chance(15) else choose.pick(claims)
        claim = self.steps[number].entry.event
        if choose.chance(55):
            self.delivered(claim.turn, claim.step, claim.channel)
            return
        retry = choose.pick((None, self.at + 5_000))
        place = (claim.turn, claim.step, claim.channel, claim.attempt)
        event = answers.undelivered(place, permanent=choose.chance(15), retry_at=retry)
        self.append(event, "delivery")

    def _background_place(self, number: int) -> tuple[str, int, int]:
        claim = self.steps[number].entry.event
        return claim.kind, claim.upto, claim.attempt

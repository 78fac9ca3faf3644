"""The effects of the searched system: a task is one running effect, and has possible endings.

A task's ending is one action, which covers its outcome, the outbox and the record. What may happen
in between is a fault of that action.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from foldlog.processors.effects.ports import BeginGeneration, BeginTool
from foldlog.processors.effects.tool import tool_claim_of
from foldlog.processors.tools.outcomes import Doubt, ToolClaim, not_run, result, short, uncertain
from foldlog.processors.worker.reports import ROLE_OF
from foldlog.schemas import events as ev
from foldlog.schemas.enums import Outcome, Via
from foldlog.tests.kit import answers
from foldlog.tests.kit.answers import Use
from foldlog.tests.states.host import INLINE, Begun
from foldlog.tests.states.records import SESSION, Log, Numbered
from foldlog.tests.states.variants import Variant

STREAMED = "so far"
NOTHING = -1  # the draft of an ending that reports nothing


class Task(NamedTuple):
    """A running effect. `what`: the number of the place of a model call, of the ToolClaim of a tool
    call, or of the outcome to report. `since`: when it was begun; `did`: whether the tool has acted
    on the world, or the model has streamed its chunk."""

    kind: str
    claim: int
    what: int
    since: int
    stop: bool = False
    did: bool = False


class Ending(NamedTuple):
    """One way in which a task ends. `is_fault`: whether only a fault ends it so."""

    label: str
    draft: int
    is_fault: bool = False


class Effects:
    """Begins tasks, and lists their endings."""

    def __init__(self, log: Log, variant: Variant) -> None:
        self.log, self.variant, self.agent = log, variant, variant.agent
        self.claims = Numbered()
        self._endings: dict[tuple[Task, int, bool], tuple[Ending, ...]] = {}

    def task(self, begun: Begun, now: int) -> Task:
        """The task of an effect that a worker began."""
        begin = begun.begin
        offset = begin.claim.offset
        if isinstance(begin, BeginGeneration):
            place = (begin.turn, begin.step, begin.attempt)
            return Task(begun.what, offset, self.claims.number(place), now)
        assert isinstance(begin, BeginTool)
        what = "ask early" if begin.early else begun.what
        return Task(what, offset, self.claims.number(tool_claim_of(SESSION, begin)), now)

    def report(self, event: Any, now: int) -> Task:
        """The task that reports an outcome of no effect."""
        return Task("report", -1, self._draft(event), now)

    def _draft(self, event: Any) -> int:
        return self.log.draft(event, ROLE_OF[type(event)])

    def chunk(self, task: Task) -> int:
        """The chunk that a model call streams."""
        turn, step, attempt = self.claims[task.what]
        delta = {"block": 0, "kind": "text", "delta": STREAMED}
        chunk = ev.GenChunk(turn=turn, step=step, attempt=attempt, seq=0, **delta)
        return self.log.draft(chunk, "models")

    def may_act(self, task: Task, now: int) -> bool:
        """Whether a tool may act on the world now: it began within its start window, and its time
        limit has not passed."""
        limits = self.agent.limits
        span = limits.start_window_ms + limits.tool_timeout_ms
        return task.kind == "run_tool" and not task.did and now - task.since <= span

    def endings(self, task: Task, now: int, has_acted: bool) -> tuple[Ending, ...]:
        """The ways in which a task can end now. `has_acted`: whether the ledger has the call."""
        key = (task._replace(since=now - task.since), 0, has_acted)
        if key not in self._endings:
            self._endings[key] = tuple(self._all_endings(*key))
        return self._endings[key]

    def _all_endings(self, task: Task, _now: int, has_acted: bool) -> Iterator[Ending]:
        if task.kind == "report":
            yield Ending("reports", task.what)
            return
        claim = self.claims[task.what]
        match task.kind:
            case "generate":
                yield from self._of_generation(task, claim)
            case "recover_chunks":
                stopped = answers.stopped(claim, [answers.text(STREAMED)], INLINE)
                yield Ending("recovers", self._draft(stopped))
            case "run_tool":
                yield from self._of_tool(task, claim, task.since)
            case "reconcile":
                yield from self._of_reconciler(claim, has_acted)
            case "ask early" if has_acted:
                yield Ending("finds out", self._draft(self._happened(claim)))
                yield Ending("finds nothing out", NOTHING, is_fault=True)
            case "ask early":
                yield Ending("finds nothing out", NOTHING)

    def _of_generation(self, task: Task, place: tuple[int, int, int]) -> Iterator[Ending]:
        so_far = [answers.text(STREAMED)] if task.did else []
        if task.stop:
            yield Ending("stops", self._draft(answers.stopped(place, so_far, INLINE)))
        use = Use(self.variant.tool, '{"n":1}', "c1")
        yield Ending("answers", self._draft(answers.complete(place, [use], "tool_use", INLINE)))
        yield Ending("fails", self._draft(answers.failed(place)), is_fault=True)

    def _of_tool(self, task: Task, claim: ToolClaim, waited: int) -> Iterator[Ending]:
        once, limits = claim.effect == "once", self.agent.limits
        if task.did:
            ok = result(claim, Outcome.OK, short("it happened"))
            yield Ending("returns", self._draft(ok))
        elif task.stop:
            yield Ending("does not begin", self._draft(not_run(claim, "it was stopped")))
            cancelled = result(claim, Outcome.CANCELLED, short("it stopped itself"))
            yield Ending("stops itself", self._draft(cancelled))
        elif waited > limits.start_window_ms:
            yield Ending("does not begin", self._draft(not_run(claim, "it waited too long")))
        if task.stop or waited > claim.timeout_ms:
            if once:
                doubt = uncertain(claim, Doubt.ABORTED, "it was killed")
                yield Ending("is lost", self._draft(doubt))
            else:
                outcome = Outcome.CANCELLED if task.stop else Outcome.ERROR
                yield Ending("is killed", self._draft(result(claim, outcome, short("killed"))))

    def _of_reconciler(self, claim: ToolClaim, has_acted: bool) -> Iterator[Ending]:
        tool = self.agent.tool(claim.name)
        assert tool is not None
        doubt = uncertain(claim, Doubt.WORKER_DIED, "nobody knows")
        unknown = Ending("finds nothing out", self._draft(doubt))
        if tool.reconciler is None:
            yield unknown
            return
        if has_acted:
            event = self._happened(claim)
        else:
            event = result(claim, Outcome.NOT_RUN, short("it did not"), via=Via.RECONCILER)
        yield Ending("finds out", self._draft(event))
        yield unknown._replace(is_fault=True)

    @staticmethod
    def _happened(claim: ToolClaim) -> Any:
        return result(claim, Outcome.OK, short("it happened"), via=Via.RECONCILER)

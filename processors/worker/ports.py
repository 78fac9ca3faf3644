"""The interfaces through which a worker's actions produce records, and begin and stop effects.

effects_host.py and loop.py implement them, and so does the simulator.
"""

import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ...log.blobs import BlobCorrupt, BlobMissing
from ...schemas import events as ev
from ...schemas.events.parts import ReadBlob
from ..agent import Agent
from ..effects.delivery import Delivery
from ..fold.partial_answer import Chain
from ..fold.projections.delivery import Owed, delivery_of
from ..fold.projections.turn_view import Call, Claim
from ..fold.views import SessionViews
from ..request.continuation import Kept
from ..tools.run import READER
from ..wake.background_tasks import Task, is_made, task_of
from ..wake.facts import Obligation
from .claims import claimed_work, work_ended

LOST_CHARS_MAX = 500  # limit of the text that names the lost content
_REF = re.compile(rf'{READER}, ref "([0-9a-f]{{64}})"')  # the reference in a result's notice


class Append(Protocol):
    """Produces a record to a partition without waiting; calls `failed` if the record was lost."""

    def __call__(
        self,
        topic: str,
        partition: int,
        key: str,
        value: bytes,
        headers: list[tuple[str, bytes]],
        failed: Callable[[str], None],
    ) -> None: ...


class Effects(Protocol):
    """Begins effects in the background; each reports its own outcome through its sink."""

    def generate(self, session_id: str, begin: "BeginGeneration") -> None: ...
    def run_tool(self, session_id: str, begin: "BeginTool") -> None: ...
    def reconcile(self, session_id: str, begin: "BeginTool") -> None: ...
    def chunks_since(
        self, session_id: str, partition: int, offset: int, attempt: int
    ) -> list[ev.GenChunk] | None: ...
    def recover_chunks(self, session_id: str, partition: int, begin: "BeginGeneration") -> None: ...
    def work(self, session_id: str, begin: "BeginWork") -> None: ...
    def deliver(self, session_id: str, begin: "BeginDelivery") -> None: ...
    def report(self, session_id: str, event: Any) -> None: ...
    def stop(self, effect: "EffectId", why: str) -> bool: ...
    def running(self, role: str) -> int: ...


class EffectId(NamedTuple):
    """Identifies an effect by its claim. `recovers`: True if the effect determines the outcome of a
    dead owner's claim, False if it is the claimed effect itself. `early`: whether it does so before
    the claim's deadline and the margin have passed.
    """

    session_id: str
    claim_offset: int
    recovers: bool = False
    early: bool = False


class BeginGeneration(NamedTuple):
    """A model call to begin. `claim`: as read back from the log. `kept`: the partial answer that
    the call resumes, built from the chunks of the attempts in `chain`, from offset `since` on.
    `error_before`: the class of the step's last failure, or ''. `now`: the worker's time when it
    read the claim, Unix ms; 0 if that is unknown."""

    turn: int
    step: int
    attempt: int
    claim: Claim
    request: bytes
    agent: Agent
    kept: Kept | None = None
    chain: Chain = ()
    since: int = 0
    error_before: str = ""
    now: int = 0


class BeginTool(NamedTuple):
    """A tool call to begin or to reconcile. `refs`: the stored results that the call may read.
    `early`: a call to reconcile that may still happen, so that only "it happened" counts."""

    call: Call
    args: bytes
    claim: Claim
    agent: Agent
    user_id: str = ""
    project_id: str | None = None
    refs: frozenset[str] = frozenset()
    early: bool = False


def begin_tool(
    views: SessionViews, call: Call, args: bytes, claim: Claim, agent: Agent
) -> BeginTool:
    """The BeginTool for a call of a session, made from the session's views."""
    refs = refs_in(views) if call.name == READER else frozenset()
    state = views.state
    return BeginTool(call, args, claim, agent, state.user_id or "", state.project_id, refs)


def refs_in(views: SessionViews) -> frozenset[str]:
    """References to the stored results that this session's model may read."""
    fragments, shorts = views.context.fragments, views.compaction.shorts
    bodies = [f.body for f in fragments if f.kind == "result"] + [s.body for s in shorts]
    late = [f.text for f in fragments if f.kind == "reminder"]  # late results of earlier calls
    kept = {body.ref.sha256 for body in bodies if body is not None and body.ref is not None}
    return frozenset(kept.union(*map(_REF.findall, late)))


class BeginWork(NamedTuple):
    """Background work to begin. `task`: the input of the work, built from the views when it begins.
    `now`: as in BeginGeneration."""

    kind: str
    upto: int
    attempt: int
    claim: Claim
    task: Task
    agent: Agent
    now: int = 0


def begin_work(
    views: SessionViews, obligation: Obligation, agent: Agent, read_blob: ReadBlob
) -> BeginWork | ev.BackgroundDone:
    """The BeginWork of claimed work, or the work's outcome if there is nothing to do."""
    work = claimed_work(views, obligation)
    if obligation.owed == "abort" or is_made(views, work):
        return work_ended(views, work)
    try:
        task = task_of(views, work, agent, read_blob)
    except (BlobMissing, BlobCorrupt) as lost:  # the conversation continues without this work
        return work_ended(views, work, f"what it is made of is lost: {lost}"[:LOST_CHARS_MAX])
    if task is None:
        return work_ended(views, work)
    return BeginWork(work.kind, work.upto, work.attempt, work.claim, task, agent)


class BeginDelivery(NamedTuple):
    """A delivery to begin. `content`: the content of the answer, from the log; `stop_reason`: why
    the answer ended. `now`: as in BeginGeneration.
    """

    owed: Owed
    content: bytes
    stop_reason: str
    user_id: str
    agent: Agent
    now: int = 0

    @property
    def claim(self) -> Claim:
        """The claim read back from the log."""
        assert self.owed.claim is not None
        return self.owed.claim

    def delivery(self, session_id: str) -> Delivery:
        """The delivery, as `effects.delivery.deliver` takes it."""
        return Delivery(
            session_id,
            self.user_id,
            self.owed.turn,
            self.owed.step,
            self.owed.channel,
            self.owed.attempt,
            max(self.now, self.claim.at),
            self.content,
            self.stop_reason,
            time.monotonic(),
        )


def begin_delivery(
    views: SessionViews, number: int, agent: Agent, read_blob: ReadBlob
) -> BeginDelivery:
    """The BeginDelivery of a claimed delivery. Its content is the body of the answer, which is
    found in the transcript."""
    wanted, lines = delivery_of(views.delivery, number), views.transcript.lines
    place = ("answer", wanted.turn, wanted.step)
    line = next(
        line
        for line in (lines[back] for back in range(len(lines) - 1, -1, -1))
        if (line.kind, line.turn, line.step) == place
    )
    assert line.body is not None, "an answer has a body"
    body = line.body
    content = read_blob(body.ref) if body.ref is not None else body.inline or b"[]"
    return BeginDelivery(wanted, content, line.name, views.state.user_id or "", agent)

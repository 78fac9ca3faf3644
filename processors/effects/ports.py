"""The effects as a worker's actions see them: what each needs to begin, and who begins it.

worker/effects_host.py implements `Effects`; so do the test kit's engine and the simulator.
"""

from typing import Any, NamedTuple, Protocol

from ...schemas import events as ev
from ..agent import Agent
from ..fold.partial_answer import Chain
from ..fold.projections.delivery import Owed
from ..fold.projections.turn_view import Call, Claim
from ..request.continuation import Kept
from ..wake.background_tasks import Task


class Effects(Protocol):
    """Begins effects in the background; each reports its own outcome through its sink."""

    def begin(self, session_id: str, begin: "Begin") -> None: ...
    def chunks_since(
        self, session_id: str, partition: int, offset: int, attempt: int
    ) -> list[ev.GenChunk] | None: ...
    def report(self, session_id: str, event: Any) -> None: ...
    def stop(self, effect: "EffectId", why: str) -> bool: ...
    def running(self, role: str) -> int: ...


class EffectId(NamedTuple):
    """Identifies an effect by its claim.

    `recovers`: True if the effect determines the outcome of a dead owner's claim, False if it is
        the claimed effect itself.
    `early`: whether it does so before the claim's deadline and the margin have passed.
    """

    session_id: str
    claim_offset: int
    recovers: bool = False
    early: bool = False


class BeginGeneration(NamedTuple):
    """A model call to begin.

    `claim`: as read back from the log.
    `kept`: the partial answer that the call resumes, built from the chunks of the attempts in
        `chain`, from offset `since` on.
    `error_before`: the class of the step's last failure, or ''.
    `now`: the worker's time when it read the claim, Unix ms; 0 if that is unknown.
    `recovers`: the attempt is lost, and its outcome must be reported, with the content of its
        chunks in `partition` (row A2).
    """

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
    recovers: bool = False
    partition: int = 0

    @property
    def place(self) -> tuple[int, int, int]:
        """The turn, the step and the attempt."""
        return self.turn, self.step, self.attempt


class BeginTool(NamedTuple):
    """A tool call to begin.

    `refs`: the stored results that the call may read.
    `recovers`: the call's owner is dead, and its reconciler must be asked whether it happened.
    `early`: it may still happen, so that only "it happened" counts.
    """

    call: Call
    args: bytes
    claim: Claim
    agent: Agent
    user_id: str = ""
    project_id: str | None = None
    refs: frozenset[str] = frozenset()
    recovers: bool = False
    early: bool = False


class BeginWork(NamedTuple):
    """Background work to begin.

    `task`: the input of the work, built from the views when it begins.
    `now`: as in BeginGeneration.
    """

    kind: str
    upto: int
    attempt: int
    claim: Claim
    task: Task
    agent: Agent
    now: int = 0


class BeginDelivery(NamedTuple):
    """A delivery to begin.

    `content`: the content of the answer, from the log.
    `stop_reason`: why the answer ended.
    `now`: as in BeginGeneration.
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


Begin = BeginGeneration | BeginTool | BeginWork | BeginDelivery

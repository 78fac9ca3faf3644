"""The life of an effect: claimed, begun or not begun, aborted, recovered, run.

`Kind` has one method per stage. Each kind of effect is one file that implements them: `model.py`,
`tool.py`, `background.py`, `delivery.py`. worker/actions.py calls the stages before the effect, in
the poll thread; worker/effects_host.py runs what `Effects` was asked to begin, in its event loop.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...log.blobs import BlobsAway, BlobStore
from ...log.channels import Channel
from ...schemas.enums import Role
from ..agent import Agent
from ..fold.projections.partition import Holder
from ..fold.projections.turn_view import Claim
from ..fold.views import SessionViews
from ..store.chunks_reader import ChunksReader
from ..tools.output_sink import Sink, Stop
from ..tools.result_cache import ResultCache
from ..tools.side_log import SideLogStore
from ..wake.facts import Obligation
from ..wake.table import Action
from .ports import EffectId
from .slots import Slots
from .start_window import StartWindow

if TYPE_CHECKING:
    from ..memory.service import MemoryService


NOT_BEGUN = "not_begun"  # the error of a claim that was read back too late


class Due(NamedTuple):
    """Pending work: the row of WAKE, the session's views and agent, and the worker's time (Unix
    ms).
    `partition`: the number of the session's partition."""

    views: SessionViews
    obligation: Obligation
    known_agent: Agent | None
    partition: int
    now: int

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.views.session_id

    @property
    def agent(self) -> Agent:
        """The session's agent, without which no effect is due."""
        assert self.known_agent is not None
        return self.known_agent


class Begun:
    """The effects that this process has begun, recovered or reported, by session."""

    def __init__(self) -> None:
        self._effects: dict[str, set[EffectId]] = {}

    def __contains__(self, effect: EffectId) -> bool:
        return effect in self._effects.get(effect.session_id, ())

    def add(self, effect: EffectId) -> None:
        """Record that an effect has begun."""
        self._effects.setdefault(effect.session_id, set()).add(effect)

    def once(self, effect: EffectId, begin: Callable[[], None]) -> None:
        """Call `begin`, once per effect. If it raises BlobsAway, the effect has not begun: it
        begins when the blob store is back."""
        if effect in self:
            return
        self.add(effect)
        try:
            begin()
        except BlobsAway:
            self._effects[effect.session_id].discard(effect)
            raise

    def forget(self, session_id: str) -> set[EffectId]:
        """Forget a session. Returns its effects."""
        return self._effects.pop(session_id, set())


class Kind(Protocol):
    """One kind of effect. The methods run in the poll thread and never block.

    `role`: the role that claims and runs it. `claims`: the events that claim it.
    """

    role: Role
    claims: frozenset[Action]

    def claim(self, due: Due, holder: Holder) -> Any | None:
        """The event that claims the next attempt; None to ask again soon. Raises BlobsAway if the
        effect's content cannot be read now. A claim now would be useless, because its start window
        would pass."""

    def claimed(self, views: SessionViews, obligation: Obligation) -> Claim:
        """The claim, as read back from the log."""

    def begin(self, due: Due) -> None:
        """Begin the claimed effect, or report its outcome if there is nothing to do."""

    def not_begun(self, views: SessionViews, obligation: Obligation, why: str) -> Any:
        """The outcome of an effect that does not begin because its claim was read back too late."""

    def abort(self, due: Due) -> None:
        """Report the outcome of a claimed effect that was not begun because its turn is ending."""

    def is_wanted(self, views: SessionViews, claim_offset: int) -> bool:
        """Whether the session still needs the outcome of an effect that runs in this process,
        while its partition may belong to another worker."""

    def forget(self, session_id: str) -> None:
        """Forget a session that has no obligations."""


class Means(NamedTuple):
    """What running effects use. `get_client`: returns the model's client, or None if `stop` is
    requested first. `pace`: the slots of the model's API key."""

    blobs: BlobStore
    side_log: SideLogStore
    get_client: Callable[[Stop], Awaitable[Any]]
    read_chunks: ChunksReader
    pace: Slots | None = None
    memory: "MemoryService | None" = None
    results: ResultCache | None = None
    find_channel: Callable[[str], Channel | None] = lambda name: None
    tool_env: tuple[str, ...] = ()


class Run(NamedTuple):
    """An effect to run in an event loop.

    `work`: reports the outcome; returns a task that a tool left behind, or None. `died`: the
    outcome to report if `work` dies without one (rows T4, S2); None if another attempt follows
    anyway. `window`: the time within which it must begin.
    """

    role: Role
    effect: EffectId
    work: Callable[[Sink, Stop], Awaitable[Awaitable[None] | None]]
    died: Callable[[str], Any] | None = None
    window: StartWindow | None = None

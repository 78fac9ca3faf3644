"""The kinds of effects, by role and by the action that claims one. A new kind has a row here."""

from collections.abc import Mapping
from typing import assert_never

from ...schemas.enums import Role
from ...schemas.events.parts import ReadBlob
from ..fold.views import SessionViews
from ..wake.table import Action
from . import background, delivery, model, tool
from .background import BackgroundWorks
from .delivery import Deliveries
from .effect import Kind, Means, Run
from .model import ModelCalls
from .ports import Begin, BeginDelivery, BeginGeneration, BeginTool, BeginWork, Effects
from .tool import ToolCalls

_OTHERS = (BackgroundWorks, Deliveries)  # the worker needs no more of them than what `Kind` has
KINDS = (ModelCalls, ToolCalls, *_OTHERS)
SLOTS: Mapping[Role, int] = {kind.role: kind.slots for kind in _OTHERS}
"""How many effects of a role run at once in a process, where no setting says so."""
CLAIMED_BY: Mapping[Action, Role] = {
    action: kind.role for kind in KINDS for action in sorted(kind.claims)
}
"""The role that claims an effect by writing this event."""


class Kinds:
    """The kinds of effects of one worker."""

    def __init__(self, effects: Effects, read_blob: ReadBlob) -> None:
        self.models = ModelCalls(effects, read_blob)
        self.tools = ToolCalls(effects, read_blob)
        others = [kind(effects, read_blob) for kind in _OTHERS]
        kinds: tuple[Kind, ...] = (self.models, self.tools, *others)
        self._by_role = {kind.role: kind for kind in kinds}

    def of(self, role: Role) -> Kind:
        """The kind whose effects a role runs."""
        return self._by_role[role]

    def forget(self, session_id: str) -> None:
        """Forget a session that has no obligations."""
        for kind in self._by_role.values():
            kind.forget(session_id)


_IS_WANTED = {kind.role: kind.is_wanted for kind in KINDS}


def is_wanted(views: SessionViews, role: Role, claim_offset: int) -> bool:
    """Whether a session still needs the outcome of an effect that runs in this process, while its
    partition may belong to another worker."""
    if views.frozen is not None:
        return True  # the later state is unknown here
    return _IS_WANTED[role](views, claim_offset)


def run_of(session_id: str, begin: Begin, means: Means) -> Run:
    """The run of an effect that was asked to begin. Called when its claim was read."""
    match begin:
        case BeginGeneration(recovers=True):
            return model.recovery(session_id, begin, means)
        case BeginGeneration():
            return model.run(session_id, begin, means)
        case BeginTool(recovers=True):
            return tool.reconciliation(session_id, begin, means)
        case BeginTool():
            return tool.run(session_id, begin, means)
        case BeginWork():
            return background.run(session_id, begin, means)
        case BeginDelivery():
            return delivery.run(session_id, begin, means)
        case _:
            assert_never(begin)

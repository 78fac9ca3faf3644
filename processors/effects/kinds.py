"""The kinds of effects, by role and by the action that claims one. A new kind has a row here."""

from collections.abc import Mapping

from ...schemas.enums import Role
from ...schemas.events.parts import ReadBlob
from ..fold.views import SessionViews
from ..wake.table import Action
from .background import BackgroundWorks
from .delivery import Deliveries
from .effect import Kind
from .model import ModelCalls
from .ports import Effects
from .tool import ToolCalls

KINDS = (ModelCalls, ToolCalls, BackgroundWorks, Deliveries)
CLAIMED_BY: Mapping[Action, Role] = {
    action: kind.role for kind in KINDS for action in sorted(kind.claims)
}
"""The role that claims an effect by writing this event."""


class Kinds:
    """The kinds of effects of one worker."""

    def __init__(self, effects: Effects, read_blob: ReadBlob) -> None:
        self.models = ModelCalls(effects, read_blob)
        self.tools = ToolCalls(effects, read_blob)
        self._by_role: dict[Role, Kind] = {
            kind.role: kind
            for kind in (
                self.models,
                self.tools,
                BackgroundWorks(effects, read_blob),
                Deliveries(effects, read_blob),
            )
        }

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

"""partition: the holder of a partition for each role. This view belongs to no session.

The offset of a PARTITION_TAKEN is the epoch. Another worker may take over a claim of an older epoch
once the claim's owner is certainly dead: `claim_status` decides that for WAKE.
"""

from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from ....schemas.codec import Entry
from ....schemas.enums import Role
from ....schemas.events import OwnerGone, PartitionTaken
from ....schemas.events.parts import AgentDigest
from .turn_view import Claim


class Holder(NamedTuple):
    """The newest owner of a partition for a role.

    `earlier`: the earlier epochs of this owner, oldest first; epochs before another owner last held
        the role are not included.
    `agents`: the agents that the owner serves; empty if unknown.
    `gone`: other owners that are certainly dead, oldest first.
    """

    role: str
    owner: str
    epoch: int
    earlier: tuple[int, ...] = ()
    agents: tuple[AgentDigest, ...] = ()
    gone: tuple[str, ...] = ()


class PartitionView(NamedTuple):
    """The newest holder for each role."""

    holders: tuple[Holder, ...] = ()

    def holder(self, role: str) -> Holder | None:
        """The holder of the partition for a role, or None."""
        for holder in self.holders:
            if holder.role == role:
                return holder
        return None


INITIAL = PartitionView()
GONE_MAX = 16  # dead owners that are kept; the claims of others wait for their deadline
EARLIER_MAX = 8  # earlier epochs that are kept; older claims wait for their deadline
ROLES = tuple(Role)
ANSWERS = (Role.SESSIONS, Role.MODELS)  # the roles that every answer needs


def apply(view: PartitionView, entry: Entry) -> PartitionView:
    """The view after a PARTITION_TAKEN or an OWNER_GONE. An event with an unknown role or the wrong
    writer has no effect."""
    event = entry.event
    if isinstance(event, OwnerGone) and entry.writer in ROLES:
        if all(event.owner in holder.gone for holder in view.holders):
            return view
        return PartitionView(tuple(_with_gone(holder, event.owner) for holder in view.holders))
    if not isinstance(event, PartitionTaken):
        return view
    if event.role not in ROLES or event.role != entry.writer:
        return view
    others = tuple(holder for holder in view.holders if holder.role != event.role)
    before = view.holder(event.role)
    earlier: tuple[int, ...] = ()
    gone: tuple[str, ...] = ()
    if before is not None:
        gone = tuple(owner for owner in before.gone if owner != event.owner)
        if before.owner == event.owner:
            earlier = (*before.earlier, before.epoch)[-EARLIER_MAX:]
    taken = Holder(event.role, event.owner, entry.offset, earlier, event.agents, gone)
    return PartitionView(tuple(sorted((*others, taken), key=attrgetter("role"))))


def _with_gone(holder: Holder, owner: str) -> Holder:
    if owner in holder.gone:
        return holder
    return holder._replace(gone=(*holder.gone, owner)[-GONE_MAX:])


def without(view: PartitionView, agent: str) -> Holder | None:
    """A holder that does not serve `agent`, or None if there is none. Sessions of the agent wait
    until the partition has another holder for that holder's role."""
    for role in ANSWERS:
        holder = view.holder(role)
        if holder is not None and holder.agents and all(a.name != agent for a in holder.agents):
            return holder
    return None


def worker_id(owner: str) -> str:
    """The worker id in an owner, which has the form `worker id/incarnation`."""
    return owner.rpartition("/")[0]


class ClaimStatus(StrEnum):
    """The relation of the current holder of a partition to a claim.

    MINE: the claim was made under the current epoch, or under an earlier epoch by the same process
        with no other owner in between; only that process knows whether the effect began.
    VOID: the claim was made under an older epoch, but it was written after the holder's epoch had
        begun, so its effect never began.
    GONE: the claim's owner is certainly dead (the log has OWNER_GONE, or the owner is an older
        incarnation of the holder), or deadline + margin has passed.
    OTHER: the holder must wait.
    """

    MINE = "mine"
    VOID = "void"
    GONE = "gone"
    OTHER = "other"


MINE, VOID, GONE, OTHER = ClaimStatus  # Python 3.11 looks members up slowly


def claim_status(
    claim: Claim, holder: Holder | None, now: int, deadline: int, margin: int
) -> ClaimStatus:
    """The relation of the current holder to a claim at the time `now` (Unix ms)."""
    if holder is None:
        return OTHER
    if claim.epoch == holder.epoch:
        return MINE
    if claim.epoch > holder.epoch:
        return OTHER  # impossible: an epoch is an offset that was already folded
    if claim.offset > holder.epoch:
        return VOID
    if _was_won(claim, holder):
        return MINE
    if worker_id(claim.owner) == worker_id(holder.owner) and claim.owner != holder.owner:
        return GONE
    if claim.owner in holder.gone or now >= deadline + margin:
        return GONE
    return OTHER


def _was_won(claim: Claim, holder: Holder) -> bool:
    """Whether the holder made the claim under one of its earlier epochs, and the claim was written
    before the holder's next epoch began."""
    if claim.epoch not in holder.earlier:
        return False
    later = (*holder.earlier, holder.epoch)[holder.earlier.index(claim.epoch) + 1]
    return claim.offset < later

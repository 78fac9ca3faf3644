"""partition: the holder of a partition for each role. Not part of any session.

The offset of a PARTITION_TAKEN is the epoch. A claim of an older epoch may be taken over once its
owner is certainly dead: `claim_status` decides that for WAKE.
"""

from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from ....schemas.codec import Entry
from ....schemas.events import OwnerGone, PartitionTaken
from ....schemas.events.parts import AgentDigest
from .turn_view import Claim


class Holder(NamedTuple):
    """The newest owner of a partition for a role. `earlier`: its epochs before this one, oldest
    first, since another owner had the role. `agents`: those it serves; empty if unknown. `gone`:
    other owners that are certainly dead, oldest first."""

    role: str
    owner: str
    epoch: int
    earlier: tuple[int, ...] = ()
    agents: tuple[AgentDigest, ...] = ()
    gone: tuple[str, ...] = ()


class PartitionView(NamedTuple):
    """Newest holder per role, and the newest broker time folded (Unix ms)."""

    holders: tuple[Holder, ...] = ()

    def holder(self, role: str) -> Holder | None:
        """The holder of the partition for a role, or None."""
        for holder in self.holders:
            if holder.role == role:
                return holder
        return None


INITIAL = PartitionView()
GONE_MAX = 16  # dead workers kept; claims of others wait for their deadline
EARLIER_MAX = 8  # earlier epochs kept; claims of older ones wait for their deadline
ROLES = ("sessions", "models", "tools", "background", "delivery")
ANSWERS = ("sessions", "models")  # the roles that every answer needs


def apply(view: PartitionView, entry: Entry) -> PartitionView:
    """The view after a PARTITION_TAKEN or an OWNER_GONE; one with an unknown role or the wrong
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
    """The holder for which a session of `agent` waits because it does not serve the agent, or
    None."""
    for role in ANSWERS:
        holder = view.holder(role)
        if holder is not None and holder.agents and all(a.name != agent for a in holder.agents):
            return holder
    return None


def worker_id(owner: str) -> str:
    """The worker id of an owner `worker id/incarnation`."""
    return owner.rpartition("/")[0]


class ClaimStatus(StrEnum):
    """The relation of the current holder of a partition to a claim.

    MINE: made under the current epoch, or won under an earlier one by the same process with no
    other owner in between; only that process knows whether it began. VOID: made under an older
    epoch after the newer one began, so it never began. GONE: its owner is certainly dead (the log
    has OWNER_GONE, or it is an older incarnation of the holder), or deadline + margin has passed.
    OTHER: wait.
    """

    MINE = "mine"
    VOID = "void"
    GONE = "gone"
    OTHER = "other"


MINE, VOID, GONE, OTHER = ClaimStatus  # Python 3.11 looks members up slowly


def claim_status(
    claim: Claim, holder: Holder | None, now: int, deadline: int, margin: int
) -> ClaimStatus:
    """The relation of the current holder to a claim, `now` (Unix ms)."""
    if holder is None:
        return OTHER
    if claim.epoch == holder.epoch:
        return MINE
    if claim.epoch > holder.epoch:
        return OTHER  # impossible: an epoch is an offset that this partition has folded
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
    """Whether the holder made a claim under an earlier epoch of its own, before the next one."""
    if claim.epoch not in holder.earlier:
        return False
    later = (*holder.earlier, holder.epoch)[holder.earlier.index(claim.epoch) + 1]
    return claim.offset < later

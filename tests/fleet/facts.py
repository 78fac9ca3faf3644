"""Facts for the tests of the fleet, and the reference: a fold of facts with fleet/rows.py."""

import random
from collections.abc import Iterable

from foldlog.fleet import rows
from foldlog.log.partition import partition_for
from foldlog.schemas.enums import ApprovalAnswer, DoubtAnswer, EndReason, ModelWork
from foldlog.schemas.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    DoubtOpened,
    DoubtSettled,
    Fact,
    ModelUsage,
    PhaseChanged,
    SessionClosed,
    SessionFailed,
    SessionOpened,
    SessionRepaired,
    SessionTitled,
    TurnBegun,
    TurnEnded,
    WaitingCall,
)

PARTITIONS = 8
AT = 1_790_000_000_000
Tables = dict[tuple[str, bytes], bytes]
"""The value of every row by table and key."""


def fold(facts: Iterable[Fact], partitions: int = PARTITIONS) -> Tables:
    """The tables after these facts."""
    tables: Tables = {}
    for fact in facts:
        for write in written(fact, tables, partitions):
            tables[write.table, write.key] = write.value
    return tables


def written(fact: Fact, tables: Tables, partitions: int = PARTITIONS) -> list[rows.Write]:
    """The rows that a fact writes."""
    place = partition_for(fact.user_id, partitions)
    return list(rows.writes(fact, place, lambda table, key: tables.get((table, key))))


class History:
    """Random facts of some users, in the order of their topic.

    A session is in one of three partitions of session-events, by its number. Offsets increase
    per partition.
    """

    def __init__(self, seed: int, users: int = 3, sessions: int = 4) -> None:
        self._random = random.Random(seed)
        self._users, self._sessions = users, sessions
        self._offsets: dict[int, int] = {}
        self._opened: set[str] = set()

    def facts(self, count: int) -> list[Fact]:
        """The next facts."""
        return [self._fact() for _ in range(count)]

    def _fact(self) -> Fact:
        pick = self._random
        number = pick.randrange(self._sessions)
        user = f"user-{pick.randrange(self._users)}"
        session, place = f"{user}.s{number}", number % 3
        offset = self._offsets[place] = self._offsets.get(place, 0) + pick.randint(1, 9)
        own = {
            "user_id": user, "session_id": session, "agent": f"agent-{number % 2}",
            "partition": place, "offset": offset, "at": AT + pick.randrange(8 * rows.HOUR_MS),
        }  # fmt: skip
        if session not in self._opened:
            self._opened.add(session)
            return SessionOpened(**own, phase="chatting", parent_id=None)
        return self._later(own, pick)

    def _later(self, own: dict, pick: random.Random) -> Fact:
        call = f"1.1.{pick.randrange(3)}"
        waiting = WaitingCall(call=call, tool="charge", expires_at=own["at"] + 1)
        usage = tuple(
            ModelUsage(
                model=f"model-{pick.randrange(2)}", work=work, requests=1, input_tokens=10,
                cache_read_tokens=3, cache_write_5m_tokens=2, cache_write_1h_tokens=1,
                output_tokens=5, picodollars=pick.choice((None, 7_000_000)),
            )
            for work in list(ModelWork)[: pick.randint(0, 2)]
        )  # fmt: skip
        turn = pick.randint(1, 9)
        makes = (
            lambda: SessionTitled(**own, title=f"title {turn}", turn=turn),
            lambda: TurnBegun(**own, turn=turn),
            lambda: TurnBegun(**own, turn=turn),
            lambda: TurnEnded(
                **own, turn=turn, reason=pick.choice(list(EndReason)), steps=2,
                ms=pick.randrange(90_000), usage=usage, next_turn=pick.choice((0, 0, turn + 1)),
                doubts=(waiting,) if pick.random() < 0.2 else (),
            ),
            lambda: TurnEnded(
                **own, turn=turn, reason=EndReason.END_TURN, steps=2, ms=900, usage=usage
            ),
            lambda: PhaseChanged(**own, phase="building", project_id="p", settled=(call,)),
            lambda: ApprovalAsked(**own, call=call, tool="charge", expires_at=own["at"] + 1),
            lambda: ApprovalAnswered(
                **own, call=call, answer=pick.choice(list(ApprovalAnswer))
            ),
            lambda: DoubtOpened(**own, call=call, tool="charge", code="owner_died"),
            lambda: DoubtSettled(**own, call=call, answer=DoubtAnswer.HAPPENED),
            lambda: SessionFailed(**own, code="fold_error"),
            lambda: SessionRepaired(
                **own, title="again", phase="chatting", turn=turn, is_working=pick.random() < 0.5,
                is_closed=False, approvals=(waiting,), usage=usage,
            ),
            lambda: SessionClosed(**own, usage=usage),
        )  # fmt: skip
        weights = (1, 3, 3, 4, 8, 1, 3, 3, 2, 2, 0.3, 0.3, 0.3)
        return pick.choices(makes, weights)[0]()

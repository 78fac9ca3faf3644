"""The reason why a session waits, as text for people."""

import pytest

from foldlog.client.waiting import who_lacks
from foldlog.processors.fold.projections.partition import Holder, PartitionView
from foldlog.schemas.events.parts import AgentDigest


@pytest.mark.parametrize(
    ("agent", "advice"),
    [
        ("shpo", "Did you mean shop? Then open a new session with it. If not, start every worker"),
        ("clerk", "serves shop. Start every worker with an --agent MODULE:ATTR for each of these"),
        ("clerk", "and for clerk, or with all of them in `foldlog.Worker([...])`"),
    ],
)
def test_an_agent_that_no_worker_serves_may_be_misspelt(agent, advice):
    served = (AgentDigest(name="shop", digest="0" * 64),)
    holders = PartitionView(
        tuple(Holder(role, "w1/1", 0, agents=served) for role in ("models", "sessions"))
    )
    assert advice in who_lacks(agent, holders)
    assert who_lacks("shop", holders) == ""

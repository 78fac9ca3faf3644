"""A fleet on a real broker equals a fold of its facts."""

import pytest

from foldlog.tests.fleet.facts import History, fold
from foldlog.tests.fleet.members import PARTITIONS, fleet
from foldlog.tests.kit.waiting import until

pytestmark = [pytest.mark.broker]


def test_one_member(broker, tmp_path):
    with fleet(broker.bootstrap_servers, tmp_path) as here:
        here.write(History(1).facts(200))
        member = here.member("a")
        member.start()
        here.await_folded()
        until("rows", lambda: member.status()["pending_rows"] == 0)
        assert here.restored() == fold(here.facts, PARTITIONS)
        print(member.get("/fleet/users/user-0/sessions"))
        print(member.get("/fleet/inbox"))
        print(member.get("/fleet/hours?scope=agent&value=agent-0"))
        print(member.get("/fleet/agents"))
        print(member.get("/status"))
        assert member.kill(15) == 0, member.said()
        print(member.said())

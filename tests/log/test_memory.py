"""The contract tests of the log on the in-memory log."""

import pytest

from foldlog.log import Clock, MemoryLog
from foldlog.tests.log.contract import EVENTS, SPEC, LogContract, TopicsContract
from foldlog.tests.log.group_contract import GroupContract


class TestMemoryLog(LogContract, TopicsContract, GroupContract):
    @pytest.fixture(params=["immediate", "pumped"])
    def log(self, request):
        log = MemoryLog([SPEC], clock_ms=Clock(), immediate=request.param == "immediate")
        yield log
        log.close()

    def recreate(self, log):
        log.delete_topic(EVENTS)
        log.apply_topics([SPEC])

    def committed(self, log, group):
        return log.committed(EVENTS, group)

    def pass_time(self, log):
        log.clock_ms.advance(10)

"""The contract tests on a log with an empty archive: it must not change what a log does."""

import pytest

from foldlog.log import Clock, MemoryLog, archived
from foldlog.log.archive import Archive
from foldlog.log.archived import ArchivedLog
from foldlog.log.objects import DirectoryObjects
from foldlog.tests.log.contract import EVENTS, SPEC, LogContract, TopicsContract
from foldlog.tests.log.group_contract import GroupContract


class TestArchivedLog(LogContract, TopicsContract, GroupContract):
    @pytest.fixture
    def log(self, tmp_path, monkeypatch):
        monkeypatch.setattr(archived, "SESSION_EVENTS", EVENTS)
        log = MemoryLog([SPEC], clock_ms=Clock())
        yield ArchivedLog(log, Archive(DirectoryObjects(tmp_path / "archive")))
        log.close()

    def recreate(self, log):
        log.delete_topic(EVENTS)
        log.apply_topics([SPEC])

    def committed(self, log, group):
        return log.committed(EVENTS, group)

    def pass_time(self, log):
        log.clock_ms.advance(10)

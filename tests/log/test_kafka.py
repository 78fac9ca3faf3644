"""The contract tests of the log on a real cluster."""

import time

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from foldlog.log import TopicMissing
from foldlog.log.kafka import KafkaLog
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.log.contract import EVENTS, SPEC, LogContract, TopicsContract, until
from foldlog.tests.log.group_contract import GroupContract

pytestmark = pytest.mark.broker


class TestKafkaLog(LogContract, TopicsContract, GroupContract):
    @pytest.fixture
    def log(self, broker):
        self.prefix = unique_name() + "."
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        log = KafkaLog(broker.bootstrap_servers, topic_prefix=self.prefix)
        log.apply_topics([SPEC])
        yield log
        log.close()

    def recreate(self, log):
        for answer in self.admin.delete_topics([self.prefix + EVENTS]).values():
            answer.result(PATIENCE_S)
        until(lambda: self._is_missing(log), lambda: time.sleep(0.02))
        log.apply_topics([SPEC])

    def _is_missing(self, log):
        try:
            log.partitions(EVENTS)
        except TopicMissing:
            return True
        return False

    def committed(self, log, group):
        groups = [ConsumerGroupTopicPartitions(self.prefix + group)]
        (answer,) = self.admin.list_consumer_group_offsets(groups).values()
        return {at.partition: at.offset for at in answer.result(PATIENCE_S).topic_partitions}

    def pass_time(self, log):
        """Does nothing, because the broker's clock advances by itself."""
        time.sleep(0.005)

"""Kafka's own commands that give existing topics the properties and replicas of their definition.

foldlog changes no topic that exists. It prints these commands for the operator, who may need other
rights than foldlog has, and who decides when replicas are copied.
"""

import json
from collections import defaultdict
from collections.abc import Iterable

from ..schemas.topics import PARTITION_COUNT, REPLICATION_FACTOR
from .door import Difference, TopicReport

PLAN_FILE = "reassignment.json"
MORE_BROKERS = "start more brokers, each of which can take a replica; then run this command again"


def commands(report: TopicReport, servers: str) -> list[str]:
    """The commands that correct every difference but the number of partitions."""
    by_topic: dict[str, list[Difference]] = defaultdict(list)
    for found in report.differs:
        if found.what not in (PARTITION_COUNT, REPLICATION_FACTOR):
            by_topic[found.topic].append(found)
    lines = [set_properties(found, servers) for found in by_topic.values()]
    if report.reassignment:
        lines += [
            f"foldlog topics reassignment > {PLAN_FILE}",
            f"kafka-reassign-partitions.sh --bootstrap-server {servers} "
            f"--reassignment-json-file {PLAN_FILE} --execute",
        ]
    return lines


def set_properties(differences: Iterable[Difference], servers: str) -> str:
    """The command that corrects properties of one topic."""
    found = list(differences)
    values = ",".join(f"{each.what}={each.want}" for each in found)
    return (
        f"kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics "
        f"--entity-name {found[0].topic} --add-config {values}"
    )


def reassignment(report: TopicReport) -> str:
    """The plan for kafka-reassign-partitions.sh, as JSON."""
    partitions = [
        {"topic": each.topic, "partition": each.partition, "replicas": list(each.brokers)}
        for each in report.reassignment
    ]
    return json.dumps({"version": 1, "partitions": partitions})

"""Uses Kafka's admin API to query the cluster, and to create topics from `schemas/topics.py`.

Only the process of `admin_process.py` creates a Cluster: its client may abort the process.
Creating topics is idempotent. An existing topic is never changed; its differences from the spec are
reported. Topic names in this file are full names, prefix included.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from ..schemas.topics import IN_SYNC_MIN, TopicSpec
from .client import MISSING, TRANSIENT, denied, label_of, meaning, open_client, unreachable
from .door import Behind, Member, Offsets, Replicas, TopicReport, compare, reassigned
from .errors import AccessDenied, FoldlogError, LogUnreachable, TopicMismatch, TopicMissing

T = TypeVar("T")

_REFUSED_S = 2.0
"""How long to retry while every broker refuses connections, in seconds.

A killed local broker restarts in 1.8 s.
"""

CREATED_S = 30.0
"""How many seconds a new topic may take to get a leader. A busy broker took more than 10 s."""

_CHECK_S = 0.1
"""How many seconds a request waits before it checks again whether all brokers refuse connections.
"""


_SILENT = "no answer"
_CLOSED = (
    "it closes the connection; if it is secured, set security.protocol and its related properties "
    "in client.properties, see docs/security.md"
)


class _NotYet(LogUnreachable):
    """The cluster responds, but cannot answer this request yet. It may be retried at once."""


class Cluster:
    """The admin client of one cluster; each request is bounded by `timeout_s`."""

    def __init__(self, properties: Mapping[str, Any], timeout_s: float) -> None:
        self._servers = str(properties["bootstrap.servers"])
        self._timeout_s = timeout_s
        self._reason: str | None = None  # of the last failed connection, in the client's words
        self._refused = False
        """Whether every known broker has refused a connection since the last response."""
        self._denied: AccessDenied | None = None
        """The last denial of access since the last response."""
        self._may_be_secured = "security.protocol" not in properties
        """Whether the broker may expect TLS or a login that the properties do not set."""
        # The client's errors are raised to the caller, so logging them would report everything
        # twice.
        self._admin = open_client(
            AdminClient,
            {**properties, "log_level": 0, "error_cb": self._note, "client.id": "foldlog-admin"},
        )

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._refused = True
            return
        self._reason = error.str()
        self._denied = denied(error, self._servers) or self._denied

    def _unreachable(self) -> LogUnreachable:
        """The error to raise when no broker responds, with the reason that the client reported."""
        if self._denied is not None:
            return self._denied
        if self._reason is None and self._refused and self._may_be_secured:
            return unreachable(self._servers, _CLOSED)
        return unreachable(self._servers, self._reason or _SILENT)

    def _ask(self, method: str, *about: Any, **more: Any) -> Any:
        """Calls a method of the client, and returns its futures."""
        try:
            return getattr(self._admin, method)(*about, request_timeout=self._timeout_s, **more)
        except KafkaException as error:
            raise self._meaning("", error) from error

    def _wait(self, what: str, answer: Future[T]) -> T:
        """Wait for the response to one request. `what`: the subject of the request, for error
        messages.
        """
        began = time.monotonic()
        while True:
            try:
                found = answer.result(_CHECK_S)
            except KafkaException as error:
                if error.args[0].code() in TRANSIENT:
                    raise _NotYet(
                        f"{what} cannot be reached yet at {self._servers} "
                        f"({error.args[0].str()}). Nothing was read or written. Wait until its "
                        "brokers are back."
                    ) from error
                raise self._meaning(what, error) from error
            except TimeoutError as error:
                self._admin.poll(0)  # only this call lets the client call `_note`
                waited = time.monotonic() - began
                bound = min(_REFUSED_S, self._timeout_s) if self._refused else self._timeout_s
                # The request times out by itself; the extra second is for a client that hangs.
                if waited > bound + (0 if self._refused else 1):
                    raise self._unreachable() from error
            else:
                self._refused, self._denied, self._reason = False, None, None
                self._may_be_secured = False
                return found

    def _meaning(self, topic: str, raised: KafkaException) -> FoldlogError:
        error: KafkaError = raised.args[0]
        if error.code() in MISSING:
            return TopicMissing(topic)
        self._admin.poll(0)  # the client reports the reason in a callback that only runs here
        found = meaning(error, self._servers, topic)
        if isinstance(found, LogUnreachable) and not isinstance(found, AccessDenied):
            return self._unreachable()
        return found

    def identity(self) -> str:
        found: str = self._wait("", self._ask("describe_cluster")).cluster_id
        return found

    def brokers(self) -> list[int]:
        """The ids of the live brokers."""
        return [node.id for node in self._wait("", self._ask("describe_cluster")).nodes]

    def describe(self, topic: str) -> Any:
        """The topic's description, with `topic_id` and `partitions`. Raises TopicMissing."""
        answers = self._ask("describe_topics", TopicCollection([topic]))
        return self._wait(topic, answers[topic])

    def topic_id(self, topic: str) -> str:
        return str(self.describe(topic).topic_id)

    def partitions(self, topic: str) -> int:
        return len(self.describe(topic).partitions)

    def offsets(self, topic: str, spec: OffsetSpec) -> Offsets:
        """For every partition, the offset that `spec` names; -1 if there is none."""
        requests = {TopicPartition(topic, p): spec for p in range(self.partitions(topic))}

        def once() -> Offsets:
            answers = self._ask("list_offsets", requests)
            found = {at.partition: self._wait(topic, each).offset for at, each in answers.items()}
            if OFFSET_INVALID in found.values():
                # Seen once, while the leader was paused and its responses were held back: the
                # client completed the request with neither an offset nor an error.
                raise _NotYet(
                    f"the leader of {topic} at {self._servers} did not report an offset. Nothing "
                    "was read or written. Wait until its brokers are back."
                )
            return found

        return self._again_while(once, _NotYet)

    def _again_while(
        self, ask: Callable[[], T], *passing: type[FoldlogError], within_s: float = 0.0
    ) -> T:
        """Call `ask`, and repeat the call while it raises one of the errors in `passing`, until the
        timeout or `within_s` seconds have passed, whichever is longer.
        """
        deadline = time.monotonic() + max(self._timeout_s, within_s)
        while True:
            try:
                return ask()
            except passing:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)  # the cluster has no call that waits for a leader or a topic

    def first_offsets(self, topic: str) -> Offsets:
        return self.offsets(topic, OffsetSpec.earliest())

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        requests = [TopicPartition(topic, p, offset) for p, offset in offsets.items()]
        for answer in (self._ask("delete_records", requests) if requests else {}).values():
            self._wait(topic, answer)

    def end_offsets(self, topic: str) -> Offsets:
        return self.offsets(topic, OffsetSpec.latest())

    def offsets_at(self, topic: str, timestamp_ms: int) -> Offsets:
        # Read the ends first: a record that arrives meanwhile can then only make the result
        # earlier.
        ends = self.end_offsets(topic)
        found = self.offsets(topic, OffsetSpec.for_timestamp(timestamp_ms))
        return {p: offset if offset >= 0 else ends[p] for p, offset in found.items()}

    def topic_names(self) -> list[str]:
        """The full names of the topics that this client may see."""
        try:
            return list(self._admin.list_topics(timeout=self._timeout_s).topics)
        except KafkaException as error:
            raise self._meaning("", error) from error

    def members(self, prefix: str) -> list[Member]:
        """The static members of the groups whose full name begins with `prefix`."""
        listed = self._wait("the groups", self._ask("list_consumer_groups"))
        if not listed.valid and listed.errors:
            raise self._meaning("", KafkaException(listed.errors[0]))
        names = [g.group_id for g in listed.valid if g.group_id.startswith(prefix)]
        found = []
        for answer in (self._ask("describe_consumer_groups", names) if names else {}).values():
            try:
                group = self._wait("a group", answer)
            except AccessDenied:  # this principal may not see the group
                continue
            except LogUnreachable:
                raise
            except FoldlogError:  # the group has just ended
                continue
            found += [
                Member(group.group_id, member.group_instance_id, label_of(member.client_id))
                for member in group.members
                if member.group_instance_id
            ]
        return found

    def check_topics(self, specs: Iterable[TopicSpec]) -> TopicReport:
        """Compare the cluster's topics with `specs` (full names); nothing is created."""
        same, missing, differs, behind = [], [], [], []
        short: list[tuple[TopicSpec, dict[int, list[int]]]] = []
        for spec in specs:
            try:
                partitions = self.describe(spec.name).partitions
            except TopicMissing:
                missing.append(spec.name)
                continue
            replicas = {each.id: [node.id for node in each.replicas] for each in partitions}
            fewest = min(map(len, replicas.values()))
            properties = self._properties(spec.name)
            found = compare(spec, spec.name, len(partitions), fewest, properties)
            differs += found
            if not found:
                same.append(spec.name)
            if fewest < spec.replication.factor:
                short.append((spec, replicas))
            least = int(properties.get(IN_SYNC_MIN, 1))
            behind += [
                Behind(spec.name, each.id, len(each.isr), len(each.replicas), least)
                for each in partitions
                if len(each.isr) < len(each.replicas)
            ]
        return TopicReport(
            same=tuple(same),
            missing=tuple(missing),
            differs=tuple(differs),
            behind=tuple(behind),
            reassignment=tuple(self._reassignment(short)) if short else (),
        )

    def _reassignment(
        self, short: Sequence[tuple[TopicSpec, Mapping[int, Sequence[int]]]]
    ) -> Iterator[Replicas]:
        """The brokers that can take further replicas, for topics with too few."""
        brokers = self.brokers()
        for spec, replicas in short:
            for partition, to in reassigned(replicas, brokers, spec.replication.factor).items():
                yield Replicas(spec.name, partition, to)

    def apply_topics(self, specs: Iterable[TopicSpec]) -> TopicReport:
        """Create missing topics and wait until they are writable; report differences."""
        wanted = {spec.name: spec for spec in specs}
        before = self.check_topics(wanted.values())
        if not before.missing:
            return before
        created = self._create([wanted[name] for name in before.missing])
        for name in before.missing:
            # Brokers learn of a new topic shortly after the controller has created it.
            ask = partial(self.end_offsets, name)
            self._again_while(ask, TopicMissing, _NotYet, within_s=CREATED_S)
        # Read again, because another process may have created a topic with other settings.
        after = self.check_topics(wanted.values())
        same = tuple(name for name in after.same if name not in created)
        return replace(after, created=tuple(created), same=same)

    def _create(self, specs: list[TopicSpec]) -> list[str]:
        new = []
        for spec in specs:
            assert spec.partitions is not None, spec
            factor = spec.replication.factor
            new.append(NewTopic(spec.name, spec.partitions, factor, config=spec.properties()))
        answers = self._ask("create_topics", new, operation_timeout=self._timeout_s)
        created = []
        for name, answer in answers.items():
            try:
                answer.result(self._timeout_s + 1)
                created.append(name)
            except TimeoutError as error:
                raise self._unreachable() from error
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.INVALID_REPLICATION_FACTOR:
                    raise self._too_few_brokers(name, specs[0].replication.factor) from error
                if code != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise self._meaning(name, error) from error
        return created

    def _too_few_brokers(self, topic: str, factor: int) -> TopicMismatch:
        return TopicMismatch(
            f"topic {topic} needs {factor} replicas, each on a broker of its own, and "
            f"{len(self.brokers())} brokers answer at {self._servers}. It was not created. Start "
            "more brokers, or set `replication_factor` and `min_insync_replicas`; if one copy of "
            'the log is enough, as on one broker for development, set `durability` to "local" '
            "(FOLDLOG_DURABILITY)."
        )

    def _properties(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        answers = self._ask("describe_configs", [resource])
        (answer,) = answers.values()
        return {name: entry.value for name, entry in self._wait(topic, answer).items()}

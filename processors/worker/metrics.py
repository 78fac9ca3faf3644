"""Renders what a worker shows to operators: its status, and metrics for Prometheus. Only this file
imports prometheus_client, when it is first used.

The worker's gauges are computed here from the current state of the process. The counters come from
the worker's meter.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...log.errors import LogUnreachable, TopicMissing
from ...schemas.topics import SESSION_EVENTS
from ..fold.projections.partition import ROLES
from ..store.clocks import Reading, in_words
from .meter import Family
from .worker import Worker

if TYPE_CHECKING:
    from .assemble import Parts

Samples = Mapping[tuple[str, ...], float]

CONTENT_TYPE = "text/plain; version=0.0.4"

REACHABLE = Family("foldlog_log_reachable", "gauge", "1 if a broker answers now.")
LAG = Family("foldlog_lag_records", "gauge", "Records of a partition that are not folded yet.",
             ("partition",))
FOLDED = Family("foldlog_folded_offset", "gauge",
                "The next offset of a partition: its rate is the rate of the fold.", ("partition",))
HELD = Family("foldlog_partitions_held", "gauge", "Held partitions, by role.", ("role",))
STUCK = Family("foldlog_sessions_left_alone", "gauge", "Sessions whose turn cannot continue.")
RUNNING = Family("foldlog_effects_running", "gauge", "Effects that run now.", ("role",))
WAITING = Family("foldlog_waiting_for_a_slot", "gauge",
                 "Sessions whose next effect waits for a free slot.", ("role",))
SKEW = Family("foldlog_clock_skew_seconds", "gauge",
              "Proven lead of this machine's clock over the brokers' clocks.")
CACHE_BYTES = Family("foldlog_session_cache_bytes", "gauge",
                     "Estimated memory of the sessions kept in memory.")
CACHE_SESSIONS = Family("foldlog_session_cache_sessions", "gauge", "Sessions kept in memory.")
CACHE_LOADS = Family("foldlog_session_cache_loads", "counter", "Sessions read from a store.")
FACTS = Family("foldlog_facts_waiting", "gauge", "Facts that no broker has confirmed yet.",
               ("partition",))
IN_FLIGHT = Family("foldlog_written_not_read_back", "gauge", "Produced records not read back yet.")


def status_of(worker: Worker) -> dict[str, Any]:
    """The worker's state. This is called in another thread than the worker's."""
    return {
        "owner": worker.identity.owner,
        "roles": list(worker.roles),
        "agents": sorted(worker.agents),
        "rulings": dict(worker.rulings),
        "clock_skew_ms": worker.skew_ms(),
        "session_cache": {
            "bytes": worker.hot_sessions.bytes,
            "bytes_max": worker.hot_sessions.bytes_max,
            "sessions": len(worker.hot_sessions),
            "loaded": worker.hot_sessions.loaded,
        },
        "partitions": {
            number: {
                "offset": owned.next_offset,
                "held": sorted(worker.held(owned)),
                "stuck": dict(owned.stuck),
                "facts_waiting": owned.facts_stored or 0,
            }
            for number, owned in list(worker.owned.items())
        },
    }


def exposition(families: Mapping[Family, Samples]) -> bytes:
    """The families and the resource use of the process, as text for Prometheus."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    class Collector:
        def collect(self) -> Iterable[Metric]:
            for family, samples in families.items():
                made = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
                metric = made(family.name, family.help, labels=family.labels)
                for labels, value in sorted(samples.items()):
                    metric.add_metric(labels, value)
                yield metric

    registry = CollectorRegistry()
    registry.register(Collector())
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def worker_metrics(parts: "Parts") -> bytes:
    """A worker's metrics. Queries the log's end offsets: do not call this on the poll thread."""
    status = status_of(parts.worker)["partitions"]
    held = {role: sum(role in p["held"] for p in status.values()) for role in parts.worker.roles}
    families: dict[Family, Samples] = dict(parts.meter.counts())
    families[FOLDED] = {(str(n),): p["offset"] for n, p in status.items()}
    families[HELD] = {(role,): count for role, count in held.items()}
    families[STUCK] = {(): sum(len(p["stuck"]) for p in status.values())}
    families[RUNNING] = {(role,): parts.effects.running(role) for role in ROLES[1:]}
    waiting = parts.actions.slot_queue.count
    families[WAITING] = {(role,): waiting(role) for role in ROLES[1:]}
    families[SKEW] = {(): parts.worker.skew_ms() / 1000}
    families[FACTS] = {(str(n),): p["facts_waiting"] for n, p in status.items()}
    families[IN_FLIGHT] = {(): parts.actions.in_flight_count}
    cached = parts.worker.hot_sessions
    families[CACHE_BYTES] = {(): cached.bytes}
    families[CACHE_SESSIONS] = {(): len(cached)}
    families[CACHE_LOADS] = {(): cached.loaded}
    return exposition(families | lag(parts.log, {n: p["offset"] for n, p in status.items()}))


def lag(log, places: Mapping[int, int]) -> dict[Family, Samples]:
    """The lag of each partition; no lag is reported while the log is unreachable."""
    try:
        ends = log.end_offsets(SESSION_EVENTS)
    except (LogUnreachable, TopicMissing):
        return {REACHABLE: {(): 0}}
    behind: dict[tuple[str, ...], float] = {
        (str(n),): max(0, ends[n] - offset) for n, offset in places.items()
    }
    return {REACHABLE: {(): 1}, LAG: behind}


def why_not_ready(parts: "Parts") -> str:
    """Why a worker is not ready; '' if it holds all assigned partitions, its poll thread has no
    error, and a broker answers. Queries the log: do not call this on the poll thread."""
    numbers = list(parts.worker.owned)
    if parts.fatal:
        return "not ready: ending"
    if not numbers or not all(map(parts.worker.holds, numbers)):
        return "not ready: it does not hold its partitions yet"
    skew = parts.worker.skew_ms()
    if Reading(0, skew).is_off:
        return f"not ready: {in_words(skew)}"
    try:
        parts.log.end_offsets(SESSION_EVENTS)
    except (LogUnreachable, TopicMissing) as error:
        return not_readable(error)
    return ""


def not_readable(error: LogUnreachable | TopicMissing) -> str:
    """The text of a status page about an error, without the address of a broker."""
    if isinstance(error, TopicMissing):
        return "not ready: the topic does not exist"
    return "not ready: no broker answers; the worker resumes by itself when one does"

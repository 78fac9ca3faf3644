"""Regression tests of races and takeovers: histories that broke a law; each test has that law in
its name."""

from dataclasses import replace

from foldlog.log.blobs import BlobMissing
from foldlog.processors.agent import Agent
from foldlog.processors.fold.projections import partition as partition_fold
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.limits import Limits
from foldlog.processors.store.partition_cache import PartitionCache, may_owe
from foldlog.processors.store.store import Cursor, DictBackend, Store
from foldlog.processors.store.views_codec import view_parts
from foldlog.processors.tools.run import ASK_SHARE, END_SHARE
from foldlog.processors.tools.tool import tool
from foldlog.processors.worker.reports import ROLE_OF
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry
from foldlog.schemas.topics import DEAD_LETTERS, SESSION_EVENTS
from foldlog.tests.kit.manual_worker import (
    ROLES,
    SESSION,
    ManualWorker,
    answered,
    call,
    message,
    opened,
)
from foldlog.tests.kit.waiting import until


@tool(effect="pure")
def look() -> str:
    """Reads something."""
    raise AssertionError("never called here")


AGENT = Agent(name="a", model="m", tools=(look,), limits=Limits(tool_attempts=1))
PATIENT = Agent(name="a", model="m", tools=(look,))


def with_model_call(agent: Agent) -> ManualWorker:
    """A worker that has begun the model call for the first message."""
    worker = ManualWorker(agent)
    worker.write("producer", opened("a"))
    worker.write("producer", message())
    worker.assign()
    worker.settle()
    return worker


def test_I6_a_prefix_without_another_change_is_stored():
    """CONTEXT_SET changes the context but not the turn. The defect: it was handled like a chunk,
    and not stored."""
    body = ev.Body(inline=b"[]")
    history = (
        ("producer", opened("a")),
        ("producer", message()),
        ("sessions", ev.ContextSet(system=body, tools=body, sha256="p")),
    )
    store = Store(DictBackend())
    owned = PartitionCache(0, store)
    for offset, (writer, event) in enumerate(history):
        before = owned.views(SESSION) or initial(SESSION)
        views, ruling = fold(before, Entry(SESSION, 0, offset, 1_000, writer, event))
        assert ruling.accepted
        owned.record_change(SESSION, before, views)
        store.write(owned.dirty, owned.streamed, may_owe, partition_fold.INITIAL, Cursor())
        owned.dirty, owned.streamed = {}, {}
        assert dict(view_parts(store.load(SESSION))) == dict(view_parts(views))


def test_law6_a_take_of_an_earlier_assignment_gives_no_right():
    """The defect: a process that got its partition back acted on old records while it caught up."""
    rig = ManualWorker(AGENT)
    rig.write("producer", opened("a"))
    rig.assign()
    rig.settle()
    rig.revoke()
    rig.write("producer", message())
    rig.assign()
    rig.read(2)  # the message, not yet the new take
    assert not rig.events(ev.LlmCalled)
    rig.settle()
    assert len(rig.events(ev.LlmCalled)) == 1


def test_T4_a_late_claim_does_not_get_the_time_of_its_repetition():
    """Two equal claims are in flight. The defect: the first one won, and its effect began in the
    start window of the second."""
    rig = with_model_call(AGENT)
    rig.write("models", answered(call("look")))
    rig.read()  # TOOL_INVOKED is written
    rig.read(1)  # and is read; the claim is in the log, and the worker pauses
    (claim,) = rig.events(ev.ToolStarted)
    rig.ms += 16_000  # taken for lost
    rig.worker.tick()
    assert len(rig.events(ev.ToolStarted)) == 2
    rig.settle()
    assert [what for what, _ in rig.begins] == ["generate"]
    (outcome,) = rig.reported
    assert (outcome.outcome, outcome.attempt) == ("not_run", claim.attempt)


def test_T4_not_run_does_not_decide_a_newer_attempt():
    """A paused worker reports its claim as not run, but in the meantime another worker runs the
    call."""
    first = with_model_call(PATIENT)
    first.write("models", answered(call("look")))
    first.read()  # decides and claims
    first.ms += 6_000  # past the start window
    second = ManualWorker(PATIENT, "2", first.log)
    second.assign()
    second.settle()
    assert second.begins[-1][1].call.attempt == 2
    first.read(2)
    (not_run,) = first.reported
    assert (not_run.outcome, not_run.attempt) == ("not_run", 1)
    second.write("tools", not_run)
    second.settle()
    assert second.worker.rulings["superseded"] == 1
    assert len(second.events(ev.LlmCalled)) == 1, "the call is still open"


def test_T6r_an_attempt_that_may_have_run_is_not_reported_as_not_run():
    """The defect: if only one attempt was allowed, the lost attempt was reported as not run."""
    first = with_model_call(AGENT)
    first.write("models", answered(call("look")))
    first.settle()
    assert [what for what, _ in first.begins] == ["generate", "run_tool"]
    second = ManualWorker(AGENT, "2", first.log)  # the first is dead
    second.assign()
    second.settle()
    (outcome,) = second.reported
    assert outcome.outcome == "error"


def test_I18_an_unreadable_record_under_the_partitions_own_key_is_a_dead_letter():
    """The defect: the record was ignored, and a dead letter for it would have gone to a partition
    that does not exist."""
    rig = ManualWorker(AGENT)
    rig.assign()
    rig.log.store(SESSION_EVENTS, 0, b"#partition", b"garbage", (("t", b"PARTITION_TAKEN"),))
    rig.settle()
    assert len(rig.log.records(DEAD_LETTERS, 0)) == 1


def test_law13_a_lost_blob_stops_its_session_and_not_its_neighbours():
    """The defect: the error of one session ended its worker, and every worker that took over."""

    def lost(ref):
        raise BlobMissing(f"{ref.sha256} is not in the blob store")

    rig = ManualWorker(AGENT, read_blob=lost)
    ref = ev.BlobRef(sha256="0" * 64, bytes=9, media_type="application/json")
    rig.write("producer", opened("a"))
    rig.write("producer", replace(message(), content=ev.Body(ref=ref)))
    rig.write("producer", opened("a"), key="neighbour")
    rig.write("producer", message(), key="neighbour")
    rig.assign()
    rig.settle()
    assert [what for what, _ in rig.begins] == ["generate"]
    assert list(rig.worker.owned[0].stuck) == [SESSION]


def with_lost_models(rig, after):
    """Lets the worker m/1 claim the only attempt of a model call; then `after` takes its role.
    `rig`: the sessions worker."""
    rig.write("models", ev.PartitionTaken(role="models", owner="m/1"), key="#partition")
    rig.write("producer", opened("a"))
    rig.write("producer", message())
    rig.assign()
    rig.settle()
    called = rig.worker.owned[0].views(SESSION).turn.generation.called
    claim = ev.GenStart(
        turn=1,
        step=1,
        attempt=1,
        owner="m/1",
        epoch=0,
        deadline=rig.ms + 60_000,
        called=called,
        request_sha256="",
        builder="",
    )
    rig.write("models", claim)
    rig.settle()
    rig.write("models", ev.PartitionTaken(role="models", owner=after), key="#partition")
    rig.settle()


def test_S4g_a_sessions_worker_acts_when_the_models_worker_is_dead():
    """The defect: only a take of its own roles woke the worker, so a turn without attempts left
    stayed open for ever."""
    agent = Agent(name="a", model="m", limits=Limits(model_attempts=1))
    rig = ManualWorker(agent, roles=("sessions",))
    with_lost_models(rig, "m/2")
    assert [ended.reason for ended in rig.events(ev.TurnEnded)] == ["failed"]


def test_S4g_a_sessions_worker_waits_with_the_models_worker():
    """The defect: the wait belonged to the models role, so nothing woke the sessions role at the
    end of the wait."""
    agent = Agent(name="a", model="m", limits=Limits(model_attempts=1))
    rig = ManualWorker(agent, roles=("sessions",))
    with_lost_models(rig, "n/1")
    assert not rig.events(ev.TurnEnded)
    rig.ms += 60_000 + agent.limits.margin_ms
    rig.worker.tick()
    assert [ended.reason for ended in rig.events(ev.TurnEnded)] == ["failed"]


def test_law6_a_tool_can_act_no_later_than_its_deadline():
    """The defect: a slow start and the grace period came after the deadline, and used up the margin
    for clocks."""
    rig = with_model_call(PATIENT)
    produced_at = rig.ms
    rig.write("models", answered(call("look")))
    rig.settle()
    (claim,) = rig.events(ev.ToolStarted)
    limits = PATIENT.limits
    begins_at = produced_at + 2 * limits.start_window_ms  # checked here, and in the effects' loop
    ended_at = begins_at + limits.tool_timeout_ms + (ASK_SHARE + END_SHARE) * limits.grace_ms
    assert ended_at <= claim.deadline


def test_a_repeated_claim_keeps_the_slot_of_the_first():
    """The defect: the repeated claim came back as a duplicate after the first had won, and neither
    of them held a slot."""
    rig = ManualWorker(replace(AGENT, limits=Limits(start_window_ms=60_000)), slots=1)
    rig.write("producer", opened("a"))
    rig.write("producer", opened("a"), key="r")
    rig.write("producer", message())
    rig.assign()
    rig.settle_takes()
    rig.ms += 16_000  # its records are in flight, and taken for lost
    rig.worker.tick()
    rig.write("producer", message(), key="r")
    rig.read()
    assert [what for what, _ in rig.begins] == ["generate"]
    assert all(entry.session_id == SESSION for entry in rig.entries(ev.GenStart))


def paused_behind_its_claim(
    agent: Agent, channel: str = "c", roles: tuple[str, ...] = ROLES
) -> ManualWorker:
    """A worker that reads its own GEN_START after the start window. Its reports go to the log."""
    rig = Reporting(agent, roles=roles)
    rig.write("producer", opened("a"))
    rig.write("producer", replace(message(), channel=channel))
    rig.assign()
    rig.settle_takes()
    return rig


class Reporting(ManualWorker):
    """A worker whose reports are in the log at once, as if they had passed through the outbox."""

    def report(self, session_id: str, event) -> None:
        super().report(session_id, event)
        self.write(ROLE_OF[type(event)], event, key=session_id)


def test_S2_a_worker_that_reads_its_own_claim_late_sends_nothing_and_claims_again():
    """The defect: the worker began the call while another took it over, and the provider was paid
    twice."""
    rig = paused_behind_its_claim(PATIENT)
    rig.ms += PATIENT.limits.start_window_ms + 1
    rig.read()
    assert rig.begins == []
    (failed,) = rig.reported
    assert (failed.error, failed.permanent, failed.attempt) == ("not_begun", False, 1)
    rig.settle()
    assert [(what, begin.attempt) for what, begin in rig.begins] == [("generate", 2)]
    assert len(rig.reported) == 1


def test_S2_a_claim_that_comes_back_within_the_window_begins():
    rig = paused_behind_its_claim(PATIENT)
    rig.ms += PATIENT.limits.start_window_ms
    rig.read()
    assert [(what, begin.attempt) for what, begin in rig.begins] == [("generate", 1)]
    assert rig.reported == []


def test_D2_a_delivery_whose_claim_came_back_late_is_claimed_again():
    rig = paused_behind_its_claim(PATIENT, "push:crm", (*ROLES, "delivery"))
    rig.settle()
    rig.write("models", answered())
    rig.read()  # the answer: the delivery is claimed
    rig.ms += PATIENT.limits.start_window_ms + 1
    rig.settle()
    begins = [begin for what, begin in rig.begins if what == "deliver"]
    assert [begin.owed.attempt for begin in begins] == [2]
    assert [event.error for event in rig.reported] == ["not_begun"]


def test_B2_background_work_whose_claim_came_back_late_is_released_and_claimed_again():
    agent = replace(PATIENT, memory=True)
    rig = paused_behind_its_claim(agent, roles=(*ROLES, "background"))
    rig.settle()
    rig.write("models", answered())
    until("the work is begun", lambda: rig.events(ev.BackgroundStarted) or rig.read(1))
    rig.ms += agent.limits.start_window_ms + 1
    rig.settle()
    begins = [begin for what, begin in rig.begins if what == "work"]
    assert [(begin.kind, begin.attempt) for begin in begins] == [("memory", 2)]
    assert [(event.ok, event.released) for event in rig.reported] == [(False, True)]

"""The first prompt of a new worker has all the memory that was in the log when the worker
started."""

from foldlog.processors.agent import Agent
from foldlog.processors.fold.views import initial
from foldlog.processors.limits import DEFAULT_LIMITS
from foldlog.processors.worker.layers_reader import LayersReader
from foldlog.schemas.value import replace
from foldlog.tests.kit.played import settings_in
from foldlog.tests.processors.memory.memory_log import ANA, new_log, serving, writer_of, wrote

ENTRIES = 600  # several batches of the service


def test_S3_2_the_first_prompt_waits_for_the_memory_of_its_user(tmp_path):
    """The defect: a worker that started fast began sessions without the memory of their users."""
    log = new_log()
    writer = writer_of(log)
    for number in range(ENTRIES):
        writer.write(ANA, wrote(f"e{number}", "old", "decisions.md"), f"e{number}")
    writer.write(ANA, wrote("last", "likes tea"), "last")
    agent = Agent(name="a", model="m", memory=True)
    views = initial("s")
    views = replace(views, state=replace(views.state, user_id="ana"))
    with serving(log, tmp_path / "state", caught_up=False) as service:
        read = LayersReader(settings_in(tmp_path), service, print)
        assert "likes tea" in str(read(agent, views).texts)


def test_the_first_prompt_waits_less_than_the_start_window_of_a_claim(tmp_path, monkeypatch):
    """The wait blocks the poll thread. The defect: claims that the worker read back after the wait
    were too late to begin."""
    waited: list[float] = []
    with serving(new_log(), tmp_path / "state") as service:
        monkeypatch.setattr(service, "_wait", lambda _held, wait_s: waited.append(wait_s) or True)
        service.await_start()
    assert [wait_s * 1_000 <= DEFAULT_LIMITS.start_window_ms / 2 for wait_s in waited] == [True]

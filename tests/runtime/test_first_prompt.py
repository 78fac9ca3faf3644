"""The first prompt of a new worker has all the memory that the log held when the worker started."""

from foldlog.processors.agent import Agent
from foldlog.processors.runtime.layers_reader import LayersReader
from foldlog.processors.session import initial
from foldlog.schemas.value import replace
from foldlog.tests.consumers.played import settings_in
from foldlog.tests.processors.memory.desk import ANA, new_log, serving, writer_of, wrote

ENTRIES = 600  # several batches of the service


def test_S3_2_the_first_prompt_waits_for_the_memory_of_its_user(tmp_path):
    """A worker that started fast began sessions without what their users had told before."""
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

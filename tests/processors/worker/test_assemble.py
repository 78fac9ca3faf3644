"""The parts of a worker follow its settings."""

from dataclasses import replace

from foldlog.log.memory import MemoryLog
from foldlog.processors.agent import Agent
from foldlog.processors.worker import assemble, metrics
from foldlog.processors.worker.assemble import Parts
from foldlog.schemas.topics import topics
from foldlog.tests.kit.played import settings_in


def test_the_settings_limit_how_many_effects_run_at_once(tmp_path, monkeypatch):
    """Both limits were constants, so a worker ran 16 model calls however large the machine."""
    monkeypatch.setattr(assemble, "open_log", lambda _settings: MemoryLog(topics(1)))
    settings = replace(settings_in(tmp_path), partitions=1, model_slots=7, tool_slots=3)
    parts = Parts(settings, [Agent(name="a", model="m")], ("models", "tools"), None)
    try:
        slots = parts.actions._slots
        assert (slots["models"].size, slots["tools"].size) == (7, 3)
        assert b'foldlog_waiting_for_a_slot{role="models"} 0.0' in metrics.worker_metrics(parts)
    finally:
        parts.close()

"""Doctor's look at memory: what of a user's core.md enters no prompt."""

from collections.abc import Iterator

from ..log.door import Log
from ..log.errors import TopicMissing
from ..processors.memory.framing import core_left_out
from .check_up import Finding
from .memory import read_memory


def core_in_prompts(log: Log, scope: str) -> Iterator[Finding]:
    """A finding where a limit leaves something out; nothing where all of it enters."""
    try:
        left_out = core_left_out(read_memory(log, scope).now)
    except TopicMissing:
        return  # told with the topics
    if left_out:
        yield Finding(
            "note", "memory", f"of {scope}, {left_out}", "foldlog memory --sync, and edit core.md"
        )

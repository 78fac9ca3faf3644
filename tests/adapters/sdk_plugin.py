"""A pytest plugin for the tests of the OpenAI Agents SDK: replaces the SDK's sessions by foldlog's.

pytest loads the plugin with `-p` from the working directory, which has a copy of the SDK's tests.
FOLDLOG_SDK_HOOK names the class to replace: `sqlite`, the SDK's default session, or `list`, the
double that the tests of the SDK's runner use. FOLDLOG_SDK_BROKER names a broker; without it, the
log is in memory.
"""

import atexit
import os
import sys
import tempfile
from hashlib import sha256
from itertools import count
from pathlib import Path

import agents
import agents.memory
from agents.memory.session_settings import SessionSettings, coerce_session_settings

from foldlog.adapters.openai_agents import FoldlogSession, FoldlogSessions
from foldlog.log import MemoryLog, Settings
from foldlog.schemas.topics import topics

PARTITIONS = 4
_numbers = count()


def _sessions() -> FoldlogSessions:
    broker = os.environ.get("FOLDLOG_SDK_BROKER")
    home = Path(tempfile.mkdtemp(prefix="foldlog-sdk-"))
    settings = Settings(
        bootstrap_servers=broker,
        topic_prefix=f"sdk{os.getpid()}-",
        partitions=PARTITIONS,
        home=home,
        state_dir=home / "worker",
        blobs_dir=home / "blobs",
        cache_dir=home / "cache",
        user="ana",
    )
    if broker is None:
        return FoldlogSessions(settings, MemoryLog(topics(PARTITIONS), threaded=True))
    from foldlog.log import open_log

    open_log(settings).apply_topics(topics(PARTITIONS))
    return FoldlogSessions(settings)


SESSIONS = _sessions()
atexit.register(SESSIONS.close)


class InPlaceOfSQLite(FoldlogSession):
    """Replaces SQLiteSession and has its constructor. Sessions of different files are different
    sessions. Each `:memory:` counts as a different file."""

    def __init__(
        self,
        session_id,
        db_path=":memory:",
        sessions_table="agent_sessions",
        messages_table="agent_messages",
        session_settings=None,
    ):
        given = coerce_session_settings(session_settings) if session_settings else None
        super().__init__(SESSIONS, "any", session_settings=given or SessionSettings())
        self.session_id = session_id
        place = next(_numbers) if str(db_path) == ":memory:" else Path(db_path).resolve()
        kept = f"{place}\0{sessions_table}\0{messages_table}\0{session_id}"
        self._kept_as = sha256(kept.encode()).hexdigest()

    def close(self):
        """Does nothing, because all sessions share the log."""


class InPlaceOfList(FoldlogSession):
    """Replaces the SDK's double, and has its constructor and attributes."""

    strips = False

    def __init__(self, session_id="test", history=None):
        super().__init__(SESSIONS, f"list-{next(_numbers)}")
        self.session_id = session_id
        self._ignore_ids_for_matching = self.strips
        self.pop_calls = 0
        SESSIONS.items.add(self._kept_as, list(history or []))

    @property
    def saved_items(self):
        return SESSIONS.items.items(self._kept_as)

    _items = saved_items


class Counting(InPlaceOfList):
    async def pop_item(self):
        self.pop_calls += 1
        return await super().pop_item()


class Stripping(Counting):
    strips = True

    async def add_items(self, items):
        clean = [
            {k: v for k, v in i.items() if k != "id"} if isinstance(i, dict) else i for i in items
        ]
        await super().add_items(clean)


if os.environ["FOLDLOG_SDK_HOOK"] == "sqlite":
    agents.SQLiteSession = agents.memory.SQLiteSession = InPlaceOfSQLite
else:
    sys.path.insert(0, os.getcwd())
    from tests.utils import simple_session

    simple_session.SimpleListSession = InPlaceOfList
    simple_session.CountingSession = Counting
    simple_session.IdStrippingSession = Stripping

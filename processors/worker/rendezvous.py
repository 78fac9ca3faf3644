"""Lists each user's open sessions: a Faust table that groups `user-sessions` by user.

It runs in its own process (`foldlog users`), because no decision depends on the table and the
gateway reads the topic itself. Each such process reads every partition from the beginning. Once it
has read the records that existed at its start, it can answer for any user at http://WEB/users/USER.
The table's changelog is one of foldlog's topics: all processes write the same records to the
changelog, and no process restores its table from it. Only this file and `faust_credentials.py`
import faust.
"""

import asyncio
import json
import os
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from ...log import Settings
from ...log.door import Offsets
from ...schemas.ids import is_id
from ...schemas.tabs import Tab, names_in, tab_in
from ...schemas.topics import USER_SESSIONS, USER_TABS
from .faust_credentials import faust_credentials
from .faust_logging import filter_logs
from .page_access import JSON, Answer, text
from .pages import Pages

QUERY_S = 5.0  # timeout of a query to the table in Faust's event loop
READY_S = 60.0  # limit of a start, which takes 6 s on a busy machine
END_S = 8.0  # limit of Faust's end, which takes 2 s
TICK_S = 0.1
NOT_READY = 1  # exit code, after which a supervisor starts another process


def run(settings: Settings, web: tuple[str, int], ends: Offsets, say: Callable[[str], None]) -> int:
    """Serve the pages until SIGTERM or SIGINT. Returns the exit code.

    `ends`: the end offsets of the partitions of `user-sessions` that hold records. The pages are
    not ready until the records before these offsets are read.
    Raises SettingsError if the address cannot be bound.
    """
    import faust

    filter_logs()
    with tempfile.TemporaryDirectory(prefix="foldlog-users-") as datadir:
        app = faust.App(
            # Each process has its own group. In a shared group, a member that replaces a killed
            # member is assigned the killed member's partitions, including those of the table's
            # changelog, before it subscribes to them, which crashes Faust's client.
            f"{settings.topic_prefix}foldlog-users-{uuid.uuid4().hex[:8]}",
            **options(settings, datadir),
        )
        reading = Reading(ends)
        tabs = attach(app, settings, reading)
        pages = Pages(web, settings.web_token, lambda path: answer(app, tabs, reading, path))
        worker = faust.Worker(app, override_logging=False, quiet=True, redirect_stdouts=False)
        worker.spinner = None
        watch = Watch(reading.ready.is_set, lambda: worker.should_stop, say)
        try:
            say(f"open sessions by user: {pages.url}/users/USER")
            watch.start()
            worker.execute_from_commandline()
        except SystemExit as end:
            return watch.code or int(end.code or 0)
        finally:
            watch.over.set()
            pages.close()
    return watch.code


class Watch(threading.Thread):
    """Ends the process if Faust does not become ready in time, or does not end in time.

    Nothing is lost: the next process reads the same records again.
    """

    def __init__(
        self,
        ready: Callable[[], bool],
        ending: Callable[[], bool],
        say: Callable[[str], None],
        limits: tuple[float, float] = (READY_S, END_S),
    ) -> None:
        super().__init__(name="watch", daemon=True)
        self.over = threading.Event()
        self.code = 0
        self._ready, self._ending, self._say = ready, ending, say
        self._ready_s, self._end_s = limits

    def run(self) -> None:
        late = time.monotonic() + self._ready_s
        while not self._ending():
            if self.over.wait(TICK_S):
                return
            if self._ready():
                late = time.monotonic() + self._ready_s
            if time.monotonic() > late:
                self._say(
                    f"the open sessions could not be read within {self._ready_s:g} s, so this "
                    "process ends. The log still has all of them: start it again. If that fails "
                    "too, `foldlog doctor` reports what is wrong with the log."
                )
                self.code = NOT_READY
                os.kill(os.getpid(), signal.SIGTERM)
                break
        if not self.over.wait(self._end_s):
            os._exit(self.code)


def options(settings: Settings, datadir: str) -> dict[str, Any]:
    """The options of the Faust app, which creates no topics."""
    return dict(
        broker=[f"kafka://{server}" for server in str(settings.bootstrap_servers).split(",")],
        broker_credentials=faust_credentials(settings),
        store="memory://",
        datadir=datadir,
        web_enabled=False,
        autodiscover=False,
        topic_partitions=settings.partitions,
        topic_replication_factor=1,
        topic_allow_declare=False,
        topic_disable_leader=True,
        recovery_consistency_check=False,  # nothing is restored: see `reading_all`
        worker_redirect_stdouts=False,
    )


def answer(app: Any, tabs: Any, reading: "Reading", path: str) -> Answer | None:
    """The page of a path. Called in a separate thread."""
    if path == "/healthz":
        return text("ok")
    ready = reading.ready.is_set()
    if path == "/readyz" or not ready:
        return text("ready") if ready else text("not ready: reading the open sessions", 503)
    prefix, _, user = path.rpartition("/")
    if prefix != "/users" or not is_id(user):
        return None
    found = asyncio.run_coroutine_threadsafe(_open_sessions(tabs, user), app.loop).result(QUERY_S)
    shown = {"user_id": user, "tabs": [tab._asdict() for tab in found]}
    return Answer(json.dumps(shown).encode(), content_type=JSON)


async def _open_sessions(tabs: Any, user: str) -> list[Tab]:
    return listed(tabs.get(user.encode()) or {})


def reading_all(consumer: type) -> type:
    """A subclass of Faust's consumer that restores no table, and reads a partition without a
    committed offset from its start.

    The changelog also has sessions whose end was compacted away, which a restored table would list
    forever. Also, Faust lost records when it restored the table, because it fetched records during
    the restore and sought to another offset afterwards. The topic `user-sessions` is small and
    complete, so it is read from its start instead.

    While Faust starts, it drops the records that it has fetched, and then seeks to the committed
    offset to read them again. Without a committed offset, Faust does not seek, and the page would
    never show the sessions in the dropped records. So this class seeks to the start of the
    partition. If a record is grouped twice, the table stays the same.
    """

    class ReadingAll(consumer):
        async def highwaters(self, *changelogs):
            return dict.fromkeys(changelogs, 0)  # nothing is left to restore

        async def seek_to_committed(self):
            committed = await super().seek_to_committed()
            for place, offset in committed.items():
                if not offset and place.topic not in self.app.tables.changelog_topics:
                    await self.seek(place, 0)
            return committed

    return ReadingAll


class Reading:
    """Tracks whether the table contains all records that the topic had when this process started.

    Other threads read `ready`. They must not use an app that is starting: Faust creates each part
    of the app when it is first used, and a part that another thread used first would wait in an
    event loop that never runs. Then the process would never become ready, and would not end when
    asked to.
    """

    def __init__(self, ends: Offsets) -> None:
        self._left = dict(ends)
        self.ready = threading.Event()

    def mark_grouped(self, partition: int, offset: int) -> None:
        """Record that the table contains this record."""
        if offset + 1 >= self._left.get(partition, offset + 2):
            del self._left[partition]

    async def follow(self, app: Any) -> None:
        """Keep `ready` up to date with the app's state. Runs in the app's event loop."""
        while True:
            if self._left or app.rebalancing:
                self.ready.clear()
            else:
                self.ready.set()
            await asyncio.sleep(TICK_S)


def attach(app: Any, settings: Settings, reading: Reading) -> Any:
    """Register the agent and the table in the app. Returns the table."""
    app.transport.Consumer = reading_all(app.transport.Consumer)
    announcements = app.topic(
        settings.topic(USER_SESSIONS), key_type=bytes, value_type=bytes, value_serializer="raw"
    )
    changes = app.topic(
        settings.topic(USER_TABS),
        key_serializer="raw",
        value_serializer="json",
        partitions=settings.partitions,
    )
    tabs = app.Table(
        "tabs",
        partitions=settings.partitions,
        key_type=bytes,
        value_type=dict,
        changelog_topic=changes,
    )

    @app.agent(announcements)
    async def group_by_user(stream):
        async for event in stream.events():
            user, session_id = names_in(event.key)
            if session_id:
                grouped = with_tab(tabs.get(user.encode()) or {}, session_id, event.value)
                tabs[user.encode()] = grouped
            reading.mark_grouped(event.message.partition, event.message.offset)

    @app.task
    async def follow() -> None:
        await reading.follow(app)

    return tabs


def with_tab(grouped: dict[str, Any], session_id: str, value: bytes | None) -> dict[str, Any]:
    """A user's sessions after one record. Returns a new dict, because the table keeps a reference
    to the old dict.
    """
    new = tab_in(session_id, value)
    others = {name: tab for name, tab in grouped.items() if name != session_id}
    return others if new is None else {**others, session_id: new._asdict()}


def listed(grouped: dict[str, Any]) -> list[Tab]:
    """A user's open sessions, the newest first."""
    tabs = [Tab(**tab) for tab in grouped.values()]
    return sorted(tabs, key=lambda tab: (-tab.opened_at, tab.session_id))

"""The rendezvous of a user's tabs on Faust: a table that groups `user-sessions` by user.

A process of its own (`foldlog users`), because no worker needs it: nothing is decided by it, and
the gateway reads the topic itself. Each such process reads every partition, so any of them answers
for any user: http://WEB/users/USER. The table's changelog is a topic of ours, and all of them write
the same there. Only this file and `faust_credentials.py` import faust.
"""

import asyncio
import json
import tempfile
import uuid
from typing import Any

from ...log import Settings
from ...schemas.ids import is_id
from ...schemas.topics import USER_SESSIONS, USER_TABS
from ..tabs import Tab, names_in, tab_in
from .faust_credentials import faust_credentials
from .pages import JSON, Answer, Pages, text
from .quiet import quiet

ASK_S = 5.0  # for Faust's loop to look into its table


def run(settings: Settings, web: tuple[str, int], say) -> int:
    """Serve the pages until SIGTERM or SIGINT; the exit code.

    Raises SettingsError if the address cannot be bound.
    """
    import faust

    quiet()
    with tempfile.TemporaryDirectory(prefix="foldlog-users-") as datadir:
        app = faust.App(
            # A group of its own for each process. Who takes the place of a killed member is given
            # what that one read, the changelog of the table with it, before it asks for it, and
            # Faust's client dies of that.
            f"{settings.topic_prefix}foldlog-users-{uuid.uuid4().hex[:8]}",
            **options(settings, datadir),
        )
        tabs = attach(app, settings)
        pages = Pages(web, settings.web_token, lambda path: _answer(app, tabs, path))
        try:
            say(f"open sessions by user: {pages.url}/users/USER")
            worker = faust.Worker(app, override_logging=False, quiet=True, redirect_stdouts=False)
            worker.spinner = None
            worker.execute_from_commandline()
        except SystemExit as end:
            return int(end.code or 0)
        finally:
            pages.close()
    return 0


def options(settings: Settings, datadir: str) -> dict[str, Any]:
    """What Faust is given; the topics it reads are made by us."""
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
        worker_redirect_stdouts=False,
    )


def _answer(app: Any, tabs: Any, path: str) -> Answer | None:
    if path == "/healthz":
        return text("ok")
    ready = not app.rebalancing and app.tables.recovery.completed.is_set()
    if path == "/readyz" or not ready:
        return text("ready") if ready else text("not yet: it reads its table", 503)
    prefix, _, user = path.rpartition("/")
    if prefix != "/users" or not is_id(user):
        return None
    found = asyncio.run_coroutine_threadsafe(_open_sessions(tabs, user), app.loop).result(ASK_S)
    shown = {"user_id": user, "tabs": [tab._asdict() for tab in found]}
    return Answer(json.dumps(shown).encode(), content_type=JSON)


async def _open_sessions(tabs: Any, user: str) -> list[Tab]:
    return listed(tabs.get(user.encode()) or {})


def reading_again(consumer: type) -> type:
    """A consumer that goes back to the beginning where its group has committed nothing yet.

    Faust lets go of what it fetched while its flow was stopped, and then goes back to what was
    committed; without a commit it stayed behind what it had let go, so a page lacked for ever what
    was told while it started. Grouping the same record twice is harmless.
    """

    class ReadingAgain(consumer):
        async def seek_to_committed(self):
            committed = await super().seek_to_committed()
            for place, offset in committed.items():
                if not offset and place.topic not in self.app.tables.changelog_topics:
                    await self.seek(place, 0)
            return committed

    return ReadingAgain


def attach(app: Any, settings: Settings) -> Any:
    """Give an app the agent and the table, which is returned."""
    app.transport.Consumer = reading_again(app.transport.Consumer)
    told = app.topic(
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

    @app.agent(told)
    async def group_by_user(stream):
        async for key, value in stream.items():
            user, session_id = names_in(key)
            if session_id:
                grouped = with_tab(tabs.get(user.encode()) or {}, session_id, value)
                tabs[user.encode()] = grouped

    return tabs


def with_tab(grouped: dict[str, Any], session_id: str, value: bytes | None) -> dict[str, Any]:
    """A user's sessions after one record: a new dict, for the table keeps what it is given."""
    tab = tab_in(session_id, value)
    others = {name: held for name, held in grouped.items() if name != session_id}
    return others if tab is None else {**others, session_id: tab._asdict()}


def listed(grouped: dict[str, Any]) -> list[Tab]:
    """A user's open sessions, the newest first."""
    tabs = [Tab(**held) for held in grouped.values()]
    return sorted(tabs, key=lambda tab: (-tab.opened_at, tab.session_id))

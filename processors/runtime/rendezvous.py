"""The rendezvous of a user's tabs in a worker: a Faust agent that groups `user-sessions` by user.

Each worker is an application of its own to Faust and reads every partition, so any of them answers
for any user: http://WEB/users/USER. The table's changelog is a topic of ours, and all workers write
the same there. It serves people and other programs; nothing is decided by it, and the gateway reads
the topic itself. `app` and `consumer` are Faust's: this file imports nothing of it.
"""

from typing import Any

from ...log import Settings
from ...schemas.topics import USER_SESSIONS, USER_TABS
from ..tabs import Tab, names_in, tab_in


def reading_again(consumer: type) -> type:
    """A consumer that goes back to the beginning where its group has committed nothing yet.

    Faust lets go of what it fetched while its flow was stopped, and then goes back to what was
    committed; without a commit it stayed behind what it had let go, so a page lacked for ever what
    was told while its worker started. Grouping the same record twice is harmless.
    """

    class ReadingAgain(consumer):
        async def seek_to_committed(self):
            committed = await super().seek_to_committed()
            for place, offset in committed.items():
                if not offset and place.topic not in self.app.tables.changelog_topics:
                    await self.seek(place, 0)
            return committed

    return ReadingAgain


def attach(app: Any, settings: Settings) -> None:
    """Give an app the agent, the table and the page."""
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

    @app.page("/users/{user}{_:/?}")
    async def open_sessions(self, request, user, _):
        found = listed(tabs.get(user.encode()) or {})
        return self.json({"user_id": user, "tabs": [tab._asdict() for tab in found]})


def with_tab(grouped: dict[str, Any], session_id: str, value: bytes | None) -> dict[str, Any]:
    """A user's sessions after one record: a new dict, for the table keeps what it is given."""
    tab = tab_in(session_id, value)
    others = {name: held for name, held in grouped.items() if name != session_id}
    return others if tab is None else {**others, session_id: tab._asdict()}


def listed(grouped: dict[str, Any]) -> list[Tab]:
    """A user's open sessions, the newest first."""
    tabs = [Tab(**held) for held in grouped.values()]
    return sorted(tabs, key=lambda tab: (-tab.opened_at, tab.session_id))

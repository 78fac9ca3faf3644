"""Refuses to run on another log than the one that the fleet's tables were built from.

The guards of rows are offsets of session-events. If that topic is deleted and created again while
the fleet's topics stay, the facts of the new one have lower offsets, and the guards would ignore
them without a word. So `log-facts` has the ids of session-events and of session-facts with which
the tables were begun.
"""

from ..log import Settings
from ..log.door import Log
from ..log.errors import TopicMismatch
from ..log.made import note, notes_of
from ..schemas.topics import SESSION_EVENTS, SESSION_FACTS
from . import rows
from .member import changelog_of

BEGUN = "fleet"
"""The name of the record in log-facts; its value is the id of session-facts."""
ANOTHER_LOG = 6
"""The exit code."""
CHANGELOGS = tuple(changelog_of(table) for table in rows.TABLES)


class AnotherLog(TopicMismatch):
    """The fleet's tables were built from another log."""

    def __init__(self, settings: Settings) -> None:
        names = [settings.topic(name) for name in (SESSION_FACTS, *CHANGELOGS)]
        super().__init__(
            f"{settings.topic(SESSION_EVENTS)} was deleted and created again, so the fleet's "
            "tables, which are of the earlier one, would ignore every new fact. Nothing was "
            "changed. To begin the tables again: stop all members, delete their directories and "
            f"the topics {', '.join(names)} (kafka-topics.sh --bootstrap-server "
            f"{settings.bootstrap_servers} --delete --topic '{'|'.join(names)}'), run `foldlog "
            "topics apply`, and start the members."
        )


def demand_same_log(log: Log, settings: Settings) -> str:
    """Note the log of tables that are begun here. Returns the id of session-events. Raises
    AnotherLog, LogUnreachable."""
    events, facts = log.topic_id(SESSION_EVENTS), log.topic_id(SESSION_FACTS)
    begun = [(found.topic_id, found.value) for found in notes_of(log) if found.name == BEGUN][-1:]
    for topic_id, value in begun:
        if topic_id != events and (value == facts or not _are_empty(log)):
            raise AnotherLog(settings)
    if begun != [(events, facts)]:
        note(log, BEGUN, facts)
    return events


def _are_empty(log: Log) -> bool:
    return all(log.first_offsets(name) == log.end_offsets(name) for name in CHANGELOGS)

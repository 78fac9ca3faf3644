"""Lists the rights that each kind of process needs on a cluster with an authorizer.

The table in docs/security.md is generated from this file, and a test runs every role with exactly
its rights. READ and WRITE imply DESCRIBE.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from ..schemas.topics import (
    DEAD_LETTERS,
    FLEET_HOURS,
    FLEET_INBOX,
    FLEET_SESSIONS,
    LOG_FACTS,
    MEMORY_EVENTS,
    OPERATOR_LOOKS,
    SESSION_EVENTS,
    SESSION_FACTS,
    TOPICS,
    USER_SESSIONS,
)

GROUPS = "foldlog"
"""Every consumer group's name begins with this, after the topic prefix."""


class Right(StrEnum):
    """An ACL operation, by Kafka's name."""

    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"


class Resource(StrEnum):
    """The kind of resource to which a right applies. A right to a topic names that topic; a right
    to groups names a prefix of group names.
    """

    TOPIC = "topic"
    GROUP = "group"


class Grant(NamedTuple):
    """One right of one role."""

    resource: Resource
    name: str
    right: Right


class Role(NamedTuple):
    """A kind of process and its rights to topics. Each also reads groups."""

    who: str
    topics: Mapping[str, tuple[Right, ...]]


_READ, _WRITE = (Right.READ,), (Right.WRITE,)
_BOTH = (Right.READ, Right.WRITE)
_SETTINGS = (Right.DESCRIBE, Right.DESCRIBE_CONFIGS)
"""The rights to compare a topic with its spec. `status`, `doctor` and every process at its start
need them.
"""

ALL = tuple(topic.name for topic in TOPICS)


def _with_settings(rights: Mapping[str, tuple[Right, ...]]) -> dict[str, tuple[Right, ...]]:
    """Adds, for every topic, the rights that are needed to compare its settings with its spec."""
    rights = {LOG_FACTS: _READ, **rights}
    return {
        name: (*rights[name], Right.DESCRIBE_CONFIGS) if name in rights else _SETTINGS
        for name in ALL
    }


ROLES: Mapping[str, Role] = {
    "producer": Role(
        "a program that only writes commands and messages",
        {SESSION_EVENTS: _WRITE, LOG_FACTS: _READ},
    ),
    "reader": Role(
        "exports, `sql`, `tail`, `show`, `search`, `looks`",
        {
            SESSION_EVENTS: _READ,
            MEMORY_EVENTS: _READ,
            USER_SESSIONS: _READ,
            OPERATOR_LOOKS: _READ,
            DEAD_LETTERS: _READ,
            LOG_FACTS: _READ,
        },
    ),
    "user": Role(
        "the command line and the Python client",
        _with_settings(
            {
                SESSION_EVENTS: _BOTH,
                MEMORY_EVENTS: _BOTH,
                USER_SESSIONS: _READ,
                OPERATOR_LOOKS: _READ,
                DEAD_LETTERS: _READ,
            }
        ),
    ),
    "gateway": Role(
        "`foldlog gateway`",
        _with_settings(
            {
                SESSION_EVENTS: _BOTH,
                MEMORY_EVENTS: _READ,
                USER_SESSIONS: _READ,
                OPERATOR_LOOKS: _WRITE,
            }
        ),
    ),
    "worker": Role(
        "`foldlog worker`",
        _with_settings(
            {
                SESSION_EVENTS: _BOTH,
                MEMORY_EVENTS: _BOTH,
                USER_SESSIONS: _WRITE,
                SESSION_FACTS: _WRITE,
                DEAD_LETTERS: _BOTH,
                LOG_FACTS: _BOTH,
            }
        ),
    ),
    "fleet": Role(
        "`foldlog fleet`",
        _with_settings(
            {
                SESSION_FACTS: _READ,
                FLEET_SESSIONS: _BOTH,
                FLEET_INBOX: _BOTH,
                FLEET_HOURS: _BOTH,
                LOG_FACTS: _BOTH,
            }
        ),
    ),
    "retainer": Role(
        "`foldlog retain`",
        {SESSION_EVENTS: (Right.READ, Right.DELETE), LOG_FACTS: _READ},
    ),
    "operator": Role(
        "`foldlog topics apply`",
        {
            name: (Right.CREATE, *_SETTINGS, *(_BOTH if name == LOG_FACTS else ()))
            for name in ALL
        },
    ),
}


def grants(role: str, topic_prefix: str = "") -> Iterator[Grant]:
    """Every right of a role. The names of topics and groups include the prefix."""
    for topic, rights in ROLES[role].topics.items():
        for right in rights:
            yield Grant(Resource.TOPIC, topic_prefix + topic, right)
    yield Grant(Resource.GROUP, topic_prefix + GROUPS, Right.READ)

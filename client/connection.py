"""`foldlog.connect()`: a connection to the installation that the command line would use."""

import weakref

from ..log.door import Log
from ..log.errors import Refused, SettingsError
from ..log.settings import Settings
from ..processors.fold.projections.partition import INITIAL
from ..producers.sessions import new_session_id
from .commands import DEFAULT_AGENT
from .installation import connected, find_settings
from .log_client import CHANNEL, LogClient
from .outcomes import CommandRefused
from .session import Session
from .session_state import SessionState, Status, state_of


class Connection(LogClient):
    """Opens and lists sessions, from any thread. Close the connection, or use `with`."""

    def __init__(
        self,
        settings: Settings,
        log: Log | None = None,
        *,
        user: str | None = None,
        channel: str = CHANNEL,
    ) -> None:
        super().__init__(settings, log, user=user, channel=channel)
        self._is_closed = False
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()

    def _demand_open(self) -> None:
        if self._is_closed:
            raise Refused(
                "this connection was closed, so nothing was read or written. Sessions continue in "
                "their workers. Connect again to use them."
            )

    def open(
        self,
        session_id: str | None = None,
        *,
        agent: str = DEFAULT_AGENT,
        user: str | None = None,
    ) -> Session:
        """Open a session. If a session with this id exists, continue it; it must have the same user
        and agent. Without an id, the session is new.

        Raises CommandRefused if the session belongs to another user or agent.
        """
        session = self._session(user, new_session_id() if session_id is None else session_id, agent)
        try:
            session.open(agent)
        except CommandRefused as error:
            session.close()
            raise _why_not_opened(error, session, agent) from None
        except BaseException:
            session.close()
            raise
        return session

    def session(self, session_id: str, *, user: str | None = None) -> Session:
        """An existing session of any user, to inspect or follow it, or to decide on its calls.

        Raises UnknownSession.
        """
        session = self._session(user, session_id, None)
        try:
            session.state()
        except BaseException:
            session.close()
            raise
        return session

    def _session(self, user: str | None, session_id: str, agent: str | None) -> Session:
        if not isinstance(session_id, str):
            raise Refused(f"the id of a session is a string, not {session_id!r}: nothing was done")
        self._demand_open()
        session = Session(self, session_id, agent, user=user)
        self._sessions.add(session)
        return session

    def sessions(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        status: Status | str | None = None,
    ) -> list[SessionState]:
        """All sessions, or those with this user, agent or status, most recently changed first."""
        if status not in (None, *Status):
            raise Refused(f"the status of a session is {', '.join(Status)}, not {status!r}")
        wanted = None if status is None else Status(status)
        self._demand_open()
        everything = self.everything()
        newest = sorted(everything.sessions.values(), key=lambda v: -v.state.updated_at)
        states = (
            state_of(views, everything.holders.get(everything.places[views.session_id], INITIAL),
                     self)
            for views in newest
            if views.turn.known
            and user in (None, views.state.user_id)
            and agent in (None, views.turn.agent)
        )
        return [state for state in states if wanted in (None, state.status)]

    def close(self) -> None:
        """Close every session of this connection and the log. Sessions continue in their workers.
        """
        self._is_closed = True
        for session in tuple(self._sessions):
            session.close()
        super().close()


def _why_not_opened(error: CommandRefused, session: Session, agent: str) -> CommandRefused:
    """The same error, with a detail that says why the session could not be opened.

    The fold's ruling has no such detail. It may be that the session belongs to another user, or
    that it was opened with another agent.
    """
    decision = error.decision
    views = decision.views
    if views.state.user_id != session.user:
        why = "for another user"
    elif views.turn.agent != agent:
        why = f"with agent {views.turn.agent}, not {agent}"
    else:
        return error
    detail = (
        f"session {session.id} is already open, {why}. Nothing was changed. Use another id, "
        "or no id for a new session."
    )
    return CommandRefused(decision._replace(detail=detail))


def connect(
    settings: Settings | None = None,
    *,
    user: str | None = None,
    log: Log | None = None,
    channel: str = CHANNEL,
) -> Connection:
    """Connect to the broker that the command line would use.

    settings: by default those of the environment and `foldlog.toml`.
    user: the user who acts, by default the settings' user.
    log: a log that is already open, such as one in memory.
    channel: the channel of the messages; `push:NAME` delivers their answers (docs/delivery.md).

    Raises SettingsError, LogUnreachable.
    """
    if not isinstance(settings, Settings | None):
        raise SettingsError(
            f"connect needs foldlog.Settings, not {settings!r}. The broker's address is set with "
            "KAFKA_BOOTSTRAP_SERVERS, or in foldlog.toml"
        )
    settings = settings or find_settings()
    if log is None:
        settings = connected(settings)
    return Connection(settings, log, user=user, channel=channel)

"""The parts of one gateway, and the operations that routes share.

A gateway owns no state: if it is killed at any time, another gateway shows the same sessions.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from starlette.requests import Request

from ...client.commands import Commands
from ...client.gen_sent import note_sent
from ...client.log_client import LogClient
from ...client.outcomes import Decision, demand
from ...client.show import UnknownSession
from ...log.blobs import BlobError, open_blobs
from ...log.errors import Retry
from ...processors.advice.prices import load_prices
from ...processors.fold.views import SessionViews
from ...processors.store.chunks_reader import chunks_reader
from ...processors.store.snapshots import snapshots_of
from ...producers.attachments import inspect_new
from ...producers.checks import an_id
from ...producers.sessions import ORIGIN, Receipt
from ...reports.search.search_index import index_path
from ...schemas.attachments import reference
from ...schemas.enums import LookKind
from ...schemas.events.parts import BlobRef
from ...schemas.ids import ID_CHARS_MAX, is_id
from ...schemas.looks import Look
from ...schemas.origin import Origin, Proof, Recorder
from ..inspector.overview import Overview
from .access import Access, Act, Caller, NotYours, may
from .finder import Finder
from .fleet_home import FleetHome
from .hub import Hub
from .looks import Looks
from .names import own_id
from .subscriptions import Subscription
from .tabs import Tabs
from .tail import Tail

# Threads that wait for the log or the disk. Python's default is the number of cores plus 4, with
# which a few reads that hang without a broker would block all other reads.
THREADS_MAX = 32

P = ParamSpec("P")
T = TypeVar("T")


class Gateway:
    """The parts of one gateway process. Raises the errors of LogClient and Tail."""

    def __init__(
        self, client: LogClient, access: Access, directory: Path, print_line: Callable[[str], None]
    ) -> None:
        self.client, self.access, self.print_line = client, access, print_line
        self.settings = client.settings
        self.read_blob = client.read_blob
        self.answers: Counter[str] = Counter()  # by HTTP status
        self.overview = Overview(load_prices(self.settings.prices), client.read_blob)
        self.fleet = FleetHome(self.settings, self.overview)
        self.tail = Tail(
            client.log, directory, print_line, client.read_blob, self.overview,
            snapshots_of(self.settings), self.settings.snapshot_records,
            self.settings.session_cache_mb,
        )
        self.finder = Finder(client.log, index_path(self.settings), client.read_blob, print_line)
        self.tabs = Tabs(client.log, print_line)
        self.looks = Looks(client.writer)
        self.hub = Hub(self.tail, self.shown_blob, chunks_reader(client.log), print_line)

    def caller(self, request: Request) -> Caller:
        """The user of a request and the user's rights. Raises Unauthenticated."""
        caller = self.access.caller_of(request)
        # The origin of the records that this request writes.
        ORIGIN.set(Origin(Recorder.GATEWAY, self.access.proof, caller.user))
        return caller

    def user(self, request: Request) -> str:
        """The id of the user who sent a request. Raises Unauthenticated."""
        return self.caller(request).user

    # -- sessions to write to ----------------------------------------------------------------------

    def views(self, request: Request, name: str) -> SessionViews:
        """The views of the session of this name that the user may write to. Raises Unauthenticated,
        NotYours, and UnknownSession, also for another user's session.
        """
        return known(self.views_or_none(self.caller(request), name), name)

    def views_or_none(self, caller: Caller, name: str) -> SessionViews | None:
        """As `views`, or None if there is no such session. Raises NotReady, NotYours."""
        self.tail.ready()
        views = self._views(caller, self.session_id(caller, name)) if is_id(name) else None
        if views is not None:
            _demand(caller, views.state.user_id, Act.WRITE, views.session_id)
        return views

    def session_id(self, caller: Caller, name: str) -> str:
        """The id of the session of this name that the user writes to; it may be new. Raises
        Invalid if the name is no valid id, and NotYours.
        """
        session_id = self._meant(caller, name)
        _demand(caller, self.tail.user_of(session_id), Act.WRITE, session_id)
        return session_id

    def commands(self, request: Request, name: str) -> Commands:
        """The user's commands on the session of this name. Raises as `views` does."""
        return self._commands(self.user(request), self.views(request, name))

    # -- sessions to read --------------------------------------------------------------------------

    def seen(self, caller: Caller, name: str, what: LookKind) -> SessionViews:
        """The views of a session that the caller may read. A look is recorded first, which waits
        for the log. Raises UnknownSession, LookNotRecorded, NotReady.
        """
        return known(self.seen_or_none(caller, name, what), name)

    def seen_or_none(
        self, caller: Caller, name: str, what: LookKind | None
    ) -> SessionViews | None:
        """As `seen`, or None if there is no such session. what: None for a row of a list whose look
        is recorded.
        """
        self.tail.ready()
        views = self._views(caller, self._meant(caller, name)) if is_id(name) else None
        if views is not None and what is not None:
            self._record(caller, views, what)
        return views

    async def answering(self, request: Request, name: str) -> Commands:
        """The commands of a user who answers an approval or settles a doubt. An operator answers in
        the name of the session's user, and the header `by` names the operator. Raises as `seen`
        does, and NotYours.
        """
        caller = self.caller(request)
        views = known(self.seen_or_none(caller, name, None), name)
        owner = views.state.user_id
        _demand(caller, owner, Act.DECIDE, views.session_id)
        if not caller.is_look(owner):
            return self._commands(caller.user, views)
        await self.blocking(self._record, caller, views, LookKind.DECISION)
        ORIGIN.set(Origin(Recorder.GATEWAY, Proof.OPERATOR, caller.user))
        return self._commands(owner, views)

    def listed(self, caller: Caller, what: LookKind = LookKind.LIST) -> str | None:
        """The user whose sessions a list shows to the caller; None for all users, which is a look.
        Raises LookNotRecorded.
        """
        if not caller.everything:
            return caller.user
        if not caller.is_developer:
            self.looks.record(Look(operator=caller.user, what=what))
        return None

    async def read(
        self, see: Callable[Concatenate[Caller, P], T], caller: Caller, *args: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call `seen`, `seen_or_none` or `listed` in a coroutine. For an operator, who waits for
        the log, in a thread.
        """
        if caller.roles:
            return await self.blocking(see, caller, *args, **named)
        return see(caller, *args, **named)

    def _meant(self, caller: Caller, name: str) -> str:
        """The id of the session that the caller means by a name. If the user has a session with
        this id, the name means that session. Otherwise it means the session to which the user gave
        this name, or would give it; an operator who has none means the session with this id. Raises
        Invalid if the name is no valid id.
        """
        self.tail.ready()
        an_id("session_id", name)
        if caller.is_developer:
            return name
        # Do not read another user's views: the time that reading takes would reveal that they
        # exist.
        user_of, own = self.tail.user_of, own_id(caller.user, name)
        owner = user_of(name)
        if owner == caller.user:
            return name
        is_others = owner is not None and may(caller, owner, Act.READ) and user_of(own) is None
        return name if is_others else own

    def _views(self, caller: Caller, session_id: str) -> SessionViews | None:
        views = self.tail.views(session_id)
        is_seen = views is not None and may(caller, views.state.user_id, Act.READ)
        return views if is_seen else None

    def _record(self, caller: Caller, views: SessionViews, what: LookKind) -> None:
        owner, session_id = views.state.user_id, views.session_id
        if caller.is_look(owner):
            self.looks.record(
                Look(operator=caller.user, user_id=owner, session_id=session_id, what=what)
            )

    def _commands(self, user: str, views: SessionViews) -> Commands:
        return Commands(self.client.writer, views, user, self.read_blob)

    # -- what routes share -------------------------------------------------------------------------

    def shown_blob(self, ref: BlobRef) -> bytes:
        """The content of a reference, or a text block that says it is missing, so that a session
        with a lost or damaged blob can still be read.
        """
        try:
            return self.read_blob(ref)
        except BlobError as error:
            text = f"[{ref.bytes} bytes of this are missing from the blob store: {error}]"
            return json.dumps([{"type": "text", "text": text}]).encode()

    async def decision(self, receipt: Receipt) -> Decision:
        """The fold's ruling on a command. Raises CommandRefused, NotDecidedYet."""
        return demand(await self.hub.decision(receipt.session_id, receipt.offset))

    async def rule(
        self,
        on: Commands,
        write: Callable[Concatenate[Commands, P], Receipt],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Decision:
        """Write a command, and return the fold's ruling. Raises as `write` and `decision` do."""
        return await self.decision(await self.blocking(write, on, *args, **kwargs))

    def store_attachment(self, data: bytes) -> dict[str, Any]:
        """Store bytes as a blob and return a block that refers to it. Blocking."""
        attachment = inspect_new(data)
        blob = open_blobs(self.settings).store(data, attachment.media_type)
        return reference(blob, attachment.tokens)

    async def note_shown(self, subscription: Subscription, turn: int, channel: str) -> None:
        """Record that a viewer was shown the end of a turn, unless the viewer is an operator.

        If this fails, the viewer's stream continues.
        """
        views = subscription.views
        if subscription.user != views.state.user_id and not self.access.development:
            return
        try:
            await self.blocking(note_sent, self.client.writer.producer, views, turn, channel)
        except Retry as error:
            self.print_line(f"turn {turn} of session {views.session_id} was shown by {channel}, "
                            f"but that could not be recorded: {error}")

    async def blocking(self, do: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run a call that waits for the log or the disk, in a thread."""
        return await asyncio.to_thread(do, *args, **named)

    def disconnect(self) -> None:
        """End every stream; clients reconnect, to another gateway if this one stops."""
        self.hub.close()
        self.tabs.disconnect()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the log while the block runs."""
        threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="gateway")
        asyncio.get_running_loop().set_default_executor(threads)
        self.hub.start()
        self.tail.start()
        self.tabs.start()
        try:
            yield
        finally:
            self.disconnect()
            await asyncio.to_thread(self.tabs.close)
            await asyncio.to_thread(self.tail.close)
            await asyncio.to_thread(self.finder.close)


def known(views: SessionViews | None, name: str) -> SessionViews:
    """The views. Raises UnknownSession if there are none."""
    if views is None:
        raise UnknownSession(f"there is no session {name[:ID_CHARS_MAX]}")
    return views


def _demand(caller: Caller, owner: str | None, act: Act, session_id: str) -> None:
    """Raise NotYours if the caller may read this session but not do this. To a caller who may not
    read it, it does not exist.
    """
    if owner is not None and may(caller, owner, Act.READ) and not may(caller, owner, act):
        raise NotYours(f"session {session_id} belongs to another user: an operator may read it, "
                       "and with the role decide answer its approvals and doubts, nothing else. "
                       "Nothing was done.")

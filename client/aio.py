"""The API for asyncio. Every blocking call runs in a thread of a pool, never on the event loop.

A stream reads the log only when its consumer asks for the next event, so a slow consumer delays
only its own stream. A stream uses a thread for at most 50 ms at a time. If there are more than
THREADS_MAX streams, they take turns on the threads, and each is delayed a little.
"""

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar
from uuid import uuid4

from ..log.door import Log
from ..log.errors import Refused
from ..log.settings import Settings
from .awaited import PendingCall, awaited
from .connection import Connection, connect
from .events import SessionEvent, demand_event_class
from .log_client import CHANNEL
from .outcomes import ANSWER_S, Answer
from .session import Reply, ReplyEnded, Session, Stream, answer_later

E = TypeVar("E", bound=SessionEvent)
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

THREADS_MAX = 64


class _Threads:
    """The thread pool of one connection."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="foldlog")
        self._is_closed = False

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call in a thread. Raises Refused after close()."""
        if self._is_closed:
            raise Refused(
                "this connection was closed, so nothing was read or written. Sessions continue in "
                "their workers. Connect again to use them."
            )
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(call, *args, **kwargs))

    def close(self) -> None:
        self._is_closed = True
        self._pool.shutdown(wait=False)


class _Threaded(Generic[S]):
    """Calls the methods of a blocking object in the threads of a connection."""

    def __init__(self, blocking: S, threads: _Threads) -> None:
        self._blocking, self._threads = blocking, threads


def _in_thread(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[_Threaded[S], P], Coroutine[Any, Any, T]]:
    """An awaitable version of a method of the blocking object."""

    @awaited
    @wraps(method)
    async def run(self: _Threaded[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._threads.run(method, self._blocking, *args, **kwargs)

    return run


def same_parameters(
    method: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Declares that a method has the parameters of `method`, because it passes its arguments on to
    `method`."""

    def declare(function: Callable[..., T]) -> Callable[Concatenate[Any, P], T]:
        function.__wrapped__ = method  # type: ignore[attr-defined]  # for `inspect` and the docs
        return function

    return declare


class AsyncStream:
    """Live events of a session:

    `async for event in stream`. Close the stream, or use `async with`.
    """

    def __init__(self, threads: _Threads, begin: Callable[[], Stream]) -> None:
        self._threads, self._begin = threads, begin
        self._stream: Stream | None = None
        self._was_begun = False
        self._beginning = asyncio.Lock()

    async def _begun(self) -> Stream:
        self._was_begun = True
        async with self._beginning:
            if self._stream is None:
                self._stream = await self._threads.run(self._begin)
            return self._stream

    async def begin(self) -> Self:
        """Start the stream now instead of at the first read. A reply then sends its message.

        Raises Refused for an invalid message or cursor.
        """
        await self._begun()
        return self

    @property
    def cursor(self) -> str | None:
        """The cursor after the last event that was taken, to continue from; None before the first
        read.
        """
        return None if self._stream is None else self._stream.cursor

    async def __aiter__(self) -> AsyncIterator[SessionEvent]:
        stream = await self._begun()
        while not stream.ended:
            event = stream.take()
            if event is None:
                await self._threads.run(stream.pump)
            else:
                yield event

    async def until(self, kind: type[E]) -> E:
        """Return the next event of a class, and skip the events before it. Raises ReplyEnded if the
        reply ends without such an event. To limit the wait, use `asyncio.timeout`.
        """
        demand_event_class(kind)
        with (await self._begun()).dropping(kind):
            async for event in self:
                if isinstance(event, kind):
                    return event
        raise ReplyEnded(f"the reply ended without {kind.__name__}")

    async def aclose(self) -> None:
        """Close the stream; the session continues."""
        if self._stream is not None:
            await self._threads.run(self._stream.close)

    async def __aenter__(self) -> "AsyncStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncReply(AsyncStream):
    """The reply to one message: iterate over its events, or `await` it for the answer.

    The message is sent when the reply is first awaited or iterated, or by `begin()`.
    """

    if not TYPE_CHECKING:  # or a type checker would allow every attribute
        __getattr__ = answer_later("(await session.send(...))")

    def __init__(
        self,
        threads: _Threads,
        begin: Callable[[], Reply],
        message_id: str,
        *,
        sends: bool = False,
    ) -> None:
        super().__init__(threads, begin)
        self.message_id = message_id
        self._sends = sends

    async def answer(self, *, timeout_s: float = ANSWER_S) -> Answer:
        """Wait until the turn has ended, and return the answer. Raises NoAnswerYet."""
        reply = await self._begun()
        assert isinstance(reply, Reply), "begun by Session.send or Session.reply"
        deadline = asyncio.get_running_loop().time() + timeout_s
        while (answer := await self._threads.run(reply.poll_answer)) is None:
            if asyncio.get_running_loop().time() > deadline:
                raise reply.no_answer_yet(timeout_s)
        return answer

    def __await__(self) -> Generator[Any, None, Answer]:
        return self.answer().__await__()

    def __repr__(self) -> str:
        return (
            f"<AsyncReply to message {self.message_id}: await it for its answer, or iterate over "
            "it with `async for`>"
        )

    def __del__(self) -> None:
        if self._sends and not self._was_begun:
            warnings.warn(
                "the message of session.send(...) was never sent: await the reply, or iterate "
                "over it with `async for`",
                RuntimeWarning,
                source=self,
                stacklevel=2,
            )


class AsyncSession(_Threaded[Session]):
    """One session, with the methods of `Session`.

    `id`: its name.
    `user`: the user who acts.
    """

    def __init__(self, session: Session, threads: _Threads) -> None:
        super().__init__(session, threads)
        self.id, self.user = session.id, session.user

    @property
    def agent(self) -> str:
        """The agent that answers in this session."""
        return self._blocking.agent

    def __repr__(self) -> str:
        return f"<Async{repr(self._blocking)[1:]}"

    @same_parameters(Session.send)
    def send(self, *args: Any, message_id: str | None = None, **options: Any) -> AsyncReply:
        """Send a message: `await` the reply for its answer, or iterate over its events. The
        parameters are those of `Session.send`.
        """
        message_id = message_id or uuid4().hex
        begin = partial(self._blocking.send, *args, message_id=message_id, **options)
        return AsyncReply(self._threads, begin, message_id, sends=True)

    def reply(self, message_id: str) -> AsyncReply:
        """The reply to a message that was sent earlier. It yields all of the reply's events again.
        """
        return AsyncReply(self._threads, partial(self._blocking.reply, message_id), message_id)

    def events(self, cursor: str | None = None) -> AsyncStream:
        """A stream of the events from now on, or from right after the event with this cursor."""
        return AsyncStream(self._threads, partial(self._blocking.events, cursor))

    open = _in_thread(Session.open)
    say = _in_thread(Session.say)
    approve = _in_thread(Session.approve)
    deny = _in_thread(Session.deny)
    decide = _in_thread(Session.decide)
    resolve = _in_thread(Session.resolve)
    cancel = _in_thread(Session.cancel)
    trigger = _in_thread(Session.trigger)
    lock = _in_thread(Session.lock)
    terminate = _in_thread(Session.terminate)
    history = _in_thread(Session.history)
    state = _in_thread(Session.state)
    request = _in_thread(Session.request)
    views = _in_thread(Session.views)
    aclose = _in_thread(Session.close)

    @same_parameters(Session.fork)
    @awaited
    async def fork(self, *args: Any, **options: Any) -> "AsyncSession":
        """Open a new session that begins with the state of this session: the state right after an
        event or an offset, by default the present state.
        """
        forked = await self._threads.run(self._blocking.fork, *args, **options)
        return AsyncSession(forked, self._threads)

    @awaited
    async def regenerate(self, turn: int | None = None) -> "tuple[AsyncSession, AsyncReply]":
        """Get another answer to a turn (by default the last) in a fork. Returns the fork and the
        reply.
        """
        return self._again(*await self._threads.run(self._blocking.regenerate, turn))

    @same_parameters(Session.rerun)
    @awaited
    async def rerun(self, *args: Any, **options: Any) -> "tuple[AsyncSession, AsyncReply]":
        """Edit the last message, or the result of a call, and get another answer in a fork. Returns
        the fork and the reply.
        """
        return self._again(*await self._threads.run(self._blocking.rerun, *args, **options))

    def _again(self, fork: Session, reply: Reply) -> "tuple[AsyncSession, AsyncReply]":
        again = AsyncReply(self._threads, lambda: reply, reply.message_id)
        return AsyncSession(fork, self._threads), again

    async def __aenter__(self) -> "AsyncSession":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncConnection(_Threaded[Connection]):
    """Opens and lists sessions, from a running event loop."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, _Threads())

    @same_parameters(Connection.open)
    @awaited
    async def open(self, *args: Any, **options: Any) -> AsyncSession:
        """Open a session. If a session with this id exists, continue it; it must have the same user
        and agent.

        Without an id, the session is new.
        """
        session = await self._threads.run(self._blocking.open, *args, **options)
        return AsyncSession(session, self._threads)

    @same_parameters(Connection.session)
    @awaited
    async def session(self, *args: Any, **options: Any) -> AsyncSession:
        """An existing session. Raises UnknownSession."""
        found = await self._threads.run(self._blocking.session, *args, **options)
        return AsyncSession(found, self._threads)

    sessions = _in_thread(Connection.sessions)

    @awaited
    async def aclose(self) -> None:
        """Close every session of this connection and the log."""
        await self._threads.run(self._blocking.close)
        self._threads.close()


class _Connecting(PendingCall[AsyncConnection]):
    """What `aconnect` returns: `await` it for a connection, or use it with `async with`."""

    def __init__(self, begin: Callable[[], Connection]) -> None:
        async def connected() -> AsyncConnection:
            return AsyncConnection(await asyncio.to_thread(begin))

        super().__init__(connected, "foldlog.aconnect")
        self._connection: AsyncConnection | None = None

    async def __aenter__(self) -> AsyncConnection:
        self._connection = await self
        return self._connection

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        assert self._connection is not None, "entered before"
        await self._connection.aclose()


def aconnect(
    settings: Settings | None = None,
    *,
    user: str | None = None,
    log: Log | None = None,
    channel: str = CHANNEL,
) -> _Connecting:
    """Connect as `connect` does, but for asyncio: use `async with foldlog.aconnect() as log`, or
    `await` the result.
    """
    return _Connecting(partial(connect, settings, user=user, log=log, channel=channel))

"""Stores objects in an object store: S3, Google Cloud Storage, Azure, or the memory of a process.

The package `obstore` speaks the protocols, and takes credentials and endpoints as it documents,
from the environment. foldlog never sees them. Messages of that package contain addresses, so errors
here name only their class.

Every request has a deadline and is retried for RETRY_S. When a request has failed, the store counts
as away: other requests fail at once instead of waiting, until a probe in the background succeeds.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from .errors import SettingsError
from .extras import demand
from .objects import CHUNK_BYTES, INCOMING, ObjectsAway, StoredObject, checked_name

if TYPE_CHECKING:
    from obstore.store import ClientConfig, MemoryStore, ObjectStore, RetryConfig

T = TypeVar("T")

CONNECT_S = 2.0
REQUEST_S = 60.0
"""The client's own limit of one request with its body, for parts of large objects."""

RETRY_S = 3.0
"""How long a request is retried: longer than a restart of a server takes, and short enough for the
thread that folds records, which waits once per outage."""

DEADLINE_S = 10.0
BYTES_PER_S_MIN = 256 * 1024
"""The deadline of a request is DEADLINE_S plus the time that its bytes take at this rate."""

PROBE_S = 1.0
"""The time between two probes of a store that is away."""

REQUESTS_MAX = 16
"""Concurrent requests of one process to one store; with many more, connecting times out."""

PIECE_BYTES = 8 * 1024 * 1024
"""Larger objects are written in parts and read in ranges of this size."""

RENEW_AGE_S = 900.0
"""`renew` leaves a younger object unchanged, because garbage is at least an hour old."""

_NO_BUCKET = "its bucket or container does not exist"
_PROBE = "probe"  # the prefix that a probe lists; no such object exists
_memory_stores: dict[str, "MemoryStore"] = {}
_loops: dict[int, asyncio.AbstractEventLoop] = {}  # by the id of the process, which may fork
_guard = threading.Lock()


class RemoteObjects:
    """Implements `objects.Objects`: objects below a URL. Safe for several threads and processes.

    Methods raise ObjectsAway if the store does not answer or denies access.
    """

    def __init__(self, url: str) -> None:
        """url: as in `Settings.blobs`. Raises SettingsError."""
        self.url = url
        self._store, self._is_memory = _opened(url), url.startswith("memory:")
        self._free = asyncio.Semaphore(REQUESTS_MAX)
        self._lock = threading.Lock()
        self._away: tuple[str, float] | None = None

    @property
    def away(self) -> str:
        """Why the store counts as away; '' if it does not."""
        away = self._away
        return "" if away is None else away[0]

    @property
    def away_s(self) -> float:
        """For how many seconds the store has been away; 0 if it is not."""
        away = self._away
        return 0.0 if away is None else time.monotonic() - away[1]

    # -- objects.Objects ---------------------------------------------------------------------------

    def put(self, name: str, data: Iterable[bytes]) -> None:
        """See Objects."""
        import obstore

        checked_name(name)
        chunks = iter(data)
        first = list(_upto(chunks, PIECE_BYTES))
        size = sum(map(len, first))
        put, whole = obstore.put_async, b"".join(first) if size < PIECE_BYTES else None
        try:
            if whole is not None:
                self._run(lambda: put(self._store, name, whole, use_multipart=False), size)
                return
            parts = chain(first, chunks)  # each part is a request with the client's own limit
            self._guarded(lambda: obstore.put(self._store, name, parts, use_multipart=True))
        except FileNotFoundError as error:
            raise self._gone(_NO_BUCKET) from error

    def read(self, name: str) -> Iterator[bytes]:
        """See Objects."""
        found = self.find(name)
        if found is None:
            raise FileNotFoundError(f"there is no object {name}")
        for start in range(0, found.bytes, PIECE_BYTES):
            piece = memoryview(self._range(name, start, min(start + PIECE_BYTES, found.bytes)))
            for at in range(0, len(piece), CHUNK_BYTES):
                yield bytes(piece[at : at + CHUNK_BYTES])

    def get(self, name: str) -> bytes:
        """The whole object, in one request. Raises FileNotFoundError."""
        import obstore

        checked_name(name)

        async def whole() -> bytes:
            found = await obstore.get_async(self._store, name)
            limit_s = _limit_s(found.meta["size"])
            return bytes(await asyncio.wait_for(found.bytes_async(), limit_s))

        try:
            data: bytes = self._run(whole, PIECE_BYTES * 8)  # `whole` has a stricter limit
            return data
        except FileNotFoundError:
            self.demand_there()
            raise

    def demand_there(self) -> None:
        """Raise ObjectsAway if the bucket does not exist. To a reader of one object it would look
        as if only that object were missing.
        """
        try:
            for _ in self._pages(f"{_PROBE}/"):
                return
        except FileNotFoundError as error:
            raise self._gone(_NO_BUCKET) from error

    def find(self, name: str) -> StoredObject | None:
        """See Objects."""
        import obstore

        try:
            checked_name(name)
            return _stored(self._run(lambda: obstore.head_async(self._store, name)))
        except FileNotFoundError:
            return None

    def renew(self, name: str) -> StoredObject | None:
        """See Objects. The object is copied and copied back, because S3 rejects a copy onto itself.
        """
        import obstore

        found = self.find(name)
        if found is None or found.stored_at > time.time() - RENEW_AGE_S:
            return found
        beside = f"{INCOMING}/{uuid4().hex}"
        try:
            self._run(lambda: obstore.copy_async(self._store, name, beside), found.bytes)
        except FileNotFoundError:
            return None
        self._run(lambda: obstore.copy_async(self._store, beside, name), found.bytes)
        self.delete(beside)
        return self.find(name)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """See Objects."""
        for page in self._pages(prefix):
            for found in page:
                stored = _stored(found)
                if not stored.name.startswith(f"{INCOMING}/"):
                    yield stored

    def delete(self, name: str) -> None:
        """See Objects."""
        import obstore

        checked_name(name)
        try:
            self._run(lambda: obstore.delete_async(self._store, name))
        except FileNotFoundError:
            return

    def delete_leftovers(self) -> None:
        """See Objects."""
        from .durable_files import LEFTOVER_AGE_S

        before = time.time() - LEFTOVER_AGE_S
        for page in self._pages(f"{INCOMING}/"):
            for found in map(_stored, page):
                if found.stored_at < before:
                    self.delete(found.name)

    # -- requests ----------------------------------------------------------------------------------

    def _range(self, name: str, start: int, end: int) -> bytes:
        import obstore

        get = obstore.get_range_async
        return bytes(self._run(lambda: get(self._store, name, start=start, end=end), end - start))

    def _pages(self, prefix: str) -> Iterator[Sequence[Any]]:
        import obstore

        pages = obstore.list(self._store, prefix=prefix or None, chunk_size=1000)
        while page := self._run(lambda: _next_page(pages)):
            yield page

    def _run(self, begin: Callable[[], Any], size: int = 0) -> Any:
        """The result of a request that moves `size` bytes."""

        async def bounded() -> Any:
            async with self._free:
                limit_s = None if self._is_memory else _limit_s(size)
                return await asyncio.wait_for(begin(), limit_s)

        return self._guarded(lambda: _wait_for(bounded()))

    def _guarded(self, request: Callable[[], T]) -> T:
        from obstore import exceptions

        if away := self.away:
            raise ObjectsAway(away)
        try:
            return request()
        except FileNotFoundError:
            raise FileNotFoundError("there is no such object") from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise self._gone(f"it denies access ({type(error).__name__})") from None
        except (exceptions.BaseError, TimeoutError, OSError, ValueError) as error:
            raise self._gone(
                f"it does not answer, or not as expected ({type(error).__name__})"
            ) from None

    # -- outages -----------------------------------------------------------------------------------

    def _gone(self, why: str) -> ObjectsAway:
        """Note that the store is away, and begin to probe it."""
        with self._lock:
            if self._away is None and not self._is_memory:
                self._away = (why, time.monotonic())
                asyncio.run_coroutine_threadsafe(self._probe(), _loop())
        return ObjectsAway(why)

    async def _probe(self) -> None:
        """List objects that do not exist, until the store answers. A lookup of one object would
        succeed without a bucket.
        """
        import obstore

        while self._away is not None:
            try:
                pages = obstore.list(self._store, prefix=f"{_PROBE}/")
                await asyncio.wait_for(_next_page(pages), DEADLINE_S)
                self._away = None
            except Exception:  # of any kind: the store is still away
                await asyncio.sleep(PROBE_S)


def _opened(url: str) -> "ObjectStore":
    demand("an object store for blobs", "s3")
    from obstore.exceptions import BaseError
    from obstore.store import MemoryStore, from_url

    if url.startswith("memory:"):
        with _guard:
            return _memory_stores.setdefault(url, MemoryStore())
    try:
        return from_url(url, client_options=_client(), retry_config=_retries())
    except (BaseError, ValueError) as error:
        raise SettingsError(
            f"blobs: the object store cannot be used ({type(error).__name__}). Nothing was "
            "changed. Check the URL, and the variables from which obstore takes the account and "
            "the credentials (docs/blobs.md)."
        ) from None


def _client() -> "ClientConfig":
    # An endpoint with http:// is used only if the operator's environment names it.
    return {
        "timeout": f"{REQUEST_S:g}s", "connect_timeout": f"{CONNECT_S:g}s", "allow_http": True,
    }


def _retries() -> "RetryConfig":
    milliseconds = timedelta(milliseconds=1)
    return {
        "max_retries": 1000,  # the time is the limit: with full jitter 20 retries end within 3 s
        "retry_timeout": timedelta(seconds=RETRY_S),
        "backoff": {
            "init_backoff": 50 * milliseconds, "max_backoff": 1000 * milliseconds, "base": 2,
        },
    }


def _limit_s(size: int) -> float:
    return DEADLINE_S + size / BYTES_PER_S_MIN


def _stored(found: Any) -> StoredObject:
    return StoredObject(found["path"], found["size"], found["last_modified"].timestamp())


def _upto(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Chunks until they have `size` bytes together."""
    for chunk in chunks:
        yield chunk
        size -= len(chunk)
        if size <= 0:
            return


async def _next_page(pages: Any) -> Sequence[Any]:
    async for page in pages:
        return page  # type: ignore[no-any-return]
    return ()


def _wait_for(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which runs in the event loop of this process."""
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:  # such as Ctrl-C
        future.cancel()
        raise


def _loop() -> asyncio.AbstractEventLoop:
    """The event loop for requests: one thread per process, begun on first use."""
    with _guard:
        found = _loops.get(os.getpid())
        if found is None:
            found = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=found.run_forever, name="object store", daemon=True).start()
        return found

"""The jar cache: downloads the broker's jars from an exact list and verifies every sha256.

A download goes to a temporary directory, is hashed, and only then renamed into place, so an
interrupted download leaves nothing that could be mistaken for a jar.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple

from .errors import DiskFull, JarRefused, JarsUnavailable

LOCK = Path(__file__).parent.parent / "kafka.lock"

_WORKERS = 8  # 1, 8 and 16 take the same time on a slow link; 8 hides latency on a fast link
_ATTEMPTS_MAX = 3
_RETRY_S = 0.5  # doubled per attempt: 1.5 s in all, enough for a network glitch
_TIMEOUT_S = 30  # per request
_MTIME_S = 1_000_000_000  # any constant: Java's startup cache rejects a jar whose time changed

Progress = Callable[[str], None]


class Jar(NamedTuple):
    """One line of the lock file."""

    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def filename(self) -> str:
        return f"{self.artifact}-{self.version}-{self.sha256[:12]}.jar"


def read_lock(lock: Path = LOCK) -> list[Jar]:
    """The jars in lock order, which is the order of the class path."""
    lines = (line.split() for line in lock.read_text().splitlines() if line.strip())
    return [Jar(sha256, *coordinate.split(":")) for sha256, coordinate in lines]


def ensure_jars(
    cache: Path, progress: Progress, *, lock: Path = LOCK, mirror: str | None = None
) -> list[Path]:
    """The paths of all jars of the lock file, each verified in this call. Downloads missing jars.

    `mirror` is the address of a Maven repository to use instead of the public one.
    Raises JarsUnavailable (unreachable), JarRefused (wrong sha256), DiskFull.
    """
    jars = read_lock(lock)
    paths = [cache / jar.filename for jar in jars]
    try:
        with ThreadPoolExecutor(_WORKERS) as pool:
            # 38 MB in about 25 ms: cheap enough to check the cache at every start
            if all(pool.map(_is_good, paths, jars)):
                return paths
        cache.mkdir(parents=True, exist_ok=True)
        with only_one(cache / ".lock", lambda: progress("waiting for another download")):
            for stale in cache.glob(".dl-*"):  # from a killed download: we have the lock
                shutil.rmtree(stale, ignore_errors=True)
            _fetch_missing(jars, paths, progress, mirror)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(
                f"the disk filled up while downloading Kafka to {cache}. Complete jars are kept."
                " Free about 50 MB and run the same command again."
            ) from error
        raise JarsUnavailable(
            f"{cache} cannot be used: {error}. Nothing was started. Make it writable, or choose"
            " another cache directory."
        ) from error
    return paths


def _fetch_missing(
    jars: list[Jar], paths: list[Path], progress: Progress, mirror: str | None
) -> None:
    missing = []
    for jar, path in zip(jars, paths, strict=True):
        if not _is_good(path, jar):  # again: another process may have downloaded it by now
            if path.exists():
                progress(f"{path.name} in the cache is damaged, downloading it again")
            missing.append((jar, path))
    if not missing:
        return
    progress(f"downloading Kafka, {len(missing)} jars (once; kept in {paths[0].parent})")
    give_up = threading.Event()
    todo = SimpleQueue[tuple[Jar, Path]]()
    for item in missing:
        todo.put(item)
    errors: list[Exception] = []

    def work() -> None:
        with suppress(Empty):
            while not give_up.is_set():
                jar, path = todo.get_nowait()
                try:
                    _fetch(jar, path, mirror, give_up)
                except Exception as error:
                    errors.append(error)
                    give_up.set()  # one unavailable jar is enough to stop

    # Daemon threads, not a pool: a pool is joined at exit, so Ctrl-C would wait for a stalled
    # server.
    workers = [threading.Thread(target=work, daemon=True) for _ in range(_WORKERS)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        give_up.set()
    if errors:
        raise errors[0]


def _fetch(jar: Jar, path: Path, mirror: str | None, give_up: threading.Event) -> None:
    from jgo.maven import MavenContext  # takes 0.2 s, needed once per cache

    repositories = {"mirror": mirror} if mirror else None
    for attempt in range(_ATTEMPTS_MAX):
        scratch = Path(tempfile.mkdtemp(dir=path.parent, prefix=".dl-"))
        try:
            context = MavenContext(
                repo_cache=scratch, timeout=_TIMEOUT_S, remote_repos=repositories, local_repos=[]
            )
            version = context.project(jar.group, jar.artifact).at_version(jar.version)
            fetched = version.artifact().resolve()
            found = _sha256(fetched)
            if found != jar.sha256:
                raise JarRefused(
                    f"{jar.coordinate} has sha256 {found}, but the lock file pins {jar.sha256}."
                    " The downloaded file was deleted and nothing was started. If you use a mirror,"
                    " it serves another file; otherwise try once more, then report it."
                )
            os.utime(fetched, (_MTIME_S, _MTIME_S))
            os.replace(fetched, path)
            return
        except JarRefused:
            raise
        except Exception as error:  # jgo documents no error type of its own
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise
            # Report only the error's class, because its text has addresses and no useful detail.
            cause = type(error).__name__
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if attempt + 1 == _ATTEMPTS_MAX or give_up.wait(_RETRY_S * 2**attempt):
            break
    raise JarsUnavailable(
        f"{jar.coordinate} cannot be downloaded ({cause}). Complete jars are kept. Check the"
        " network (HTTPS_PROXY is honoured) or configure a Maven mirror, then run the same command"
        " again; once downloaded, no network is needed."
    )


def _is_good(path: Path, jar: Jar) -> bool:
    try:
        return _sha256(path) == jar.sha256
    except FileNotFoundError:
        return False


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def only_one(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """An exclusive lock on `path`; the system releases it when the process ends."""
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield

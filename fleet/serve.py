"""Runs a member of the fleet: its directory, its pages, its application."""

import contextlib
import hashlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from ..log import Settings, SettingsError
from ..log.door import Log
from ..processors.store.state_dir import StateDir, StateDirTaken
from ..processors.worker.topic_watch import TopicWatch
from .member import FleetApp, Member, run
from .routes import FleetPages, Routes
from .same_log import ANOTHER_LOG, AnotherLog, demand_same_log


def serve(
    settings: Settings, log: Log, web: tuple[str, int], name: str | None,
    say: Callable[[str], None], *, crash: str = "", quiet: bool = False,
) -> int:  # fmt: skip
    """Serve the pages until SIGTERM or SIGINT, or until the log is another one. Returns the exit
    code.

    name: of the member in its group; None: the one in its directory. crash: an armed crash point.
    quiet: whether to say nothing at the start.
    Raises SettingsError if the address or the directory cannot be used.
    """
    def demand_same(topic_id: str) -> None:
        if topic_id != events:
            say(str(AnotherLog(settings)))
            sys.stderr.flush()
            os._exit(ANOTHER_LOG)

    try:
        events = demand_same_log(log, settings)
    except AnotherLog as refused:
        say(str(refused))
        return ANOTHER_LOG
    TopicWatch(log, demand_same).start()
    state = locked(settings.fleet_directory, name)
    try:
        pages = _pages(web, settings)
        try:
            url = advertised(pages.url, web[0])
            member = Member(instance_id(state.worker_id, url), url, settings.fleet_directory, crash)
            (settings.fleet_directory / "tables").mkdir(exist_ok=True)
            app = FleetApp(settings, member, say)
            pages.routes = Routes(app)
            state.note({"pid": os.getpid(), "web": pages.url})
            if not quiet:
                say(f"fleet member {member.name}: {pages.url}/status")
            return run(app)
        finally:
            pages.close()
    finally:
        state.close()


def _pages(web: tuple[str, int], settings: Settings) -> FleetPages:
    """The server. Without a given port it gets the last one again, if that is free: a member that
    is killed and started again is then the same one for its group, and continues at once."""
    place = settings.fleet_directory / "port"
    try:
        last = int(place.read_text("ascii"))
    except (OSError, ValueError):
        last = 0
    if web[1] == 0 and last:
        with contextlib.suppress(SettingsError):
            return FleetPages((web[0], last), settings.web_token)
    pages = FleetPages(web, settings.web_token)
    place.write_text(str(urlsplit(pages.url).port), "ascii")
    return pages


def locked(directory: Path, name: str | None) -> StateDir:
    """The directory of a member, locked. Raises SettingsError if it cannot be used."""
    try:
        return StateDir(directory, name)
    except StateDirTaken:
        raise StateDirTaken(
            f"another member of the fleet works in {directory}. Nothing was changed. Stop that "
            "one, or give this one its own directory with FOLDLOG_FLEET_DIR."
        ) from None
    except OSError as error:
        raise SettingsError(
            f"the fleet cannot write to its directory {directory} ({error.strerror}). Nothing is "
            "lost: the tables are in Kafka too. Set FOLDLOG_FLEET_DIR to a directory on a disk."
        ) from None


def instance_id(member: str, url: str) -> str:
    """The member's name in its group. It includes the URL, because the group would not tell other
    members that a member has another one."""
    return f"{member}.{hashlib.sha256(url.encode()).hexdigest()[:8]}"


def advertised(url: str, host: str) -> str:
    """Where other members reach this one."""
    if host in ("0.0.0.0", "::"):
        return f"http://{socket.getfqdn()}:{urlsplit(url).port}"
    return url


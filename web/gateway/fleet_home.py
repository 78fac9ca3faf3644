"""The home page's answers from the fleet, and from the gateway's own overview while there is none.

Each answer has `source` (fleet or gateway) and `why`: one sentence if the fleet does not answer.
"""

import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ...client.fleet import FleetClient, FleetUnavailable, find_fleet
from ...log import Settings
from ..inspector import fleet_rows
from ..inspector.overview import GROUPS_MAX, HOUR_MS, ROWS_MAX, Overview

Json = dict[str, Any]

NO_FLEET = "No fleet (foldlog fleet) runs here, so this is what the gateway has folded."
UNAVAILABLE = "{why}, so this is what the gateway has folded."

RETRY_S = 5.0
"""How long the gateway does not ask a fleet that did not answer: a paused one costs a request the
client's whole timeout."""

FRESH_S = 0.5
"""How long a list is used for further requests."""

VIEWERS_MAX = 50
"""The most users whose lists are kept, at about 1 KB a session."""

NAMES_MAX = 4 * GROUPS_MAX
"""The most agents, and the most models, whose hours are asked for."""


class Listing:
    """The list of one user, or of all, with a version for each row, so that a page gets only what
    changed."""

    def __init__(self) -> None:
        self.boot, self.version, self.read_at = f"fleet{secrets.token_hex(4)}", 0, -math.inf
        self.total = 0
        self.rows: dict[str, tuple[int, Json]] = {}

    def take(self, rows: list[Json], total: int) -> None:
        """Replace the list. A page that knows a row that left loads the list again."""
        fresh: dict[str, tuple[int, Json]] = {}
        for row in rows:
            known = self.rows.get(row["id"])
            if known is None or known[1] != row:
                self.version += 1
                known = self.version, row
            fresh[row["id"]] = known
        if self.rows.keys() - fresh.keys():
            self.boot = f"fleet{secrets.token_hex(4)}"
        self.rows, self.total = fresh, total

    def home(self, since: str, limit: int) -> Json:
        """As `Overview.home`."""
        boot, _, version = since.partition(".")
        is_known = boot == self.boot and version.isdigit()
        if is_known:
            shown = [row for number, row in self.rows.values() if number > int(version)]
        else:
            everyone = [row for _, row in self.rows.values()]
            everyone.sort(key=lambda row: (not fleet_rows.waits(row), -row["updated_at"]))
            shown = everyone[:limit]
        return {
            "version": f"{self.boot}.{self.version}",
            "whole": not is_known,
            "total": self.total,
            "most": min(len(self.rows), ROWS_MAX),
            "rows": shown,
        }


class FleetHome:
    """Answers for the home page. Every method may be called from any thread, and waits for the
    fleet."""

    def __init__(
        self,
        settings: Settings,
        overview: Overview,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._overview, self._clock = settings, overview, clock
        self._lock = threading.Lock()
        self._lists: OrderedDict[str | None, Listing] = OrderedDict()
        self._why, self._retry_at = "", 0.0

    def home(self, user: str | None, since: str, limit: int) -> Json:
        """The rows that changed since a version, or all rows. As `Overview.home`."""
        return self._answer(
            lambda fleet: self._listed(fleet, user, since, limit),
            lambda: self._overview.home(user, since, limit),
        )

    def charts(self, user: str | None, end: int, hours: int, step: int) -> Json:
        """Sums by interval. As `Overview.charts`; `groups` is the source of the sums by agent and
        by model: for one user it is the gateway, as the fleet sums these over all users."""
        last = end // HOUR_MS
        first = max(0, last - hours + 1)

        def asked(fleet: FleetClient) -> Json:
            def of(scope: str, value: str = "") -> Json:
                return fleet.hours(scope, value, first=first, last=last)

            if user is not None:
                own = self._overview.charts(user, end, hours, step)
                sums = fleet_rows.charts(first, step, of("user", user)["hours"], {}, {})
                return {**own, "all": sums["all"], "groups": "gateway"}
            everything = of("all")
            agents, models = (
                {name: of(scope, name)["hours"] for name in of(scope)["names"][:NAMES_MAX]}
                for scope in ("agent", "model")
            )
            found = fleet_rows.charts(first, step, everything["hours"], agents, models)
            return {**found, "groups": "fleet"}

        return {"groups": "gateway", **self._answer(
            asked, lambda: self._overview.charts(user, end, hours, step)
        )}

    # -- the fleet ---------------------------------------------------------------------------------

    def _answer(self, ask: Callable[[FleetClient], Json], own: Callable[[], Json]) -> Json:
        why, now = NO_FLEET, self._clock()
        fleet = find_fleet(self._settings)
        if fleet is not None and now < self._retry_at:
            why = self._why
        elif fleet is not None:
            try:
                return {**ask(fleet), "source": "fleet", "why": ""}
            except FleetUnavailable as error:
                text = str(error)
                why = UNAVAILABLE.format(why=text[:1].upper() + text[1:])
                self._why, self._retry_at = why, self._clock() + RETRY_S
        return {**own(), "source": "gateway", "why": why}

    def _listed(self, fleet: FleetClient, user: str | None, since: str, limit: int) -> Json:
        with self._lock:
            listing = self._lists.setdefault(user, Listing())
            self._lists.move_to_end(user)
            while len(self._lists) > VIEWERS_MAX:
                self._lists.popitem(last=False)
            asked_at = self._clock()
            is_fresh = asked_at < listing.read_at + FRESH_S
        found = None if is_fresh else _asked(fleet, user)
        with self._lock:
            if found is not None and asked_at > listing.read_at:  # not older than another answer
                own, (rows, total) = self._overview.row, found
                listing.take([fleet_rows.row(row, own(row["session_id"])) for row in rows], total)
                listing.read_at = asked_at
            return listing.home(since, limit)


def _asked(fleet: FleetClient, user: str | None) -> tuple[list[Json], int]:
    """The fleet's rows of the newest sessions, and of all others that wait for a person; and the
    number of all sessions."""
    found = fleet.sessions(user, limit=ROWS_MAX)
    rows: list[Json] = found["sessions"]
    if found["next"] is not None:
        rows += fleet.inbox(user, after=found["next"])["sessions"]
    return rows, found["total"]

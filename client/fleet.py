"""Asks the fleet (`foldlog fleet`) about all sessions, over HTTP. It needs no Faust.

Every member answers for all, so any member's URL will do. A member that restores its tables, or
whose group is rebalancing, sends 503; a request is repeated for `patience_s`.
"""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from ..log import Settings
from ..log.errors import FoldlogError

TIMEOUT_S = 5.0
"""A member answers in milliseconds; a paused one does not answer at all."""
PAUSE_S = 0.2
RESTORING = 503
Json = dict[str, Any]


class FleetUnavailable(FoldlogError):
    """The fleet does not answer, or may not answer now. The message is one sentence."""


class FleetClient:
    """The fleet at a URL. Each method raises FleetUnavailable, and ValueError for a wrong argument.

    token: the web token, which a fleet on another machine requires.
    patience_s: how long to repeat a request while the fleet restores its tables.
    """

    def __init__(self, url: str, token: str | None = None, *, patience_s: float = 0.0) -> None:
        self.url = url.rstrip("/")
        self._token, self._patience_s = token, patience_s
        # No proxy from the environment: the fleet is near.
        self._direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def sessions(self, user: str | None = None, *, limit: int = 100, after: str = "") -> Json:
        """The sessions of a user, or of all users, the newest change first.

        Returns `sessions`, `total`, and `next`: the value of `after` for the following ones, or
        None. limit: 1 to 5,000.
        """
        path = "/fleet/sessions" if user is None else f"/fleet/users/{quote(user)}/sessions"
        return self._get(path, {"limit": limit, "after": after})

    def inbox(self, user: str | None = None, *, after: str = "") -> Json:
        """What waits for a user, or for all users: `entries`, the oldest first, and `dropped`.

        after: the `next` of a list of sessions. `sessions` then has the rows of those that wait and
        come after it: at most 5,000, the newest change first.
        """
        path = "/fleet/inbox" if user is None else f"/fleet/users/{quote(user)}/inbox"
        return self._get(path, {"after": after})

    def hours(
        self, scope: str = "all", value: str = "", *, first: int | None = None,
        last: int | None = None,
    ) -> Json:  # fmt: skip
        """Sums per hour of a `user`, an `agent`, a `model`, or of `all`.

        first, last: hours since 1970 (Unix ms // 3,600,000); by default the last 24. Returns
        `first_hour`, `hours` (a cell for each), and `names`: the known agents or models.
        """
        found = {"scope": scope, "value": value, "from": first, "to": last}
        return self._get("/fleet/hours", found)

    def agents(self) -> Json:
        """The turns of each agent over the last `day` and the last `month` (31 days)."""
        return self._get("/fleet/agents")

    def status(self) -> Json:
        """The state of the member at the URL."""
        return self._get("/status")

    def _get(self, path: str, query: Mapping[str, object] | None = None) -> Json:
        given = {key: value for key, value in (query or {}).items() if value not in (None, "")}
        request = urllib.request.Request(f"{self.url}{path}?{urlencode(given)}")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        until = time.monotonic() + self._patience_s
        while True:
            try:
                with self._direct.open(request, timeout=TIMEOUT_S) as answer:
                    found = json.load(answer)
                if isinstance(found, dict):
                    return found
                raise FleetUnavailable(f"what answers at {self.url} is not a fleet")
            except urllib.error.HTTPError as error:
                with error:  # it has the connection
                    if error.code != RESTORING or time.monotonic() > until:
                        raise self._refused(error) from None
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise FleetUnavailable(
                    f"the fleet at {self.url} does not answer ({type(error).__name__})"
                ) from None
            time.sleep(PAUSE_S)

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        if error.code == RESTORING:
            return FleetUnavailable(f"the fleet at {self.url} restores its tables; ask again soon")
        if error.code == 400:
            return ValueError(error.read(500).decode("utf-8", "replace").strip())
        if error.code in (401, 403):
            return FleetUnavailable(f"the fleet at {self.url} refuses this web token")
        return FleetUnavailable(f"the fleet at {self.url} answers {error.code}")


def find_fleet(settings: Settings, *, patience_s: float = 0.0) -> FleetClient | None:
    """The fleet of an installation: at `fleet_url`, or the member that runs on `fleet_dir`. None if
    there is none; whether it answers is not tried."""
    url = settings.fleet_url
    if url is None:
        try:
            noted = json.loads((settings.fleet_directory / "worker.json").read_text("utf-8"))
            url = str(noted["web"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
    return FleetClient(url, settings.web_token, patience_s=patience_s)

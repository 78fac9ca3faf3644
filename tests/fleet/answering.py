"""A fleet without Faust: serves what the fleet's own rows and answers make of a log's facts."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

from foldlog.client.session_fold import SessionFold
from foldlog.client.show import fold_everything
from foldlog.fleet import answers, rows
from foldlog.log import Log
from foldlog.processors.advice.prices import load_prices
from foldlog.processors.facts.derive import fact_of
from foldlog.schemas.facts import Fact
from foldlog.tests.fleet.facts import Tables, fold
from foldlog.tests.kit.waiting import PATIENCE_S


def facts_in(log: Log) -> list[Fact]:
    """The facts of every session of a log, in the order of their topic."""
    found = []
    for session_id in fold_everything(log).sessions:
        folded = SessionFold(log, session_id)
        for step in folded.upto(folded.end()):
            fact = fact_of(step.entry, step.before, step.views, step.ruling, load_prices(None))
            found += [fact] if fact is not None else []
    return sorted(found, key=lambda fact: (fact.partition, fact.offset))


class Fleet:
    """What answers. `status`: 503 while it restores, 200 otherwise. `asked`: the paths so far."""

    def __init__(self, log: Log) -> None:
        self._log, self.status, self.url = log, 200, ""
        self.asked: list[str] = []

    def answer(self, path: str, query: dict[str, str]) -> answers.Json:
        """The JSON for a path."""
        tables = fold(facts_in(self._log))
        match path.removeprefix("/fleet/").split("/"):
            case ["sessions"]:
                return self._sessions(tables, None, int(query["limit"]))
            case ["users", user, "sessions"]:
                return self._sessions(tables, unquote(user), int(query["limit"]))
            case ["inbox"]:
                return _inbox(tables, None, query)
            case ["users", user, "inbox"]:
                return _inbox(tables, unquote(user), query)
            case ["hours"]:
                return _hours(tables, query)
        raise AssertionError(path)

    def _sessions(self, tables: Tables, user: str | None, limit: int) -> answers.Json:
        found = [
            answers.session(rows.decoded(rows.SESSIONS, value))
            for (table, _), value in tables.items() if table == rows.SESSIONS
        ]
        wanted = [row for row in found if user in (None, row["user_id"])]
        part = {"sessions": wanted, "total": len(wanted), "next": None}
        return answers.merged_sessions([part], limit)


def _inbox(tables: Tables, user: str | None, query: dict[str, str]) -> answers.Json:
    begin = answers.after(query["after"]) if "after" in query else None
    sessions = {
        row.session_id: row
        for (table, _), value in tables.items() if table == rows.SESSIONS
        if isinstance(row := rows.decoded(table, value), rows.SessionRow)
    }  # fmt: skip
    parts = []
    for (table, key), value in tables.items():
        if table == rows.INBOX and user in (None, key.decode()):
            row = rows.decoded(table, value)
            waiting = {entry.session_id for entry in row.entries.values()}
            own = {name: sessions[name] for name in waiting}
            parts.append(answers.inbox(key.decode(), row, own, begin))
    return answers.merged_inboxes(parts, rows.INBOX_MAX)


def _hours(tables: Tables, query: dict[str, str]) -> answers.Json:
    wanted = query["scope"], query.get("value", "")
    first, last = int(query["from"]), int(query["to"])
    cells = {hour: rows.HourRow() for hour in range(first, last + 1)}
    names = set()
    for (table, key), value in tables.items():
        if table != rows.HOURS:
            continue
        cell = rows.cell_of(key)
        names |= {cell.value} if cell.scope == wanted[0] else set()
        if (cell.scope, cell.value) == wanted and cell.hour in cells:
            cells[cell.hour].add(rows.decoded(rows.HOURS, value))
    shown = [answers.cell(row) for row in cells.values()]
    return {"first_hour": first, "hours": shown, "names": sorted(names)}


@contextmanager
def answering(log: Log) -> Iterator[Fleet]:
    """Serve the fleet of a log at `url` until the block ends."""
    fleet = Fleet(log)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            fleet.asked.append(parts.path)
            found = fleet.answer(parts.path, dict(parse_qsl(parts.query)))
            self.send_response(fleet.status)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    fleet.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fleet
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)

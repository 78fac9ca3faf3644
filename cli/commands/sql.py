"""sql: query the log in SQL.

`reports/exports` builds the tables in memory from the log, for each query; a query can access
nothing else.
"""

import math
import re
import tempfile
from collections.abc import Iterable
from datetime import date, datetime, time as clock, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...client.printable import shown
from ...reports.exports.blocks import Contents
from ...reports.exports.table_files import write_tables
from ...reports.exports.tables import BY_NAME, TABLES
from ..edge import Edge, example, json_option, pass_edge
from ..terminal.printing import emit, json_line, line, note, table
from ..terminal.progress import Bar
from .export import note_missing
from .replay_bundle import bundle_option

if TYPE_CHECKING:
    from ...reports.exports.duck import Result

ROWS_SHOWN = 100
"""The default of --rows: a screen or two."""


@click.command("sql", epilog=example(
    "foldlog sql \"select name, outcome, count(*) from tool_calls group by all\"",
    "foldlog sql \"select model, sum(cost_usd) from usage group by model\"",
    "foldlog sql --tables",
))
@click.argument("query", required=False)
@click.option("--session", "sessions", multiple=True, metavar="SESSION",
              help="Only this session; repeatable (default: all).")
@click.option("--tables", "list_tables", is_flag=True, help="List the tables and their columns.")
@click.option("--rows", type=click.IntRange(min=1), default=ROWS_SHOWN, show_default=True,
              metavar="N", help="Print at most N rows; --json prints all.")
@bundle_option
@json_option
@pass_edge
def sql_command(
    edge: Edge,
    query: str | None,
    sessions: tuple[str, ...],
    list_tables: bool,
    rows: int,
    as_json: bool,
) -> None:
    """Query the log in SQL.

    The dialect is DuckDB's. Each query builds the tables that it names, from the current log. Times
    are UTC. A query cannot read files, use the network or change anything.
    """
    if list_tables == bool(query and query.strip()):
        raise click.UsageError("give either a QUERY, or --tables to list the tables.")
    if list_tables or query is None:
        _list(as_json)
        return
    edge.demand("sql")
    from ...reports.exports.duck import BadQuery, Database

    contents = Contents(edge.client().read_blob)
    table_names = named_tables(query)
    with Database() as database:
        with tempfile.TemporaryDirectory(prefix="foldlog-sql-") as name:
            directory = Path(name)
            with Bar("sql", "records") as bar:
                write_tables(
                    edge.log, sessions or None, directory, contents, edge.prices, table_names, bar
                )
            database.load(directory, table_names)
        database.lock()
        try:
            _print(database.query(query), as_json, rows)
        except BadQuery as error:
            loaded = ", ".join(table_names)
            hint = f"loaded tables: {loaded}; `foldlog sql --tables` lists all tables and columns"
            raise BadQuery(f"{error}\n{hint}", usage=error.usage) from None
    note_missing(contents)


def named_tables(query: str) -> tuple[str, ...]:
    """The tables whose names occur in the query; all tables if none does."""
    words = {word.lower() for word in re.findall(r"\w+", query)}
    return tuple(name for name in BY_NAME if name in words) or tuple(BY_NAME)


def _list(as_json: bool) -> None:
    for entry in TABLES:
        if as_json:
            columns = [column._asdict() for column in entry.columns]
            emit({"table": entry.name, "row": entry.row, "columns": columns})
            continue
        line(f"{entry.name}: a row is {entry.row}")
        for column in entry.columns:
            line(f"  {column.name:20} {column.type:16} {column.description}")


def _print(result: "Result", as_json: bool, rows: int) -> None:
    names = unique(result.columns)
    dicts = (dict(zip(names, map(plain, row), strict=True)) for row in result.rows)
    if as_json:
        for row in dicts:
            emit(row)
        return
    first = list(islice(dicts, rows))
    table(({name: _cell(value) for name, value in row.items()} for row in first), names)
    more = sum(1 for _ in dicts)
    if more:
        note(f"{more:,} more rows: --rows {rows + more} prints them, --json prints all")
    elif not first:
        note("no rows")


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Column names without duplicates: a second `x` becomes `x_2`."""
    result: dict[str, None] = {}
    for name in names:
        candidate, number = name, 2
        while candidate in result:
            candidate, number = f"{name}_{number}", number + 1
        result[candidate] = None
    return tuple(result)


def plain(value: Any) -> Any:
    """A SQL value as a JSON value: exact decimals and times become strings."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case None | str() | int() | float():
            return value
        case bytes():
            return shown(value)
        case Decimal():
            return f"{value.normalize():f}"
        case datetime():
            return value.isoformat(timespec="milliseconds")
        case date() | clock() | timedelta():
            return str(value)
        case dict():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
    return str(value)


def _cell(value: Any) -> Any:
    return json_line(value) if isinstance(value, dict | list) else value

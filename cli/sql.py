"""sql: questions to the log in SQL.

The tables are made from the log for each question and live in memory; a query reaches nothing
else. This file must not know how: `consumers/exports` does.
"""

import math
import re
import tempfile
from collections.abc import Iterable
from datetime import date, datetime, time as clock, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import click

from ..consumers.contents import shown
from ..consumers.exports.blocks import Contents
from ..consumers.exports.duck import BadQuery, Database, Result
from ..consumers.exports.table_files import write_tables
from ..consumers.exports.tables import BY_NAME, TABLES
from .edge import Edge, example, json_option, pass_edge
from .export import Reporter, say_missing
from .printing import emit, json_line, line, note, table
from .replay_bundle import bundle_option

ROWS_SHOWN = 100
"""Of a table for people, unless --rows says otherwise: a screen or two."""


@click.command("sql", epilog=example(
    "foldlog sql \"select name, outcome, count(*) from tool_calls group by all\"",
    "foldlog sql \"select model, sum(cost_usd) from usage group by model\"",
    "foldlog sql --tables",
))
@click.argument("query", required=False)
@click.option("--session", "sessions", multiple=True, metavar="SESSION",
              help="Only this session; may be given again (default: all).")
@click.option("--tables", "list_tables", is_flag=True, help="List the tables and their columns.")
@click.option("--rows", type=click.IntRange(min=1), default=ROWS_SHOWN, show_default=True,
              metavar="N", help="Print at most so many rows; --json prints all.")
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
    """Ask the log in SQL.

    The dialect is DuckDB's. The tables are made anew from the log as it is now; only those that the
    query names are. Times are UTC. A query can read no file, reach no network and change nothing.
    """
    if list_tables == bool(query and query.strip()):
        raise click.UsageError("give a QUERY, or --tables to see what there is.")
    if list_tables or query is None:
        _list(as_json)
        return
    contents = Contents(edge.client().read_blob)
    wanted = named_tables(query)
    with Database() as database:
        with tempfile.TemporaryDirectory(prefix="foldlog-sql-") as name:
            directory = Path(name)
            write_tables(
                edge.log, sessions or None, directory, contents, edge.prices, wanted,
                Reporter("sql"),
            )
            database.load(directory, wanted)
        database.lock()
        try:
            _print(database.query(query), as_json, rows)
        except BadQuery as error:
            loaded = f"loaded: {', '.join(wanted)}; `foldlog sql --tables` lists all with columns"
            raise BadQuery(f"{error}\n{loaded}", usage=error.usage) from None
    say_missing(contents)


def named_tables(query: str) -> tuple[str, ...]:
    """The tables whose names stand in the query; all of them if none does."""
    words = {word.lower() for word in re.findall(r"\w+", query)}
    return tuple(name for name in BY_NAME if name in words) or tuple(BY_NAME)


def _list(as_json: bool) -> None:
    for held in TABLES:
        if as_json:
            columns = [column._asdict() for column in held.columns]
            emit({"table": held.name, "row": held.row, "columns": columns})
            continue
        line(f"{held.name}: a row is {held.row}")
        for column in held.columns:
            line(f"  {column.name:20} {column.type:16} {column.says}")


def _print(result: Result, as_json: bool, rows: int) -> None:
    names = unique(result.columns)
    made = (dict(zip(names, map(plain, row), strict=True)) for row in result.rows)
    if as_json:
        for row in made:
            emit(row)
        return
    first = list(islice(made, rows))
    table(({name: _cell(held) for name, held in row.items()} for row in first), names)
    more = sum(1 for _ in made)
    if more:
        note(f"{more:,} rows more: --rows {rows + more} shows them, --json prints all")
    elif not first:
        note("no rows")


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The names of columns, none twice: a second `x` is `x_2`."""
    found: dict[str, None] = {}
    for name in names:
        wanted, number = name, 2
        while wanted in found:
            wanted, number = f"{name}_{number}", number + 1
        found[wanted] = None
    return tuple(found)


def plain(value: Any) -> Any:
    """A value of SQL as JSON has it: exact decimals and times are texts."""
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
            return {str(name): plain(held) for name, held in value.items()}
        case list() | tuple():
            return [plain(held) for held in value]
    return str(value)


def _cell(value: Any) -> Any:
    return json_line(value) if isinstance(value, dict | list) else value

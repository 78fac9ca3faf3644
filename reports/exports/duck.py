"""Runs SQL in DuckDB, on tables loaded from JSON lines, in a sandbox.

Queries are untrusted: once the tables are loaded, a query can access no file, no network, no Python
object and no setting. DuckDB writes only the data that does not fit into memory, to a private
directory that is deleted afterwards. Only this file imports duckdb.
"""

import tempfile
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import duckdb

from ...client.closing import Closing
from ...log.errors import FoldlogError
from .tables import BY_NAME, TIME, Table

T = TypeVar("T")

LINE_BYTES_MAX = 256 * 1024 * 1024  # of a row with the longest message or result
FETCH_ROWS = 1_000
WAIT_S = 0.1
"""The longest wait in seconds, because a Ctrl-C just before a wait does not interrupt it."""
_USAGE_ERRORS = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.SyntaxException,
)
_ERRORS = (duckdb.Error, OverflowError, UnicodeError)
"""DuckDB's errors, and those of its conversion of values to Python objects."""


class BadQuery(FoldlogError):
    """The query failed.

    `usage`: whether the SQL itself is wrong; if it is False, the SQL is valid, but failed on some
    of the data.
    """

    def __init__(self, message: str, *, usage: bool) -> None:
        super().__init__(message)
        self.usage = usage


class Result(NamedTuple):
    """The column names, and the rows, which are fetched lazily."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


class Database(Closing):
    """Tables in memory; data that does not fit goes to a private directory. Use `with`."""

    def __init__(self) -> None:
        self._spill = tempfile.TemporaryDirectory(prefix="foldlog-sql-")
        self._thread = ThreadPoolExecutor(1, "duckdb")
        self._thread.submit(int).result()  # starts the thread before Ctrl-C is possible
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "python_enable_replacements": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "temp_directory": self._spill.name,
            },
        )

    def load(self, directory: Path, tables: Collection[str]) -> None:
        """Create these tables from DIRECTORY/NAME.jsonl."""
        for name in tables:
            table = BY_NAME[name]
            columns = ", ".join(f'"{c.name}" {c.type}' for c in table.columns)
            self._connection.execute(f"create table {name} ({columns})")
            path = directory / f"{name}.jsonl"
            if path.stat().st_size:
                self._run(
                    self._connection.execute,
                    f"insert into {name} select * from {_read_json(table)}", [str(path)],
                )

    def lock(self) -> None:
        """Restrict all later queries to the tables; they cannot change settings either."""
        self._connection.execute("set enable_external_access = false")
        self._connection.execute("set lock_configuration = true")

    def query(self, sql: str) -> Result:
        """Run SQL, and return the result of the last statement. Raises BadQuery."""
        try:
            sql.encode()
        except UnicodeEncodeError as error:
            why = f"the query is not valid UTF-8 text, at character {error.start}"
            raise BadQuery(why, usage=True) from None
        try:
            self._run(self._connection.execute, sql)
        except _ERRORS as error:
            raise _bad(error) from error
        described = self._connection.description or []
        return Result(tuple(column[0] for column in described), self._rows())

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        while True:
            try:
                rows = self._run(self._connection.fetchmany, FETCH_ROWS)
            except _ERRORS as error:
                raise _bad(error) from error
            if not rows:
                return
            yield from rows

    def _run(self, method: Callable[..., T], *args: Any) -> T:
        """Run a DuckDB call in this object's thread and wait for it. DuckDB ignores Ctrl-C while it
        works; the main thread, which only waits, reacts to Ctrl-C at once.
        """
        future = self._thread.submit(method, *args)
        while not future.done():
            wait([future], WAIT_S)
        return future.result()

    def close(self) -> None:
        """Interrupt a running query and close the database."""
        last = self._thread.submit(int)
        while not last.done():
            self._connection.interrupt()  # has no effect before the query begins, so repeat
            wait([last], WAIT_S)
        self._thread.shutdown()
        self._connection.close()
        self._spill.cleanup()


def write_parquet(source: Path, directory: Path, tables: Collection[str]) -> None:
    """Write NAME.parquet for each table, from SOURCE/NAME.jsonl, keeping the order of rows."""
    with Database() as database:
        for name in tables:
            database.load(source, [name])
            path = str(directory / f"{name}.parquet").replace("'", "''")
            rows = _rows_in_utc(BY_NAME[name])
            database.query(f"copy ({rows}) to '{path}' (format parquet, compression zstd)")
            database.query(f"drop table {name}")


def _rows_in_utc(table: Table) -> str:
    """SQL for the table's rows with times marked as UTC, which readers of Parquet need."""
    times = (column.name for column in table.columns if column.type == TIME)
    replaced = ", ".join(f"timezone('UTC', \"{name}\") as \"{name}\"" for name in times)
    return f"select *{replaced and f' replace ({replaced})'} from {table.name}"


def _read_json(table: Table) -> str:
    columns = ", ".join(f"\"{c.name}\": '{c.type}'" for c in table.columns)
    return (
        f"read_json(?, format = 'newline_delimited', columns = {{{columns}}}, "
        f"maximum_object_size = {LINE_BYTES_MAX})"
    )


def _bad(error: Exception) -> BadQuery:
    return BadQuery(str(error).strip(), usage=isinstance(error, _USAGE_ERRORS))



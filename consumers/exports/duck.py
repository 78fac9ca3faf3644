"""DuckDB, the one place that imports it: tables loaded from JSON lines, a locked door for queries.

A query comes from anybody: once the tables are loaded it can reach no file, no network, no Python
object and no setting. Only what spills from memory goes to a private directory that is deleted.
This file must not know where rows come from.
"""

import tempfile
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import duckdb

from ...log.errors import FoldlogError
from .tables import BY_NAME, TIME, Table

T = TypeVar("T")

LINE_BYTES_MAX = 256 * 1024 * 1024  # of a row: the longest message or result, with its frame
FETCH_ROWS = 1_000
HEARS_S = 0.1
"""A wait ends this often: a Ctrl-C in the instant before it begins would not end it."""
_WRITTEN_WRONG = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.SyntaxException,
)


class BadQuery(FoldlogError):
    """The query can not be run. `usage`: it is written wrong, as opposed to failing on a row."""

    def __init__(self, message: str, *, usage: bool) -> None:
        super().__init__(message)
        self.usage = usage


class Result(NamedTuple):
    """Names of columns and rows, which come as they are asked for."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


class Database:
    """Tables in memory. Use `with`: it has a private directory for what does not fit there."""

    def __init__(self) -> None:
        self._spill = tempfile.TemporaryDirectory(prefix="foldlog-sql-")
        self._thread = ThreadPoolExecutor(1, "duckdb")
        self._thread.submit(int).result()  # it is there before anybody can press Ctrl-C
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
        """Make these tables from DIRECTORY/NAME.jsonl."""
        for name in tables:
            table = BY_NAME[name]
            columns = ", ".join(f'"{c.name}" {c.type}' for c in table.columns)
            self._connection.execute(f"create table {name} ({columns})")
            path = directory / f"{name}.jsonl"
            if path.stat().st_size:
                self._asked(
                    self._connection.execute,
                    f"insert into {name} select * from {_read_json(table)}", [str(path)],
                )

    def lock(self) -> None:
        """From here on nothing outside of the tables can be reached, and no setting changed."""
        self._connection.execute("set enable_external_access = false")
        self._connection.execute("set lock_configuration = true")

    def query(self, sql: str) -> Result:
        """Run SQL; of several statements the last one's result. Raises BadQuery."""
        try:
            self._asked(self._connection.execute, sql)
        except duckdb.Error as error:
            raise _bad(error) from error
        described = self._connection.description or []
        return Result(tuple(column[0] for column in described), self._rows())

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        while True:
            try:
                rows = self._asked(self._connection.fetchmany, FETCH_ROWS)
            except duckdb.Error as error:
                raise _bad(error) from error
            if not rows:
                return
            yield from rows

    def _asked(self, question: Callable[..., T], *about: Any) -> T:
        """DuckDB's answer, awaited here: while it works it hears no Ctrl-C, and who waits does."""
        answer = self._thread.submit(question, *about)
        while not answer.done():
            wait([answer], HEARS_S)
        return answer.result()

    def close(self) -> None:
        """Forget everything; a question that is still worked on is broken off."""
        last = self._thread.submit(int)
        while not last.done():
            self._connection.interrupt()  # counts once the question has begun, so again
            wait([last], HEARS_S)
        self._thread.shutdown()
        self._connection.close()
        self._spill.cleanup()

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_parquet(source: Path, directory: Path, tables: Collection[str]) -> None:
    """NAME.parquet of each table, from SOURCE/NAME.jsonl, in the order of its rows."""
    with Database() as database:
        for name in tables:
            database.load(source, [name])
            path = str(directory / f"{name}.parquet").replace("'", "''")
            rows = _rows_in_utc(BY_NAME[name])
            database.query(f"copy ({rows}) to '{path}' (format parquet, compression zstd)")
            database.query(f"drop table {name}")


def _rows_in_utc(table: Table) -> str:
    """A query of the table's rows whose times say that they are UTC, as readers of Parquet ask."""
    times = (column.name for column in table.columns if column.type == TIME)
    replaced = ", ".join(f"timezone('UTC', \"{name}\") as \"{name}\"" for name in times)
    return f"select *{replaced and f' replace ({replaced})'} from {table.name}"


def _read_json(table: Table) -> str:
    columns = ", ".join(f"\"{c.name}\": '{c.type}'" for c in table.columns)
    return (
        f"read_json(?, format = 'newline_delimited', columns = {{{columns}}}, "
        f"maximum_object_size = {LINE_BYTES_MAX})"
    )


def _bad(error: duckdb.Error) -> BadQuery:
    return BadQuery(str(error).strip(), usage=isinstance(error, _WRITTEN_WRONG))



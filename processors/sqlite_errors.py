"""Decides which errors of SQLite mean that a file is damaged, so that a cache may be rebuilt."""

import sqlite3

# Primary result codes after which the file may be intact and must be kept.
_FILE_MAY_BE_WHOLE = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,  # no rights, or no descriptor left
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_MISUSE,
    }
)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error means that the file is damaged, not that the system refused an operation."""
    code = getattr(error, "sqlite_errorcode", None)  # errors of the Python module have no code
    return code is not None and code & 0xFF not in _FILE_MAY_BE_WHOLE

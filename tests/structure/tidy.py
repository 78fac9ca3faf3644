"""The rules for single files, as pure functions from a source or a text to findings."""

import ast
import re
from collections.abc import Iterator

from foldlog.tests.structure.tree import Source

LINE_CHARACTERS_MAX = 100

# Top directories of paths that exist on one machine only, and hosts of package registries, in
# pieces because the rule also reads this file.
MACHINE_DIRECTORIES = ("work", "root", "home", "Users")
REGISTRY_HOSTS = tuple(
    ".".join(pieces)
    for pieces in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("maven", "org"),
        ("maven", "apache", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("crates", "io"),
        ("golang", "org"),
        ("debian", "org"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
    )
)
_MACHINE_PATH = re.compile(
    r"(?<![\w.~/}>*-])/(?:" + "|".join(MACHINE_DIRECTORIES) + r")(?=/\w)"
)
_REGISTRY_HOST = re.compile(
    r"(?<!\w)(?:[\w-]+\.)*(?:" + "|".join(map(re.escape, REGISTRY_HOSTS)) + r")(?![\w-])"
)


def file_findings(source: Source) -> Iterator[str]:
    """Finds lines that are too long, and a missing module docstring."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if len(line) > LINE_CHARACTERS_MAX:
            yield f"{source.path}:{number}: {len(line)} characters, at most {LINE_CHARACTERS_MAX}"
    if not ast.get_docstring(source.tree):
        yield f"{source.path}: no module docstring (what the file does, and its rule)"


def place_findings(path: str, text: str, own_places: tuple[str, ...] = ()) -> Iterator[str]:
    """Finds absolute paths of one machine and hosts of package registries in a text file.

    own_places: paths of this machine (the checkout, the home directory).
    """
    for number, line in enumerate(text.splitlines(), 1):
        if _MACHINE_PATH.search(line) or any(place in line for place in own_places):
            yield f"{path}:{number}: a path of one machine"
        if _REGISTRY_HOST.search(line):
            yield f"{path}:{number}: the host of a package registry"

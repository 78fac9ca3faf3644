"""An environment with an installed wheel and the packages that it requires without extras, made of
links to this environment's packages: no download, a fraction of a second."""

import venv
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement


def required(wheel: Distribution) -> dict[str, Distribution]:
    """The distributions that pip would install with this one, without its extras, by name."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    todo = [(wheel, "")]
    while todo:
        source, extra = todo.pop()
        for wanted in map(Requirement, source.requires or ()):
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            for each in ("", *wanted.extras):
                if (wanted.name.lower(), each) not in seen:
                    seen.add((wanted.name.lower(), each))
                    found[wanted.name.lower()] = distribution(wanted.name)
                    todo.append((found[wanted.name.lower()], each))
    return found


def make(site: Path, directory: Path) -> Path:
    """The Python of a new environment in `directory`. site: where the wheel is installed."""
    venv.create(directory, symlinks=True)
    [packages] = directory.glob("lib/python*/site-packages")
    [wheel] = site.glob("foldlog-*.dist-info")
    files = {site / "foldlog", wheel}
    for found in required(PathDistribution(wheel)).values():
        tops = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        files |= {Path(str(found.locate_file(top))) for top in tops}
    for file in files:
        (packages / file.name).symlink_to(file)
    return directory / "bin" / "python"

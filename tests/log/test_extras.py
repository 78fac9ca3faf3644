"""An extra is installed if each of its modules is loaded, or can be found."""

import sys
from types import ModuleType

import pytest

from foldlog.log.extras import EXTRAS, is_installed


@pytest.mark.parametrize(("loaded", "installed"), [(True, True), (False, False)])
def test_a_loaded_module_without_a_specification_counts_as_installed(
    monkeypatch, loaded, installed
):
    for module in EXTRAS["fleet"]:
        replaced = ModuleType(module) if loaded else None  # None: an import of it fails
        if replaced is not None:
            replaced.__spec__ = None
        monkeypatch.setitem(sys.modules, module, replaced)
    assert is_installed("fleet") is installed

"""The store in a dict, which the simulator uses, fulfils the contract."""

import pytest

from foldlog.processors.store.store import DictBackend
from foldlog.tests.processors.store.contract import BackendContract, StoreContract


class InDict:
    @pytest.fixture
    def open(self):
        data: dict[bytes, bytes] = {}
        return lambda: DictBackend(data)


class TestDictBackend(InDict, BackendContract):
    pass


class TestDictStore(InDict, StoreContract):
    pass

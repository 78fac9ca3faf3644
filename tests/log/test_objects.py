"""Objects in a directory: whole or absent, listed by prefix, and never outside of it."""

import os
import time

import pytest

from foldlog.log.durable_files import LEFTOVER_AGE_S
from foldlog.log.objects import INCOMING, DirectoryObjects
from foldlog.tests.log.objects_contract import ObjectsContract, read


@pytest.fixture
def objects(tmp_path):
    return DirectoryObjects(tmp_path / "place")


class TestADirectory(ObjectsContract):
    """A directory is a place for objects."""


def test_a_put_that_fails_leaves_nothing(objects):
    def breaks():
        yield b"half"
        raise OSError("gone")

    objects.put("a", [b"before"])
    with pytest.raises(OSError, match="gone"):
        objects.put("a", breaks())
    assert read(objects, "a") == b"before"
    assert os.listdir(objects.directory / INCOMING) == []


def test_a_renewed_object_is_young(objects):
    objects.put("a", [b"1"])
    os.utime(objects.directory / "a", (1, 1))
    assert objects.find("a").stored_at == 1
    assert objects.renew("a").stored_at > time.time() - 60


def test_temporary_files_of_dead_processes_are_deleted(objects):
    objects.put("a", [b"1"])
    young, old = objects.directory / INCOMING / "young", objects.directory / INCOMING / "old"
    for path in (young, old):
        path.write_bytes(b"")
    os.utime(old, (time.time() - LEFTOVER_AGE_S - 9,) * 2)
    objects.delete_leftovers()
    assert young.exists() and not old.exists()

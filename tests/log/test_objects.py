"""Objects in a directory: whole or absent, listed by prefix, and never outside of it."""

import os
import time

import pytest

from foldlog.log.durable_files import LEFTOVER_AGE_S
from foldlog.log.objects import INCOMING, DirectoryObjects


@pytest.fixture
def objects(tmp_path):
    return DirectoryObjects(tmp_path / "place")


def read(objects, name):
    return b"".join(objects.read(name))


def test_an_object_is_read_as_it_was_put(objects):
    objects.put("a/b", [b"one", b"two"])
    assert read(objects, "a/b") == b"onetwo"
    objects.put("a/b", [b"three"])
    assert read(objects, "a/b") == b"three"
    assert objects.find("a/b")[:2] == ("a/b", 5)


def test_a_put_that_fails_leaves_nothing(objects):
    def breaks():
        yield b"half"
        raise OSError("gone")

    objects.put("a", [b"before"])
    with pytest.raises(OSError, match="gone"):
        objects.put("a", breaks())
    assert read(objects, "a") == b"before"
    assert os.listdir(objects.directory / INCOMING) == []


def test_objects_are_listed_by_prefix(objects):
    assert list(objects.list("")) == [] == list(objects.list("a/"))
    for name in ("a/1", "a/b/2", "ab/3"):
        objects.put(name, [name.encode()])
    assert sorted(found.name for found in objects.list("a/")) == ["a/1", "a/b/2"]
    assert sorted(found.name for found in objects.list("")) == ["a/1", "a/b/2", "ab/3"]


def test_a_missing_object_is_reported_and_deleting_it_is_harmless(objects):
    objects.put("here", [b""])
    objects.delete("there")
    objects.delete("here")
    assert objects.find("here") is None is objects.renew("here")
    with pytest.raises(FileNotFoundError):
        read(objects, "here")


def test_a_renewed_object_is_young(objects):
    objects.put("a", [b"1"])
    os.utime(objects.directory / "a", (1, 1))
    assert objects.find("a").stored_at == 1
    assert objects.renew("a").stored_at > time.time() - 60


@pytest.mark.parametrize("name", ["", "..", "../a", "/a", "a/../b", "a//b", ".hidden", "a\n"])
def test_no_name_leads_outside(objects, name):
    with pytest.raises(FileNotFoundError, match="names no object"):
        objects.put(name, [b"x"])


def test_temporary_files_of_dead_processes_are_deleted(objects):
    objects.put("a", [b"1"])
    young, old = objects.directory / INCOMING / "young", objects.directory / INCOMING / "old"
    for path in (young, old):
        path.write_bytes(b"")
    os.utime(old, (time.time() - LEFTOVER_AGE_S - 9,) * 2)
    objects.delete_leftovers()
    assert young.exists() and not old.exists()

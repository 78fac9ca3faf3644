"""What every place for objects does. A test class inherits the cases and supplies `objects`."""

import pytest


def read(objects, name):
    """The whole object."""
    return b"".join(objects.read(name))


class ObjectsContract:
    """The cases for `objects`, a fixture that returns an empty place."""

    def test_an_object_is_read_as_it_was_put(self, objects):
        objects.put("a/b", [b"one", b"two"])
        assert read(objects, "a/b") == b"onetwo"
        objects.put("a/b", [b"three"])
        assert read(objects, "a/b") == b"three"
        assert objects.find("a/b")[:2] == ("a/b", 5)

    def test_an_empty_object_exists(self, objects):
        objects.put("a", [])
        assert read(objects, "a") == b"" and objects.find("a").bytes == 0

    def test_an_object_of_several_parts_is_whole(self, objects):
        parts = [bytes([number]) * 1_000_003 for number in range(18)]
        objects.put("large", iter(parts))
        assert read(objects, "large") == b"".join(parts)

    def test_objects_are_listed_by_prefix(self, objects):
        assert list(objects.list("")) == [] == list(objects.list("a/"))
        for name in ("a/1", "a/b/2", "ab/3"):
            objects.put(name, [name.encode()])
        assert sorted(found.name for found in objects.list("a/")) == ["a/1", "a/b/2"]
        assert sorted(found.name for found in objects.list("")) == ["a/1", "a/b/2", "ab/3"]

    def test_a_missing_object_is_reported_and_deleting_it_is_harmless(self, objects):
        objects.put("here", [b""])
        objects.delete("there")
        objects.delete("here")
        assert objects.find("here") is None is objects.renew("here")
        with pytest.raises(FileNotFoundError):
            read(objects, "here")

    @pytest.mark.parametrize("name", ["", "..", "../a", "/a", "a/../b", "a//b", ".hidden", "a\n"])
    def test_no_name_leads_outside(self, objects, name):
        assert objects.find(name) is None
        for use in (objects.delete, lambda name: objects.put(name, [b"x"])):
            with pytest.raises(FileNotFoundError, match="names no object"):
                use(name)

"""The partitioner agrees with the test vectors of Kafka's own partitioner."""

import pytest

from foldlog.log.partition import murmur2, partition_for

# From Kafka's clients (UtilsTest): the same hash as a signed number.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), VECTORS.items())
def test_murmur2_equals_kafkas(key, signed):
    assert murmur2(key) == signed % 2**32


def test_a_string_has_the_partition_of_its_utf8():
    assert partition_for("é#3", 8) == partition_for("é#3".encode(), 8)
    assert {partition_for(f"session-{n}", 8) for n in range(200)} == set(range(8))
    assert partition_for("anything", 1) == 0


@pytest.mark.parametrize(("key", "signed"), VECTORS.items())
def test_the_sign_bit_is_cleared_and_not_negated(key, signed):
    assert partition_for(key, 7) == (signed & 0x7FFFFFFF) % 7

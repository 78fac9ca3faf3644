"""Computes the partition of a key by murmur2, as librdkafka's `murmur2_random` and Java do.

A reader of one session computes the session's partition, and reads only that partition. A contract
test compares the result with the real client's choice.
"""

from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2 of `data` with Kafka's seed: an unsigned 32-bit number."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=65536)  # about 10 MB when full: a busy worker's sessions
def partition_for(key: str | bytes, partitions: int) -> int:
    """The partition (0 to partitions - 1) to which every foldlog producer writes `key`."""
    assert partitions > 0, partitions
    data = key.encode() if isinstance(key, str) else key
    return (murmur2(data) & 0x7FFFFFFF) % partitions

"""The order of lists equals a sort, whatever changes, and for every page."""

from hypothesis import given, strategies as st

from foldlog.fleet import answers, rows
from foldlog.fleet.order import Order, Orders

KEYS = st.sampled_from([f"u/{name}".encode() for name in ("a", "ab", "b", "a.b", "a-b", "Z", "~")])
CHANGES = st.lists(st.tuples(KEYS, st.integers(0, 4)), max_size=30)


def session_of(key: bytes) -> str:
    return key.decode().partition("/")[2]


def listed(changes) -> list[tuple[tuple[int, str], bytes]]:
    """Place and key of each session, in order."""
    found = ((session_of(key), key, changed_at) for key, changed_at in dict(changes).items())
    shown = ({"changed_at": at, "session_id": name} for name, _, at in found)
    places = sorted(map(answers.place, shown))
    return [(place, f"u/{place[1]}".encode()) for place in places]


@given(CHANGES, CHANGES, CHANGES)
def test_pages_are_those_of_a_sorted_list(before, meanwhile, after) -> None:
    order = Order()
    for change in meanwhile:  # they are newer than what is stored
        order.put(*change)
    order.fill(before)
    for change in after:
        order.put(*change)
    expected = listed([*before, *meanwhile, *after])
    assert len(order) == len(expected)
    assert [item.key for item in order.page(None, 99)] == [key for _, key in expected]
    for number, (place, _) in enumerate(expected):
        found = [item.key for item in order.page(place, 2)]
        assert found == [key for _, key in expected[number + 1 :][:2]]
    assert order.page((1, "a"), 9) == []


@given(CHANGES)
def test_a_repeated_row_changes_nothing(changes) -> None:
    order = Order()
    for change in changes:
        order.put(*change)
        order.put(*change)
    assert [item.key for item in order.page(None, 99)] == [key for _, key in listed(changes)]


def stored(changed_at: int) -> bytes:
    return rows.encoded(rows.SessionRow(changed_at=changed_at))


def test_an_order_is_read_once_after_each_restore() -> None:
    orders, reads = Orders(), []

    def read():
        reads.append(1)
        orders.put(3, b"u/b", stored(7))  # the event loop, meanwhile
        return [(b"u/a", 1), (b"u/b", 2)]

    first = frozenset({3})
    orders.put(3, b"u/z", stored(9))  # nobody asked yet: it is in the store
    assert [item.key for item in orders.of(3, first, read).page(None, 9)] == [b"u/b", b"u/a"]
    orders.put(3, b"u/a", stored(8))
    assert [item.key for item in orders.of(3, first, read).page(None, 9)] == [b"u/a", b"u/b"]
    assert len(reads) == 1
    again = frozenset({3, 4})
    assert [item.key for item in orders.of(3, again, read).page(None, 9)] == [b"u/b", b"u/a"]
    assert len(reads) == 2
    orders.of(4, again, lambda: [])
    orders.of(4, frozenset({4}), lambda: [])
    orders.of(3, again, read)  # it was forgotten: its partition is not restored any more
    assert len(reads) == 3

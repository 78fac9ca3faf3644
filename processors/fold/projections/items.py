"""items: history that another framework stores in a session through an adapter.

The rows are append-only. Items are added in batches and retracted from the end, or all at once. The
live items are therefore a stack: each batch names the live item below it, and the view names the
top. A retraction moves the top and keeps every row, so the items of any past moment can be read. A
reader walks down from the top to find the newest N items, in a time that does not depend on the
number of items.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import assert_never, get_args

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.value import Value, replace
from ..rows import Rows


class Place(Value):
    """A position in the stack of live items: the first `items` items of the batch in row `row` are
    live, and so is everything below them. With row -1, no item is live."""

    row: int = -1
    items: int = 0


class Batch(Value):
    """A batch of items. `below`: the last live item before the batch was added."""

    item_id: str
    content: ev.Body
    items: int
    below: Place
    offset: int
    at: int


class Retraction(Value):
    """A retraction of the last item or of all items; `count`: how many items it retracted."""

    command_id: str
    count: int
    offset: int


class ItemsView(Value):
    """All batches and retractions.

    `top`: the top of the stack.
    `live`: the number of live items.
    """

    batches: Rows[Batch]
    retractions: Rows[Retraction]
    top: Place = Place()
    live: int = 0


Reads = ev.ItemAdded | ev.ItemRetracted
READS = frozenset(get_args(Reads))


def initial() -> ItemsView:
    """The view without items; a new value each time, because rows share storage."""
    return ItemsView(Rows(key=attrgetter("item_id")), Rows(key=attrgetter("command_id")))


def apply(view: ItemsView, entry: Entry) -> ItemsView:
    """The view after an accepted event."""
    event: Reads = entry.event
    match event:
        case ev.ItemAdded():
            batch = Batch(
                event.item_id, event.content, event.items, view.top, entry.offset, entry.at
            )
            return replace(
                view,
                batches=view.batches.append(batch),
                top=Place(len(view.batches), event.items),
                live=view.live + event.items,
            )
        case ev.ItemRetracted():
            count = view.live if event.all else 1
            row = Retraction(event.command_id, count, entry.offset)
            return replace(
                view,
                retractions=view.retractions.append(row),
                top=Place() if event.all else _under(view),
                live=view.live - count,
            )
        case _:
            assert_never(event)


def version(view: ItemsView) -> int:
    """The number of batches and retractions. A retraction names the version that its sender saw."""
    return len(view.batches) + len(view.retractions)


def _under(view: ItemsView) -> Place:
    """The top of the stack after the last item is removed from it."""
    row, items = view.top.row, view.top.items
    return Place(row, items - 1) if items > 1 else view.batches[row].below


def newest_first(view: ItemsView) -> Iterator[tuple[Batch, int]]:
    """The live batches, newest first, and the number of live items of each."""
    place = view.top
    while place.row >= 0:
        batch = view.batches[place.row]
        yield batch, place.items
        place = batch.below


def last_item(view: ItemsView) -> tuple[str, int] | None:
    """The id of the last live item's batch and the item's index in the batch, or None."""
    for batch, items in newest_first(view):
        return batch.item_id, items - 1
    return None

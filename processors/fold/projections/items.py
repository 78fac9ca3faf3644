"""items: history that another framework keeps here through an adapter, in rows that only grow.

Items come in batches and are taken back from the end, or all at once. What holds now is therefore a
stack: each batch names the one that lay below it when it came, the view names the top. Taking back
moves the top and keeps every row, so that any past is still there; the newest N are found by
walking down, however long the rest is.
"""

from collections.abc import Iterator

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.value import Value, replace
from ..rows import Rows


class Place(Value):
    """The first `items` of the batch in row `row` hold; row -1: none does."""

    row: int = -1
    items: int = 0


class Batch(Value):
    """Items as they came. `below`: what held right before them."""

    item_id: str
    content: ev.Body
    items: int
    below: Place
    offset: int
    at: int


class Retraction(Value):
    """A command that took items back: the last one, or all (`count` of them)."""

    command_id: str
    count: int
    offset: int


class ItemsView(Value):
    """Every batch and retraction there ever was; `top` and `live` say what holds now."""

    batches: Rows[Batch]
    retractions: Rows[Retraction]
    top: Place = Place()
    live: int = 0


READS = frozenset({ev.ItemAdded, ev.ItemRetracted})


def initial() -> ItemsView:
    """No items yet; made anew because rows share their storage."""
    return ItemsView(Rows(key=_item_id), Rows(key=_command_id))


def _item_id(row: Batch) -> str:
    return row.item_id


def _command_id(row: Retraction) -> str:
    return row.command_id


def apply(view: ItemsView, entry: Entry) -> ItemsView:
    """The view after an accepted event."""
    event = entry.event
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
    raise AssertionError(f"{type(event).__name__} is read, but changes nothing")


def version(view: ItemsView) -> int:
    """Goes up with every event that counts: what a retraction says it has seen."""
    return len(view.batches) + len(view.retractions)


def _under(view: ItemsView) -> Place:
    """The top without its last item."""
    row, items = view.top.row, view.top.items
    return Place(row, items - 1) if items > 1 else view.batches[row].below


def newest_first(view: ItemsView) -> Iterator[tuple[Batch, int]]:
    """The batches that hold, from the newest down, and how many items of each do."""
    place = view.top
    while place.row >= 0:
        batch = view.batches[place.row]
        yield batch, place.items
        place = batch.below


def last_item(view: ItemsView) -> tuple[str, int] | None:
    """The batch and the index of the last item that holds."""
    for batch, items in newest_first(view):
        return batch.item_id, items - 1
    return None

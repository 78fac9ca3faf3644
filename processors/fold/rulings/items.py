"""Rulings on items, the history that other frameworks store: accepted, duplicate, refused or stale.

An adapter retracts the item that was last when it read the items. If another item was added since
then, the command is stale, like a decision that lost a race. The command gets no answer; the
adapter reads the items and tries again.
"""

from ....schemas import events as ev
from ....schemas.ids import is_logged_id as is_id, why_not_an_id
from ....schemas.nesting import parsed
from ..projections.items import last_item, version
from ..ruling import ACCEPTED, DUPLICATE, STALE, Ruling, refused
from ..views import SessionViews
from .judges import Judges

NO_ITEMS = "the content is not a JSON list of as many items as it says"


def item_added(views: SessionViews, event: ev.ItemAdded) -> Ruling:
    """Rules on a batch. A batch counts once; another batch with the same id and other content is
    refused.
    """
    if not is_id(event.item_id):
        return refused("invalid_id", why_not_an_id("item_id", event.item_id))
    known = views.items.batches.last(event.item_id)
    if known is not None:
        if (known.content, known.items) == (event.content, event.items):
            return DUPLICATE
        return refused("item_id_reused", "this item_id was used with other content")
    if event.items < 1 or not _has_items(event.content, event.items):
        return refused("invalid_content", NO_ITEMS)
    return ACCEPTED


def _has_items(body: ev.Body, count: int) -> bool:
    """Whether the body has this many items. A blob passes, since its producer has checked it."""
    if body.ref is not None:
        return True
    try:
        found = parsed(body.inline or b"")
    except ValueError:
        return False
    return isinstance(found, list) and len(found) == count


def item_retracted(views: SessionViews, event: ev.ItemRetracted) -> Ruling:
    """Rules on a retraction. A retraction counts once. A retraction of the last item counts only if
    its sender has seen the newest items.
    """
    if not is_id(event.command_id):
        return refused("invalid_id", why_not_an_id("command_id", event.command_id))
    if views.items.retractions.last(event.command_id) is not None:
        return DUPLICATE
    if event.all:
        return ACCEPTED
    # Comparing the last item is not enough: a stale command could be in the log twice, and its item
    # could be the last item again at the second time.
    fits = event.seen == version(views.items)
    return ACCEPTED if fits and last_item(views.items) == (event.item_id, event.index) else STALE


JUDGES: Judges = {ev.ItemAdded: item_added, ev.ItemRetracted: item_retracted}

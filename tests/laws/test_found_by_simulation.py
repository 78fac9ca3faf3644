"""Histories that the simulator found, written by hand: one per bug, named by the law it broke."""

from foldlog.processors.projections import partition as partition_fold
from foldlog.processors.runtime.owned import Owned, may_owe
from foldlog.processors.runtime.store import Cursor, DictBackend, Store
from foldlog.processors.runtime.views_codec import view_parts
from foldlog.processors.session import fold, initial
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry

SESSION, USER = "s", "u"


def folded(views, *events):
    """The views after events, each given as (writer, event), from offset 0 on; all accepted."""
    for offset, (writer, event) in enumerate(events):
        views, ruling = fold(views, Entry(SESSION, 0, offset, 1_000 + offset, writer, event))
        assert ruling.accepted, (event, ruling)
    return views


def opened():
    return "producer", ev.SessionOpened(user_id=USER, agent="a", rules=1)


def said(message_id="m1", when_busy="queue"):
    content = ev.Body(inline=b'[{"type":"text","text":"hi"}]')
    return "producer", ev.MessageReceived(
        message_id=message_id,
        role="user",
        content=content,
        tokens=1,
        channel="c",
        when_busy=when_busy,
        by_user=USER,
    )


def prefix_set(sha256="p"):
    body = ev.Body(inline=b"[]")
    return "sessions", ev.ContextSet(system=body, tools=body, sha256=sha256)


def test_I6_a_prefix_that_comes_alone_is_in_the_store():
    """CONTEXT_SET changes the context and not the turn: it passed for a mere chunk."""
    before = folded(initial(SESSION), opened(), said())
    store = Store(DictBackend())
    owned = Owned(0, store)
    for views in (before, folded(before, prefix_set())):
        owned.changed(SESSION, owned.views(SESSION) or initial(SESSION), views)
        store.write(owned.dirty, owned.streamed, may_owe, partition_fold.INITIAL, Cursor(3, 0))
        owned.written()
        assert dict(view_parts(store.load(SESSION))) == dict(view_parts(views))

"""Builds the request of a step by extending the previous request. The result has the same bytes as
that of build.py, but takes less time.

A conversation grows at its end, so the next request begins with the bytes of the last request. One
`Rendering` per session caches the messages that can no longer change, with the state of their hash.
A step renders only the new messages. An answer that ends its turn is rendered before the next
message arrives. build.py is the reference: a property test compares both for random histories. If
the earlier part changes (by a checkpoint, a short form or another history), everything is rendered
again. Dropping this cache only costs time.
"""

from collections import OrderedDict
from hashlib import sha256
from operator import attrgetter
from typing import Any, NamedTuple

from ...schemas.events.parts import ReadBlob
from ...schemas.value import replace
from ..fold.cut_points import SPOKEN, is_fixed
from ..fold.projections.context_view import Fragment, Request
from ..fold.projections.prefixes import Prefix
from ..fold.rows import Rows
from ..fold.views import SessionViews
from .blocks import Message, Names, answer_blocks, raw_blocks, sending, user_blocks, whole_of
from .build import add_beginning, add_message, head_of
from .cache_marks import marked_messages, marked_request, message_json
from .left_out import as_sent

# The newest messages may still change: a user message is added to the last user message, or makes a
# part of the answer before it illegal. The newest two user messages, which have the cache marks,
# are among them.
OPEN = 4
BYTES_MAX = 64 * 1024 * 1024  # of all renderings: about 300 sessions with a full window


class Built(NamedTuple):
    """A request, and its sha256 for GEN_START."""

    request: bytes
    sha256: str


_given = attrgetter(
    "start", "bound_from", "compacted_upto", "checkpoint", "files_after", "left_out"
)


def _shape_of(request: Request) -> tuple[Any, ...]:
    """What determines how the earlier part of a request is rendered."""
    return (*_given(request), is_fixed(request.params))


class Rendering:
    """One session's conversation, rendered up to its newest request."""

    def __init__(self) -> None:
        self._head, self._length = b"", 0
        self._head_of: tuple[Prefix, str, bytes] | None = None
        self._reset(None)

    def _reset(self, shape: Any) -> None:
        self._shape = shape  # the request's shape, see `_shape_of`
        self._rows: Rows[Fragment] = Rows()  # the rendered fragments, and those before them
        self._shorts = 0
        self._messages: list[Message] = []
        self._names: Names = {}
        self._taken: set[str] = set()
        self._pending: list[Fragment] = []  # since the last answer
        self._pending_blocks: tuple[str, ...] | None = None
        self._unsettle()

    def _unsettle(self) -> None:
        self._body, self._settled, self._hash = bytearray(), 0, sha256(self._head)

    @property
    def size(self) -> int:
        """Approximate size in bytes of the cached texts. Most texts are cached twice: as a message,
        and as a part of the request's bytes."""
        return 2 * self._length

    def request(self, views: SessionViews, read_blob: ReadBlob) -> Built:
        """The request of the newest decided step, as of these views. Raises what `request_bytes`
        raises.
        """
        request = views.context.request
        assert request is not None, "a request exists once a step was decided"
        try:
            self._render(views, request, read_blob)
            return self._bytes(views, request, read_blob)
        except BaseException:
            self._reset(None)  # a blob is lost: the rendering is partial and must not be extended
            raise

    def render_ahead(self, views: SessionViews, read_blob: ReadBlob) -> None:
        """Render the fragments that were added after the newest request, because the next request
        will most likely contain them."""
        request, rows = views.context.request, views.context.fragments
        if request is None or rows.length == self._rows.length:
            return
        try:
            self._render(views, replace(request, fragments=rows.length), read_blob)
            self._settle(max(0, len(self._messages) - OPEN))
        except Exception:  # a lost blob: the request that needs the blob will raise
            self._reset(None)

    # -- messages --------------------------------------------------------------------------------

    def _render(self, views: SessionViews, request: Request, read_blob: ReadBlob) -> None:
        rows = views.context.fragments.upto(request.fragments)
        shape = _shape_of(request)
        if shape != self._shape or not self._continues(rows) or self._shortened(views, request):
            self._reset(shape)
            summary = views.compaction.summaries.last(request.checkpoint)
            add_beginning(self._messages, summary, request, read_blob)
            self._rows = rows.upto(request.start)
        self._shorts = len(views.compaction.shorts)
        known = len(self._rows)
        for place, fragment in enumerate(rows.since(known), known):
            if fragment.kind not in SPOKEN:
                self._pending.append(as_sent(fragment, place, request))
                self._pending_blocks = None
                continue
            how = sending(place, request)
            blocks = answer_blocks(fragment, read_blob, self._names, self._taken, **how)
            if blocks:
                add_message(self._messages, "user", self._user_blocks(views, request, read_blob))
                self._pending, self._pending_blocks = [], None
                add_message(self._messages, "assistant", blocks)
        self._rows = rows

    def _continues(self, rows: Rows[Fragment]) -> bool:
        """Whether these rows begin with the rendered rows."""
        if rows.extends(self._rows):
            return True
        return rows.since(0)[: len(self._rows)] == self._rows.since(0)

    def _shortened(self, views: SessionViews, request: Request) -> bool:
        """Whether a short form of a result came into force after the result was rendered."""
        shorts, end = views.compaction.shorts, len(self._rows)
        if len(shorts) < self._shorts:
            return True  # another history
        return any(
            short.place < end and (short.early or short.offset <= request.compacted_upto)
            for short in shorts.since(self._shorts)
        )

    def _user_blocks(
        self, views: SessionViews, request: Request, read_blob: ReadBlob
    ) -> tuple[str, ...]:
        """The blocks since the last answer. One request ends with these blocks, and the next
        request repeats them."""
        if self._pending_blocks is None:
            self._pending_blocks = user_blocks(
                self._pending, read_blob, self._names, views.compaction, request
            )
        return self._pending_blocks

    # -- bytes -----------------------------------------------------------------------------------

    def _bytes(self, views: SessionViews, request: Request, read_blob: ReadBlob) -> Built:
        self._set_head(views.context.prefixes[request.prefixes - 1], request, read_blob)
        settled = max(0, len(self._messages) - OPEN)
        self._settle(settled)
        newest = self._messages[settled:]
        add_message(newest, "user", self._user_blocks(views, request, read_blob))
        tail = f"{',' if settled else ''}{marked_messages(newest)}]}}".encode()
        digest = self._hash.copy()
        digest.update(tail)
        built = Built(b"".join((self._head, self._body, tail)), digest.hexdigest())
        self._length = len(built.request)
        return built

    def _set_head(self, prefix: Prefix, request: Request, read_blob: ReadBlob) -> None:
        """Set the bytes of the request that come before its first message."""
        of = (prefix, request.model, request.params)
        if of == self._head_of:
            return
        system, tools = (
            [text for _, text in raw_blocks(whole_of(body, read_blob))]
            for body in (prefix.system, prefix.tools)
        )
        self._head = marked_request(head_of(request), system, tools, []).removesuffix(b"]}")
        self._head_of = of
        self._unsettle()

    def _settle(self, upto: int) -> None:
        """Move the messages before `upto` into the settled bytes."""
        assert upto >= self._settled, "messages are changed or added, never removed"
        fresh = self._messages[self._settled : upto]
        if fresh:
            texts = ",".join([message_json(message, False) for message in fresh])
            more = f"{',' if self._settled else ''}{texts}".encode()
            self._body += more
            self._hash.update(more)
            self._settled = upto


class Renderings:
    """A cache of the most recently used renderings, limited to BYTES_MAX."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._renderings: OrderedDict[str, Rendering] = OrderedDict()
        self._size = 0

    def request(self, views: SessionViews, read_blob: ReadBlob) -> Built:
        """The request of the newest decided step, as of these views. Raises what `request_bytes`
        raises.
        """
        rendering = self._renderings.pop(views.session_id, None) or Rendering()
        self._size -= rendering.size
        built = rendering.request(views, read_blob)
        self._renderings[views.session_id] = rendering
        self._size += rendering.size
        while self._size > self._bytes_max and self._renderings:
            _, oldest = self._renderings.popitem(last=False)
            self._size -= oldest.size
        return built

    def render_ahead(self, views: SessionViews, read_blob: ReadBlob) -> None:
        """Render what the session's next request will contain, while the session is idle."""
        rendering = self._renderings.get(views.session_id)
        if rendering is not None:
            rendering.render_ahead(views, read_blob)

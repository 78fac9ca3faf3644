"""Renderings under compaction: whatever moves, the bytes are those of the plain builder.

Views are made by hand here, so that windows, summaries and short forms come at any moment; the
laws (tests/laws/test_rendered_laws.py) ask the same of histories that a worker wrote.
"""

import json
import random
import sys
from types import SimpleNamespace

import pytest

from foldlog.processors.fold.cut_points import is_cut
from foldlog.processors.fold.projections import compaction, context
from foldlog.processors.fold.projections.compaction import Short, Summary
from foldlog.processors.fold.projections.context_view import Fragment, Request
from foldlog.processors.fold.projections.prefixes import Prefix
from foldlog.processors.request.build import request_bytes, request_sha256
from foldlog.processors.request.rendered import Rendering, Renderings
from foldlog.schemas.attachments import reference
from foldlog.schemas.events import BlobRef, Body
from foldlog.schemas.value import replace

PAUSED = [
    {"type": "text", "text": "a"},
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
]
SUMMARIES = (
    [{"type": "text", "text": "what was said"}],
    [{"type": "compaction", "content": "what was said", "signature": "x"}],
)


def _body(value) -> Body:
    return Body(inline=json.dumps(value).encode())


class Grown:
    """Views that grow at random, as folds would make them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        prefix = Prefix("p0", _body([{"type": "text", "text": "be brief"}]), _body([]), 0)
        view = context.initial()
        self.context = replace(view, prefixes=view.prefixes.append(prefix))
        self.compaction = compaction.initial()
        self.session_id = "s"
        self.turn = 0

    def say(self, *fragments: Fragment) -> None:
        rows = self.context.fragments.append(*fragments)
        self.context = replace(self.context, fragments=rows)

    def text(self, kind: str, step: int, blocks) -> Fragment:
        stop = "tool_use" if any(b["type"] == "tool_use" for b in blocks) else "end_turn"
        return Fragment(kind, self.turn, step, -1, 0, _body(blocks), stop_reason=stop)

    def step(self) -> None:
        """A message or an answer with calls and their results, then a request."""
        roll = self.chance.random()
        self.turn += 1
        words = [{"type": "text", "text": f"words {self.turn}"}]
        if roll < 0.15:
            self.say(self.text("assistant", 1, PAUSED))
        elif roll < 0.3:
            signed = {"type": "thinking", "thinking": "hm", "signature": f"s{self.turn}"}
            self.say(self.text("assistant", 1, [signed, *words][: self.chance.choice((1, 2))]))
        elif roll < 0.65:
            uses = [
                {"type": "tool_use", "id": f"c{n}", "name": "look", "input": {}}
                for n in range(self.chance.randrange(1, 4))
            ]
            self.say(self.text("assistant", 1, [*words, *uses]))
            for n in self.chance.sample(range(len(uses)), len(uses)):
                said = Body(inline=f"result {self.turn}.{n}".encode())
                self.say(Fragment("result", self.turn, 1, n, 0, said))
                if self.chance.random() < 0.4:
                    self.shorten(len(self.context.fragments) - 1, early=True)
        else:
            self.say(self.text("user", 1, words))
        if self.context.fragments[0].kind != "user":
            self.context = replace(self.context, fragments=context.initial().fragments)
            self.say(self.text("user", 1, words))
        self.move()

    def shorten(self, place: int, *, early: bool) -> None:
        row = self.context.fragments[place]
        call = f"{row.turn}.{row.step}.{row.index}"
        if self.compaction.shorts.last(call) is not None:
            return  # a second one is a duplicate, and not folded
        short = Short(call, place, self.turn, Body(inline=b"short"), 0, early)
        self.compaction = replace(self.compaction, shorts=self.compaction.shorts.append(short))

    def move(self) -> None:
        """The next request: mostly like the last, now and then another window or prefix."""
        rows, last = self.context.fragments, self.context.request
        fields = {"start": 0, "bound_from": 0, "compacted_upto": -1, "checkpoint": None}
        if last is not None:
            fields = {name: getattr(last, name) for name in fields}
        roll = self.chance.random()
        if roll < 0.12:
            cuts = [n for n in range(fields["start"], len(rows)) if is_cut(rows, n)]
            fields["start"] = fields["bound_from"] = self.chance.choice(cuts or [0])
            summaries = [_body(blocks) for blocks in SUMMARIES]
            body = self.chance.choice([*summaries, None])
            fields["checkpoint"] = None
            if fields["start"] and body is not None:
                fields["checkpoint"] = self.turn
                made = Summary(self.turn, 0, fields["start"], body, 1, "m")
                more = self.compaction.summaries.append(made)
                self.compaction = replace(self.compaction, summaries=more)
        elif roll < 0.2:
            fields["compacted_upto"] = self.turn
        elif roll < 0.3:
            results = [n for n in range(len(rows)) if rows[n].kind == "result"]
            if results:
                # Early, though a request that was built ahead of the log has said it as it is.
                self.shorten(self.chance.choice(results), early=self.chance.random() < 0.3)
        elif roll < 0.35:
            tools = _body([{"name": f"t{self.turn}", "input_schema": {}}])
            prefix = Prefix(f"p{self.turn}", _body([]), tools, 0)
            self.context = replace(self.context, prefixes=self.context.prefixes.append(prefix))
        place = (self.turn, 1, len(rows), len(self.context.prefixes))
        request = Request(*place, "m", b'{"max_tokens":5}', "compacted", 0, **fields)
        self.context = replace(self.context, request=request)

    def now(self) -> SimpleNamespace:
        """The views at this moment."""
        return SimpleNamespace(
            session_id=self.session_id, context=self.context, compaction=self.compaction
        )


def _read(ref):
    raise AssertionError("nothing is in blobs here")


@pytest.mark.parametrize("seed", range(200))
def test_law_11_under_compaction_a_continued_request_is_the_one_that_is_built(seed):
    grown, rendering, past = Grown(seed), Rendering(), []
    for _ in range(30):
        grown.step()
        past.append(grown.now())
        if seed % 2:
            rendering.render_ahead(grown.chance.choice(past) if seed % 8 == 1 else past[-1], _read)
        for views in (past[-1], *([grown.chance.choice(past)] if seed % 4 == 0 else ())):
            built = rendering.request(views, _read)
            assert built.request == request_bytes(views, _read)
            assert built.sha256 == request_sha256(built.request)


@pytest.fixture
def rendered(monkeypatch):
    """The answers that are rendered from here on, in order."""
    module = sys.modules[Rendering.__module__]
    read, answer_blocks = [], module.answer_blocks

    def noted(fragment, *args, **kwargs):
        read.append(fragment)
        return answer_blocks(fragment, *args, **kwargs)

    monkeypatch.setattr(module, "answer_blocks", noted)
    return read


def chatted(messages: int) -> Grown:
    """A chat of so many messages in turn; nothing moves in it."""
    grown = Grown(1)
    grown.chance.random = lambda: 1.0
    for number in range(messages):
        kind = ("user", "assistant")[number % 2]
        grown.turn = number
        grown.say(grown.text(kind, 1, [{"type": "text", "text": f"words {number}"}]))
    return grown


def test_what_was_settled_is_not_rendered_again(rendered):
    grown, rendering = chatted(201), Rendering()
    grown.move()
    rendering.request(grown.now(), _read)
    rendered.clear()
    for kind in ("assistant", "user"):
        grown.say(grown.text(kind, 1, [{"type": "text", "text": "newest"}]))
    grown.move()
    assert rendering.request(grown.now(), _read).request == request_bytes(grown.now(), _read)
    assert len(rendered) == 1


def test_an_answer_is_rendered_once_and_before_the_next_request_needs_it(rendered):
    grown, rendering = chatted(21), Rendering()
    grown.move()
    rendering.request(grown.now(), _read)
    rendered.clear()
    grown.say(grown.text("assistant", 1, [{"type": "text", "text": "the answer"}]))
    for _ in range(2):
        rendering.render_ahead(grown.now(), _read)
    assert rendered == [grown.now().context.fragments[-1]]
    grown.say(grown.text("user", 1, [{"type": "text", "text": "and now?"}]))
    grown.move()
    assert rendering.request(grown.now(), _read).request == request_bytes(grown.now(), _read)
    assert len(rendered) == 1


def test_a_blob_that_is_lost_once_leaves_nothing_half_rendered():
    grown = Grown(2)
    lost = Body(ref=BlobRef(sha256="a" * 64, bytes=9, media_type="application/json"))
    grown.say(grown.text("user", 1, [{"type": "text", "text": "hi"}]))
    grown.say(Fragment("assistant", 1, 1, -1, 0, lost, stop_reason="end_turn"))
    grown.say(grown.text("user", 1, [{"type": "text", "text": "and now?"}]))
    grown.move()
    held = b'[{"type":"text","text":"kept"}]'
    rendering, views = Rendering(), grown.now()
    rendering.render_ahead(views, _read)  # says nothing: the request that needs it does
    assert rendering.request(views, lambda ref: held).request == request_bytes(
        views, lambda ref: held
    )
    rendering = Rendering()
    with pytest.raises(AssertionError):
        rendering.request(views, _read)
    built = rendering.request(views, lambda ref: held)
    assert built.request == request_bytes(views, lambda ref: held)


def test_renderings_hold_no_more_than_they_may():
    grown = Grown(3)
    for _ in range(40):
        grown.step()
    bytes_max = 7 * len(request_bytes(grown.now(), _read))
    renderings = Renderings(bytes_max)
    for number in range(10):
        views = grown.now()
        views.session_id = f"s{number}"
        assert renderings.request(views, _read).request == request_bytes(views, _read)
    assert list(renderings._renderings) == ["s7", "s8", "s9"], "the newest stay"
    sizes = [rendering.size for rendering in renderings._renderings.values()]
    assert renderings._size == sum(sizes) <= bytes_max


def test_a_file_that_is_not_shown_any_more_is_rendered_anew():
    grown, rendering = chatted(4), Rendering()
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + 2 * (9).to_bytes(4, "big") + b"\x08\x02\0\0\0"
    ref = BlobRef(sha256="a" * 64, bytes=len(png), media_type="image/png")
    grown.say(grown.text("user", 1, [reference(ref, 9)]))
    grown.move()
    shown, context = rendering.request(grown.now(), lambda _: png), grown.context
    grown.context = replace(context, request=replace(context.request, files_after=99))
    hidden = rendering.request(grown.now(), lambda _: png)
    assert b"base64" in shown.request and b"base64" not in hidden.request
    assert hidden.request == request_bytes(grown.now(), lambda _: png)

"""Renderings under compaction: their requests equal those of the plain builder.

The tests build the views themselves, with windows, summaries and short forms at any moment;
tests/laws/test_rendered_laws.py checks the same on histories that a worker wrote.
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
    [{"type": "text", "text": "the summary"}],
    [{"type": "compaction", "content": "the summary", "signature": "x"}],
)


def _body(value) -> Body:
    return Body(inline=json.dumps(value).encode())


class GrowingViews:
    """Views that grow at random, as a fold would change them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        prefix = Prefix("p0", _body([{"type": "text", "text": "be brief"}]), _body([]), 0)
        view = context.initial()
        self.context = replace(view, prefixes=view.prefixes.append(prefix))
        self.compaction = compaction.initial()
        self.session_id = "s"
        self.turn = 0

    def add(self, *fragments: Fragment) -> None:
        rows = self.context.fragments.append(*fragments)
        self.context = replace(self.context, fragments=rows)

    def text(self, kind: str, step: int, blocks) -> Fragment:
        stop = "tool_use" if any(b["type"] == "tool_use" for b in blocks) else "end_turn"
        return Fragment(kind, self.turn, step, -1, 0, _body(blocks), stop_reason=stop)

    def step(self) -> None:
        """Add a message, or an answer with calls and their results, then move to the next
        request."""
        roll = self.chance.random()
        self.turn += 1
        words = [{"type": "text", "text": f"words {self.turn}"}]
        if roll < 0.15:
            self.add(self.text("assistant", 1, PAUSED))
        elif roll < 0.3:
            signed = {"type": "thinking", "thinking": "hm", "signature": f"s{self.turn}"}
            self.add(self.text("assistant", 1, [signed, *words][: self.chance.choice((1, 2))]))
        elif roll < 0.65:
            uses = [
                {"type": "tool_use", "id": f"c{n}", "name": "look", "input": {}}
                for n in range(self.chance.randrange(1, 4))
            ]
            self.add(self.text("assistant", 1, [*words, *uses]))
            for n in self.chance.sample(range(len(uses)), len(uses)):
                content = Body(inline=f"result {self.turn}.{n}".encode())
                self.add(Fragment("result", self.turn, 1, n, 0, content))
                if self.chance.random() < 0.4:
                    self.shorten(len(self.context.fragments) - 1, early=True)
        else:
            self.add(self.text("user", 1, words))
        if self.context.fragments[0].kind != "user":
            self.context = replace(self.context, fragments=context.initial().fragments)
            self.add(self.text("user", 1, words))
        self.move()

    def shorten(self, place: int, *, early: bool) -> None:
        row = self.context.fragments[place]
        call = f"{row.turn}.{row.step}.{row.index}"
        if self.compaction.shorts.last(call) is not None:
            return  # a second short form is ignored as a duplicate
        short = Short(call, place, self.turn, Body(inline=b"short"), 0, early)
        self.compaction = replace(self.compaction, shorts=self.compaction.shorts.append(short))

    def move(self) -> None:
        """Decide the next request, mostly like the last one, sometimes with another window or
        prefix."""
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
                summary = Summary(self.turn, 0, fields["start"], body, 1, "m")
                more = self.compaction.summaries.append(summary)
                self.compaction = replace(self.compaction, summaries=more)
        elif roll < 0.2:
            fields["compacted_upto"] = self.turn
        elif roll < 0.3:
            results = [n for n in range(len(rows)) if rows[n].kind == "result"]
            if results:
                # `early` although a request built ahead of the log may have the whole result.
                self.shorten(self.chance.choice(results), early=self.chance.random() < 0.3)
        elif roll < 0.35:
            tools = _body([{"name": f"t{self.turn}", "input_schema": {}}])
            prefix = Prefix(f"p{self.turn}", _body([]), tools, 0)
            self.context = replace(self.context, prefixes=self.context.prefixes.append(prefix))
        place = (self.turn, 1, len(rows), len(self.context.prefixes))
        request = Request(*place, "m", b'{"max_tokens":5}', "compacted", 0, **fields)
        self.context = replace(self.context, request=request)

    def now(self) -> SimpleNamespace:
        """The views as they are now."""
        return SimpleNamespace(
            session_id=self.session_id, context=self.context, compaction=self.compaction
        )


def _read(ref):
    raise AssertionError("no blob may be read")


@pytest.mark.parametrize("seed", range(200))
def test_law_11_a_continued_request_equals_the_built_one(seed):
    growing, rendering, past = GrowingViews(seed), Rendering(), []
    for _ in range(30):
        growing.step()
        past.append(growing.now())
        if seed % 2:
            ahead = growing.chance.choice(past) if seed % 8 == 1 else past[-1]
            rendering.render_ahead(ahead, _read)
        for views in (past[-1], *([growing.chance.choice(past)] if seed % 4 == 0 else ())):
            built = rendering.request(views, _read)
            assert built.request == request_bytes(views, _read)
            assert built.sha256 == request_sha256(built.request)


@pytest.fixture
def rendered(monkeypatch):
    """A list of the answers that are rendered during the test, in order."""
    module = sys.modules[Rendering.__module__]
    answers, answer_blocks = [], module.answer_blocks

    def recording(fragment, *args, **kwargs):
        answers.append(fragment)
        return answer_blocks(fragment, *args, **kwargs)

    monkeypatch.setattr(module, "answer_blocks", recording)
    return answers


def chat_of(messages: int) -> GrowingViews:
    """A chat of this many messages, alternately of the user and the model, without compaction."""
    growing = GrowingViews(1)
    growing.chance.random = lambda: 1.0
    for number in range(messages):
        kind = ("user", "assistant")[number % 2]
        growing.turn = number
        growing.add(growing.text(kind, 1, [{"type": "text", "text": f"words {number}"}]))
    return growing


def test_only_new_answers_are_rendered(rendered):
    growing, rendering = chat_of(201), Rendering()
    growing.move()
    rendering.request(growing.now(), _read)
    rendered.clear()
    for kind in ("assistant", "user"):
        growing.add(growing.text(kind, 1, [{"type": "text", "text": "newest"}]))
    growing.move()
    assert rendering.request(growing.now(), _read).request == request_bytes(growing.now(), _read)
    assert len(rendered) == 1


def test_an_answer_is_rendered_once_and_ahead_of_the_next_request(rendered):
    growing, rendering = chat_of(21), Rendering()
    growing.move()
    rendering.request(growing.now(), _read)
    rendered.clear()
    growing.add(growing.text("assistant", 1, [{"type": "text", "text": "the answer"}]))
    for _ in range(2):
        rendering.render_ahead(growing.now(), _read)
    assert rendered == [growing.now().context.fragments[-1]]
    growing.add(growing.text("user", 1, [{"type": "text", "text": "and now?"}]))
    growing.move()
    assert rendering.request(growing.now(), _read).request == request_bytes(growing.now(), _read)
    assert len(rendered) == 1


def test_a_missing_blob_leaves_no_partial_rendering():
    growing = GrowingViews(2)
    missing = Body(ref=BlobRef(sha256="a" * 64, bytes=9, media_type="application/json"))
    growing.add(growing.text("user", 1, [{"type": "text", "text": "hi"}]))
    growing.add(Fragment("assistant", 1, 1, -1, 0, missing, stop_reason="end_turn"))
    growing.add(growing.text("user", 1, [{"type": "text", "text": "and now?"}]))
    growing.move()
    content = b'[{"type":"text","text":"from the blob"}]'
    rendering, views = Rendering(), growing.now()
    rendering.render_ahead(views, _read)  # raises nothing; the request does
    assert rendering.request(views, lambda ref: content).request == request_bytes(
        views, lambda ref: content
    )
    rendering = Rendering()
    with pytest.raises(AssertionError):
        rendering.request(views, _read)
    built = rendering.request(views, lambda ref: content)
    assert built.request == request_bytes(views, lambda ref: content)


def test_the_size_of_all_renderings_is_bounded():
    growing = GrowingViews(3)
    for _ in range(40):
        growing.step()
    bytes_max = 7 * len(request_bytes(growing.now(), _read))
    renderings = Renderings(bytes_max)
    for number in range(10):
        views = growing.now()
        views.session_id = f"s{number}"
        assert renderings.request(views, _read).request == request_bytes(views, _read)
    assert list(renderings._renderings) == ["s7", "s8", "s9"], "the newest ones"
    sizes = [rendering.size for rendering in renderings._renderings.values()]
    assert renderings._size == sum(sizes) <= bytes_max


def test_a_file_that_is_hidden_from_now_on_is_rendered_again():
    growing, rendering = chat_of(4), Rendering()
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + 2 * (9).to_bytes(4, "big") + b"\x08\x02\0\0\0"
    ref = BlobRef(sha256="a" * 64, bytes=len(png), media_type="image/png")
    growing.add(growing.text("user", 1, [reference(ref, 9)]))
    growing.move()
    shown, context = rendering.request(growing.now(), lambda _: png), growing.context
    growing.context = replace(context, request=replace(context.request, files_after=99))
    hidden = rendering.request(growing.now(), lambda _: png)
    assert b"base64" in shown.request and b"base64" not in hidden.request
    assert hidden.request == request_bytes(growing.now(), lambda _: png)

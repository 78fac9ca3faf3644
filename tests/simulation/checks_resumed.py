"""Invariants of resumed answers: what is kept of a lost attempt, and the text that a viewer sees.

This file assembles the kept part a second time, from the chunks that the fold accepted.
"""

import json
from typing import Any, NamedTuple

from foldlog.client.transcript_stream import INITIAL, Dropped, Settled, Token, Viewer, see
from foldlog.processors.fold.sessions import FoldedEvent
from foldlog.processors.request.continuation import CONTINUE
from foldlog.schemas import events as ev
from foldlog.schemas.canonical import compact
from foldlog.schemas.codec import ChunkSeen, entry_of
from foldlog.tests.laws.resumed import resumes
from foldlog.tests.simulation.invariant import Invariant


class StreamedChunks:
    """The chunks of each attempt, up to the first missing one. The list of an attempt that resumes
    another begins with the chunks that it resumed."""

    def __init__(self) -> None:
        self._of: dict[tuple, list[ev.GenChunk]] = {}

    def take(self, seen: Any) -> None:
        """Take an accepted event."""
        event = seen.entry.event
        if isinstance(event, ChunkSeen):
            chunk = entry_of(seen.record, chunks=True).event
            known = self._of.setdefault(_place(seen, chunk.attempt), [])
            if chunk.seq == len(known):
                known.append(chunk)
        elif isinstance(event, ev.GenStart | ev.GenResumed):
            self._of[_place(seen, event.attempt)] = self.kept(seen) if resumes(event) else []

    def kept(self, seen: Any) -> list[ev.GenChunk]:
        """The chunks that a claimed attempt resumes."""
        lost = seen.before.turn.generation.attempt
        return self._of.get(_place(seen, lost), [])[: seen.entry.event.prior_seq + 1]


def _place(seen: Any, attempt: int) -> tuple:
    event = seen.entry.event
    return (seen.entry.session_id, event.turn, event.step, attempt)


def texts_of(chunks: list[ev.GenChunk]) -> list[str]:
    """The joined text of each block."""
    blocks = dict.fromkeys(chunk.block for chunk in chunks)
    return ["".join(c.delta for c in chunks if c.block == block) for block in blocks]


def continued(request: bytes, chunks: list[ev.GenChunk]) -> bytes:
    """The request of a step, byte for byte, followed by the kept text that the model must
    continue."""
    texts, order = texts_of(chunks), ""
    if json.loads(request)["model"].startswith("claude-3"):
        texts[-1] = texts[-1].rstrip()
    else:
        order = f',{{"role":"user","content":[{{"type":"text","text":{json.dumps(CONTINUE)}}}]}}'
    blocks = ",".join(compact({"type": "text", "text": text}) for text in texts)
    kept = f',{{"role":"assistant","content":[{blocks}]}}'
    return request.removesuffix(b"]}") + f"{kept}{order}]}}".encode()


class Screen(NamedTuple):
    """The text that one viewer sees of the streaming attempt."""

    viewer: Viewer = INITIAL
    text: str = ""


class AnswersAreShownOnce(Invariant):
    """A viewer of an answer that settles has seen the answer's text, and each chunk once. When a
    resumed answer settles, no text is taken back, and the answer contains the kept text."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.chunks = StreamedChunks()
        self.screens: dict[str, Screen] = {}

    def on_seen(self, seen: Any) -> None:
        if not seen.ruling.accepted:
            return
        event, session = seen.entry.event, seen.entry.session_id
        if resumes(event):
            self._is_kept(seen)
        self.chunks.take(seen)
        viewer, text = self.screens.get(session, Screen())
        entry = entry_of(seen.record, chunks=True)
        folded = FoldedEvent(entry, seen.ruling, seen.before, seen.views)
        generation = seen.before.turn.generation
        resumed = generation is not None and bool(generation.chain)
        viewer, shown = see(viewer, folded, self.world.blobs.read)
        for thing in shown:
            match thing:
                case Token(kind="text"):
                    text += thing.text
                case Dropped():
                    ends = isinstance(event, ev.GenComplete | ev.GenStopped)
                    closes = isinstance(event, ev.GenComplete) or seen.before.turn.closing
                    if resumed and ends and closes:
                        self.fail(f"{session}: {thing} of {text!r} by {event}")
                    text = ""
                case Settled():
                    self._settles(seen, text, resumed)
                    text = ""
        self.screens[session] = Screen(viewer, text)

    def _is_kept(self, seen: Any) -> None:
        event, kept = seen.entry.event, self.chunks.kept(seen)
        self.world.stats["resumed claims"] += 1
        whole = len(kept) == event.prior_seq + 1
        self.demand(whole, f"{seen.entry} keeps more than was streamed: {kept}")
        only_text = all(chunk.kind == "text" for chunk in kept)
        self.demand(only_text, f"{seen.entry} keeps chunks that are not text")

    def _settles(self, seen: Any, text: str, resumed: bool) -> None:
        event = seen.entry.event
        body = event.content
        raw = body.inline if body.ref is None else self.world.blobs.read(body.ref)
        answer = "".join(b["text"] for b in json.loads(raw) if b["type"] == "text")
        self.demand(answer == text, f"{seen.entry}: {text!r} is shown of {answer!r}")
        if resumed:
            self.world.stats[f"resumed {type(event).__name__}"] += 1


RESUMED = (AnswersAreShownOnce,)

"""Invariants of answers that are resumed: what is kept of a lost one, and what a viewer sees.

What is kept is put together a second time here, from the chunks that the fold accepted.
"""

import json
from typing import Any, NamedTuple

from foldlog.consumers.transcript_stream import INITIAL, Dropped, Settled, Token, Viewer, see
from foldlog.processors.fold.sessions import FoldedEvent
from foldlog.processors.request.continuation import CONTINUE
from foldlog.schemas import events as ev
from foldlog.schemas.canonical import compact
from foldlog.schemas.codec import ChunkSeen, entry_of
from foldlog.tests.simulation.invariant import Invariant


class Heard:
    """What each attempt said up to the first chunk that is missing, with what it went on from."""

    def __init__(self) -> None:
        self._of: dict[tuple, list[ev.GenChunk]] = {}

    def take(self, seen: Any) -> None:
        """An accepted event."""
        event = seen.entry.event
        if isinstance(event, ChunkSeen):
            chunk = entry_of(seen.record, chunks=True).event
            heard = self._of.setdefault(_place(seen, chunk.attempt), [])
            if chunk.seq == len(heard):
                heard.append(chunk)
        elif isinstance(event, ev.GenStart | ev.GenResumed):
            self._of[_place(seen, event.attempt)] = self.kept(seen) if resumes(event) else []

    def kept(self, seen: Any) -> list[ev.GenChunk]:
        """What an attempt that is claimed goes on from."""
        lost = seen.before.turn.generation.attempt
        return self._of.get(_place(seen, lost), [])[: seen.entry.event.prior_seq + 1]


def _place(seen: Any, attempt: int) -> tuple:
    event = seen.entry.event
    return (seen.entry.session_id, event.turn, event.step, attempt)


def resumes(event: Any) -> bool:
    """Whether a claim goes on from a lost attempt."""
    return isinstance(event, ev.GenResumed) and event.strategy == "resume"


def texts_of(chunks: list[ev.GenChunk]) -> list[str]:
    """The text of each block."""
    blocks = dict.fromkeys(chunk.block for chunk in chunks)
    return ["".join(c.delta for c in chunks if c.block == block) for block in blocks]


def continued(request: bytes, chunks: list[ev.GenChunk]) -> bytes:
    """The request of a step, byte for byte, and behind it what is kept, to be continued."""
    texts, asked = texts_of(chunks), ""
    if json.loads(request)["model"].startswith("claude-3"):
        texts[-1] = texts[-1].rstrip()
    else:
        asked = f',{{"role":"user","content":[{{"type":"text","text":{json.dumps(CONTINUE)}}}]}}'
    blocks = ",".join(compact({"type": "text", "text": text}) for text in texts)
    said = f',{{"role":"assistant","content":[{blocks}]}}'
    return request.removesuffix(b"]}") + f"{said}{asked}]}}".encode()


class Screen(NamedTuple):
    """What one viewer sees of the attempt that streams."""

    viewer: Viewer = INITIAL
    text: str = ""


class AnswersAreShownOnce(Invariant):
    """Beyond-the-seeds 1: what a viewer was shown of an answer that settles is its text, each
    piece once; where it was resumed, nothing is taken back when it settles, and all that was kept
    is in it."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.heard = Heard()
        self.screens: dict[str, Screen] = {}

    def on_seen(self, seen: Any) -> None:
        if not seen.ruling.accepted:
            return
        event, session = seen.entry.event, seen.entry.session_id
        if resumes(event):
            self._is_kept(seen)
        self.heard.take(seen)
        viewer, text = self.screens.get(session, Screen())
        entry = entry_of(seen.record, chunks=True)
        looked = FoldedEvent(entry, seen.ruling, seen.before, seen.views)
        generation = seen.before.turn.generation
        goes_on = generation is not None and bool(generation.chain)
        viewer, shown = see(viewer, looked, self.world.blobs.read)
        for thing in shown:
            match thing:
                case Token(kind="text"):
                    text += thing.text
                case Dropped():
                    ends = isinstance(event, ev.GenComplete | ev.GenStopped)
                    closes = isinstance(event, ev.GenComplete) or seen.before.turn.closing
                    if goes_on and ends and closes:
                        self.fail(f"{session}: {thing} of {text!r} by {event}")
                    text = ""
                case Settled():
                    self._settles(seen, text, goes_on)
                    text = ""
        self.screens[session] = Screen(viewer, text)

    def _is_kept(self, seen: Any) -> None:
        event, kept = seen.entry.event, self.heard.kept(seen)
        self.world.stats["resumed claims"] += 1
        whole = len(kept) == event.prior_seq + 1
        self.demand(whole, f"{seen.entry} keeps more than was said: {kept}")
        self.demand(all(c.kind == "text" for c in kept), f"{seen.entry} keeps what is no text")

    def _settles(self, seen: Any, text: str, goes_on: bool) -> None:
        event = seen.entry.event
        body = event.content
        raw = body.inline if body.ref is None else self.world.blobs.read(body.ref)
        said = "".join(b["text"] for b in json.loads(raw) if b["type"] == "text")
        self.demand(said == text, f"{seen.entry}: {text!r} is shown of {said!r}")
        if goes_on:
            self.world.stats[f"resumed {type(event).__name__}"] += 1


RESUMED = (AnswersAreShownOnce,)

"""Answers that are resumed: what of a lost attempt is kept, from before the claim until it begins.

What an attempt had said is in its chunks, which no view holds: they are read from the log beside
the poll thread, and asked for again until they are there. Remembered only here; who forgets it
reports the claim as not begun, and the next attempt reads it anew.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

from ...schemas import events as ev
from ...schemas.enums import Recovery
from ..agent import Agent
from ..fold.partial_answer import chunks_of
from ..fold.projections.turn_view import Generation
from ..fold.views import SessionViews
from ..request.build import request_sha256
from ..request.continuation import Kept, continued, kept_of, may_resume
from ..request.rendered import Built
from ..wake.facts import Obligation
from .ports import BeginGeneration, Effects

READS_MAX = 8
"""Sessions whose chunks are read at once: each reader is a client of the broker, and after a
takeover many sessions ask."""


class _Found(NamedTuple):
    """What an attempt goes on from. `of`: its LLM_CALLED's digest, and its number."""

    of: tuple[bytes, int]
    kept: Kept | None


class GoingOn:
    """What is kept for the next attempt of each session's model call."""

    def __init__(self) -> None:
        self._found: dict[str, _Found] = {}

    def is_reading(
        self,
        views: SessionViews,
        owed: Obligation,
        agent: Agent | None,
        partition: int,
        effects: Effects,
    ) -> bool:
        """Whether what the lost attempt had said is still read, for the one that takes over."""
        generation, session_id = views.turn.generation, views.session_id
        if owed.owed != "GEN_RESUMED" or agent is None or agent.recovery != Recovery.RESUME:
            return False
        if not may_resume(views):
            return False
        assert generation is not None
        of = (generation.called, generation.attempt + 1)
        if session_id in self._found and self._found[session_id].of == of:
            return False
        lost = generation.attempt
        chunks = effects.chunks_since(session_id, partition, generation.offset, lost)
        if chunks is None:
            return True
        place = (views.turn.number, views.turn.step, generation.attempt)
        self._found[session_id] = _Found(of, kept_of(chunks_of(chunks, place, generation.chain)))
        return False

    def claim(self, views: SessionViews, owed: Obligation, built: Built) -> tuple[str, Kept | None]:
        """The sha256 of the request of the attempt that is claimed, and what it goes on from."""
        generation, kept = views.turn.generation, None
        assert generation is not None
        if owed.owed == "GEN_RESUMED":
            kept = self._for_attempt(views.session_id, generation, generation.attempt + 1)
        return with_kept(views, built, kept).sha256, kept

    def begin(self, views: SessionViews, agent: Agent, built: Built) -> BeginGeneration:
        """The model call that was claimed. Without `kept` and with a `chain` it can not begin."""
        turn, generation = views.turn, views.turn.generation
        assert generation is not None and generation.claim is not None
        kept = None
        if generation.chain:
            kept = self._for_attempt(views.session_id, generation, generation.attempt)
            if kept is not None and kept.prior_seq != generation.chain[-1][1]:
                kept = None  # read anew since: the claim that won says how far is kept
        return BeginGeneration(
            turn.number,
            turn.step,
            generation.attempt,
            generation.claim,
            with_kept(views, built, kept).request,
            agent,
            kept,
            generation.chain,
            generation.offset,
        )

    def _for_attempt(self, session_id: str, generation: Generation, attempt: int) -> Kept | None:
        found = self._found.get(session_id)
        return found.kept if found and found.of == (generation.called, attempt) else None

    def forget(self, session_id: str) -> None:
        """Nothing of the session is in flight."""
        self._found.pop(session_id, None)


def with_kept(views: SessionViews, built: Built, kept: Kept | None) -> Built:
    """The step's request, and behind it what is kept."""
    request = views.context.request
    if kept is None or request is None:
        return built
    more = continued(built.request, kept, request.model, request.params)
    return Built(more, request_sha256(more))


def _in_a_thread(run: Callable[[], None]) -> None:
    threading.Thread(target=run, name="chunks", daemon=True).start()


class Aside:
    """Reads chunks beside whoever asks, who asks again. `begin`: runs a function, beside or not."""

    def __init__(
        self,
        read: Callable[[str, int, int], list[ev.GenChunk]],
        begin: Callable[[Callable[[], None]], None] = _in_a_thread,
    ) -> None:
        self._read, self._begin, self._lock = read, begin, threading.Lock()
        self._slots = threading.BoundedSemaphore(READS_MAX)
        self._results: dict[tuple[str, int, int, int], list[ev.GenChunk] | None] = {}

    def since(
        self, session_id: str, partition: int, offset: int, attempt: int
    ) -> list[ev.GenChunk] | None:
        """The chunks of a session from an offset on; None as long as they are read.

        `attempt`: the lost one that they are read for. Who asked for one and went away left a
        result that another must not be given.
        """
        key = (session_id, partition, offset, attempt)
        with self._lock:
            if key in self._results:
                found = self._results[key]
                if found is not None:
                    del self._results[key]
                return found
            for other in [one for one in self._results if one[0] == session_id]:
                del self._results[other]  # whoever asked for an earlier attempt comes no more
            self._results[key] = None
        self._begin(lambda: self._run(key))
        return None

    def _run(self, key: tuple[str, int, int, int]) -> None:
        try:
            with self._slots:
                found = self._read(*key[:3])
        except Exception:  # the log is away: then the answer is started over
            found = []
        with self._lock:
            if key in self._results:
                self._results[key] = found

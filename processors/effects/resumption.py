"""Resumes answers: reads the text of a lost attempt, and keeps it until the next attempt begins.

The text is in the attempt's chunks, which no view contains. Another thread reads the chunks from
the log; the poll thread polls for the result. The text is kept only in this process. If the text is
lost after the claim of an attempt, the attempt is reported as not begun, and the next attempt reads
the chunks again.
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
from ..wake.table import Action
from .ports import BeginGeneration, Effects

READS_MAX = 8
"""How many reads of chunks may run at once. Each read opens a client of the broker, and many
sessions may need a read after a worker has died.
"""


class _Resumed(NamedTuple):
    """The text that an attempt resumes.
    `attempt`: the digest of the LLM_CALLED, and the attempt's number."""

    attempt: tuple[bytes, int]
    kept: Kept | None


class PartialAnswers:
    """The partial answers that are kept for the next attempt of each session's model call."""

    def __init__(self) -> None:
        self._found: dict[str, _Resumed] = {}

    def is_reading(
        self,
        views: SessionViews,
        obligation: Obligation,
        agent: Agent | None,
        partition: int,
        effects: Effects,
    ) -> bool:
        """Whether the chunks of the lost attempt are still being read. If so, the caller must not
        claim the next attempt yet.
        """
        generation, session_id = views.turn.generation, views.session_id
        if obligation.owed != Action.GEN_RESUMED or not may_resume(views):
            return False
        if agent is None or agent.recovery != Recovery.RESUME:
            return False
        assert generation is not None
        attempt = (generation.called, generation.attempt + 1)
        if session_id in self._found and self._found[session_id].attempt == attempt:
            return False
        lost = generation.attempt
        chunks = effects.chunks_since(session_id, partition, generation.offset, lost)
        if chunks is None:
            return True
        place = (views.turn.number, views.turn.step, generation.attempt)
        kept = kept_of(chunks_of(chunks, place, generation.chain))
        self._found[session_id] = _Resumed(attempt, kept)
        return False

    def claim(
        self, views: SessionViews, obligation: Obligation, built: Built
    ) -> tuple[str, Kept | None]:
        """The sha256 of the request of the attempt to claim, and the partial answer that this
        attempt resumes."""
        generation, kept = views.turn.generation, None
        assert generation is not None
        if obligation.owed == Action.GEN_RESUMED:
            kept = self._for_attempt(views.session_id, generation, generation.attempt + 1)
        return with_kept(views, built, kept).sha256, kept

    def begin(self, views: SessionViews, agent: Agent, built: Built) -> BeginGeneration:
        """The BeginGeneration of a claimed model call. If the BeginGeneration has a `chain`, the
        call resumes lost attempts. If its `kept` is then None, their text was lost, and the call
        cannot begin."""
        turn, generation = views.turn, views.turn.generation
        assert generation is not None and generation.claim is not None
        kept = None
        if generation.chain:
            kept = self._for_attempt(views.session_id, generation, generation.attempt)
            if kept is not None and kept.prior_seq != generation.chain[-1][1]:
                kept = None  # read again since; the accepted claim determines how much is kept
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
            generation.error,
        )

    def _for_attempt(self, session_id: str, generation: Generation, attempt: int) -> Kept | None:
        found = self._found.get(session_id)
        return found.kept if found and found.attempt == (generation.called, attempt) else None

    def forget(self, session_id: str) -> None:
        """Forget a session that has nothing in flight."""
        self._found.pop(session_id, None)


def with_kept(views: SessionViews, built: Built, kept: Kept | None) -> Built:
    """The request of an attempt: the step's request,
    with the kept partial answer if there is one."""
    request = views.context.request
    if kept is None or request is None:
        return built
    more = continued(built.request, kept, request.model, request.params)
    return Built(more, request_sha256(more))


def _in_a_thread(run: Callable[[], None]) -> None:
    threading.Thread(target=run, name="chunks", daemon=True).start()


class ChunksLoader:
    """Reads chunks in the background; the caller polls for them.
    `begin`: runs a function in the background."""

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
        """The chunks of a session from `offset` on; None while they are being read.

        `attempt`: the lost attempt for which the chunks are read. A result that no caller polled
        for must not be given to another attempt.
        """
        key = (session_id, partition, offset, attempt)
        with self._lock:
            if key in self._results:
                found = self._results[key]
                if found is not None:
                    del self._results[key]
                return found
            for other in [one for one in self._results if one[0] == session_id]:
                del self._results[other]  # no caller polls for an earlier attempt
            self._results[key] = None
        self._begin(lambda: self._run(key))
        return None

    def _run(self, key: tuple[str, int, int, int]) -> None:
        try:
            with self._slots:
                found = self._read(*key[:3])
        except Exception:  # the log is unreachable: the answer will start over
            found = []
        with self._lock:
            if key in self._results:
                self._results[key] = found

"""A model call, from its claim to its outcome. The call itself is in `models/call.py`.

An attempt may resume the partial answer of a lost attempt (GEN_RESUMED). The text is read from the
lost attempt's chunks before the claim (resumption.py).
"""

import asyncio
import time
from typing import Any

from ...log.blobs import BlobStore
from ...schemas import events as ev
from ...schemas.enums import Recovery, Role
from ...schemas.events.parts import ReadBlob
from .. import crash_points
from ..fold.partial_answer import chunks_of, said_so_far
from ..fold.projections.partition import Holder
from ..fold.projections.turn_view import Claim, Generation, TurnView
from ..fold.views import SessionViews
from ..request.build import BUILDER
from ..request.rendered import Built, Renderings
from ..tools.blob_wait import when_stored
from ..tools.output_sink import Sink, Stop
from ..wake.facts import Obligation
from ..wake.table import Action
from .effect import NOT_BEGUN, Begun, Due, Means, Run
from .models import call as models
from .ports import BeginGeneration, EffectId, Effects
from .resumption import PartialAnswers
from .start_window import StartWindow

NO_CONTENT = ev.Body(inline=b"[]")
Place = tuple[int, int, int]
"""The turn, the step and the attempt of a model call."""


class ModelCalls:
    """The model calls of a worker."""

    role = Role.MODELS
    claims = frozenset({Action.GEN_START, Action.GEN_RESUMED})

    def __init__(self, effects: Effects, read_blob: ReadBlob) -> None:
        self._effects, self._read_blob = effects, read_blob
        self._partial_answers = PartialAnswers()
        self.renderings = Renderings()
        self._built: dict[str, tuple[tuple[Any, ...], Built]] = {}

    def claim(self, due: Due, holder: Holder) -> ev.GenStart | ev.GenResumed | None:
        """See `Kind`. None while the chunks of a lost attempt are read."""
        views, obligation = due.views, due.obligation
        if self._partial_answers.is_reading(
            views, obligation, due.agent, due.partition, self._effects
        ):
            return None
        sha256, kept = self._partial_answers.claim(views, obligation, self.request(views))
        generation = _generation(views)
        fields: dict[str, Any] = {
            "turn": views.turn.number,
            "step": views.turn.step,
            "attempt": generation.attempt + 1,
            "owner": holder.owner,
            "epoch": holder.epoch,
            "deadline": due.now + due.agent.limits.stall_timeout_ms,
            "called": generation.called,
            "request_sha256": sha256,
            "builder": BUILDER,
        }
        if obligation.owed == Action.GEN_START:
            return ev.GenStart(**fields)
        if kept is not None:
            return ev.GenResumed(**fields, strategy=Recovery.RESUME, prior_seq=kept.prior_seq)
        stream, here = views.stream, (views.turn.number, views.turn.step, generation.attempt)
        streamed = stream.chunks if (stream.turn, stream.step, stream.attempt) == here else 0
        return ev.GenResumed(**fields, strategy=Recovery.REPLACE, prior_seq=streamed - 1)

    def claimed(self, views: SessionViews, obligation: Obligation) -> Claim:
        """See `Kind`."""
        claim = _generation(views).claim
        assert claim is not None, f"{obligation} without a claim"
        return claim

    def begin(self, due: Due) -> None:
        """See `Kind`."""
        begin = self._begin(due)
        if begin.chain and begin.kept is None:  # the text that it would resume is lost
            self._effects.report(due.session_id, stopped_before_it_began(due.views.turn))
        else:
            self._effects.begin(due.session_id, begin._replace(now=due.now))

    def not_begun(self, views: SessionViews, obligation: Obligation, why: str) -> ev.GenFailed:
        """See `Kind`. Another attempt follows at once."""
        turn = views.turn
        return not_sent((turn.number, turn.step, _generation(views).attempt), why)

    def abort(self, due: Due) -> None:
        """See `Kind`. The text that the attempt would have resumed is in the log."""
        if _generation(due.views).chain:
            self._recover(due)
        else:
            self._effects.report(due.session_id, stopped_before_it_began(due.views.turn))

    def recover(self, due: Due, begun: Begun) -> None:
        """Report the outcome of a call whose owner is dead and whose turn is ending, with the text
        that it sent (row A2), once per claim."""
        claim = self.claimed(due.views, due.obligation)
        begun.once(
            EffectId(due.session_id, claim.offset, recovers=True),
            lambda: self._recover(due),
        )

    def _recover(self, due: Due) -> None:
        begin = self._begin(due)._replace(recovers=True, partition=due.partition)
        self._effects.begin(due.session_id, begin)

    @staticmethod
    def is_wanted(views: SessionViews, claim_offset: int) -> bool:
        """See `Kind`."""
        turn = views.turn
        claim = turn.generation and turn.generation.claim
        is_live = turn.open and turn.closing is None
        return is_live and claim is not None and claim.offset == claim_offset

    def forget(self, session_id: str) -> None:
        """See `Kind`."""
        self._built.pop(session_id, None)
        self._partial_answers.forget(session_id)

    def prerender(self, views: SessionViews) -> None:
        """Called after a turn has ended: renders the conversation so far, so that the next request,
        which begins with it, is built faster."""
        self.renderings.render_ahead(views, self._read_blob)

    def _begin(self, due: Due) -> BeginGeneration:
        return self._partial_answers.begin(due.views, due.agent, self.request(due.views))

    def request(self, views: SessionViews) -> Built:
        """Build the request of the step to be claimed.
        The request is cached until the effect begins."""
        request = views.context.request
        assert request is not None
        covers = (_generation(views).called, request.fragments, request.prefixes)
        built = self._built.pop(views.session_id, None)
        if built is not None and built[0] == covers:
            return built[1]
        made = self.renderings.request(views, self._read_blob)
        self._built[views.session_id] = (covers, made)
        return made


def _generation(views: SessionViews) -> Generation:
    assert views.turn.generation is not None
    return views.turn.generation


# -- the run -----------------------------------------------------------------------------------


def run(session_id: str, begin: BeginGeneration, means: Means) -> Run:
    """The run of a claimed model call. Called when the claim was read."""
    place = begin.place
    claim = models.GenClaim(
        session_id=session_id,
        turn=begin.turn,
        step=begin.step,
        attempt=begin.attempt,
        claimed_at=max(begin.now, begin.claim.at),
        read_at=time.monotonic(),
        error_before=begin.error_before,
    )

    async def work(sink: Sink, stop: Stop) -> None:
        try:
            client = await means.get_client(stop)
        except Exception as error:
            detail = f"no client for the model: {type(error).__name__}: {error}"
            await sink.outcome(session_id, failed(place, "client", detail))
            return
        crash_points.reach("models.send")
        await models.generate(
            claim,
            begin.request,
            sink,
            stop,
            client,
            limits=begin.agent.limits,
            pace=means.pace,
            store_body=means.blobs.body,
            kept=begin.kept,
        )

    return Run(
        Role.MODELS,
        EffectId(session_id, begin.claim.offset),
        work,
        lambda why: failed(place, "internal", f"the call's task died: {why}", permanent=False),
        StartWindow.of(begin.agent, lambda why: not_sent(place, why)),
    )


def recovery(session_id: str, begin: BeginGeneration, means: Means) -> Run:
    """The run that reports the outcome of a lost attempt, with the content of its chunks (A2)."""
    place = (session_id, begin.partition, begin.since)

    async def work(sink: Sink, stop: Stop) -> None:
        chunks = await asyncio.to_thread(means.read_chunks, *place)
        event = await when_stored(lambda: recovered(begin, chunks, means.blobs))
        await sink.outcome(session_id, event)

    return Run(Role.MODELS, EffectId(session_id, begin.claim.offset, recovers=True), work)


# -- outcomes ----------------------------------------------------------------------------------


def stopped_before_it_began(turn: TurnView) -> ev.GenStopped:
    """The outcome of a claimed model call whose turn ended before the call began."""
    assert turn.generation is not None
    return ev.GenStopped(
        turn=turn.number,
        step=turn.step,
        attempt=turn.generation.attempt,
        why="the turn ended before the call began",
        content=NO_CONTENT,
    )


def not_sent(place: Place, why: str) -> ev.GenFailed:
    """The outcome of a model call that was claimed but never sent."""
    detail = f"{why}; nothing was sent and nothing billed"
    return failed(place, NOT_BEGUN, detail, permanent=False)


def failed(place: Place, error: str, detail: str, *, permanent: bool = True) -> ev.GenFailed:
    """The outcome of a model call that failed before anything was sent."""
    turn, step, attempt = place
    return ev.GenFailed(
        turn=turn,
        step=step,
        attempt=attempt,
        content=NO_CONTENT,
        error=error,
        detail=detail[:2_000],
        permanent=permanent,
    )


def content_of(begin: BeginGeneration, chunks: list[ev.GenChunk]) -> bytes:
    """The content of a lost attempt. It begins with the content of the attempts that the lost
    attempt resumed.
    """
    place = begin.place
    own = [chunk for chunk in chunks if (chunk.turn, chunk.step, chunk.attempt) == place]
    return said_so_far(chunks_of(chunks, place, begin.chain) if begin.chain else own)


def recovered(
    begin: BeginGeneration, chunks: list[ev.GenChunk], blobs: BlobStore
) -> ev.GenStopped:
    """The outcome of a lost attempt whose turn is ending, with the content of its chunks."""
    return ev.GenStopped(
        turn=begin.turn,
        step=begin.step,
        attempt=begin.attempt,
        why="its worker is gone and the turn is ending",
        content=blobs.body(content_of(begin, chunks), models.JSON_MEDIA_TYPE),
    )

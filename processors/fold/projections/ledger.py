"""ledger: tokens of every physical model attempt, each counted once (failed and stopped too).

An attempt that lost to another was still paid for, so this fold also counts superseded and late
outcomes. Background work (compaction, memory) is counted per request. Usage is as the models role
normalized it, and empty where it is impossible; the event has the raw usage. Prices are not facts
of the log: processors/advice/prices.py has a table.
"""

from collections.abc import Iterator
from typing import Any

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.value import Value, replace
from ..rows import Rows

ANSWER, BACKGROUND = "answer", "background"


class Spent(Value):
    """One request to a model. outcome: complete, failed or stopped. model: empty if the log does
    not name it. The four inputs add up to all tokens read.

    kind: answer, or background. Background work belongs to no turn: turn and step are 0, and `work`
    and `upto` identify it. An attempt of an answer is one request; an attempt of background work
    may make several, numbered by `request` from 1.
    """

    turn: int
    step: int
    attempt: int
    outcome: str
    model: str
    input_tokens: int
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    output_tokens: int
    response_id: str
    offset: int
    kind: str = ANSWER
    work: str = ""
    upto: int = -1
    request: int = 1

    @property
    def key(self) -> tuple[str | int, ...]:
        """The identity of a request, to find duplicates: (turn, step, attempt) of an answer, (work,
        upto, attempt, request) of background work."""
        if self.kind == BACKGROUND:
            return (self.work, self.upto, self.attempt, self.request)
        return (self.turn, self.step, self.attempt)

    @property
    def read_tokens(self) -> int:
        """All input, cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def cache_write_tokens(self) -> int:
        """Tokens written to either cache."""
        return self.cache_write_5m_tokens + self.cache_write_1h_tokens


class Asked(Value):
    """The newest LLM_CALLED: outcomes without an answer do not name their model."""

    turn: int = 0
    step: int = 0
    model: str = ""


class LedgerView(Value):
    """A row per billed request, and totals."""

    spent: Rows[Spent]
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    asked: Asked = Asked()

    @property
    def cache_write_tokens(self) -> int:
        """Tokens written to either cache."""
        return self.cache_write_5m_tokens + self.cache_write_1h_tokens


OUTCOMES = {
    ev.GenComplete: "complete",
    ev.GenFailed: "failed",
    ev.GenStopped: "stopped",
    ev.BackgroundDone: "complete",
}
READS = frozenset({ev.LlmCalled, *OUTCOMES})


def _key(row: Spent) -> tuple[str | int, ...]:
    return row.key


def initial() -> LedgerView:
    """Nothing spent; a new value each time, because rows share storage."""
    return LedgerView(Rows(key=_key))


def apply(view: LedgerView, entry: Entry) -> LedgerView:
    """The view after an accepted LLM_CALLED, or after an attempt's outcome, accepted or not."""
    event = entry.event
    if type(event) is ev.LlmCalled:
        return replace(view, asked=Asked(event.turn, event.step, event.model))
    if type(event) in OUTCOMES:
        for row in _rows(view, event, entry.offset):
            if view.spent.last(row.key) is None:
                view = _counted(view, row)
    return view


def _counted(view: LedgerView, row: Spent) -> LedgerView:
    return replace(
        view,
        spent=view.spent.append(row),
        input_tokens=view.input_tokens + row.input_tokens,
        cache_read_tokens=view.cache_read_tokens + row.cache_read_tokens,
        cache_write_5m_tokens=view.cache_write_5m_tokens + row.cache_write_5m_tokens,
        cache_write_1h_tokens=view.cache_write_1h_tokens + row.cache_write_1h_tokens,
        output_tokens=view.output_tokens + row.output_tokens,
    )


def _rows(view: LedgerView, event: Any, offset: int) -> Iterator[Spent]:
    """The requests reported by an outcome, as far as their usage is known."""
    outcome = OUTCOMES[type(event)]
    if type(event) is not ev.BackgroundDone:
        if event.usage is not None:
            place = (event.turn, event.step, event.attempt)
            model = getattr(event, "model", "") or _model_of(view, event.turn, event.step)
            response_id = getattr(event, "response_id", "")
            usage: ev.Usage = event.usage
            yield Spent(*place, outcome, model, *usage.counts, response_id, offset)
        return
    requests: tuple[ev.Try | ev.BackgroundDone, ...] = (*event.earlier, event)
    for number, one in enumerate(requests, 1):
        if one.usage is not None:
            ended = outcome if one is event and event.ok else "failed"
            what = (BACKGROUND, event.kind, event.upto, number)
            tokens = one.usage.counts
            yield Spent(0, 0, event.attempt, ended, one.model, *tokens, "", offset, *what)


def _model_of(view: LedgerView, turn: int, step: int) -> str:
    """The model that a step called, if this view still knows it."""
    if (view.asked.turn, view.asked.step) == (turn, step):
        return view.asked.model
    last = view.spent[-1] if len(view.spent) else None
    return last.model if last is not None and (last.turn, last.step) == (turn, step) else ""

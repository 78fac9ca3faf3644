"""ledger: the tokens of every attempt of a model call, each counted once, including failed and
stopped attempts.

An attempt that lost to another is still billed, so this fold also counts superseded and late
outcomes. Background work (compaction, memory) is counted per request. The models role normalizes
the token counts before it writes the outcome. They are 0 if the provider's numbers are impossible;
the event then has these numbers as the provider sent them. Prices are not facts of the log:
processors/advice/prices.py has a table.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import assert_never, get_args

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.value import Value, replace
from ..rows import Rows

ANSWER, BACKGROUND = "answer", "background"


class Spent(Value):
    """One request to a model.

    `outcome`: complete, failed or stopped.
    `model`: empty if the log lacks it.

    The four counts of input tokens add up to all input.

    `kind`: answer or background. Background work belongs to no turn: `turn` and `step` are 0, and
    `work` and `upto` identify it. An attempt of an answer is one request; an attempt of background
    work may make several, numbered by `request` from 1.
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
        """The identity of a request, to recognize duplicates."""
        if self.kind == BACKGROUND:
            return (self.work, self.upto, self.attempt, self.request)
        return (self.turn, self.step, self.attempt)

    @property
    def read_tokens(self) -> int:
        """All input tokens, cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def cache_write_tokens(self) -> int:
        """Tokens written to the 5-minute cache and to the 1-hour cache."""
        return self.cache_write_5m_tokens + self.cache_write_1h_tokens


class Asked(Value):
    """The newest LLM_CALLED; its model is kept because outcomes of failed attempts lack it."""

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
        """Tokens written to the 5-minute cache and to the 1-hour cache."""
        return self.cache_write_5m_tokens + self.cache_write_1h_tokens


AttemptOutcome = ev.GenComplete | ev.GenFailed | ev.GenStopped | ev.BackgroundDone
"""The outcome of an attempt."""
OUTCOMES = frozenset(get_args(AttemptOutcome))
READS = frozenset({ev.LlmCalled}) | OUTCOMES


def initial() -> LedgerView:
    """The view without requests; a new value each time, because rows share storage."""
    return LedgerView(Rows(key=attrgetter("key")))


def apply(view: LedgerView, entry: Entry) -> LedgerView:
    """The view after an accepted LLM_CALLED or after an outcome of an attempt, accepted or not."""
    event: ev.LlmCalled | AttemptOutcome = entry.event
    if isinstance(event, ev.LlmCalled):
        return replace(view, asked=Asked(event.turn, event.step, event.model))
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


def _rows(view: LedgerView, event: AttemptOutcome, offset: int) -> Iterator[Spent]:
    """The requests that an outcome reports and whose usage is known."""
    model, response_id = "", ""
    match event:
        case ev.GenComplete():
            outcome, model, response_id = "complete", event.model, event.response_id
        case ev.GenFailed():
            outcome = "failed"
        case ev.GenStopped():
            outcome = "stopped"
        case ev.BackgroundDone():
            requests: tuple[ev.Try | ev.BackgroundDone, ...] = (*event.earlier, event)
            for number, one in enumerate(requests, 1):
                if one.usage is not None:
                    outcome = "complete" if one is event and event.ok else "failed"
                    what = (BACKGROUND, event.kind, event.upto, number)
                    tokens = one.usage.counts
                    yield Spent(0, 0, event.attempt, outcome, one.model, *tokens, "", offset, *what)
            return
        case _:
            assert_never(event)
    if event.usage is not None:
        place = (event.turn, event.step, event.attempt)
        model = model or _model_of(view, event.turn, event.step)
        yield Spent(*place, outcome, model, *event.usage.counts, response_id, offset)


def _model_of(view: LedgerView, turn: int, step: int) -> str:
    """The model that a step called; '' if the view no longer knows it."""
    if (view.asked.turn, view.asked.step) == (turn, step):
        return view.asked.model
    last = view.spent[-1] if len(view.spent) else None
    return last.model if last is not None and (last.turn, last.step) == (turn, step) else ""

"""ledger: tokens of every physical model attempt, each counted once (failed and stopped too).

An attempt that lost to another was still paid for, so this fold also takes outcomes that the
rulings found superseded or late. Usage as normalised by the models role; raw usage stays beside it.
"""

from ...schemas import events as ev
from ...schemas.value import Value
from ..rows import Rows


class Spent(Value):
    """One attempt. outcome: complete, failed or stopped."""

    turn: int
    step: int
    attempt: int
    outcome: str
    model: str
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    response_id: str
    offset: int

    @property
    def key(self) -> tuple[int, int, int]:
        """(turn, step, attempt): what makes a repetition the same attempt."""
        return (self.turn, self.step, self.attempt)


class LedgerView(Value):
    """Rows per attempt and their totals."""

    spent: Rows[Spent]
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0


OUTCOMES = {ev.GenComplete: "complete", ev.GenFailed: "failed", ev.GenStopped: "stopped"}


def _key(row: Spent) -> tuple[int, int, int]:
    return row.key


def initial() -> LedgerView:
    """Nothing spent; made anew because rows share their storage."""
    return LedgerView(Rows(key=_key))


def apply(view: LedgerView, entry) -> LedgerView:
    """The view after an attempt's outcome, whether or not it counted for the conversation."""
    event = entry.event
    outcome = OUTCOMES.get(type(event))
    if outcome is None or event.usage is None:
        return view
    if view.spent.last((event.turn, event.step, event.attempt)) is not None:
        return view
    usage = event.usage
    row = Spent(
        event.turn,
        event.step,
        event.attempt,
        outcome,
        getattr(event, "model", ""),
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_5m_tokens + usage.cache_write_1h_tokens,
        usage.output_tokens,
        getattr(event, "response_id", ""),
        entry.offset,
    )
    return LedgerView(
        view.spent.append(row),
        view.input_tokens + row.input_tokens,
        view.cache_read_tokens + row.cache_read_tokens,
        view.cache_write_tokens + row.cache_write_tokens,
        view.output_tokens + row.output_tokens,
    )

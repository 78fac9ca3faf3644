"""The budget of the next request: its tokens, its compactions, and the background work that is due.

The functions are pure and use only the views and the agent's rules. Adopting a compaction changes
the beginning of later requests, which loses the cache and the signed thinking. The table ADOPT says
when that is worth it. `Budget` computes each part at most once; each wake makes one.
"""

from collections.abc import Callable
from enum import StrEnum
from itertools import product
from typing import Any, Generic, NamedTuple, TypeVar, overload

from ...schemas.enums import WhenBusy
from ...schemas.tokens import NEW, estimate, family_of
from ..fold.cut_points import (
    KEPT_MESSAGES,
    SLIDING,
    SPOKEN,
    answers_calls,
    cut_keeping,
    is_fixed,
    must_think,
    window_size,
    window_start,
)
from ..fold.projections.background import WorkKind, find_work, running_summary
from ..fold.projections.compaction import CompactionView, Summary, in_force, kept_from
from ..fold.projections.context import tokens_for
from ..fold.projections.context_view import Fragment, Request, fragment_tokens
from ..fold.projections.prefixes import Prefix
from ..fold.projections.turn_view import thinking_refused, too_long
from ..fold.refused_content import to_leave_out
from ..fold.views import SessionViews
from ..limits import DEFAULT_LIMITS, Limits

BATCH = 10  # TENTH: 1/10 of the soft budget
SAVED = 5  # FIFTH: 1/5 of the request
COVERED_MIN = 4  # a summary must cover 1/4 of the request
SUMMARY_TOKENS = 2_000  # limit of a summary: 4 % of the soft budget
HEARD = ("user", "reminder")  # fragments that are neither answers nor results
CACHE_LIFE_MS = 300_000  # an unused prefix stays cached this long; changing it later is free


class Rules(NamedTuple):
    """The part of an agent that WAKE reads. `stop_tools`: the tools whose success ends a turn;
    `strategy`: how the context is built; `fixed_thinking`: see `held`; `memory`: whether the agent
    has memory; `family`: the model's family, for counting tokens."""

    limits: Limits = DEFAULT_LIMITS
    stop_tools: frozenset[str] = frozenset()
    strategy: str = "full"
    fixed_thinking: bool = False
    memory: bool = False
    family: str = NEW


class Plan(NamedTuple):
    """The plan of the next request: the strategy and adopted compactions, as in LLM_CALLED, and the
    estimated input tokens. `adopts`: the request is the first to adopt a compaction."""

    strategy: str
    checkpoint: int | None
    compacted_upto: int
    tokens: int
    adopts: bool = False


class Due(NamedTuple):
    """Background work that is due. `worth`: whether the work would save enough tokens to be
    worth its cost. `at`: when the work may begin at the earliest, Unix ms."""

    kind: WorkKind
    upto: int
    worth: bool = True
    at: int = 0


def held(views: SessionViews, rules: Rules) -> Request | None:
    """The last request if the next one must begin with it unchanged, else None.

    With a fixed thinking budget, model, params, strategy and prefix stay the same while a turn
    runs. They also stay the same after a turn that ended with results of calls, until the model has
    responded to these results.
    """
    request = views.context.request
    if request is None or not (rules.fixed_thinking or is_fixed(request.params)):
        return None
    is_bound = views.turn.step > 0 or answers_calls(views.context.fragments)
    return request if is_bound else None


def must_shorten(views: SessionViews) -> bool:
    """Whether the model refused the newest request and will accept only a shorter one."""
    turn, context = views.turn, views.context
    if thinking_refused(turn):
        return must_think(context.request, context.fragments)
    return too_long(turn)


class Over(StrEnum):
    """How the next request exceeds its budget. HARD: also if the model refused it as too long."""

    NO = "no"
    SOFT = "soft"
    HARD = "hard"


class Thinking(StrEnum):
    """Whether the next request must begin with the last one (`held`). COVERED: it must, but the
    candidate covers every answer and result, so that no thinking must be kept."""

    FREE = "free"
    KEPT = "kept"
    COVERED = "covered"


class Least(StrEnum):
    """What adopting a compaction must save at least, in tokens."""

    ANYTHING = "anything"
    TENTH = "tenth"  # of the soft budget
    FIFTH = "fifth"  # of the request, and a tenth of the soft budget


class Adopt(NamedTuple):
    """A row of ADOPT: the next requests to which it applies, and the compactions that they adopt.

    `least`: what the short forms, and what the candidate, must save; None if nothing is adopted.
    `always`: whether the candidate is adopted even if the short forms alone are enough.
    """

    over: tuple[Over, ...]
    cold: tuple[bool, ...]
    thinking: tuple[Thinking, ...]
    least: Least | None
    always: bool
    why: str


NO, SOFT, HARD = Over
FREE, KEPT, COVERED = Thinking
ADOPT = (
    Adopt((NO,), (False,), (FREE, KEPT, COVERED), None, False,
          "it fits, and its beginning is in the cache"),
    Adopt((NO,), (True,), (KEPT, COVERED), None, False,
          "it fits, and signed thinking stays where it is"),
    Adopt((SOFT,), (False, True), (KEPT, COVERED), None, False,
          "signed thinking stays where it is up to the hard budget"),
    Adopt((HARD,), (False, True), (KEPT,), None, False,
          "the model refuses a request without the thinking that it must contain"),
    Adopt((HARD,), (False, True), (FREE, COVERED), Least.ANYTHING, True,
          "it cannot be sent as it is"),
    Adopt((NO, SOFT), (True,), (FREE,), Least.TENTH, True,
          "its beginning left the cache, so changing it costs nothing"),
    Adopt((SOFT,), (False,), (FREE,), Least.FIFTH, False,
          "the loss of the cache must pay; the kept part alone may exceed the soft budget"),
)


_ROW_OF = {
    facts: row for row in ADOPT for facts in product(row.over, row.cold, row.thinking)
}


def plan(views: SessionViews, rules: Rules, prefix: Prefix | None = None) -> Plan:
    """The plan of the next request. `prefix`: the request's prefix, if it is not in force yet."""
    view, before = views.compaction, held(views, rules)
    if before is None:
        strategy, tokens = _window(views, rules, prefix)
    else:
        strategy, tokens = before.strategy, _extended(views, family_of(before.model), prefix)
    tokens = max(0, tokens - _left_out(views))
    if strategy != "compacted":
        return Plan(strategy, None, view.compacted_upto, tokens)
    still = Plan(strategy, view.checkpoint_at, view.compacted_upto, tokens)
    thinking = FREE if before is None else COVERED if _covers_thinking(views) else KEPT
    row = _ROW_OF[_over(views, rules, tokens), is_cold(views), thinking]
    return still if row.least is None else _adopted(views, rules, still, row)


def _over(views: SessionViews, rules: Rules, tokens: int) -> Over:
    if tokens > rules.limits.hard_tokens or must_shorten(views):
        return HARD
    return SOFT if tokens > rules.limits.soft_tokens else NO


def _adopted(views: SessionViews, rules: Rules, still: Plan, row: Adopt) -> Plan:
    """The plan with the compactions that save enough: first the short forms, then the candidate."""
    view, tenth = views.compaction, rules.limits.soft_tokens // BATCH
    fifth = max(tenth, still.tokens // SAVED)
    least = {Least.ANYTHING: 1, Least.TENTH: tenth, Least.FIFTH: fifth, None: 0}[row.least]
    found = still
    if view.waiting >= least:
        left = max(0, still.tokens - view.waiting)
        found = still._replace(compacted_upto=view.shorts[-1].offset, tokens=left, adopts=True)
    candidate = view.candidate
    if candidate is None or not (row.always or found.tokens > rules.limits.soft_tokens):
        return found
    saved = saving(views, candidate, found.compacted_upto)
    if saved < least:
        return found
    left = max(0, found.tokens - saved)
    return found._replace(checkpoint=candidate.offset, tokens=left, adopts=True)


def _left_out(views: SessionViews) -> int:
    """The tokens of the content that the next request leaves out because it was refused."""
    fragments = views.context.fragments
    left = to_leave_out(views.turn, views.context.request, fragments)
    if left is None:
        return 0
    return sum(
        fragment_tokens(fragments, place)
        for place in range(left.begin, left.end)
        if fragments[place].kind not in SPOKEN and not left.keeps(fragments[place])
    )


def _covers_thinking(views: SessionViews) -> bool:
    """Whether the candidate covers every answer and result, so that no thinking must be kept."""
    candidate, fragments = views.compaction.candidate, views.context.fragments
    return candidate is not None and all(
        fragments[place].kind in HEARD for place in range(candidate.kept_from, len(fragments))
    )


def _window(views: SessionViews, rules: Rules, prefix: Prefix | None) -> tuple[str, int]:
    """The strategy and the tokens of the next request before it adopts compactions.

    A window over the hard cap is halved until it fits, because the session could not continue
    otherwise.
    """
    strategy, extended = rules.strategy, _extended(views, rules.family, prefix)
    tokens, size = extended + _moved(views, strategy), window_size(strategy)
    while size is not None and size > 1 and tokens > rules.limits.hard_tokens:
        size //= 2
        strategy = f"{SLIDING}{size}"
        tokens = extended + _moved(views, strategy)
    return strategy, max(0, tokens)


def _moved(views: SessionViews, strategy: str) -> int:
    """The number of tokens by which the next request grows if `strategy` makes it start at another
    fragment than the last request. It is negative if the request shrinks."""
    fragments, last, size = views.context.fragments, views.context.request, window_size(strategy)
    if last is None:
        return 0
    start = kept_from(views.compaction) if strategy == "compacted" else 0
    if size is not None:
        new = [Fragment("user", 0, 0, -1, -1, None)] if _next_messages(views) else []
        start = min(window_start([*fragments, *new], last.start, size), len(fragments))
    if start == last.start:  # nearly always
        return 0
    more, less = (start, last.start), (last.start, start)
    return fragment_tokens(fragments, *more) - fragment_tokens(fragments, *less)


def saving(views: SessionViews, candidate: Summary, compacted_upto: int) -> int:
    """The tokens that the candidate saves compared to the summary in force."""
    view = views.compaction
    begin, end = kept_from(view), candidate.kept_from
    covered = fragment_tokens(views.context.fragments, begin, end)
    covered -= _shorter(view, begin, end, compacted_upto)
    standing = view.checkpoint.tokens if view.checkpoint is not None else 0
    return covered + standing - candidate.tokens


def _shorter(view: CompactionView, begin: int, end: int, compacted_upto: int) -> int:
    """The tokens that short forms in force save in the fragments from `begin` up to, but not
    including, `end`."""
    return sum(
        short.saved
        for short in view.shorts
        if begin <= short.place < end and in_force(view, short.call, compacted_upto)
    )


def _extended(views: SessionViews, counts: str, prefix: Prefix | None) -> int:
    """Estimated tokens of the next request if it extends the last request by everything that came
    after it, including new messages. They are counted for the model family `counts`."""
    rows = (views.messages.received.last(message_id) for message_id in _next_messages(views))
    new = sum(row.tokens_for(counts) for row in rows if row)
    new += sum(estimate(reminder.text, counts) for reminder in views.turn.reminders)
    return tokens_for(views.context, counts, prefix) + new


def _next_messages(views: SessionViews) -> tuple[str, ...]:
    """The ids of the messages that are new in the next request."""
    turn = views.turn
    return (*turn.owned, *(w.message_id for w in turn.queue if w.when_busy == WhenBusy.STEER))


def is_cold(views: SessionViews) -> bool:
    """Whether a turn's first request is due and the cache of the last request has expired."""
    turn = views.turn
    if turn.step > 0 or not turn.owned or views.context.request is None:
        return False
    first = views.messages.received.last(turn.owned[0])
    return first is not None and first.at - views.context.answered_at > CACHE_LIFE_MS


def _tokens_from(views: SessionViews, place: int) -> int:
    """The tokens of the fragments from `place` on, as the next request would contain them."""
    view, end = views.compaction, len(views.context.fragments)
    whole = fragment_tokens(views.context.fragments, place, end)
    return whole - _shorter(view, place, end, view.compacted_upto)


def _grew(views: SessionViews) -> float:
    """By how many tokens the context grew since a summary failed; infinite if none failed."""
    tried = views.background.tried_tokens
    return views.context.fragments[-1].total - tried if tried else float("inf")


T = TypeVar("T")


class Once(Generic[T]):
    """A property that is computed once. The one of functools takes a lock in Python 3.11, and a
    worker makes a budget for every session that it writes."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, budget: None, owner: type) -> "Once[T]": ...

    @overload
    def __get__(self, budget: "Budget", owner: type) -> T: ...

    def __get__(self, budget: Any, owner: type) -> Any:
        if budget is None:  # Budget.works
            return self
        value = budget.__dict__[self._name] = self.compute(budget)
        return value


class Budget:
    """The budget of a session's next request."""

    def __init__(self, views: SessionViews, rules: Rules) -> None:
        self._views, self._rules = views, rules

    @Once
    def plan(self) -> Plan:
        """The plan of the next request."""
        return plan(self._views, self._rules)

    @Once
    def _tokens_with_candidate(self) -> int:
        """Estimated tokens of the next request if it also adopted the candidate."""
        planned, candidate = self.plan, self._views.compaction.candidate
        if candidate is None or planned.checkpoint == candidate.offset:
            return planned.tokens
        saved = saving(self._views, candidate, planned.compacted_upto)
        return planned.tokens - max(0, saved)

    @Once
    def needs_room(self) -> bool:
        """Whether the next request is too long even with the candidate, so that no step can run."""
        too_many = self._tokens_with_candidate > self._rules.limits.hard_tokens
        return too_many or must_shorten(self._views)

    @Once
    def best_cut(self) -> int | None:
        """The cut at which the next summary would end, or None. Everything after it is kept
        verbatim.

        The cut keeps KEPT_MESSAGES messages. If these messages alone are too long for a request,
        the session could never continue, so the cut keeps fewer. It always keeps the messages that
        arrived after the last answer and its results. If the model refused the request as too long
        by its own count (bytes, images), the cut keeps at most half of the tokens.
        """
        views, rules = self._views, self._rules
        fragments, begin = views.context.fragments, kept_from(views.compaction)
        keep, most = KEPT_MESSAGES, rules.limits.hard_tokens
        cut = cut_keeping(fragments, keep, begin)
        if not self.needs_room:
            return cut
        # The tokens of the prefix and of the new messages.
        others = _window(views, rules, None)[1] - _tokens_from(views, begin)
        room = min(most // 2, max(0, most - others - SUMMARY_TOKENS))
        if must_shorten(views):
            room = min(room, _tokens_from(views, begin) // 2)
        while keep > 1 and _tokens_from(views, cut or begin) > room:
            keep //= 2
            cut = cut_keeping(fragments, keep, begin) or cut
        end = len(fragments)
        while end > 0 and fragments[end - 1].kind in HEARD:
            end -= 1
        too_long = _tokens_from(views, cut or begin) > room or held(views, rules) is not None
        if too_long and (cut or begin) < end < len(fragments):
            return end
        return cut

    @Once
    def works(self) -> list[Due]:
        """The background work that is due and not claimed."""
        view, turn, rules = self._views.background, self._views.turn, self._rules
        if turn.closing is not None:
            return []
        due = []
        if rules.strategy == "compacted":
            due = [
                Due(WorkKind.RESULT, large.upto)
                for large in view.results
                if large.tokens >= rules.limits.short_tokens
                and find_work(view, WorkKind.RESULT, large.upto) is None
            ]
            summary = self._summary_due()
            due += [summary] if summary is not None else []
        is_idle = rules.memory and not turn.open and view.idle_at > view.remembered_upto
        if is_idle and not any(work.kind is WorkKind.MEMORY for work in view.works):
            due.append(Due(WorkKind.MEMORY, view.idle_at, at=view.memory_at))
        return due

    def _summary_due(self) -> Due | None:
        views, limits = self._views, self._rules.limits
        view, turn, fragments = views.background, views.turn, views.context.fragments
        if not len(fragments) or running_summary(view):
            return None
        limit = limits.soft_tokens if turn.open else limits.resume_tokens
        candidate, tokens = views.compaction.candidate, self._tokens_with_candidate
        if tokens <= limit and not self.needs_room:
            return None
        least = 1 if self.needs_room else limits.soft_tokens // BATCH
        upto = fragments[-1].offset
        if upto <= view.tried_upto or _grew(views) < least:
            return None
        cut = self.best_cut
        begin = candidate.kept_from if candidate is not None else kept_from(views.compaction)
        covered = fragment_tokens(fragments, begin, cut) if cut is not None else 0
        enough = max(least + SUMMARY_TOKENS, tokens // COVERED_MIN)
        worth = covered >= (least if self.needs_room else enough)
        if candidate is not None and not worth:
            return None  # there is a candidate, and a newer one would cover little more
        return Due(WorkKind.CONTEXT if turn.open else WorkKind.RESUME, upto, worth)

    def may_still_come(self, now: int) -> bool:
        """Whether a step that is too long may still wait for a summary."""
        views, rules = self._views, self._rules
        until = views.turn.due_at + rules.limits.candidate_wait_ms
        if rules.strategy != "compacted" or now >= until:
            return False
        running = any(work.kind is not WorkKind.MEMORY for work in views.background.works)
        return running or any(
            due.worth and due.kind is not WorkKind.MEMORY for due in self.works
        )

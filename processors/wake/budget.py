"""The budget of the next request: its tokens, its compactions, and the background work that is due.

The functions are pure and use only the views and the agent's rules. Adopting a compaction changes
the beginning of later requests, which loses the cache and the signed thinking. So compactions are
adopted in batches, and only over the soft budget or when the cache is cold.
"""

from typing import NamedTuple

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

BATCH = 10  # adopting must save 1/10 of the soft budget, to be worth the loss of the cache
SAVED = 5  # and 1/5 of the request, because the kept part alone may exceed the soft budget
COVERED = 4  # a summary must cover 1/4 of the request
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


def plan(views: SessionViews, rules: Rules, prefix: Prefix | None = None) -> Plan:
    """The plan of the next request. `prefix`: the request's prefix, if it is not in force yet."""
    view = views.compaction
    before = held(views, rules)
    if before is None:
        strategy, tokens = _window(views, rules, prefix)
    else:
        strategy, tokens = before.strategy, _extended(views, family_of(before.model), prefix)
    tokens = max(0, tokens - _left_out(views))
    compacted = strategy == "compacted"
    standing = view.checkpoint_at if compacted else None
    still = Plan(strategy, standing, view.compacted_upto, tokens)
    must = tokens > rules.limits.hard_tokens or must_shorten(views)
    wants = must or tokens > rules.limits.soft_tokens or is_cold(views)
    if not compacted or not wants:
        return still
    if before is not None and not (must and _covers_thinking(views)):
        return still
    cold = is_cold(views)
    least = 1 if must else max(rules.limits.soft_tokens // BATCH, 0 if cold else tokens // SAVED)
    found = still
    if view.waiting >= least:
        left = max(0, tokens - view.waiting)
        found = still._replace(compacted_upto=view.shorts[-1].offset, tokens=left, adopts=True)
    candidate = view.candidate
    if candidate is not None:
        saved = saving(views, candidate, found.compacted_upto)
        enough = found.tokens <= rules.limits.soft_tokens and not cold
        if saved >= least and (must or not enough):
            left = max(0, found.tokens - saved)
            found = found._replace(checkpoint=candidate.offset, tokens=left, adopts=True)
    return found


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


def needs_room(views: SessionViews, rules: Rules) -> bool:
    """Whether the next request is too long even with the candidate, so that no step can run."""
    return _with_candidate(views, rules) > rules.limits.hard_tokens or must_shorten(views)


def best_cut(views: SessionViews, rules: Rules) -> int | None:
    """The cut at which the next summary would end, or None. Everything after it is kept verbatim.

    The cut keeps KEPT_MESSAGES messages. If these messages alone are too long for a request, the
    session could never continue, so the cut keeps fewer. It always keeps the messages that arrived
    after the last answer and its results. If the model refused the request as too long by its own
    count (bytes, images), the cut keeps at most half of the tokens.
    """
    fragments, begin = views.context.fragments, kept_from(views.compaction)
    keep, most = KEPT_MESSAGES, rules.limits.hard_tokens
    cut = cut_keeping(fragments, keep, begin)
    if not needs_room(views, rules):
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


def _tokens_from(views: SessionViews, place: int) -> int:
    """The tokens of the fragments from `place` on, as the next request would contain them."""
    view, end = views.compaction, len(views.context.fragments)
    whole = fragment_tokens(views.context.fragments, place, end)
    return whole - _shorter(view, place, end, view.compacted_upto)


def due_works(views: SessionViews, rules: Rules) -> list[Due]:
    """The background work that is due and not claimed."""
    view, turn = views.background, views.turn
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
        summary = _summary_due(views, rules)
        due += [summary] if summary is not None else []
    is_idle = rules.memory and not turn.open and view.idle_at > view.remembered_upto
    if is_idle and not any(work.kind is WorkKind.MEMORY for work in view.works):
        due.append(Due(WorkKind.MEMORY, view.idle_at, at=view.memory_at))
    return due


def _summary_due(views: SessionViews, rules: Rules) -> Due | None:
    view, turn, fragments = views.background, views.turn, views.context.fragments
    if not len(fragments) or running_summary(view):
        return None
    limit = rules.limits.soft_tokens if turn.open else rules.limits.resume_tokens
    candidate, tokens = views.compaction.candidate, _with_candidate(views, rules)
    must = tokens > rules.limits.hard_tokens or must_shorten(views)
    if tokens <= limit and not must:
        return None
    least = 1 if must else rules.limits.soft_tokens // BATCH
    upto = fragments[-1].offset
    if upto <= view.tried_upto or _grew(views) < least:
        return None
    cut = best_cut(views, rules)
    begin = candidate.kept_from if candidate is not None else kept_from(views.compaction)
    covered = fragment_tokens(fragments, begin, cut) if cut is not None else 0
    worth = covered >= (least if must else max(least + SUMMARY_TOKENS, tokens // COVERED))
    if candidate is not None and not worth:
        return None  # there is a candidate, and a newer one would cover little more
    return Due(WorkKind.CONTEXT if turn.open else WorkKind.RESUME, upto, worth)


def _with_candidate(views: SessionViews, rules: Rules) -> int:
    """Estimated tokens of the next request if it also adopted the candidate."""
    planned, candidate = plan(views, rules), views.compaction.candidate
    if candidate is None or planned.checkpoint == candidate.offset:
        return planned.tokens
    return planned.tokens - max(0, saving(views, candidate, planned.compacted_upto))


def _grew(views: SessionViews) -> float:
    """By how many tokens the context grew since a summary failed; infinite if none failed."""
    tried = views.background.tried_tokens
    return views.context.fragments[-1].total - tried if tried else float("inf")


def may_still_come(views: SessionViews, rules: Rules, now: int) -> bool:
    """Whether a step that is too long may still wait for a summary."""
    if rules.strategy != "compacted" or now >= views.turn.due_at + rules.limits.candidate_wait_ms:
        return False
    running = any(work.kind is not WorkKind.MEMORY for work in views.background.works)
    return running or any(
        due.worth and due.kind is not WorkKind.MEMORY for due in due_works(views, rules)
    )

"""The budget of the next request: what it would weigh, what it would adopt, what work is due.

Pure, from the views and the agent's rules. Adopting moves the prefix and so costs the cache and
the signed thinking: it is done over the soft budget or when the cache is cold, and in batches.
"""

from typing import NamedTuple

from ..schemas.tokens import estimate
from .cuts import KEPT_MESSAGES, answers_calls, cut_keeping, is_fixed
from .limits import DEFAULT_LIMITS, Limits
from .projections.background import find_work, summary_runs
from .projections.compaction import CompactionView, Summary, in_force, kept_from
from .projections.context import Request, estimated_tokens, fragment_tokens
from .projections.turn_view import too_long

BATCH = 10  # adopting must save a tenth of the soft budget: less is not worth the cached prefix
SUMMARY_TOKENS = 2_000  # of a summary at most: 4 % of the soft budget
CACHE_LIFE_MS = 300_000  # of a prefix that no request used: after that, moving it costs nothing


class Rules(NamedTuple):
    """What an agent brings to the table: its limits, the tools whose success ends a turn, and how
    its context is built. `fixed_thinking`: see `held`."""

    limits: Limits = DEFAULT_LIMITS
    stop_tools: frozenset[str] = frozenset()
    strategy: str = "full"
    fixed_thinking: bool = False
    memory: bool = False


class Plan(NamedTuple):
    """The next request: what it adopts, as in LLM_CALLED, and its estimated input tokens."""

    checkpoint: int | None
    compacted_upto: int
    tokens: int
    adopts: bool = False


class Due(NamedTuple):
    """Background work that is due. `worth`: there is enough to leave out."""

    kind: str
    upto: int
    worth: bool = True


def held(views, rules: Rules) -> Request | None:
    """The request that the next one must go on with as it is, or None where it may move.

    With a fixed thinking budget model, params, strategy and prefix stay while a turn runs, and
    while calls are answered that an ended turn left.
    """
    request = views.context.request
    if request is None or not (rules.fixed_thinking or is_fixed(request.params)):
        return None
    runs = views.turn.step > 0 or answers_calls(views.context.fragments)
    return request if runs else None


def plan(views, rules: Rules) -> Plan:
    """The next request as the rules would have it."""
    view = views.compaction
    tokens = estimated_tokens(views.context) + _unsaid(views)
    before = held(views, rules)
    compacted = (rules.strategy if before is None else before.strategy) == "compacted"
    standing = view.checkpoint.offset if compacted and view.checkpoint is not None else None
    still = Plan(standing, view.compacted_upto, tokens)
    must = tokens > rules.limits.hard_tokens or too_long(views.turn)
    wants = must or tokens > rules.limits.soft_tokens or is_cold(views)
    if not compacted or not wants or before is not None:
        return still
    least = 1 if must else rules.limits.soft_tokens // BATCH
    found = still
    if view.waiting >= least:
        found = Plan(standing, view.shorts[-1].offset, tokens - view.waiting, True)
    if view.candidate is not None:
        saved = saving(views, view.candidate, found.compacted_upto)
        enough = found.tokens <= rules.limits.soft_tokens and not is_cold(views)
        if saved >= least and (must or not enough):
            left = max(0, found.tokens - saved)
            found = Plan(view.candidate.offset, found.compacted_upto, left, True)
    return found


def saving(views, candidate: Summary, compacted_upto: int) -> int:
    """Tokens that a request with this summary has less than one with the standing one."""
    view = views.compaction
    begin, end = kept_from(view), candidate.kept_from
    covered = fragment_tokens(views.context.fragments, begin, end)
    covered -= _shorter(view, begin, end, compacted_upto)
    standing = view.checkpoint.tokens if view.checkpoint is not None else 0
    return covered + standing - candidate.tokens


def _shorter(view: CompactionView, begin: int, end: int, compacted_upto: int) -> int:
    """What the short forms in force save of a stretch of fragments."""
    return sum(
        short.saved
        for short in view.shorts
        if begin <= short.place < end and in_force(view, short.call, compacted_upto)
    )


def _unsaid(views) -> int:
    """Estimated tokens of what the next request would say first."""
    turn = views.turn
    said = (*turn.owned, *(w.message_id for w in turn.queue if w.when_busy == "steer"))
    rows = (views.messages.received.last(message_id) for message_id in said)
    reminded = sum(estimate(reminder.text) for reminder in turn.reminders)
    return sum(row.tokens for row in rows if row) + reminded


def is_cold(views) -> bool:
    """Whether the first request of a turn comes when the last one's prefix is no longer cached."""
    turn = views.turn
    if turn.step > 0 or not turn.owned or views.context.request is None:
        return False
    first = views.messages.received.last(turn.owned[0])
    return first is not None and first.at - views.context.answered_at > CACHE_LIFE_MS


def best_cut(views) -> int | None:
    """Where the next summary would end, or None: it keeps the newest messages as they are."""
    return cut_keeping(views.context.fragments, KEPT_MESSAGES, kept_from(views.compaction))


def due_works(views, rules: Rules) -> list[Due]:
    """The background work that the views owe and nobody has claimed."""
    view, turn = views.background, views.turn
    if turn.closing is not None:
        return []
    due = []
    if rules.strategy == "compacted":
        due = [
            Due("result", large.upto)
            for large in view.results
            if large.tokens >= rules.limits.short_tokens
            and find_work(view, "result", large.upto) is None
        ]
        summary = _summary_due(views, rules)
        due += [summary] if summary is not None else []
    extracted = any(work.kind == "memory" for work in view.works)
    if rules.memory and not turn.open and view.idle_at > view.remembered_upto and not extracted:
        due.append(Due("memory", view.idle_at))
    return due


def _summary_due(views, rules: Rules) -> Due | None:
    view, turn, fragments = views.background, views.turn, views.context.fragments
    if not len(fragments) or summary_runs(view):
        return None
    limit = rules.limits.soft_tokens if turn.open else rules.limits.resume_tokens
    tokens, candidate = _with_candidate(views, rules), views.compaction.candidate
    must = tokens > rules.limits.hard_tokens or too_long(turn)
    if tokens <= limit and not must:
        return None
    least = 1 if must else rules.limits.soft_tokens // BATCH
    upto = fragments[-1].offset
    if upto <= view.tried_upto or _grew(views) < least:
        return None
    cut = best_cut(views)
    begin = candidate.kept_from if candidate is not None else kept_from(views.compaction)
    covered = fragment_tokens(fragments, begin, cut) if cut is not None else 0
    worth = covered >= (least if must else least + SUMMARY_TOKENS)
    if candidate is not None and not worth:
        return None  # there is one already, and a newer one would say little more
    return Due("context" if turn.open else "resume", upto, worth)


def _with_candidate(views, rules: Rules) -> int:
    """Estimated tokens of the next request if it adopted whatever is ready."""
    planned, candidate = plan(views, rules), views.compaction.candidate
    if candidate is None or planned.checkpoint == candidate.offset:
        return planned.tokens
    return planned.tokens - max(0, saving(views, candidate, planned.compacted_upto))


def _grew(views) -> float:
    """By how many tokens the context grew since a summary was tried in vain."""
    tried = views.background.tried_tokens
    return estimated_tokens(views.context) - tried if tried else float("inf")


def may_still_come(views, rules: Rules, now: int) -> bool:
    """Whether a step that is too long may wait for a summary: one is made or due, and in time."""
    if now >= views.turn.due_at + rules.limits.candidate_wait_ms:
        return False
    due = _summary_due(views, rules) if rules.strategy == "compacted" else None
    return bool(summary_runs(views.background)) or (due is not None and due.worth)

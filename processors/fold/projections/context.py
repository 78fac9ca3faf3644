"""context: the conversation for the model, as verbatim fragments in order. Only RESULT_REPLACED
rewrites one, before a request contains it.

A request is a function of these rows up to a position (processors/request/). Fragments keep the
bytes as received. The builder of a request decides what the request leaves out (an unfinished
tool_use, unsigned thinking) and never changes the rows.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import assert_never, get_args

from ....schemas import events as ev
from ....schemas.bounds import REQUEST_TOKENS_MAX, SUM_MAX
from ....schemas.codec import Entry
from ....schemas.enums import Decision, EndReason
from ....schemas.tokens import NEW, believed, estimate_size, family_of, raised
from ....schemas.value import replace
from ..cut_points import answers_calls, is_fixed, must_think, window_size, window_start
from ..refused_content import to_leave_out
from ..rows import Rows
from .compaction import CompactionView
from .context_view import (
    ContextView,
    Fragment,
    LeftOut,
    Request,
    fragment_tokens,
    place_of_call,
)
from .messages import MessagesView, body_size
from .prefixes import Prefix, heavier, prefix_of, standing
from .session_state import SessionState, triggered
from .turn import resolution_text
from .turn_view import (
    BUDGET_EXCEEDED,
    FILE_REFUSED,
    HAPPENED,
    OK,
    PARTS,
    TurnView,
    call_of,
    calls_of,
    closed,
    is_open,
)

REFUSAL, DENY = EndReason.REFUSAL, Decision.DENY  # see turn_view.py
DENIED = "Not run: the user denied this call."
EXPIRED = "Not run: nobody allowed this call in time."
CANCELLED = "Not run: the turn was ending when the model asked for this."

ResultEvent = (
    ev.ToolInvoked | ev.ToolResult | ev.ApprovalDecided | ev.ApprovalExpired | ev.HumanResolved
)
Reads = (
    ev.ContextSet
    | ev.LlmCalled
    | ev.GenComplete
    | ev.GenFailed
    | ev.GenStopped
    | ev.TurnEnded
    | ev.ResultReplaced
    | ResultEvent
)
READS = frozenset(get_args(Reads))


def initial() -> ContextView:
    """An empty context; a new value each time, because rows share storage."""
    return ContextView(Rows(), Rows())


def estimated_tokens(view: ContextView) -> int:
    """Estimated input tokens of the next request, counted for the model family `view.counts`."""
    return _measured(view) + view.tail_tokens


def _measured(view: ContextView) -> int:
    """`anchor_tokens`, but our own estimate of the same content if the provider's count is absurd.
    The view keeps the count as it came. Our estimate does not include a summary at the beginning of
    the request. That is harmless, because a summary is smaller than the difference that we
    accept."""
    if view.request is None:
        return view.anchor_tokens
    prefix, fragments = standing(view.prefixes), view.fragments
    own = 0 if prefix is None else prefix.tokens(view.counts)
    own += fragment_tokens(fragments, view.request.start, len(fragments)) - view.tail_tokens
    return believed(view.anchor_tokens, max(0, own))


def tokens_for(view: ContextView, counts: str, prefix: Prefix | None = None) -> int:
    """Estimated input tokens of the next request, counted for the model family `counts`. `prefix`:
    the prefix of that request, if it is not in force yet."""
    if view.request is None:  # no response was measured: everything is estimated
        first = prefix or standing(view.prefixes)
        return (0 if first is None else first.tokens(counts)) + view.tail_tokens
    measured = family_of(view.request.model)
    anchor = _measured(view)
    if prefix is not None:
        anchor = _anchor(view, anchor, prefix, measured)
    return raised(anchor + view.tail_tokens, measured, counts)


def _anchor(view: ContextView, anchor: int, prefix: Prefix, counts: str) -> int:
    """The value that `anchor` would have with another prefix in the last request. The difference
    between the two prefixes is an estimate and may be too low, so the result is never less than the
    tokens of the new prefix."""
    moved = heavier(standing(view.prefixes), prefix, counts)
    return max(prefix.tokens(counts), anchor + moved)


def apply(
    view: ContextView,
    entry: Entry,
    before: TurnView,
    messages: MessagesView,
    state: SessionState,
    compaction: CompactionView,
) -> ContextView:
    """The view after an accepted event; the arguments are the views before it."""
    event: Reads = entry.event
    match event:
        case ev.LlmCalled():
            return _called(view, entry, event, before, messages, compaction)
        case ev.GenComplete():
            return _completed(view, entry, event, before)
        case ev.TurnEnded():
            return _ended(view, entry, event, before, messages)
        case ev.ContextSet():
            return _prefix(view, entry, event)
        case ev.GenFailed():
            return _failed(view, entry, event)
        case ev.ResultReplaced():
            return _replaced(view, event, compaction)
        case ev.GenStopped():
            if before.closing is None:
                return view
            place = (event.turn, event.step, -1, entry.offset)
            return _add(view, Fragment("partial", *place, event.content))
        case _:
            fragment = _result(entry, event, before, state)
            return view if fragment is None else _add(view, fragment)


def _weight(fragment: Fragment, counts: str) -> int:
    size = len(fragment.text.encode())
    if fragment.body is not None and fragment.kind == "result":
        return estimate_size(size + len(fragment.body.inline or b""), counts)
    whole = body_size(fragment.body) if fragment.body is not None else 0
    return estimate_size(size + whole, counts)


def _grown(rows: Rows[Fragment], fragments: Iterable[Fragment], counts: str) -> Rows[Fragment]:
    """The rows with these fragments appended, each with the running total of tokens."""
    total, added = rows[-1].total if len(rows) else 0, []
    for fragment in fragments:
        total = min(SUM_MAX, total + (fragment.total or _weight(fragment, counts)))
        added.append(replace(fragment, total=total))
    return rows.append(*added)


def _add(view: ContextView, *fragments: Fragment) -> ContextView:
    if not fragments:
        return view
    rows = _grown(view.fragments, fragments, view.counts)
    tail = fragment_tokens(rows, len(view.fragments), len(rows))
    return replace(view, fragments=rows, tail_tokens=view.tail_tokens + tail)


def _prefix(view: ContextView, entry: Entry, event: ev.ContextSet) -> ContextView:
    prefix = prefix_of(event, entry.offset)
    return replace(
        view,
        prefixes=view.prefixes.append(prefix),
        prefix_sha=event.sha256,
        anchor_tokens=_anchor(view, view.anchor_tokens, prefix, view.counts),
    )


def _messages(
    entry: Entry, turn: int, step: int, ids: tuple[str, ...], messages: MessagesView, counts: str
) -> list[Fragment]:
    """The messages with these ids, as fragments of a step, in the order received."""
    found = map(messages.received.last, ids)
    rows = [row for row in found if row is not None]
    assert len(rows) == len(ids), "a message in a request was received"
    rows.sort(key=attrgetter("offset"))
    place = (turn, step, -1, entry.offset)
    return [Fragment("user", *place, row.content, total=row.tokens_for(counts)) for row in rows]


_shape = attrgetter("prefixes", "start", "checkpoint", "compacted_upto")


def _called(
    view: ContextView,
    entry: Entry,
    event: ev.LlmCalled,
    before: TurnView,
    messages: MessagesView,
    compaction: CompactionView,
) -> ContextView:
    last, first_new = view.request, len(view.fragments)
    left_out = _left_out(view, before, event)
    size, prefix = window_size(event.strategy), standing(view.prefixes)
    weighed = prefix is not None and prefix.is_weighed
    counts = family_of(event.model) if weighed else NEW
    start_is_fixed = size is not None and is_fixed(event.params)
    start_is_fixed = start_is_fixed and (event.step > 1 or answers_calls(view.fragments))
    included = _messages(entry, event.turn, event.step, event.includes, messages, counts)
    texts = {reminder.reminder_id: reminder.text for reminder in before.reminders}
    reminders = [
        Fragment("reminder", event.turn, event.step, -1, entry.offset, None, texts[reminder_id])
        for reminder_id in event.reminders
    ]
    other = counts != view.counts
    view = _add(replace(view, counts=counts) if other else view, *included, *reminders)
    start = 0
    if event.checkpoint is not None:
        summary = compaction.summaries.last(event.checkpoint)
        assert summary is not None, "a request names a summary in the log"
        start = summary.kept_from
    elif size is not None:
        start = last.start if last else 0
        if not start_is_fixed:
            start = window_start(view.fragments, start, size)
    shape = (len(view.prefixes), start, event.checkpoint, event.compacted_upto)
    moved = last is None or shape != _shape(last)
    request = Request(
        event.turn,
        event.step,
        len(view.fragments),
        len(view.prefixes),
        event.model,
        event.params,
        event.strategy,
        entry.offset,
        start,
        first_new if moved or last is None else last.bound_from,
        event.checkpoint,
        event.compacted_upto,
        last.files_after if last else -1,
        left_out,
    )
    view = replace(view, request=request)
    planned = last is not None or weighed  # the plan knew the tokens of the prefix
    differs = moved or other or (last is not None and left_out != last.left_out)
    if differs and planned:  # the last response's tokens do not apply to this request
        return replace(view, anchor_tokens=event.prompt_tokens, tail_tokens=0)
    return view


def _left_out(
    view: ContextView, before: TurnView, event: ev.LlmCalled
) -> tuple[LeftOut, ...]:
    """The content that the request of a step leaves out."""
    last = view.request
    adopted = (event.checkpoint, event.compacted_upto)
    shortened = last is not None and adopted != (last.checkpoint, last.compacted_upto)
    more = to_leave_out(before, last, view.fragments, shortened=shortened)
    known = last.left_out if last is not None else ()
    end = len(view.fragments) if more is None else more.begin
    kept = tuple([one for one in known if one.accepted and one.begin < end])
    return kept if more is None else (*kept, more)


def all_input(usage: ev.Usage) -> int:
    """All input tokens of an attempt, cached or not."""
    return sum(usage.counts[:-1])


def _failed(view: ContextView, entry: Entry, event: ev.GenFailed) -> ContextView:
    """The view after the model refused a part of the request. Later requests leave out the thinking
    of all answers so far, unless they must repeat it. After FILE_REFUSED, later requests also leave
    out all files so far. Thinking must then be left out because the provider signed it for requests
    with these files."""
    request = view.request
    if event.error not in PARTS or request is None:
        return view
    if event.error == FILE_REFUSED:
        request = replace(request, files_after=entry.offset)
    if not must_think(request, view.fragments):  # otherwise only a summary in their place can help
        request = replace(request, bound_from=len(view.fragments))
    return replace(view, request=request)


def _completed(
    view: ContextView, entry: Entry, event: ev.GenComplete, before: TurnView
) -> ContextView:
    used = all_input(event.usage)
    last = used + event.usage.counts[-1]
    refused = event.stop_reason == REFUSAL
    measured = used if refused else last
    if measured > REQUEST_TOKENS_MAX:  # impossible: keep the earlier estimate
        measured = 0
    rows = view.fragments
    if not refused:
        place = (event.turn, event.step, -1, entry.offset)
        answer = Fragment("assistant", *place, event.content, stop_reason=event.stop_reason)
        rows = _grown(rows, [answer], view.counts)
    request = view.request
    if request is not None and refused:
        request = replace(request, refused=bool(event.refusal_category))
    elif request is not None and request.left_out and not request.left_out[-1].accepted:
        last_left_out = replace(request.left_out[-1], accepted=True)
        request = replace(request, left_out=(*request.left_out[:-1], last_left_out))
    view = replace(
        view,
        request=request,
        fragments=rows,
        anchor_tokens=measured or view.anchor_tokens,
        tail_tokens=0,
        last_step_tokens=last,
        answered_at=entry.at,
    )
    if before.closing is None:
        return view
    results = []
    for call in calls_of(event):
        place = (event.turn, event.step, call.index, entry.offset)
        results.append(Fragment("result", *place, None, CANCELLED, call.call_id, error=True))
    return _add(view, *results)


def _ended(
    view: ContextView,
    entry: Entry,
    event: ev.TurnEnded,
    before: TurnView,
    messages: MessagesView,
) -> ContextView:
    results = []
    for call in before.calls:
        after = closed(call)
        if after is not None:
            place = (call.turn, call.step, call.index, entry.offset)
            results.append(Fragment("result", *place, None, after[1], call.call_id, error=True))
    if before.terminated:
        return _add(view, *results)
    # The messages of the turn that no request has contained.
    unsent = _messages(entry, before.number, before.step, before.owned, messages, view.counts)
    if event.reason == BUDGET_EXCEEDED:
        tokens = sum(fragment.total or _weight(fragment, view.counts) for fragment in unsent)
        unsent = [] if _outweighs(view, tokens, event.limit) else unsent
    return _add(view, *results, *unsent)


def _outweighs(view: ContextView, tokens: int, limit: int | None) -> bool:
    """Whether messages that exceeded the budget would exceed it in later requests too. This is so
    if the messages have more tokens than the rest of the conversation, or if the messages and the
    prefix fill more than nine tenths of `limit`."""
    prefix = standing(view.prefixes)
    if prefix is None or not prefix.is_weighed:  # old logs must fold as before
        return tokens > view.anchor_tokens + view.tail_tokens
    start = view.request.start if view.request is not None else 0
    others = fragment_tokens(view.fragments, start, len(view.fragments))
    least = prefix.tokens(view.counts) + tokens
    return tokens > others or (limit is not None and least > limit * 9 // 10)


def _replaced(
    view: ContextView, event: ev.ResultReplaced, compaction: CompactionView
) -> ContextView:
    place, rows = place_of_call(view, event.call), view.fragments
    assert place is not None, "a result that is replaced is in the context"
    is_error = event.outcome != OK
    new = replace(rows[place], body=event.content, text="", error=is_error, total=event.tokens)
    rest = [
        replace(rows[later], total=fragment_tokens(rows, later))
        for later in range(place + 1, len(rows))
    ]
    grown = _grown(rows.upto(place), [new, *rest], view.counts)
    short = compaction.shorts.last(event.call)  # it no longer counts, see compaction.py
    more = grown[-1].total - rows[-1].total + (0 if short is None else short.saved)
    return replace(view, fragments=grown, tail_tokens=max(0, view.tail_tokens + more))


def _result(
    entry: Entry, event: ResultEvent, before: TurnView, state: SessionState
) -> Fragment | None:
    """The fragment with the result of a call of the running turn, or None if the event does not end
    such a call."""
    if isinstance(event, ev.ToolInvoked) and event.outcome is None:
        return None
    call = call_of(before, event)
    if call is None or call not in before.calls or not is_open(call):
        return None  # the model has a result; it gets later news as a reminder
    body, text, error, tokens = None, "", True, 0
    match event:
        case ev.ToolInvoked():
            body, error = event.content, event.outcome != OK
        case ev.ToolResult():
            _, refusals = triggered(state, before, event)
            text = "".join(f"\n{refusal.detail}" for refusal in refusals)
            body, error, tokens = event.content, event.outcome != OK, event.tokens
        case ev.ApprovalDecided():
            if event.decision != DENY:
                return None
            text = DENIED
        case ev.ApprovalExpired():
            text = EXPIRED
        case ev.HumanResolved():
            text, error = resolution_text(event), event.outcome != HAPPENED
        case _:
            assert_never(event)
    place = (call.turn, call.step, call.index, entry.offset)
    return Fragment("result", *place, body, text, call.call_id, error, total=tokens)

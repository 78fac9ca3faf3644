"""context: what the model may be shown, as verbatim fragments in order, never rewritten.

A request is a function of these rows up to a point (processors/context/). Fragments hold bytes as
they came: what is left out of a request (a refused answer, an unfinished tool_use, unsigned
thinking) is decided when it is built, by rules that do not change the rows.
"""

from operator import attrgetter

from ...schemas import events as ev
from ...schemas.value import Value, replace
from ..rows import Rows
from .messages import MessagesView
from .session_state import SessionState, triggered
from .turn import told
from .turn_view import TurnView, call_of, calls_of, closed

CHARS_PER_TOKEN = 2.6  # the new model family's measured ratio on prose; a little low on code
DENIED = "Not run: the user denied this call."
EXPIRED = "Not run: nobody allowed this call in time."
CANCELLED = "Not run: the turn was ending when the model asked for this."


class Fragment(Value):
    """One piece of the conversation. kind: user, reminder, assistant, partial, result.

    `text` is a reminder, a result made by the fold, or what is appended to a result's body.
    """

    kind: str
    turn: int
    step: int
    index: int
    offset: int
    body: ev.Body | None
    text: str = ""
    call_id: str = ""
    error: bool = False
    stop_reason: str = ""


class Prefix(Value):
    """A static prefix: system prompt and tools, as JSON."""

    sha256: str
    system: ev.Body
    tools: ev.Body
    offset: int


class Request(Value):
    """A step's request: how many fragments it covers, and what else it names."""

    turn: int
    step: int
    fragments: int
    prefixes: int
    model: str
    params: bytes
    strategy: str
    offset: int


class ContextView(Value):
    """Fragments and prefixes, the newest request, and what they weigh in tokens.

    `anchor_tokens`: all input and output of the last response; `tail_tokens`: the estimate of
    what came after it. `last_step_tokens` is constraint 5.
    """

    fragments: Rows[Fragment]
    prefixes: Rows[Prefix]
    request: Request | None = None
    prefix_sha: str = ""
    anchor_tokens: int = 0
    tail_tokens: int = 0
    last_step_tokens: int = 0


READS = frozenset(
    {
        ev.ContextSet,
        ev.LlmCalled,
        ev.GenComplete,
        ev.GenStopped,
        ev.TurnEnded,
        ev.ToolInvoked,
        ev.ToolResult,
        ev.ApprovalDecided,
        ev.ApprovalExpired,
        ev.HumanResolved,
    }
)


def initial() -> ContextView:
    """An empty context; made anew because rows share their storage."""
    return ContextView(Rows(), Rows())


def estimated_tokens(view: ContextView) -> int:
    """Estimated input tokens of the next request."""
    return view.anchor_tokens + view.tail_tokens


def tokens_of(size: int) -> int:
    """Estimated tokens of so many characters or bytes."""
    return int(size / CHARS_PER_TOKEN) + 1


def apply(
    view: ContextView,
    entry,
    before: TurnView,
    messages: MessagesView,
    state: SessionState,
) -> ContextView:
    """The view after an accepted event; the other views are those before it."""
    event = entry.event
    match event:
        case ev.LlmCalled():
            return _called(view, entry, event, before, messages)
        case ev.GenComplete():
            return _completed(view, entry, event, before)
        case ev.TurnEnded():
            return _ended(view, entry, before, messages)
        case ev.ContextSet():
            return _prefix(view, entry, event)
        case ev.ToolInvoked(outcome=None):
            return view
        case ev.GenStopped():
            if before.closing is None:
                return view
            place = (event.turn, event.step, -1, entry.offset)
            return _add(view, Fragment("partial", *place, event.content))
    fragment = _result(entry, event, before, state)
    return view if fragment is None else _add(view, fragment)


def _weight(fragment: Fragment) -> int:
    size = len(fragment.text.encode())
    if fragment.body is not None:
        size += len(fragment.body.inline or b"")
        if fragment.body.ref is not None and fragment.kind != "result":
            size += fragment.body.ref.bytes
    return tokens_of(size)


def _add(view: ContextView, *fragments: Fragment) -> ContextView:
    tail = view.tail_tokens
    for fragment in fragments:
        tail += _weight(fragment)
    return replace(view, fragments=view.fragments.append(*fragments), tail_tokens=tail)


def _prefix(view: ContextView, entry, event: ev.ContextSet) -> ContextView:
    prefix = Prefix(event.sha256, event.system, event.tools, entry.offset)
    anchor = view.anchor_tokens
    if not len(view.prefixes):
        bodies = (event.system, event.tools)
        sizes = [len(b.inline or b"") + (b.ref.bytes if b.ref else 0) for b in bodies]
        anchor += tokens_of(sum(sizes))
    return replace(
        view, prefixes=view.prefixes.append(prefix), prefix_sha=event.sha256, anchor_tokens=anchor
    )


def _said(entry, turn: int, step: int, ids, messages: MessagesView) -> list[Fragment]:
    rows = [messages.received.last(message_id) for message_id in ids]
    assert None not in rows, "a message that is said was received"
    rows.sort(key=attrgetter("offset"))
    return [Fragment("user", turn, step, -1, entry.offset, row.content) for row in rows]


def _called(
    view: ContextView, entry, event: ev.LlmCalled, before: TurnView, messages: MessagesView
) -> ContextView:
    said = _said(entry, event.turn, event.step, event.includes, messages)
    texts = {reminder.reminder_id: reminder.text for reminder in before.reminders}
    reminders = [
        Fragment("reminder", event.turn, event.step, -1, entry.offset, None, texts[reminder_id])
        for reminder_id in event.reminders
    ]
    view = _add(view, *said, *reminders)
    request = Request(
        event.turn,
        event.step,
        len(view.fragments),
        len(view.prefixes),
        event.model,
        event.params,
        event.strategy,
        entry.offset,
    )
    return replace(view, request=request)


def all_input(usage: ev.Usage) -> int:
    """Every input token of an attempt, cached or not."""
    return (
        usage.input_tokens
        + usage.cache_read_tokens
        + usage.cache_write_5m_tokens
        + usage.cache_write_1h_tokens
    )


def _completed(view: ContextView, entry, event: ev.GenComplete, before: TurnView) -> ContextView:
    used = all_input(event.usage)
    last = used + event.usage.output_tokens
    refused = event.stop_reason == "refusal"
    rows = view.fragments
    if not refused:
        place = (event.turn, event.step, -1, entry.offset)
        stop = event.stop_reason
        rows = rows.append(Fragment("assistant", *place, event.content, stop_reason=stop))
    view = replace(
        view,
        fragments=rows,
        anchor_tokens=(used if refused else last) or view.anchor_tokens,
        tail_tokens=0,
        last_step_tokens=last,
    )
    if before.closing is None:
        return view
    return _add(
        view,
        *(
            Fragment(
                "result",
                event.turn,
                event.step,
                call.index,
                entry.offset,
                None,
                CANCELLED,
                call.call_id,
                True,
            )
            for call in calls_of(event)
        ),
    )


def _ended(view: ContextView, entry, before: TurnView, messages: MessagesView) -> ContextView:
    fragments = []
    for call in before.calls:
        done = closed(call)
        if done is not None:
            place = (call.turn, call.step, call.index, entry.offset)
            fragments.append(Fragment("result", *place, None, done[1], call.call_id, True))
    unsaid = _said(entry, before.number, before.step, before.owned, messages)
    if before.terminated:
        unsaid = []
    return _add(view, *fragments, *unsaid)


def _result(entry, event, before: TurnView, state: SessionState) -> Fragment | None:
    """The result that an event gives to a call of the running turn that had none."""
    call = call_of(before, event)
    if call is None or call not in before.calls or call.status in ("done", "contradicted"):
        return None  # said before: what is new about it comes as a reminder
    body, text, error = None, "", True
    match event:
        case ev.ToolInvoked():
            body, error = event.content, event.outcome != "ok"
        case ev.ToolResult():
            _, refusals = triggered(state, event.triggers)
            text = "".join(f"\n{refusal}" for refusal in refusals)
            body, error = event.content, event.outcome != "ok"
        case ev.ApprovalDecided():
            if event.decision != "deny":
                return None
            text = DENIED
        case ev.ApprovalExpired():
            text = EXPIRED
        case ev.HumanResolved():
            text, error = told(event), event.outcome != "happened"
    place = (call.turn, call.step, call.index, entry.offset)
    return Fragment("result", *place, body, text, call.call_id, error)

"""The JSON for a session's page: lists, one moment with its request, and comparisons.

Everything is computed from a timeline, by the folds and functions that the command line uses. The
gateway checks the session's user before it calls these functions.
"""

import json
from bisect import bisect_right
from typing import Any

from ...client.context_view import short_forms
from ...client.printable import event_json, plain, text_of_body, type_of, whole
from ...client.show import owed_json
from ...client.spending import cost_json, ledger_json, session_cost, sum_json
from ...client.status import Status, situation_of
from ...client.transcript_stream import Viewer
from ...client.waiting import (
    asking,
    doubtful,
    lines_of_doubts,
    what_it_waits_for,
    who_lacks,
)
from ...log.blobs import BlobError
from ...processors.advice.prices import PriceTable, total
from ...processors.fold.projections.context import estimated_tokens
from ...processors.fold.projections.ledger import ANSWER, Spent
from ...processors.fold.projections.prefixes import standing
from ...processors.fold.projections.transcript import REPLACED, Line
from ...processors.fold.projections.turn_view import Call
from ...processors.request.build import BUILDER, request_bytes, request_sha256
from ...processors.wake.budget import Rules, plan
from ...schemas import events as ev
from ...schemas.enums import Recovery
from ...schemas.events.parts import ReadBlob
from ...schemas.ids import call_key
from ...schemas.value import replace
from ..protocols.plain import line_json as line_of
from .compare import differences
from .runs import runs_json
from .sentences import sentence
from .summary import summary
from .timeline import Moment, Timeline
from .why import ROWS, why_json

PAGE_EVENTS = 5_000
PAGE_LINES = 1_000

FILL_PARTS = ("system", "tools", "results", "model", "people")
"""The parts of a request, in the order in which they are drawn."""

DEFAULT_RULES = Rules()
"""The default limits: a gateway loads no agents."""


def events_json(timeline: Timeline, since: int = 0, limit: int = PAGE_EVENTS) -> dict[str, Any]:
    """The session's events from number `since` on (counted from 0), as rows of EVENT_FIELDS.
    `next`: the number to continue from.
    """
    moments = timeline.moments[since : since + min(limit, PAGE_EVENTS)]
    return {
        "session_id": timeline.session_id,
        "partition": timeline.partition,
        "fields": EVENT_FIELDS,
        "events": [_event_row(moment) for moment in moments],
        "next": since + len(moments),
        "count": len(timeline.moments),
    }


EVENT_FIELDS = "offset at type writer verdict code lines turn step says summary".split()


def _event_row(moment: Moment) -> list[Any]:
    entry, ruling = moment.entry, moment.ruling
    place = (entry.offset, entry.at, type_of(entry), entry.writer)
    turn = moment.views.turn
    said = sentence(entry, turn)
    lines = len(moment.views.transcript.lines)
    return [
        *place, ruling.verdict, ruling.code, lines, turn.number, turn.step, said, summary(entry)
    ]


def runs_of(timeline: Timeline, since: int) -> dict[str, Any]:
    """The runs of the timeline, as `runs_json` returns them, and the offset of the event up to
    which they were computed.
    """
    upto = timeline.moments[-1].entry.offset if timeline.moments else -1
    return {"upto": upto, **runs_json(timeline.runs, since)}


def lines_json(timeline: Timeline, read: ReadBlob, since: int = 0) -> dict[str, Any]:
    """The lines of the transcript from number `since` on (counted from 0). Lines are only appended,
    so the transcript of an earlier moment consists of the first lines of this transcript.

    `upto`: the offset of the last event that was folded. (The offset of the last line may be
    smaller, or an offset of a fork's parent.)
    """
    if not timeline.moments:
        return {"lines": [], "next": 0, "count": 0, "upto": -1}
    last = timeline.moments[-1]
    rows = last.views.transcript.lines
    taken = rows.since(since)[:PAGE_LINES]
    lines = [_line_json(line, read) for line in taken]
    upto = last.entry.offset
    return {"lines": lines, "next": since + len(lines), "count": len(rows), "upto": upto}


def moment_json(
    timeline: Timeline, moment: Moment, read: ReadBlob, prices: PriceTable
) -> dict[str, Any]:
    """The session right after one event. Large parts have separate routes."""
    views = moment.views
    called = timeline.called(moment)
    calls = {call.key: call for call in (*views.turn.calls, *views.turn.doubts)}
    reasons = lines_of_doubts(views)
    is_newest = moment.place == len(timeline.moments) - 1
    # Events about the partition's holders lie between the events of the session.
    holders = timeline.holders if is_newest else moment.holders
    situation = situation_of(views, holders)
    is_unserved = situation.status is Status.UNSERVED
    return {
        "session_id": timeline.session_id,
        "partition": timeline.partition,
        "place": moment.place,
        "count": len(timeline.moments),
        "offset": moment.entry.offset,
        "at": moment.entry.at,
        "event": _event(moment, read),
        "ruling": {name: getattr(moment.ruling, name) for name in ("verdict", "code", "detail")},
        **situation._asdict(),
        "waits": what_it_waits_for(views, holders).text,
        "state": plain(views.state),
        "turn": plain(views.turn, None) | {"frozen": plain(views.frozen)},
        "holders": plain(holders),
        "asks": [_call(call, read) for call in asking(views.turn)],
        "doubts": [_call(call, read, reasons.get(call.key)) for call in doubtful(views.turn)],
        "wake": [
            row | why_json(row["row"], calls.get(row["subject"]))
            for row in owed_json(views, holders, moment.now_ms, DEFAULT_RULES)
        ],
        "lacks": who_lacks(views.turn.agent, holders) if is_unserved else "",
        "origin": plain(views.origin),
        "budget": budget_json(moment, called),
        "cost": cost_json(session_cost(views.ledger, prices)),
        "cost_text": str(session_cost(views.ledger, prices)),
        "lines": len(views.transcript.lines),
        "open": _open_json(moment.viewer),
        "request": None if called is None else _step_and_offset(called),
    }


def _event(moment: Moment, read: ReadBlob) -> dict[str, Any]:
    try:
        return event_json(moment.entry, read)
    except BlobError as error:
        return event_json(moment.entry) | {"not_resolved": str(error)}


def _call(call: Call, read: ReadBlob, doubt: Line | None = None) -> dict[str, Any]:
    """A call that waits for a person. `args` is None if the blob store lost the arguments.
    `doubt`: the line that has the reason of its doubt."""
    args, problem = None, ""
    try:
        args = whole(call.args, read).decode("utf-8", "replace")
    except BlobError as error:
        problem = str(error)
    return {
        "call": call.key,
        "name": call.name,
        "status": call.status,
        "effect": call.effect,
        "why": doubt.note if doubt is not None else "",
        "args": args,
        "args_error": problem,
        "args_sha256": call.args_sha256,
        "expires_at": call.expires_at,
    }


def _step_and_offset(called: Moment) -> dict[str, Any]:
    event = called.entry.event
    return {"step": f"{event.turn}.{event.step}", "offset": called.entry.offset}


def budget_json(moment: Moment, called: Moment | None) -> dict[str, Any]:
    """How full the window was, in tokens.

    `soft`, `hard`: the limits of the newest request, or the default limits without a request.
    `planned`: the size that the next request would have under the default rules.
    """
    views = moment.views
    large, short = short_forms(views)
    limits = DEFAULT_RULES.limits
    soft, hard = limits.soft_tokens, limits.hard_tokens
    if called is not None:
        soft, hard = called.entry.event.budget.soft_tokens, called.entry.event.budget.hard_tokens
    request, prefix = views.context.request, standing(views.context.prefixes)
    return {
        "soft": soft,
        "hard": hard,
        "estimated": estimated_tokens(views.context),
        "prefix": 0 if prefix is None else prefix.tokens(views.context.counts),
        "last_step": views.context.last_step_tokens,
        "last_request": None if called is None else called.entry.event.prompt_tokens,
        "planned": plan(views, DEFAULT_RULES).tokens,
        "strategy": DEFAULT_RULES.strategy if request is None else request.strategy,
        "fragments": len(views.context.fragments),
        "left_out": 0 if request is None else request.start,
        "large_results": large,
        "shown_short": short,
        "candidate": views.compaction.candidate_at is not None,
    }


def request_json(timeline: Timeline, moment: Moment, read: ReadBlob) -> dict[str, Any] | None:
    """The newest request that was decided up to this moment, byte for byte, and its claims so far.

    `agrees`: whether every claim that was made with this version's builder has the same SHA-256;
    None if there is no such claim.
    """
    called = timeline.called(moment)
    if called is None:
        return None
    body = request_bytes(called.views, read)
    sha = request_sha256(body)
    claims = [_claim(claim, sha) for claim in _claims(timeline, called, moment)]
    checked = [claim["agrees"] for claim in claims if claim["agrees"] is not None]
    event = called.entry.event
    return {
        **_step_and_offset(called),
        "model": event.model,
        "estimated": event.prompt_tokens,
        "usage": _usage(moment, event.turn, event.step),
        "previous": _previous(timeline, called, body, read),
        "bytes": len(body),
        "sha256": sha,
        "claims": claims,
        "agrees": all(checked) if checked else None,
        "body": body.decode(),
    }


def _usage(moment: Moment, turn: int, step: int) -> dict[str, int] | None:
    """The provider's token counts for the newest billed attempt of a step, up to the moment."""
    for row in reversed(moment.views.ledger.spent.since(0)):
        if (row.turn, row.step) == (turn, step) and row.kind == ANSWER:
            return {"read": row.read_tokens, "cached": row.cache_read_tokens,
                    "written": row.output_tokens}
    return None


def _previous(
    timeline: Timeline, called: Moment, body: bytes, read: ReadBlob
) -> dict[str, Any] | None:
    """The request before `called`, and the length of their common beginning, which a prompt cache
    can serve.
    """
    before = timeline.steps.index(called.place) - 1
    if before < 0:
        return None
    earlier = timeline.moments[timeline.steps[before]]
    other = request_bytes(earlier.views, read)
    one_list, other_list = (
        _unmarked(json.loads(data).get("messages", [])) for data in (body, other)
    )
    same = next(
        (n for n, pair in enumerate(zip(one_list, other_list, strict=False)) if pair[0] != pair[1]),
        min(len(one_list), len(other_list)),
    )
    return {**_step_and_offset(earlier), "same_bytes": shared_bytes(body, other),
            "same_messages": same}


def _unmarked(messages: list[Any]) -> list[Any]:
    """The messages without cache marks. The marks move with every step, so otherwise equal messages
    would differ.
    """
    return [
        {**message, "content": [
            {name: value for name, value in block.items() if name != "cache_control"}
            if isinstance(block, dict) else block for block in message["content"]
        ]} if isinstance(message.get("content"), list) else message
        for message in messages
    ]


def _claims(timeline: Timeline, called: Moment, moment: Moment) -> list[Moment]:
    """The accepted claims of a request, up to the moment."""
    wanted = (called.entry.event.turn, called.entry.event.step)
    return [
        found
        for found in timeline.moments[called.place + 1 : moment.place + 1]
        if found.ruling.accepted
        and isinstance(found.entry.event, ev.GenStart | ev.GenResumed)
        and (found.entry.event.turn, found.entry.event.step) == wanted
    ]


def _claim(moment: Moment, sha: str) -> dict[str, Any]:
    event = moment.entry.event
    # A resumed request also contains chunks, which a timeline does not keep: use `foldlog request`.
    is_resumed = getattr(event, "strategy", "") == Recovery.RESUME
    is_comparable = event.builder == BUILDER and not is_resumed
    return {
        "attempt": event.attempt,
        "owner": event.owner,
        "offset": moment.entry.offset,
        "request_sha256": event.request_sha256,
        "builder": event.builder,
        "agrees": event.request_sha256 == sha if is_comparable else None,
    }


def compare_json(
    timeline: Timeline, before: Moment, after: Moment, read: ReadBlob
) -> dict[str, Any]:
    """The differences between two moments, in the views and (byte for byte) in the requests."""
    return _compared(timeline, before, timeline, after, read)


def compare_sessions_json(
    timeline: Timeline, moment: Moment, other: Timeline, its: Moment, read: ReadBlob
) -> dict[str, Any]:
    """The differences between moments of two sessions, such as a session and its fork."""
    return _compared(other, its, timeline, moment, read)


def _compared(
    timeline: Timeline, before: Moment, later: Timeline, after: Moment, read: ReadBlob
) -> dict[str, Any]:
    found = differences(before.views, after.views)
    requests = [request_json(timeline, before, read), request_json(later, after, read)]
    return {
        "before": before.entry.offset,
        "after": after.entry.offset,
        "sides": [side_json(timeline, before, read), side_json(later, after, read)],
        "events": after.place - before.place,
        "differences": [plain(difference) for difference in found],
        "requests": _request_difference(*requests),
    }


def side_json(timeline: Timeline, moment: Moment, read: ReadBlob) -> dict[str, Any]:
    """What people compare first: the newest answer, the turn, and what is pending."""
    views = moment.views
    lines = views.transcript.lines.since(0)
    answer = next((line for line in reversed(lines) if line.kind in ("answer", "partial")), None)
    text = ""
    if answer is not None:
        try:
            text = text_of_body(answer.body, read)
        except BlobError as error:
            text = f"[{error}]"
    holders = moment.holders
    return {
        "session_id": timeline.session_id,
        "offset": moment.entry.offset,
        "at": moment.entry.at,
        "answer": text[:ANSWER_CHARS],
        "turn": views.turn.number,
        "open": views.turn.open,
        "step": views.turn.step,
        "status": situation_of(views, holders).status,
        "pending": [f"{call.name} {call.key}" for call in (
            *asking(views.turn), *doubtful(views.turn))],
        "owed": [
            ROWS[row["row"]]
            for row in owed_json(views, holders, moment.now_ms, DEFAULT_RULES)
        ],
        "messages": sum(line.kind == "message" for line in lines),
        "calls": sum(
            line.kind in ("result", "resolved") and line.cause != REPLACED for line in lines
        ),
        "tokens": estimated_tokens(views.context),
        "reads": views.ledger.input_tokens + views.ledger.cache_read_tokens,
    }


ANSWER_CHARS = 4_000
"""The most characters of an answer in a comparison."""


def _request_difference(
    before: dict[str, Any] | None, after: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The sizes and hashes of two requests, and their common beginning, which a cache can serve."""
    if before is None or after is None:
        return None
    one, other = before["body"].encode(), after["body"].encode()
    same = shared_bytes(one, other)
    return {
        "steps": [before["step"], after["step"]],
        "bytes": [len(one), len(other)],
        "sha256": [before["sha256"], after["sha256"]],
        "same_bytes": same,
        "then": [_start(one, same), _start(other, same)],
    }


def shared_bytes(one: bytes, other: bytes) -> int:
    """The length of the common beginning, by binary search because requests have megabytes."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _start(body: bytes, place: int) -> str:
    return body[max(0, place - 40) : place + 160].decode("utf-8", "replace")


def cost_of(timeline: Timeline, moment: Moment, prices: PriceTable) -> dict[str, Any]:
    """The cost of each attempt, turn and model up to the moment, and the use of each tool."""
    ledger = moment.views.ledger
    models: dict[str, list[Spent]] = {}
    for row in ledger.spent:
        models.setdefault(row.model, []).append(row)
    return {
        **ledger_json(ledger, prices),
        "models": [
            {"model": model, **sum_json(rows), **cost_json(total(rows, prices))}
            for model, rows in models.items()
        ],
        "tools": _tools(timeline, moment),
    }


def _tools(timeline: Timeline, moment: Moment) -> list[dict[str, Any]]:
    """For each tool, the calls that had ended at the moment, their time, and the tokens of their
    results.
    """
    found: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    for run in timeline.runs.closed:
        is_by_then = run.end_offset is not None and run.end_offset <= moment.entry.offset
        if run.lane == "tool" and run.kind == "run" and is_by_then:
            names[run.key] = run.title
            row = found.setdefault(run.title, {"tool": run.title, "calls": 0, "ms": 0, "tokens": 0})
            row["calls"] += 1
            row["ms"] += (run.end_at or run.at) - run.at
    before = 0
    for fragment in moment.views.context.fragments:
        tokens, before = fragment.total - before, fragment.total
        name = names.get(call_key(fragment.turn, fragment.step, fragment.index))
        if fragment.kind == "result" and name is not None:
            found[name]["tokens"] += tokens
    return sorted(found.values(), key=lambda row: -row["tokens"])


def fills_json(timeline: Timeline, moment: Moment, read: ReadBlob) -> dict[str, Any]:
    """What filled the context window at each of the newest requests up to the moment."""
    until = bisect_right(timeline.steps, moment.place)
    rows = []
    for place in timeline.steps[max(0, until - FILLS_MAX) : until]:
        called = timeline.moments[place]
        if place not in timeline.fills:
            timeline.fills[place] = _fill_of(request_bytes(called.views, read))
        event = called.entry.event
        rows.append({
            **_step_and_offset(called),
            "tokens": event.prompt_tokens,
            "soft": event.budget.soft_tokens,
            "hard": event.budget.hard_tokens,
            "parts": timeline.fills[place],
        })
    return {"steps": rows, "earlier": max(0, until - FILLS_MAX)}


FILLS_MAX = 24
"""Requests whose parts are computed at a time: each is built again from the log."""


def _line_json(line: Line, read: ReadBlob) -> dict[str, Any]:
    """A line as JSON. If its blob is missing, the content says so."""
    try:
        return line_of(line, read)
    except BlobError as error:
        without_body = line_of(replace(line, body=None), read)
        return {**without_body, "content": f"[{error}]"}


def _open_json(viewer: Viewer) -> dict[str, Any] | None:
    """The output of the open attempt: its tokens, joined by block."""
    if viewer.open is None:
        return None
    parts: dict[tuple[int, str], list[str]] = {}
    for token in viewer.tokens:
        parts.setdefault((token.block, str(token.kind)), []).append(token.text)
    return {
        **viewer.open._asdict(),
        "parts": [
            {"block": block, "kind": kind, "text": "".join(texts)}
            for (block, kind), texts in parts.items()
        ],
    }


def _fill_of(body: bytes) -> dict[str, int]:
    """The bytes of each of FILL_PARTS in a request.

    The log has no token counts for these parts. Shares of bytes are exact, so the page shows them.
    """
    found = dict.fromkeys(FILL_PARTS, 0)
    try:
        request = json.loads(body)
    except ValueError:
        return found
    if not isinstance(request, dict):
        return found
    found["system"] = _bytes(request.get("system") or "")
    found["tools"] = _bytes(request.get("tools") or "")
    for message in request.get("messages") or []:
        content = message.get("content")
        blocks = content if isinstance(content, list) else [content]
        is_model = message.get("role") == "assistant"
        for block in blocks:
            is_result = isinstance(block, dict) and block.get("type") == "tool_result"
            found["model" if is_model else "results" if is_result else "people"] += _bytes(block)
    return found


def _bytes(value: Any) -> int:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return len(text.encode("utf-8", "replace")) if value else 0

"""Turns the facts of a session into rows of the tables, with one pure function per table.

If a blob is missing, the row has the reference, and `Contents` records that the blob is missing.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ...client.printable import event_json, text_of, type_of
from ...client.spending import session_cost
from ...client.status import situation_of
from ...processors.advice.prices import PriceTable, usd
from ...processors.fold.projections.ledger import Spent
from ...processors.fold.projections.transcript import Line
from ...processors.fold.views import SessionViews
from ...schemas import events as ev
from ...schemas.codec import Entry
from ...schemas.events.parts import BlobRef
from ...schemas.ids import call_key
from ...schemas.value import field_names
from .blocks import Contents, blocks, strict_json, text_of as text_of_bytes, time
from .facts import BACKGROUND, Attempt, CallFacts, SessionFacts
from .tables import USAGE

Row = dict[str, Any]
ROLES = {"message": "user", "answer": "assistant", "partial": "assistant"}
_PLACED = frozenset({"partition", "offset", "at", "type", "writer", "session_id"})


def _at(entry: Entry | None) -> str | None:
    return None if entry is None else time(entry.at)


def _offset(entry: Entry | None) -> int | None:
    return None if entry is None else entry.offset


def event_row(entry: Entry, verdict: str, code: str) -> Row:
    """The row of a record of the log."""
    event, call = entry.event, None
    if type(event) is ev.GenChunk:  # most records of a log
        fields = {name: getattr(event, name) for name in _CHUNK}
    else:
        call = getattr(event, "call", None)
        if call is None and type(event) in _OF_CALLS:
            call = call_key(event.turn, event.step, event.index)
        shown = event_json(entry)
        kind = shown["type"].lower()
        names = field_names(event)
        fields = {n: shown[f"{kind}_{n}" if n in _PLACED else n] for n in names}
    return {
        "session_id": entry.session_id,
        "partition": entry.partition,
        "at_offset": entry.offset,
        "logged_at": time(entry.at),
        "type": type_of(entry),
        "writer": entry.writer,
        "verdict": verdict,
        "code": code or None,
        "turn": getattr(event, "turn", None),
        "step": getattr(event, "step", None),
        "attempt": getattr(event, "attempt", None),
        "call": call,
        "fields": fields,
    }


_OF_CALLS = frozenset({ev.ToolInvoked, ev.ToolStarted, ev.ToolResult, ev.ToolFailedUncertain})
_CHUNK = field_names(ev.GenChunk)


def message_lines(views: SessionViews) -> Iterator[tuple[int, Line]]:
    """(seq, line) of the messages of people and models."""
    lines = (line for line in views.transcript.lines if line.kind in ROLES)
    return enumerate(lines)


def session_row(facts: SessionFacts, prices: PriceTable) -> Row:
    """The row of the session."""
    views, opened = facts.views, facts.opened
    spent, cost = views.ledger, session_cost(views.ledger, prices)
    situation = situation_of(views, facts.holders)
    parent = opened.event if opened is not None else None
    return {
        "session_id": facts.session_id,
        "user_id": views.state.user_id,
        "agent": views.turn.agent,
        "project_id": views.state.project_id,
        "phase": views.state.phase,
        "status": situation.status if views.turn.known else "unknown",
        "reason": situation.reason,
        "turns": views.turn.number,
        "opened_at": _at(opened),
        "updated_at": time(facts.last_at),
        "parent_session": parent and parent.parent_session,
        "parent_offset": parent and parent.parent_offset,
        "partition": facts.partition,
        "first_offset": facts.first,
        "last_offset": facts.next - 1,
        **{f"{word}_events": facts.rulings[word] for word in ("accepted", "ignored", "refused")},
        "messages": sum(1 for _ in message_lines(views)),
        "tool_calls": len(facts.calls),
        "attempts": sum(1 for _ in facts.tries()),
        "input_tokens": spent.input_tokens,
        "cache_read_tokens": spent.cache_read_tokens,
        "cache_write_tokens": spent.cache_write_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": usd(cost.picodollars),
        "unpriced_attempts": cost.unpriced,
    }


def message_rows(facts: SessionFacts, contents: Contents) -> Iterator[tuple[Row, list[Row]]]:
    """The row of each message, with the rows of its parts."""
    views = facts.views
    for seq, line in message_lines(views):
        entry = facts.messages.get(line.name) if line.kind == "message" else None
        answer = facts.answers.get((line.turn, line.step))
        received = views.messages.received.last(line.name) if line.kind == "message" else None
        progress = views.messages.progress.last(line.name) if line.kind == "message" else None
        content = contents.whole(line.body)
        parts = list(part_rows(facts.session_id, seq, line, content))
        yield {
            "session_id": facts.session_id,
            "seq": seq,
            "message_id": line.name if line.kind == "message" else f"{line.turn}.{line.step}",
            "role": (entry.event.role if entry else "") or ROLES[line.kind],
            "status": "partial" if line.kind == "partial" else "complete",
            "turn": progress.turn if progress is not None else line.turn,
            "step": line.step if line.kind != "message" else None,
            "at_offset": line.offset,
            "logged_at": time(line.at),
            "text": None if content is None else text_of(content),
            "by_user": received.by_user if received is not None else None,
            "channel": entry.event.channel if entry else None,
            "when_busy": entry.event.when_busy if entry else None,
            "model": _model(facts, line, answer),
            "stop_reason": line.name if line.kind != "message" else None,
            "became": progress.reason or None if progress is not None else None,
            "parts": len(parts),
        }, parts


def _model(facts: SessionFacts, line: Line, answer: Entry | None) -> str | None:
    if line.kind == "message":
        return None
    model = getattr(answer.event, "model", "") if answer is not None else ""
    return model or facts.models.get((line.turn, line.step)) or None


def part_rows(session_id: str, seq: int, line: Line, content: bytes | None) -> Iterator[Row]:
    """The rows of a message's content blocks. If the blob is missing, one part says so."""
    none = dict.fromkeys(
        "text signature call name input media_type sha256 bytes raw".split()
    )
    head = {"session_id": session_id, "seq": seq}
    if content is None:
        ref = line.body.ref if line.body is not None else None
        assert ref is not None, "only content in a blob can be missing"
        yield {**head, "part": 0, "type": "missing", **none, **_place_of(ref)}
        return
    uses = 0
    for number, block in enumerate(blocks(content)):
        row = {**head, "part": number, "type": block.kind, **none, "raw": block.raw}
        match block.kind:
            case "text" | "thinking" | "unknown":
                row["text"] = block.text("text" if block.kind == "unknown" else block.kind)
                row["signature"] = block.text("signature")
            case "tool_use":
                whole = line.kind == "answer" and line.name == "tool_use"
                row["call"] = call_key(line.turn, line.step, uses) if whole else None
                row["name"], row["input"] = block.text("name"), block.json("input")
                uses += 1
            case "image" | "document":
                ref = block.attachment()
                if ref is not None:
                    row |= {**_place_of(ref), "name": block.text("title")}
        yield row


def _place_of(ref: BlobRef) -> Row:
    return {"media_type": ref.media_type, "sha256": ref.sha256, "bytes": ref.bytes}


def tool_call_row(session_id: str, known: CallFacts, contents: Contents) -> Row:
    """The row of a tool call."""
    call, invoked = known.call, known.invoked
    args = contents.whole(call.args)
    parsed = strict_json(args or b"")
    result = known.results[-1].event if known.results else None
    decided = invoked.event if invoked is not None else None
    body = result.content if result else (decided.content if decided is not None else None)
    ref = body.ref if body is not None else None
    person = known.resolved[-1] if known.resolved else None
    notice = known.fragment.text if known.fragment is not None else ""
    return {
        "session_id": session_id,
        "call": call.key,
        "turn": call.turn,
        "step": call.step,
        "index": call.index,
        "call_id": call.call_id,
        "name": call.name,
        "args": parsed,
        "args_raw": text_of_bytes(args) if parsed is None else None,
        "args_sha256": call.args_sha256,
        "args_error": call.args_error,
        "effect": call.effect if decided is not None else None,
        "approval": decided.approval if decided is not None else None,
        "status": call.status,
        "outcome": call.outcome or None,
        "attempts": len(known.starts),
        "owner": known.starts[-1].event.owner if known.starts else None,
        "proposed_at": _at(known.proposed),
        "proposed_offset": known.proposed.offset,
        "started_at": _at(known.starts[-1]) if known.starts else None,
        "ended_at": _at(known.ended),
        "ended_offset": _offset(known.ended),
        "via": result.via if result else None,
        "result": text_of_bytes(contents.whole(body)) if body is not None else None,
        "result_sha256": ref.sha256 if ref is not None else None,
        "result_bytes": result.bytes if result else None,
        "told": notice or None,
        "doubt": known.doubts[-1].event.reason if known.doubts else None,
        "resolution": person.event.outcome if person is not None else None,
        "resolved_by": person.event.by_user if person is not None else None,
        "resolved_at": _at(person),
    }


_TOKENS = tuple("input cache_read cache_write_5m cache_write_1h output".split())


def usage_rows(facts: SessionFacts, prices: PriceTable) -> Iterator[Row]:
    """The row of every request to a model, with the data of its row in the ledger."""
    for attempt, number, spent in facts.tries():
        if attempt is not None:
            columns = _attempt_columns(facts, attempt, number)
        else:
            assert spent is not None, "a row without an attempt comes from the ledger"
            columns = _unclaimed_columns(spent)
        cost = prices.cost(spent) if spent is not None else None
        yield {
            **dict.fromkeys(USAGE.names),
            "session_id": facts.session_id,
            "request": number,
            **columns,
            "model": (spent and spent.model) or (attempt and attempt.model) or None,
            **{f"{t}_tokens": getattr(spent, f"{t}_tokens", None) for t in _TOKENS},
            "cost_usd": None if cost is None else usd(cost),
        }


def _unclaimed_columns(spent: Spent) -> Row:
    is_background = spent.kind == BACKGROUND
    return {
        "kind": spent.kind,
        "work": spent.work or None,
        "upto": spent.upto if is_background else None,
        "turn": None if is_background else spent.turn,
        "step": None if is_background else spent.step,
        "attempt": spent.attempt,
        "outcome": spent.outcome,
        "counts": False,
        "response_id": spent.response_id or None,
        "ended_offset": spent.offset,
    }


def _attempt_columns(facts: SessionFacts, attempt: Attempt, number: int) -> Row:
    claim = attempt.claim.event
    last = number == attempt.requests  # earlier requests failed, and nothing else is known
    end = attempt.end.event if attempt.end is not None and last else None
    outcome = attempt.outcome or ("running" if _runs(facts, attempt) else "lost")
    return {
        "kind": attempt.kind,
        "work": getattr(claim, "kind", None),
        "upto": getattr(claim, "upto", None),
        "turn": getattr(claim, "turn", None),
        "step": getattr(claim, "step", None),
        "attempt": claim.attempt,
        "strategy": getattr(claim, "strategy", None) or "start",
        "owner": claim.owner,
        "outcome": outcome if last else "failed",
        "counts": attempt.counts and last,
        "stop_reason": getattr(end, "stop_reason", None) or getattr(end, "why", None),
        "response_id": getattr(end, "response_id", None),
        "error": getattr(end, "error", None),
        "detail": getattr(end, "detail", None),
        "http_status": getattr(end, "status", None),
        "started_at": _at(attempt.claim),
        "started_offset": attempt.claim.offset,
        "ended_at": _at(attempt.end),
        "ended_offset": _offset(attempt.end),
        "request_sha256": getattr(claim, "request_sha256", None),
        "builder": getattr(claim, "builder", None),
    }


def _runs(facts: SessionFacts, attempt: Attempt) -> bool:
    """Whether an attempt without an outcome may still report one. Only the latest attempt at a
    model call or at background work may.
    """
    turn = facts.views.turn
    if attempt.kind == BACKGROUND:
        work, upto, number = attempt.key
        return not turn.terminated and (work, upto, number + 1) not in facts.attempts
    claim = turn.generation.claim if turn.generation is not None else None
    return turn.open and claim is not None and claim.offset == attempt.claim.offset


def approval_rows(facts: SessionFacts) -> Iterator[Row]:
    """The row of every call that needed approval, and of every answer that was not accepted."""
    for approval in facts.approvals:
        decided, ruling = approval.decided, approval.ruling
        event = decided.event if decided is not None else None
        request = approval.asked.event if approval.asked is not None else None
        yield {
            "session_id": facts.session_id,
            "call": approval.call,
            "name": approval.name or None,
            "args_sha256": approval.args_sha256,
            "asked_at": _at(approval.asked),
            "asked_offset": _offset(approval.asked),
            "expires_at": time(request.expires_at) if request is not None else None,
            "decision": approval.decision or None,
            "remember": getattr(event, "remember", None),
            "by_user": getattr(event, "by_user", None),
            "decided_at": _at(decided),
            "decided_offset": _offset(decided),
            "verdict": ruling.verdict if ruling is not None else None,
            "code": ruling.code if ruling is not None else None,
        }


def session_rows(
    facts: SessionFacts, contents: Contents, prices: PriceTable, put: Callable[[str, Row], None]
) -> None:
    """Pass every row of a session except its events to `put`, with the name of its table."""
    put("sessions", session_row(facts, prices))
    for message, parts in message_rows(facts, contents):
        put("messages", message)
        for part in parts:
            put("parts", part)
    for known in facts.calls.values():
        put("tool_calls", tool_call_row(facts.session_id, known, contents))
    for row in usage_rows(facts, prices):
        put("usage", row)
    for row in approval_rows(facts):
        put("approvals", row)

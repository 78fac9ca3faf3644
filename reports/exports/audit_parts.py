"""The parts of an audit report: the story, and the tables of calls, approvals and attempts.

Every function returns HTML in which every text from the log is escaped.
"""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any

from ...client.printable import no_text, text_of, type_of
from ...client.visible import clean as visible, exact_json
from ...processors.advice.prices import PriceTable, dollars, total
from ...processors.fold.grants import grant_of, grant_text
from ...processors.fold.projections.ledger import Spent
from ...processors.fold.projections.transcript import REPLACED, Line
from ...processors.fold.ruling import Ruling, Verdict
from ...schemas import events as ev
from ...schemas.codec import Entry
from .blocks import Contents, blocks, text_of as decoded, time
from .facts import BACKGROUND, Attempt, CallFacts, SessionFacts
from .proof import proof_of
from .timeline import lasting

SHOWN_CHARS = 1_200  # characters of a text shown at first; a reader can expand it
TEXT_CHARS_MAX = 40_000  # characters of a text in the page, since people paste files
_GOOD = frozenset({"ok", "complete", "allow", "grant", "happened", "end_turn", "stop_tool"})
_WARN = frozenset(
    {"stopped", "expired", "cancelled", "interrupted", "should_stop", "doubt", "asks", "running"}
)
_PLAIN = frozenset({"not_run", "did_not_happen", "ignored", "forked"})


def e(text: Any) -> str:
    """Text as HTML: escaped, with hidden characters made visible."""
    return escape(visible(str(text)), quote=True)


def when(at_ms: int) -> str:
    """A time as UTC text."""
    return (time(at_ms) or "?").replace("T", " ")[:19]


def tag(word: str) -> str:
    """A word as HTML, in a colour for its meaning."""
    kinds = ((_GOOD, "ok"), (_WARN, "warn"), (_PLAIN, "plain"))
    kind = next((name for words, name in kinds if word in words), "bad" if word else "plain")
    return f'<span class="tag {kind}">{e(word)}</span>' if word else ""


def text_html(text: str | None, of: str = "said") -> str:
    """A text of a person or model as HTML; the end of a long text is collapsed."""
    if text is None:
        return '<p class="note">[content is missing]</p>'
    if not text.strip():
        return ""
    shown = text[:TEXT_CHARS_MAX]
    left = len(text) - len(shown)
    more = f"\n[... {left:,} characters more: see the bundle]" if left else ""
    return _pre(shown, of, left, more)


def _pre(shown: str, of: str, left: int = 0, more: str = "") -> str:
    """A text as HTML; the end of a long text is collapsed. `left`: how many characters follow the
    text, which `more` states.
    """
    if len(shown) <= SHOWN_CHARS:
        return f'<pre class="{of}">{e(shown)}</pre>'
    return (
        f'<pre class="{of}">{e(shown[:SHOWN_CHARS])}</pre><details><summary>'
        f"{len(shown) + left - SHOWN_CHARS:,} characters more</summary>"
        f'<pre class="{of}">{e(shown[SHOWN_CHARS:] + more)}</pre></details>'
    )


def args_html(args: str | None) -> str:
    """The arguments of a call as HTML: all of them, with nothing hidden. The end of long arguments
    is collapsed.
    """
    return text_html(None) if args is None else _pre(exact_json(args), "code")


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    if not rows:
        return ""
    cells = "".join(
        f'<th class="num">{e(head[1:])}</th>' if head.startswith("#") else f"<th>{e(head)}</th>"
        for head in heads
    )
    return f'<div class="scroll"><table><tr>{cells}</tr>{"".join(rows)}</table></div>'


# ---- the story -------------------------------------------------------------------------------

Item = tuple[int, int, str, str, str]
"""(offset, time, class, who, what as HTML)"""


def story(facts: SessionFacts, contents: Contents) -> str:
    """Everything that a person saw or did, in order, turn by turn."""
    people = {entry.offset: (entry, ruling) for entry, ruling in facts.people}
    lines = list(facts.views.transcript.lines)
    old, own = lines[: facts.inherited], lines[facts.inherited :]
    line_offsets = {line.offset for line in own}
    items: list[tuple[int, Item]] = [(line.turn, _line(facts, contents, line, {})) for line in old]
    mine = [(line.turn, _line(facts, contents, line, people)) for line in own]
    turn_at = sorted((item[0], turn) for turn, item in mine)
    for offset, (entry, ruling) in people.items():
        if offset not in line_offsets:
            turn = max((turn for at, turn in turn_at if at <= offset), default=0)
            mine.append((turn, _request_item(entry, ruling)))
    items += sorted(mine, key=lambda pair: pair[1][0])
    out, day = [], ""
    for turn, group in groupby(items, key=lambda pair: pair[0]):
        out.append(f'<li class="turn">Turn {turn}</li>' if turn else "")
        for _, (offset, at, kind, who, what) in group:
            date, _, hour = when(at).partition(" ")
            first, day = f"<b>{date}</b> " if date != day else "", date
            out.append(
                f'<li class="{kind}"><div class="when">{first}{hour}<i>offset {offset}</i></div>'
                f'<div class="who">{e(who)}</div><div class="what">{what}</div></li>'
            )
    return f'<ol class="story">{"".join(out)}</ol>'


def _line(
    facts: SessionFacts, contents: Contents, line: Line, people: dict[int, tuple[Entry, Ruling]]
) -> Item:
    request = people.get(line.offset)
    who = getattr(request[0].event, "by_user", "") if request is not None else ""
    known = facts.calls.get(line.call)
    call = f"<b>{e(line.name)}</b> <code>{e(line.call)}</code>"
    body = contents.whole(line.body)
    place = (line.offset, line.at)
    match line.kind:
        case "message":
            row = facts.views.messages.received.last(line.name)
            by = who or (row.by_user if row is not None else "a person")
            return (*place, "person", by, text_html(None if body is None else text_of(body)))
        case "answer" | "partial":
            model = facts.models.get((line.turn, line.step)) or "model"
            return (*place, "model", model, _answer(body, line))
        case "call" | "asks":
            ask = " waits for approval" if line.kind == "asks" else " will run"
            return (*place, "tool", "foldlog", f"{call}{ask}{args_html(decoded(body))}")
        case "result" if line.cause == REPLACED:
            why = f' <span class="note">{e(line.note)}</span>' if line.note else ""
            what = f"{call} {tag(REPLACED)} {tag(line.code)}{why}{text_html(decoded(body), 'code')}"
            return (*place, "person", who or "a person", what)
        case "result":
            owner = known.starts[-1].event.owner if known is not None and known.starts else ""
            refusals = "; ".join(each.detail for each in line.refused)
            note = f' <span class="note">{e(refusals)}</span>' if refusals else ""
            return (*place, "tool", owner or "foldlog",
                    f"{call} {tag(line.code)}{note}{text_html(decoded(body), 'code')}")
        case "doubt":
            return (*place, "bad", "foldlog", f"{call} {tag('doubt')} {e(line.text)}")
        case "approval":
            return (*place, "person", who or "no person", f"{call} {tag(line.code)}")
        case "resolved":
            report = text_html(decoded(body))
            return (*place, "person", who or "a person", f"{call} {tag(line.code)}{report}")
        case "attempt":
            return (*place, "bad", "foldlog", f"{tag(line.name)} {e(line.text)}")
        case "ended":
            return (*place, "", "foldlog", f"the turn ended: {tag(line.name)}")
    what = " ".join(part for part in (line.kind, line.name, line.text) if part)
    return (*place, "person" if who else "", who or "foldlog", e(what) + text_html(decoded(body)))


def _answer(content: bytes | None, line: Line) -> str:
    if content is None:
        return text_html(None)
    out = []
    for block in blocks(content):
        if block.kind == "text":
            out.append(text_html(block.text("text") or ""))
        elif block.kind == "thinking" and block.text("thinking"):
            thought = text_html(block.text("thinking"))
            out.append(f"<details><summary>thinking</summary>{thought}</details>")
        elif block.kind == "tool_use":
            out.append(f'<div class="note">calls the tool {e(block.text("name"))}</div>')
        else:
            hidden = "thinking, not shown by the provider" if "thinking" in block.kind else ""
            out.append(f'<div class="note">[{e(hidden or block.kind)}]</div>')
    if why := no_text(line, lambda _ref: content):
        out.append(f'<p class="note">{e(why)}</p>')
    if line.kind == "partial":
        out.append(f'<p class="note">stopped: {e(line.name)}</p>')
    return "".join(out) or f'<span class="note">no content ({e(line.name)})</span>'


def _request_item(entry: Entry, ruling: Ruling) -> Item:
    """The item for a person's command that has no line in the transcript: the opening of the
    session, a cancel, or a command that was refused.
    """
    event = entry.event
    who = getattr(event, "by_user", "") or getattr(event, "user_id", "")
    more = [str(getattr(event, name, "") or "") for name in ("trigger", "project_id", "call",
                                                             "decision", "mode", "reason")]
    what = e(" ".join([type_of(entry), *(part for part in more if part)]))
    if not ruling.accepted:
        reason = f"{ruling.code}: {ruling.detail}" if ruling.detail else ruling.code
        what += f' {tag(ruling.verdict)} <span class="note">{e(reason)}</span>'
    kind = "person" if ruling.verdict != Verdict.REFUSED else "bad"
    return (entry.offset, entry.at, kind, who, what)


# ---- the tables ------------------------------------------------------------------------------


def calls_table(facts: SessionFacts, contents: Contents) -> str:
    """A table of every call: its arguments, who allowed it, its claims, its outcome."""
    approvals = {a.call: a for a in facts.approvals if a.ruling is None}
    heads = ("call", "tool and arguments", "allowed by", "claims", "outcome")
    rows = []
    for key, known in facts.calls.items():
        call, given = known.call, approvals.get(key)
        args = decoded(contents.whole(call.args))
        rows.append(
            f"<tr><td><code>{e(key)}</code></td><td><b>{e(call.name)}</b> "
            f'<span class="note">{e(_effect(known))}</span>{args_html(args)}</td>'
            f"<td>{_allowed(given, known)}</td><td>{_claims(known)}</td>"
            f"<td>{tag(call.outcome or call.status)}{_doubts(known, contents)}</td></tr>"
        )
    return _table(heads, rows)


def _effect(known: CallFacts) -> str:
    return known.call.effect if known.invoked is not None else "never decided"


def _allowed(given: Any, known: CallFacts) -> str:
    if given is None:
        invoked = known.invoked.event if known.invoked is not None else None
        rule = {"none": "rule: allow", "deny": "rule: deny"}.get(getattr(invoked, "approval", ""))
        return f'<span class="note">{e(rule or "")}</span>'
    if given.decided is None:
        return tag("asks")
    by = getattr(given.decided.event, "by_user", "") or "no person"
    return f"{tag(given.decision)} {e(by)}"


def _claims(known: CallFacts) -> str:
    return "<br>".join(
        f'<span class="note">{number}: {e(claim.event.owner)}, {when(claim.at)[11:]}</span>'
        for number, claim in enumerate(known.starts, 1)
    ) or '<span class="note">none</span>'


def _doubts(known: CallFacts, contents: Contents) -> str:
    out = [f'<p class="note">in doubt: {e(d.event.reason)}</p>' for d in known.doubts]
    for person in known.resolved:
        report = decoded(contents.whole(person.event.content)) or ""
        out.append(f'<p class="note">{e(person.event.by_user)} reports: '
                   f"{e(person.event.outcome)} {e(report)} ({_proof(person)})</p>")
    return "".join(out)


def approvals_table(facts: SessionFacts) -> str:
    """A table of every call that needed approval: the person's answer, the proof of it, and the
    SHA-256 of the arguments for which it is valid.
    """
    rows = []
    for approval in facts.approvals:
        decided = approval.decided
        event = decided.event if decided is not None else None
        refused = approval.ruling
        word = refused.verdict if refused is not None else approval.decision or "asks"
        later = _later(approval.name, event)
        why = f" {refused.code}" if refused is not None else ""
        rows.append(
            f"<tr><td><code>{e(approval.call)}</code></td><td>{e(approval.name)}</td>"
            f"<td>{tag(word)}{e(later + why)}</td>"
            f"<td>{e(getattr(event, 'by_user', '') or '')}</td>"
            f"<td>{_proof(decided)}</td>"
            f'<td class="when">{when(decided.at) if decided is not None else ""}</td>'
            f"<td><code>{e(approval.args_sha256[:16])}</code></td></tr>"
        )
    return _table(("call", "tool", "decision", "by", "proof", "when", "arguments"), rows)


def _proof(entry: Entry | None) -> str:
    """The proof of who approved or denied a call, as HTML; an expired approval has none."""
    if entry is None or not hasattr(entry.event, "by_user"):
        return ""
    proven = proof_of(entry)
    return e(proven.text) if proven.is_proven else f'<span class="tag warn">{e(proven.text)}</span>'


def unproven(facts: SessionFacts) -> int:
    """The number of people's accepted commands without proof."""
    return sum(ruling.accepted and not proof_of(entry).is_proven for entry, ruling in facts.people)


def _later(name: str, event: Any) -> str:
    """The later calls that an approval also allows, as text."""
    if not isinstance(event, ev.ApprovalDecided) or not event.remember:
        return ""
    return f" and {grant_text(grant_of(name, event))}"


def attempts_table(facts: SessionFacts, prices: PriceTable) -> str:
    """A table of every request of every attempt, with a sum for each turn and a total."""
    heads = (
        "attempt", "worker", "outcome", "model", "#took", "#read", "#cached", "#written", "#cost",
    )
    rows: list[str] = []
    claimed = [(a, number, spent) for a, number, spent in facts.tries() if a is not None]
    for turn, group in groupby(sorted(claimed, key=_turn_of), key=_turn_of):
        of_turn = list(group)
        rows += [_attempt(*one, prices) for one in of_turn]
        known = [spent for _, _, spent in of_turn if spent is not None]
        rows.append(_sum("background" if turn[0] else f"turn {turn[1]}", known, prices))
    if rows:
        rows.append(_sum("all", list(facts.views.ledger.spent), prices))
    return _table(heads, rows)


def _turn_of(request: tuple[Attempt, int, Spent | None]) -> tuple[bool, int]:
    attempt, *_ = request
    is_background = attempt.kind == BACKGROUND
    return is_background, 0 if is_background else attempt.key[0]


def _attempt(attempt: Attempt, number: int, spent: Spent | None, prices: PriceTable) -> str:
    """The row of one request.

    Only the failure and the tokens of an attempt's earlier requests are known.
    """
    last = number == attempt.requests
    claim, end = attempt.claim, attempt.end if last else None
    outcome = attempt.outcome if last else "failed"
    name = ".".join(str(part) for part in attempt.key[:2])
    nth = f" request {number}" if attempt.requests > 1 else ""
    took = lasting(end.at - claim.at) if end is not None else ""
    why = getattr(end.event, "detail", "") or getattr(end.event, "why", "") if end else ""
    cost = prices.cost(spent) if spent is not None else None
    return (
        f"<tr><td><code>{e(name)}</code> try {claim.event.attempt}{nth}</td>"
        f"<td>{e(claim.event.owner)}</td>"
        f'<td>{tag(outcome or "lost")} <span class="note">{e(why)}</span></td>'
        f"<td>{e((spent.model if spent else '') or attempt.model)}</td>"
        f'<td class="num">{e(took)}</td>{_tokens([spent] if spent else [])}'
        f'<td class="num">{"" if cost is None else e(dollars(cost))}</td></tr>'
    )


def _sum(name: str, rows: list[Spent], prices: PriceTable) -> str:
    return (
        f'<tr class="sum"><td>{e(name)}</td><td></td><td></td><td></td><td></td>{_tokens(rows)}'
        f'<td class="num">{e(total(rows, prices)) if rows else ""}</td></tr>'
    )


def _tokens(rows: Sequence[Spent]) -> str:
    counts: Iterator[str] = (
        f"{sum(getattr(row, name) for row in rows):,}" if rows else ""
        for name in ("read_tokens", "cache_read_tokens", "output_tokens")
    )
    return "".join(f'<td class="num">{count}</td>' for count in counts)


def refused_table(facts: SessionFacts) -> str:
    """A table of people's commands that the fold refused."""
    rows = [
        f'<tr><td class="when">{when(entry.at)}</td><td>{entry.offset}</td>'
        f"<td>{e(getattr(entry.event, 'by_user', '') or getattr(entry.event, 'user_id', ''))}</td>"
        f"<td>{e(proof_of(entry).text)}</td>"
        f"<td>{e(type_of(entry))}</td><td>{e(ruling.code)}: {e(ruling.detail)}</td></tr>"
        for entry, ruling in facts.people if ruling.verdict == Verdict.REFUSED
    ]
    heads = ("when", "offset", "by", "proof", "request", "reason")
    return _table(heads, rows)


"""The audit report of a session: one HTML page for people, which loads nothing from the network.

The page shows who did what, when, and on whose approval; every attempt and every call, with its
claims and whether its outcome was in doubt; and the cost. Every text is escaped, there is no
script, and a policy in the page blocks active content. The page does not depend on the time of the
export. This file builds the page; audit_parts.py has its tables.
"""

from importlib import resources

from ...client.spending import session_cost
from ...client.status import situation_of
from ...processors.advice.prices import PriceTable, dollars
from ...processors.store import views_codec
from .audit_parts import (
    approvals_table,
    attempts_table,
    calls_table,
    e,
    refused_table,
    story,
    unproven,
    when,
)
from .blocks import Contents
from .facts import SessionFacts
from .rows import message_lines
from .timeline import lasting, svg

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_KEYS = (
    ("person", "a person"), ("model", "a model"), ("tool", "a tool"), ("back", "background"),
    ("warn", "in doubt or stopped"), ("bad", "failed, lost or refused"),
)
_KINDS = {"asks": "warn", "doubt": "warn", "unserved": "warn", "frozen": "bad"}


def audit_page(facts: SessionFacts, contents: Contents, prices: PriceTable) -> str:
    """The whole page as HTML."""
    css = resources.files(__package__).joinpath("audit.css").read_text("utf-8")
    body = "\n".join((
        _head(facts),
        _tiles(facts, prices),
        _section("Timeline", "the broker's clock; long pauses are shortened", _figure(facts)),
        _section("What happened", "in log order; times are UTC",
                 story(facts, contents)),
        _section("Tool calls", "each with its claims, its doubts and who allowed it",
                 calls_table(facts, contents)),
        _section("Approvals", "who allowed exactly what; proof: what recorded it, not signed",
                 approvals_table(facts)),
        _section("Model and background attempts", f"prices: {prices.version}",
                 attempts_table(facts, prices)),
        _section("Refused", "requested, but changed nothing", refused_table(facts)),
        _missing(contents),
        _foot(facts),
    ))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>Audit of session {e(facts.session_id)}</title>\n<style>\n{css}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _head(facts: SessionFacts) -> str:
    views, opened = facts.views, facts.opened
    parent = opened.event if opened is not None else None
    began = when(opened.at) if opened is not None else "?"
    forked = ""
    if parent is not None and parent.parent_session:
        forked = (f" It was forked from <b>{e(parent.parent_session)}</b> at offset "
                  f"{parent.parent_offset}.")
    project = e(views.state.project_id) if views.state.project_id else "none"
    return (
        '<header><div class="kicker">Session audit</div>'
        f"<h1>{e(facts.session_id)}</h1>"
        f'<p class="lead">Session of <b>{e(views.state.user_id)}</b>, served by the agent '
        f"<b>{e(views.turn.agent)}</b>. Opened {began}, last changed {when(facts.last_at)}. "
        f"Phase <b>{e(views.state.phase)}</b>, project <b>{project}</b>.{forked}</p></header>"
    )


def _tiles(facts: SessionFacts, prices: PriceTable) -> str:
    views = facts.views
    kinds = [line.kind for _, line in message_lines(views)]
    doubts = sum(bool(known.doubts) for known in facts.calls.values())
    lost = sum(a.outcome in ("", "failed") for a in facts.attempts.values())
    cost = session_cost(views.ledger, prices)
    situation, unsure = situation_of(views, facts.holders), unproven(facts)
    spent = views.ledger
    read = spent.input_tokens + spent.cache_read_tokens + spent.cache_write_tokens
    known_cost = dollars(cost.picodollars) if cost.picodollars or not cost.unpriced else "unknown"
    partly = f"cost, but {cost.unpriced} attempts" if cost.unpriced else "cost"
    unit = partly if cost.unpriced and cost.picodollars else "cost"
    rows = (
        (situation.words, "status", _KINDS.get(situation.status, "")),
        (views.turn.number, "turns", ""),
        (kinds.count("message"), "messages of people", ""),
        (len(kinds) - kinds.count("message"), "answers", ""),
        (len(facts.attempts), f"attempts, {lost} lost or failed", "warn" if lost else ""),
        (len(facts.calls), "tool calls", ""),
        (doubts, "calls once in doubt", "warn" if doubts else ""),
        (facts.rulings["refused"], "events refused", "bad" if facts.rulings["refused"] else ""),
        (unsure, "actions of people without proof", "warn" if unsure else ""),
        (f"{read:,}", "tokens read", ""),
        (f"{spent.output_tokens:,}", "tokens written", ""),
        (known_cost, unit, ""),
        (lasting(max(0, facts.last_at - (facts.opened.at if facts.opened else facts.last_at))),
         "from first to last event", ""),
    )
    tiles = "".join(
        f'<div class="tile {kind}"><b>{e(str(value))}</b><span>{e(label)}</span></div>'
        for value, label, kind in rows
    )
    return f'<div class="tiles">{tiles}</div>'


def _figure(facts: SessionFacts) -> str:
    keys = "".join(
        f'<span class="key" style="background:var(--{name})"></span>{e(text)}'
        for name, text in _KEYS
    )
    return f"<figure>{svg(facts)}<figcaption>{keys}</figcaption></figure>"


def _section(title: str, note: str, body: str) -> str:
    return f"<h2>{e(title)} <small>{e(note)}</small></h2>\n{body}" if body else ""


def _missing(contents: Contents) -> str:
    if not contents.missing:
        return ""
    names = "".join(
        f"<tr><td><code>{e(ref.sha256)}</code></td><td>{e(ref.media_type)}</td>"
        f'<td class="num">{ref.bytes:,}</td></tr>'
        for _, ref in sorted(contents.missing.items())
    )
    return _section(
        "Missing content", "referenced by the log, not found in the blob store",
        f'<div class="scroll"><table><tr><th>sha256</th><th>type</th><th class="num">bytes</th>'
        f"</tr>{names}</table></div>",
    )


def _foot(facts: SessionFacts) -> str:
    hashes = "".join(
        f"<tr><td>{e(view)}</td><td><code>{sha}</code></td></tr>"
        for view, sha in views_codec.view_hashes(facts.views).items()
    )
    counts = ", ".join(f"{count:,} {word}" for word, count in sorted(facts.rulings.items()))
    return (
        "<footer><details><summary>How to check this report</summary><p>It was folded from "
        f"partition {facts.partition}, offsets {facts.first} to {facts.next - 1}: {counts}. "
        f"<code>foldlog replay --session {e(facts.session_id)}</code> folds the same events again "
        'and must print these:</p><div class="scroll"><table><tr><th>view</th><th>sha256</th></tr>'
        f"{hashes}</table></div></details></footer>"
    )

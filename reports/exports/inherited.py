"""Rebuilds the calls that a fork inherited. Their names and arguments come from the fork's own
transcript and their results from its context; the parent's records are not read.

The views of a fork begin with its parent's conversation, but do not contain the claims and
approvals of the calls in that conversation. So an inherited call has only a name, arguments and the
result that the model got.
"""

from hashlib import sha256

from ...processors.fold.calls import CallStatus
from ...processors.fold.projections.context_view import Fragment
from ...processors.fold.projections.turn_view import Call
from ...schemas.codec import Entry
from ...schemas.events.parts import Body
from ...schemas.ids import call_key
from .blocks import Contents, blocks
from .facts import CallFacts, SessionFacts


def inherit(facts: SessionFacts, contents: Contents) -> None:
    """Add the calls of inherited answers to `facts`."""
    fragments: dict[str, Fragment] = {
        call_key(f.turn, f.step, f.index): f
        for f in facts.views.context.fragments if f.kind == "result"
    }
    found: dict[str, CallFacts] = {}
    for line in facts.views.transcript.lines:
        step = (line.turn, line.step)
        if line.kind != "answer" or line.name != "tool_use" or step in facts.answers:
            continue
        uses = [b for b in blocks(contents.whole(line.body) or b"") if b.kind == "tool_use"]
        entry = Entry(facts.session_id, facts.partition, line.offset, line.at, "models", None)
        for index, use in enumerate(uses):
            key = call_key(*step, index)
            args = bytes(use.json("input") or b"{}")
            fragment = fragments.get(key)
            call = Call(
                *step, index, use.text("id") or "", use.text("name") or "",
                Body(inline=args), sha256(args).hexdigest(), None, line.at,
                status=CallStatus.DONE,
                outcome="error" if fragment is None or fragment.error else "ok",
            )
            found[key] = CallFacts(call, entry, fragment=fragment)
            facts.proposed.setdefault(step, []).append(found[key])
    facts.calls = {**found, **facts.calls}

"""Invariants of requests: legal, complete, extended only at the end, and the same from every
builder."""

import re
from collections import Counter
from hashlib import sha256
from typing import Any

from foldlog.processors.fold.cut_points import is_cut
from foldlog.processors.request.build import request_bytes
from foldlog.schemas import events as ev
from foldlog.tests.kit.api_rules import blocks_of, findings, static_part, without_thinking
from foldlog.tests.laws.resumed import resumes
from foldlog.tests.simulation.checks_resumed import StreamedChunks, continued
from foldlog.tests.simulation.invariant import Invariant

BLOCKS = {"text", "thinking", "tool_use", "tool_result"}  # that simulated people and models write
MARK = re.compile(rb"<([A-Za-z0-9]+:[A-Za-z0-9-]+)>")


class RequestsAreLegal(Invariant):
    """I13: every request passes an independent checker of the API's rules, and begins between two
    messages.

    For all invariants below, this class builds the request of every accepted LLM_CALLED.
    """

    def on_seen(self, seen: Any) -> None:
        if not isinstance(seen.entry.event, ev.LlmCalled) or not seen.ruling.accepted:
            return
        session = seen.entry.session_id
        request = request_bytes(seen.views, self.world.blobs.read)
        self.world.stats["requests"] += 1
        self.world.requests.setdefault(session, []).append((seen.entry.offset, request))
        generation = seen.before.turn.generation
        pause = generation is not None and generation.stop_reason == "pause_turn"
        found = findings(request, may_end_with_answer=pause)
        unknown = {block["type"] for _, block in blocks_of(request)} - BLOCKS
        context = seen.views.context
        if not is_cut(context.fragments, context.request.start):
            found = [*found, "it begins with a part of a message"]
        if found or unknown:
            self.fail(f"{session} {seen.entry.offset}: {found or unknown} in {request.decode()}")


class RequestsExtend(Invariant):
    """P9: request n, without cache marks, is a block-wise prefix of request n+1, unless n+1 adopts
    something. System and tools change with CONTEXT_SET only.

    There are two exceptions. First, thinking is not repeated if it was signed for another prefix,
    or if its signature was refused. Second, a request may end in a paused answer: once a user
    message follows that answer, the API refuses thinking at the answer's end.
    """

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.last: dict[str, tuple[Any, Any, tuple, list]] = {}

    def on_seen(self, seen: Any) -> None:
        if not isinstance(seen.entry.event, ev.LlmCalled) or not seen.ruling.accepted:
            return
        session = seen.entry.session_id
        built = self.world.requests[session][-1][1]
        head, blocks = static_part(built), blocks_of(built)
        request, prefix = seen.views.context.request, seen.views.context.prefix_sha
        bound = prefix, request.bound_from
        left_out = [(one.begin, one.end, one.files) for one in request.left_out]
        shape = (request.start, request.checkpoint, request.compacted_upto, left_out)
        before = self.last.get(session)
        self.last[session] = (bound, head, shape, blocks)
        if before is None:
            return
        same = prefix == before[0][0]
        self.demand(not same or head == before[1], f"{session}: system or tools changed")
        if shape != before[2]:
            return
        old = before[3]
        if bound != before[0]:
            old, blocks = without_thinking(old), without_thinking(blocks)
        while old[-1][1]["type"] == "thinking" and blocks[: len(old)] != old:
            old = old[:-1]
        if blocks[: len(old)] != old:
            self.fail(f"{session} {seen.entry.offset}: {before[3]} -> {blocks}")


class RequestsKeepTheirHash(Invariant):
    """Law 11, I14: a request that is rebuilt from the log has the hash in each claim, and exactly
    its bytes are sent to the model. For an attempt that resumes, the kept answer follows these
    bytes."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.chunks = StreamedChunks()
        self.sent: dict[tuple[str, int], bytes] = {}

    def _decided(self, session: str, offset: int) -> bytes:
        return [r for at, r in self.world.requests[session] if at < offset][-1]

    def on_seen(self, seen: Any) -> None:
        event = seen.entry.event
        if not seen.ruling.accepted:
            return
        if isinstance(event, ev.GenStart | ev.GenResumed):
            place = (seen.entry.session_id, seen.entry.offset)
            request = self._decided(*place)
            if resumes(event):
                request = continued(request, self.chunks.kept(seen))
                found = findings(request, may_end_with_answer=True)
                if found:
                    self.fail(f"{seen.entry}: {found} in {request.decode()}")
            if sha256(request).hexdigest() != event.request_sha256:
                self.fail(f"{seen.entry} was claimed for another request")
            self.sent[place] = request
        self.chunks.take(seen)

    def on_begun(self, role: str, process: Any, session_id: str, begin: Any) -> None:
        if role == "models":
            request = self.sent[session_id, begin.claim.offset]
            self.demand(begin.request == request, f"{session_id}: another request is sent")


class MessagesAreSentOnce(Invariant):
    """I2: each message is in a request once. A message that was not sent in its own turn is in the
    next turn's request, unless no request has room for it."""

    def on_seen(self, seen: Any) -> None:
        event = seen.entry.event
        if not isinstance(event, ev.LlmCalled) or not seen.ruling.accepted:
            return
        session = seen.entry.session_id
        marks = Counter(MARK.findall(self.world.requests[session][-1][1]))
        twice = [mark for mark, times in marks.items() if times > 1]
        self.demand(not twice, f"{session} sends twice: {twice}")
        sent = {mark.decode().partition(":")[2] for mark in marks}
        whole = seen.views.context.request.start == 0
        for row in seen.before.messages.progress if whole else ():
            if row.reason and row.turn < event.turn and row.reason != "budget_exceeded":
                self.demand(row.message_id in sent, f"{session} never sent {row}")
        missing = {*event.includes, *seen.before.turn.owned} - sent
        self.demand(not missing, f"{session}: {missing} are not sent")


REQUESTS = (RequestsAreLegal, RequestsExtend, RequestsKeepTheirHash, MessagesAreSentOnce)

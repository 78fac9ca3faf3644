"""Invariants of background work in sessions at rest, checked as in witnesses.py.

The cheap model of script.py repeats the names of everything in its input, so the record that
replaces a conversation in a request can be compared with the conversation.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from foldlog.processors.request.summary import FRAME
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry
from foldlog.tests.crash.script import NAMED

SUMMARIES = ("context", "resume")
ABANDONED = ("it was stopped", "the turn was aborted", "the turn was aborted first")


def is_background(call: dict[str, Any]) -> bool:
    """Whether a physical model call belongs to background work. Such a call belongs to no turn."""
    return " 0.0." in (call["attempt"] or "")


def counted(case: Any, kind: type) -> list[Entry]:
    """The accepted entries of an event type."""
    return [
        ruled.entry
        for ruled in case.watched.events
        if ruled.verdict == "accepted" and isinstance(ruled.entry.event, kind)
    ]


def what_is_adopted_was_made_before(case: Any) -> Iterator[str]:
    """Lane B: a request names only candidates that were written before it. Of several candidates
    that cover the conversation up to the same offset, all requests name the same one."""
    summaries = {entry.offset: entry.event for entry in counted(case, ev.ContextCompacted)}
    shorts = {entry.offset for entry in counted(case, ev.ResultCompacted)}
    adopted: dict[int, int] = {}
    for entry in counted(case, ev.LlmCalled):
        checkpoint, upto = entry.event.checkpoint, entry.event.compacted_upto
        place = f"{entry.event.turn}.{entry.event.step}"
        if upto != -1 and (upto not in shorts or upto > entry.offset):
            yield f"{place} adopts short forms up to {upto}, which is not a short form"
        if checkpoint is None:
            if adopted:
                yield f"{place} adopts nothing, and {adopted} is in force"
            continue
        if checkpoint not in summaries or checkpoint > entry.offset:
            yield f"{place} adopts {checkpoint}, which is not a candidate"
            continue
        covers = summaries[checkpoint].upto
        if adopted.setdefault(covers, checkpoint) != checkpoint:
            yield f"{place} adopts {checkpoint}, and {adopted[covers]} is for {covers} too"
        if covers < max(adopted):
            yield f"{place} adopts a summary of {covers} after one of {max(adopted)}"
    for covers, count in Counter(event.upto for event in summaries.values()).items():
        if count > 1:
            yield f"{count} summaries for {covers} were accepted"


def every_work_ends_once(case: Any) -> Iterator[str]:
    """Background work of a killed worker is resumed and ends once: with a result, or abandoned
    after a cancel.

    A BACKGROUND_DONE with `released`, which a worker writes when it ends cleanly or begins the work
    too late, does not count as an end.
    """
    claims: dict[tuple[str, int], list[ev.BackgroundStarted]] = {}
    for event in case.watched.counted(ev.BackgroundStarted):
        claims.setdefault((event.kind, event.upto), []).append(event)
    ends: dict[tuple[str, int], list[ev.BackgroundDone]] = {place: [] for place in claims}
    for event in case.watched.counted(ev.BackgroundDone):
        if not event.released:
            ends.setdefault((event.kind, event.upto), []).append(event)
    made = Counter(event.upto for event in case.watched.counted(ev.ContextCompacted))
    shorts = {event.call for event in case.watched.counted(ev.ResultCompacted)}
    calls = {
        entry.offset: f"{entry.event.turn}.{entry.event.step}.{entry.event.index}"
        for entry in counted(case, ev.ToolResult)
    }
    for (kind, upto), outcomes in ends.items():
        started = claims.get((kind, upto), [])
        if [event.attempt for event in started] != list(range(1, len(started) + 1)):
            yield f"{kind} {upto} was claimed as {started}"
        if [event.epoch for event in started] != sorted({event.epoch for event in started}):
            yield f"{kind} {upto} was taken over under the same epoch: {started}"
        if len(outcomes) != 1 or not started:
            yield f"{kind} {upto} has {len(started)} claims and {len(outcomes)} ends"
            continue
        if not outcomes[0].ok and outcomes[0].why not in ABANDONED:
            yield f"{kind} {upto} was abandoned: {outcomes[0].why}"
        results = made[upto] if kind in SUMMARIES else int(calls.get(upto) in shorts)
        if outcomes[0].ok and results != 1:
            yield f"{kind} {upto} is done with {results} candidates"


def no_more_calls_than_claims(case: Any) -> Iterator[str]:
    """Law 5: each model call of background work has its own accepted claim."""
    accepted = [entry for entry in case.journal if entry["kind"] == "accepted"]
    # A failed call is tried again under the same claim, as 0.0.2.
    calls = sum(entry["attempt"].endswith(" 0.0.1") for entry in accepted)
    claims = len(case.watched.counted(ev.BackgroundStarted))
    if calls > claims:
        yield f"summaries were requested {calls} times under {claims} claims"


def a_short_form_has_its_whole(case: Any) -> Iterator[str]:
    """S4.4: the full text of a shortened result is stored unchanged."""
    results = {
        f"{event.turn}.{event.step}.{event.index}": event
        for event in case.watched.counted(ev.ToolResult)
    }
    for event in case.watched.counted(ev.ResultCompacted):
        content = results[event.call].content
        whole = case.stage.blobs.get(event.short.ref.sha256)
        if content.ref is None and whole != content.inline:
            yield f"{event.call} was shortened, and its whole is {whole[:100]!r}"


def nothing_is_forgotten(case: Any) -> Iterator[str]:
    """The last request contains every message, answer and result: the text itself, or its name in a
    record."""
    if not case.accepted:
        return
    shown = "\n".join(texts_of(json.loads(case.stage.server.body(case.accepted[-1]["n"]))))
    names = set(NAMED.findall(shown))
    turn, step = map(int, case.accepted[-1]["attempt"].rpartition(" ")[2].split(".")[:2])
    completed = {
        (event.turn, event.step, event.attempt)
        for event in case.watched.counted(ev.GenComplete)
        if (event.turn, event.step) < (turn, step)
    }
    expected = set(case.person.messages.values())
    for entry in case.accepted:
        if tuple(map(int, entry["attempt"].rpartition(" ")[2].split("."))) in completed:
            expected.add(case.stage.model.texts[entry["n"]])
    for event in case.watched.counted(ev.ToolResult):
        if (event.turn, event.step) < (turn, step):
            expected.add((event.content.inline or b"").decode())
    for name in NAMED.findall("\n".join(expected)):
        if name not in names:
            yield f"{name!r} is not in the last request, nor in its record"


def texts_of(body: dict[str, Any]) -> Iterator[str]:
    """Every text in a request's messages, including those of results."""
    for message in body["messages"]:
        content = message["content"]
        for block in [{"text": content}] if isinstance(content, str) else content:
            inner = block.get("content")
            yield inner if isinstance(inner, str) else block.get("text", "")
            if isinstance(inner, list):
                yield from (part.get("text", "") for part in inner)


def record_of(body: dict[str, Any]) -> str:
    """The record that replaces what a request leaves out, or '' if the request has none."""
    first = next(texts_of(body), "")
    if body["messages"][0]["role"] == "assistant":
        return first  # the provider's signed summary
    return first.partition(f"<{FRAME}>")[2].partition(f"</{FRAME}>")[0]

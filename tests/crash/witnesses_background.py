"""What must hold of background work when all is quiet, each judged as in witnesses.py.

The cheap model of script.py keeps the names of all that it was shown, so what a request says in a
record in the place of a conversation can be compared with what was said.
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
GIVEN_UP = ("it was stopped", "the turn was aborted", "the turn was aborted first")


def is_aside(call: dict[str, Any]) -> bool:
    """Whether a physical model call is one of background work: it belongs to no turn."""
    return " 0.0." in (call["attempt"] or "")


def counted(case: Any, kind: type) -> list[Entry]:
    """The entries of a type that counted."""
    return [
        happened.entry
        for happened in case.watched.events
        if happened.verdict == "accepted" and isinstance(happened.entry.event, kind)
    ]


def what_is_adopted_was_made_before(case: Any) -> Iterator[str]:
    """Lane B: a request names candidates that lie before it, and one for each upto at most."""
    summaries = {entry.offset: entry.event for entry in counted(case, ev.ContextCompacted)}
    shorts = {entry.offset for entry in counted(case, ev.ResultCompacted)}
    adopted: dict[int, int] = {}
    for entry in counted(case, ev.LlmCalled):
        checkpoint, upto = entry.event.checkpoint, entry.event.compacted_upto
        place = f"{entry.event.turn}.{entry.event.step}"
        if upto != -1 and (upto not in shorts or upto > entry.offset):
            yield f"{place} adopts short forms up to {upto}, which is none"
        if checkpoint is None:
            if adopted:
                yield f"{place} adopts nothing, and {adopted} is in force"
            continue
        if checkpoint not in summaries or checkpoint > entry.offset:
            yield f"{place} adopts {checkpoint}, which is no candidate"
            continue
        covers = summaries[checkpoint].upto
        if adopted.setdefault(covers, checkpoint) != checkpoint:
            yield f"{place} adopts {checkpoint}, and {adopted[covers]} is for {covers} too"
        if covers < max(adopted):
            yield f"{place} adopts a summary of {covers} after one of {max(adopted)}"
    for covers, count in Counter(event.upto for event in summaries.values()).items():
        if count > 1:
            yield f"{count} summaries for {covers} counted"


def every_work_ends_once(case: Any) -> Iterator[str]:
    """A killed work is taken up again, and comes to one end: made, or given up for a cancel.

    Work that its worker left when it ended in peace has not come to an end.
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
    for (kind, upto), dones in ends.items():
        started = claims.get((kind, upto), [])
        if [event.attempt for event in started] != list(range(1, len(started) + 1)):
            yield f"{kind} {upto} was claimed as {started}"
        if [event.epoch for event in started] != sorted({event.epoch for event in started}):
            yield f"{kind} {upto} was taken over under the same epoch: {started}"
        if len(dones) != 1 or not started:
            yield f"{kind} {upto} has {len(started)} claims and {len(dones)} ends"
            continue
        if not dones[0].ok and dones[0].why not in GIVEN_UP:
            yield f"{kind} {upto} was given up: {dones[0].why}"
        left = made[upto] if kind in SUMMARIES else int(calls.get(upto) in shorts)
        if dones[0].ok and left != 1:
            yield f"{kind} {upto} is done and left {left} candidates"


def no_more_calls_than_claims(case: Any) -> Iterator[str]:
    """Law 5: each model call of background work was claimed, by a claim that counted, once."""
    asked = [entry for entry in case.journal if entry["kind"] == "accepted"]
    # What comes to nothing is tried again under the same claim, as 0.0.2.
    calls = sum(entry["attempt"].endswith(" 0.0.1") for entry in asked)
    claims = len(case.watched.counted(ev.BackgroundStarted))
    if calls > claims:
        yield f"summaries were asked for {calls} times under {claims} claims"


def a_short_form_has_its_whole(case: Any) -> Iterator[str]:
    """S4.4: what was shortened is there as it was."""
    results = {
        f"{event.turn}.{event.step}.{event.index}": event
        for event in case.watched.counted(ev.ToolResult)
    }
    for event in case.watched.counted(ev.ResultCompacted):
        said = results[event.call].content
        whole = case.stage.blobs.get(event.short.ref.sha256)
        if said.ref is None and whole != said.inline:
            yield f"{event.call} was shortened, and its whole is {whole[:100]!r}"


def nothing_is_forgotten(case: Any) -> Iterator[str]:
    """What was said, answered and read stands in the last request, as it was or in a record."""
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
    wanted = set(case.person.said.values())
    for entry in case.accepted:
        if tuple(map(int, entry["attempt"].rpartition(" ")[2].split("."))) in completed:
            wanted.add(case.stage.said.texts[entry["n"]])
    for event in case.watched.counted(ev.ToolResult):
        if (event.turn, event.step) < (turn, step):
            wanted.add((event.content.inline or b"").decode())
    for name in NAMED.findall("\n".join(wanted)):
        if name not in names:
            yield f"{name!r} is neither said nor in the record of the last request"


def texts_of(body: dict[str, Any]) -> Iterator[str]:
    """Every text of a request's messages, results included."""
    for message in body["messages"]:
        content = message["content"]
        for block in [{"text": content}] if isinstance(content, str) else content:
            inner = block.get("content")
            yield inner if isinstance(inner, str) else block.get("text", "")
            if isinstance(inner, list):
                yield from (part.get("text", "") for part in inner)


def record_of(body: dict[str, Any]) -> str:
    """What a request says in the place of what it leaves out; '' if it leaves out nothing."""
    first = next(texts_of(body), "")
    if body["messages"][0]["role"] == "assistant":
        return first  # the provider's own, which it signed
    return first.partition(f"<{FRAME}>")[2].partition(f"</{FRAME}>")[0]

"""Invariants of sessions at rest. They are checked without asking the worker.

The evidence is the scripted server's journal (physical model calls), the ledger (physical tool
runs), a viewer, the test's own fold, and the store's files. Each witness takes a `Case` and yields
the violations as text.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from foldlog.local.messages_api import ATTEMPT_HEADER
from foldlog.log.errors import Corrupt
from foldlog.processors.fold.projections.turn_view import Call
from foldlog.processors.store.store import open_readonly
from foldlog.processors.store.views_codec import view_parts
from foldlog.schemas import events as ev
from foldlog.schemas.events.effects import ALIVE_SEQ
from foldlog.schemas.ids import call_key
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.crash import witnesses_background as background, witnesses_delivery as delivery
from foldlog.tests.crash.scenes import Person
from foldlog.tests.crash.script import NAMED
from foldlog.tests.crash.stage import Stage, WatchedSession
from foldlog.tests.kit.ends import are_lawful

ONCE = ("charge", "pay", "wire", "slow_charge")
_SESSION = re.compile(r"session:([\w-]*\w)")
ENDS_WELL = ("end_turn", "cancelled", "interrupted")


class Case(NamedTuple):
    """One session at rest, and its person. journal: the scripted server's entries about this
    session."""

    stage: Stage
    person: Person
    watched: WatchedSession
    journal: list[dict[str, Any]]

    @classmethod
    def of(cls, stage: Stage, person: Person) -> "Case":
        """The case of a person's session."""
        journal = stage.server.journal.entries(canary=person.session_id)
        return cls(stage, person, stage.watch(person.session_id), journal)

    @property
    def accepted(self) -> list[dict[str, Any]]:
        """The model calls of the session's steps that the server accepted."""
        entries = (entry for entry in self.journal if entry["kind"] == "accepted")
        return [entry for entry in entries if not background.is_background(entry)]


Place = tuple[int, int, int]


def _place_in(label: str) -> Place:
    """The (turn, step, attempt) that the attempt header names."""
    turn, step, attempt = label.rpartition(" ")[2].split(".")
    return int(turn), int(step), int(attempt)


def every_request_is_legal(case: Case) -> Iterator[str]:
    """I13: the strict server refused no request. I22: no request mentions another session."""
    for entry in case.stage.server.journal.entries():
        if entry["kind"] in ("refused", "failed"):
            yield f"request {entry['n']} was {entry['kind']}: {entry['error']}"
    for entry in case.journal:
        if entry["kind"] != "accepted":
            continue
        named = set(_SESSION.findall(case.stage.server.body(entry["n"]).decode()))
        if named != {case.person.session_id}:
            yield f"request {entry['n']} names the sessions {named}"


def every_model_call_was_claimed(case: Case) -> Iterator[str]:
    """Law 5, I20: each physical call has its own accepted claim, and none follows the outcome of
    its step."""
    claims = {
        (event.turn, event.step, event.attempt): event.request_sha256
        for kind in (ev.GenStart, ev.GenResumed)
        for event in case.watched.counted(kind)
    }
    labels = Counter(entry["attempt"] for entry in case.accepted)
    for label, count in labels.items():
        if label is None or count > 1:
            yield f"the attempt {label!r} ({ATTEMPT_HEADER}) was sent {count} times"
    bodies: dict[tuple[int, int], str] = {}
    completed_at = {
        (h.entry.event.turn, h.entry.event.step): h.entry.at
        for h in case.watched.events
        if h.verdict == "accepted" and isinstance(h.entry.event, ev.GenComplete)
    }
    for entry in case.accepted:
        turn, step, attempt = _place_in(entry["attempt"])
        if (turn, step, attempt) not in claims:
            yield f"attempt {turn}.{step}.{attempt} was sent without an accepted claim"
        if bodies.setdefault((turn, step), entry["sha256"]) != entry["sha256"]:
            yield f"attempts of {turn}.{step} sent different requests"
        if entry["at_ms"] > completed_at.get((turn, step), entry["at_ms"]):
            yield f"{turn}.{step} was completed and then sent again (attempt {attempt})"


def viewers_see_the_answers_of_the_model(case: Case) -> Iterator[str]:
    """I11, P6: a viewer sees the whole text of each winning attempt, and no word of another
    attempt."""
    sent = {_place_in(e["attempt"]): case.stage.model.texts[e["n"]] for e in case.accepted}
    watched = case.watched
    for of, text in watched.settled.items():
        words = sent.get(tuple(of), "")
        stopped = any(
            (e.turn, e.step, e.attempt) == tuple(of) for e in watched.counted(ev.GenStopped)
        )
        if not (words.startswith(text) if stopped else words == text):
            yield f"attempt {of} shows {text!r}, the model sent {words!r}"
    for of, tokens in watched.shown.items():
        if of not in watched.settled:
            yield f"attempt {of} is shown and did not win: {''.join(tokens)!r}"
    completed = {(e.turn, e.step, e.attempt) for e in watched.counted(ev.GenComplete)}
    for place in completed - {tuple(of) for of in watched.settled}:
        yield f"attempt {place} completed and is not shown"
    yield from _chunks_add_up(case, {place: sent.get(place, "") for place in completed})


def _chunks_add_up(case: Case, sent: dict[Place, str]) -> Iterator[str]:
    """I11: the chunks of a completed attempt are numbered 0..n-1, and together they are its text.

    If a worker died when the outcome was on disk, the last chunks may be lost (law 10).
    """
    watched, torn = case.watched, _outlived(case)
    chunks: dict[Place, dict[int, ev.GenChunk]] = {}
    for chunk in watched.counted(ev.GenChunk):
        if chunk.seq == ALIVE_SEQ:  # on a busy machine a stream can be silent for long
            continue
        place = (chunk.turn, chunk.step, chunk.attempt)
        chunks.setdefault(place, {}).setdefault(chunk.seq, chunk)
    for place, words in sent.items():
        found = chunks.get(place, {})
        if sorted(found) != list(range(len(found))):
            yield f"attempt {place} has the chunks {sorted(found)}"
        text = "".join(found[seq].delta for seq in sorted(found) if found[seq].kind == "text")
        if text != words and not (place in torn and words.startswith(text)):
            yield f"the chunks of attempt {place} have {text!r}, the model sent {words!r}"


def _outlived(case: Case) -> set[Place]:
    """The completed attempts during which a worker died: the outcome outlived the worker."""
    began: dict[Place, int] = {}
    found = set()
    for ruled in case.watched.events:
        event = ruled.entry.event
        if ruled.verdict != "accepted":
            continue
        match event:
            case ev.GenStart() | ev.GenResumed():
                began[event.turn, event.step, event.attempt] = ruled.entry.at
            case ev.GenComplete():
                place = (event.turn, event.step, event.attempt)
                if any(began[place] <= at <= ruled.entry.at for at in case.stage.deaths):
                    found.add(place)
    return found


def every_message_is_answered_once(case: Case) -> Iterator[str]:
    """I2, S0.10: each message ended in exactly one turn, and the last request contains the
    message's text exactly once.

    Instead of the text, the request may contain the message's name, in the record that replaces
    what the request leaves out.
    """
    views = case.watched.views
    for message_id in case.person.messages:
        ends = [row for row in views.messages.progress if row.message_id == message_id]
        over = [row for row in ends if row.reason]
        if len(over) != 1 or over[0].reason not in ENDS_WELL:
            yield f"message {message_id} ended as {[(r.turn, r.reason) for r in over]}"
    received = Counter(event.message_id for event in case.watched.counted(ev.MessageReceived))
    if received != Counter(list(case.person.messages)):
        yield f"the fold has the messages {dict(received)}"
    if not case.accepted:
        yield "the model was never called"
        return
    last = json.loads(case.stage.server.body(case.accepted[-1]["n"]))
    shown, recorded = Counter(_user_texts(last)), set(NAMED.findall(background.record_of(last)))
    for text in case.person.messages.values():
        times = shown[text] + (NAMED.findall(text)[0] in recorded)
        if times != 1:
            yield f"the last request has {text[:100]!r} {times} times"


def _user_texts(body: dict[str, Any]) -> Iterator[str]:
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "user":
            yield from (block["text"] for block in blocks if block["type"] == "text")


def the_ledger_agrees(case: Case) -> Iterator[str]:
    """I3, P2: a `once` tool ran at most once per call, and its outcome in the log is true."""
    runs = case.stage.ledger.lines(session=case.person.session_id)
    started = {
        (call_key(e.turn, e.step, e.index), e.attempt) for e in case.watched.counted(ev.ToolStarted)
    }
    for run in runs:
        if (run["call"], run["attempt"]) not in started:
            yield f"{run['tool']} {run['call']} ran as attempt {run['attempt']}, never claimed"
    physical = Counter((run["tool"], run["call"]) for run in runs)
    for (name, call), count in physical.items():
        if name in ONCE and count > 1:
            yield f"{name} {call} ran {count} times"
        keys = {r["key"] for r in runs if r["tool"] == name and r["call"] == call and "key" in r}
        if len(keys) > 1:
            yield f"{name} {call} ran under the keys {keys}"
    outcomes = {
        call_key(e.turn, e.step, e.index): e.outcome for e in case.watched.counted(ev.ToolResult)
    }
    outcomes |= {
        event.call: "ok" if event.outcome == "happened" else "not_run"
        for event in case.watched.counted(ev.HumanResolved)
    }
    for e in case.watched.counted(ev.ToolInvoked):
        ran = physical[(e.name, call_key(e.turn, e.step, e.index))]
        outcome = outcomes.get(call_key(e.turn, e.step, e.index))
        if (outcome == "ok" and not ran) or (outcome == "not_run" and ran):
            yield f"{e.name} {e.turn}.{e.step}.{e.index} is {outcome} and ran {ran} times"


def every_call_ends_lawfully(case: Case) -> Iterator[str]:
    """I4: every started call has ended as tests/kit/ends.py allows.

    A call may have three ends: a tool begins in time and is stopped together with its worker before
    its effect; a person reads the ledger and resolves the call as not happened; the worker resumes,
    the tool acts and reports its result, and the person reads the ledger again. No check of ours
    can come between the tool's last check and its effect.
    """
    started = {call_key(e.turn, e.step, e.index) for e in case.watched.counted(ev.ToolStarted)}
    ends: dict[str, list[Any]] = {key: [] for key in started}
    for ruled in case.watched.events:
        event = ruled.entry.event
        if ruled.verdict == "accepted" and isinstance(event, ev.ToolResult | ev.HumanResolved):
            key = getattr(event, "call", None) or call_key(event.turn, event.step, event.index)
            ends.setdefault(key, []).append(event)
    for key, events in ends.items():
        if not are_lawful(events):
            found = [getattr(event, "via", "person") + " " + event.outcome for event in events]
            yield f"call {key} (started: {key in started}) has the ends {found}"


def nothing_is_owed(case: Case) -> Iterator[str]:
    """I17: the session is at rest and not frozen, and WAKE has no row for it."""
    views = case.watched.views
    if views.frozen is not None:
        yield f"frozen at {views.frozen.offset}: {views.frozen.why}"
    owed = case.stage.owed(case.person.session_id)
    if owed:
        yield f"owes {owed}"
    open_calls: list[Call] = [c for c in views.turn.calls if c.status != "done"]
    if open_calls:
        yield f"has open calls {open_calls}"


Witness = Callable[[Case], Iterator[str]]

WITHOUT_CHANNELS: tuple[Witness, ...] = (
    every_request_is_legal,
    every_model_call_was_claimed,
    viewers_see_the_answers_of_the_model,
    every_message_is_answered_once,
    the_ledger_agrees,
    every_call_ends_lawfully,
    nothing_is_owed,
    background.what_is_adopted_was_made_before,
    background.every_work_ends_once,
    background.no_more_calls_than_claims,
    background.a_short_form_has_its_whole,
    background.nothing_is_forgotten,
)
"""The witnesses of sessions with viewers at a gateway, which records that they got an answer."""

WITNESSES: tuple[Witness, ...] = (*WITHOUT_CHANNELS, *delivery.WITNESSES)


def violations(
    stage: Stage, people: list[Person], witnesses: tuple[Witness, ...] = WITNESSES
) -> list[str]:
    """The violations of these witnesses in these sessions."""
    found = []
    for person in people:
        case = Case.of(stage, person)
        for witness in witnesses:
            found += [f"{person.session_id} {witness.__name__}: {why}" for why in witness(case)]
    return found


def the_store_is_the_fold(stage: Stage, worker: str, people: list[Person]) -> list[str]:
    """I6: the store equals the test's own fold byte for byte. Call this only when no session has
    pending work, because the store may otherwise lag."""
    found = []
    directory = stage.settings_of(worker).state_dir / "store" / (stage.prefix + SESSION_EVENTS)
    for partition in sorted({person.watched.partition for person in people}):
        store = open_readonly(directory / str(partition))
        try:
            for person in people:
                if person.watched.partition == partition:
                    found += _differs(person.watched, store.load(person.session_id))
        finally:
            store.close()
    return found


def _differs(watched: WatchedSession, stored: Any) -> Iterator[str]:
    if stored is None:
        yield f"{watched.session_id}: the store does not know it"
        return
    theirs = dict(view_parts(stored))
    for view, data in view_parts(watched.views):
        if theirs[view] != data:
            yield f"{watched.session_id}: the store has another {view}"


def stores_have_reached(stage: Stage, worker: str) -> bool:
    """Whether the stores of a worker have reached the offsets of the test's reader."""
    directory = stage.settings_of(worker).state_dir / "store" / (stage.prefix + SESSION_EVENTS)
    for partition, offset in stage.cursor.items():
        try:
            store = open_readonly(directory / str(partition))
        except Corrupt:  # the worker deleted one of its files meanwhile: the caller asks again
            return False
        try:
            if store.cursor.offset < offset:
                return False
        finally:
            store.close()
    return True

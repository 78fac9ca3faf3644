"""What must hold when all is quiet, each judged from outside of the worker.

The witnesses are the scripted server's journal (physical model calls), the ledger (physical tool
runs), a viewer, a fold of the test's own, and the store's files. Each function takes a `Case` and
yields what is wrong, in words; nothing means that all is well.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from foldlog.local.messages_api import ATTEMPT_HEADER
from foldlog.processors.fold.projections.turn_view import Call
from foldlog.processors.store.store import open_readonly
from foldlog.processors.store.views_codec import view_parts
from foldlog.schemas import events as ev
from foldlog.schemas.ids import call_key
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.crash import witnesses_background as aside, witnesses_delivery as pushed
from foldlog.tests.crash.scenes import Person
from foldlog.tests.crash.script import NAMED
from foldlog.tests.crash.stage import Stage, Watched
from foldlog.tests.laws.ends import are_lawful

ONCE = ("charge", "pay", "wire", "slow_charge")
_SESSION = re.compile(r"session:([\w-]*\w)")
ENDS_WELL = ("end_turn", "cancelled", "interrupted")


class Case(NamedTuple):
    """One session at rest, and who played in it. calls: the server's facts about it by kind."""

    stage: Stage
    person: Person
    watched: Watched
    journal: list[dict[str, Any]]

    @classmethod
    def of(cls, stage: Stage, person: Person) -> "Case":
        """The case of a person's session."""
        journal = stage.server.journal.entries(canary=person.session_id)
        return cls(stage, person, stage.watch(person.session_id), journal)

    @property
    def accepted(self) -> list[dict[str, Any]]:
        """The physical model calls of its steps."""
        entries = (entry for entry in self.journal if entry["kind"] == "accepted")
        return [entry for entry in entries if not aside.is_aside(entry)]


Place = tuple[int, int, int]


def _place_in(label: str) -> Place:
    """(turn, step, attempt) of the attempt header."""
    turn, step, attempt = label.rpartition(" ")[2].split(".")
    return int(turn), int(step), int(attempt)


def every_request_is_legal(case: Case) -> Iterator[str]:
    """I13: the strict server refused nothing, and no request names another session (I22)."""
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
    """Law 5, I20: a claim that counted for each physical call, once, and none after the outcome."""
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
    done = {
        (h.entry.event.turn, h.entry.event.step): h.entry.at
        for h in case.watched.events
        if h.verdict == "accepted" and isinstance(h.entry.event, ev.GenComplete)
    }
    for entry in case.accepted:
        turn, step, attempt = _place_in(entry["attempt"])
        if (turn, step, attempt) not in claims:
            yield f"attempt {turn}.{step}.{attempt} was sent and its claim never counted"
        if bodies.setdefault((turn, step), entry["sha256"]) != entry["sha256"]:
            yield f"attempts of {turn}.{step} sent different requests"
        if entry["at_ms"] > done.get((turn, step), entry["at_ms"]):
            yield f"{turn}.{step} was completed and then sent again (attempt {attempt})"


def the_answers_are_what_was_said(case: Case) -> Iterator[str]:
    """I11, P6: a viewer has the words of the winning attempts, whole, and no word of another."""
    said = {_place_in(e["attempt"]): case.stage.said.texts[e["n"]] for e in case.accepted}
    watched = case.watched
    for of, text in watched.settled.items():
        words = said.get(tuple(of), "")
        stopped = any(
            (e.turn, e.step, e.attempt) == tuple(of) for e in watched.counted(ev.GenStopped)
        )
        if not (words.startswith(text) if stopped else words == text):
            yield f"attempt {of} shows {text!r}, the model said {words!r}"
    for of, tokens in watched.shown.items():
        if of not in watched.settled:
            yield f"attempt {of} is shown and did not win: {''.join(tokens)!r}"
    completed = {(e.turn, e.step, e.attempt) for e in watched.counted(ev.GenComplete)}
    for place in completed - {tuple(of) for of in watched.settled}:
        yield f"attempt {place} completed and is not shown"
    yield from _chunks_add_up(case, {place: said.get(place, "") for place in completed})


def _chunks_add_up(case: Case, said: dict[Place, str]) -> Iterator[str]:
    """I11: seq 0..n-1, and the text of a completed attempt's chunks is its text.

    Where a worker died with the outcome on disk, the last chunks may have died with it (law 10).
    """
    watched, torn = case.watched, _outlived(case)
    chunks: dict[Place, dict[int, ev.GenChunk]] = {}
    for chunk in watched.counted(ev.GenChunk):
        place = (chunk.turn, chunk.step, chunk.attempt)
        chunks.setdefault(place, {}).setdefault(chunk.seq, chunk)
    for place, words in said.items():
        found = chunks.get(place, {})
        if sorted(found) != list(range(len(found))):
            yield f"attempt {place} has the chunks {sorted(found)}"
        text = "".join(found[seq].delta for seq in sorted(found) if found[seq].kind == "text")
        if text != words and not (place in torn and words.startswith(text)):
            yield f"the chunks of attempt {place} say {text!r}, the model said {words!r}"


def _outlived(case: Case) -> set[Place]:
    """The completed attempts in whose time a worker ended."""
    began: dict[Place, int] = {}
    found = set()
    for happened in case.watched.events:
        event = happened.entry.event
        if happened.verdict != "accepted":
            continue
        match event:
            case ev.GenStart() | ev.GenResumed():
                began[event.turn, event.step, event.attempt] = happened.entry.at
            case ev.GenComplete():
                place = (event.turn, event.step, event.attempt)
                if any(began[place] <= at <= happened.entry.at for at in case.stage.deaths):
                    found.add(place)
    return found


def every_message_is_answered_once(case: Case) -> Iterator[str]:
    """I2, S0.10: each message ended with one turn, and the model was told of it exactly once.

    Or it stands in the record of what the last request leaves out.
    """
    views = case.watched.views
    for message_id in case.person.said:
        ends = [row for row in views.messages.progress if row.message_id == message_id]
        over = [row for row in ends if row.reason]
        if len(over) != 1 or over[0].reason not in ENDS_WELL:
            yield f"message {message_id} ended as {[(r.turn, r.reason) for r in over]}"
    received = Counter(event.message_id for event in case.watched.counted(ev.MessageReceived))
    if received != Counter(list(case.person.said)):
        yield f"the fold has the messages {dict(received)}"
    if not case.accepted:
        yield "the model was never asked"
        return
    last = json.loads(case.stage.server.body(case.accepted[-1]["n"]))
    told, recorded = Counter(_user_texts(last)), set(NAMED.findall(aside.record_of(last)))
    for text in case.person.said.values():
        times = told[text] + (NAMED.findall(text)[0] in recorded)
        if times != 1:
            yield f"the last request has {text[:100]!r} {times} times"


def _user_texts(body: dict[str, Any]) -> Iterator[str]:
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "user":
            yield from (block["text"] for block in blocks if block["type"] == "text")


def the_ledger_agrees(case: Case) -> Iterator[str]:
    """I3, P2: a `once` tool ran at most once per call, and what the log says of it is true."""
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
    """I4: every started call has ended, as tests/laws/ends.py says it may.

    Three ends are lawful: a tool that began in time and was stopped before its effect, with its
    worker, is denied by a person who reads the ledger. It acts when the worker goes on (no check
    of ours can lie between the last one and the act), reports it, and the person reads again.
    """
    started = {call_key(e.turn, e.step, e.index) for e in case.watched.counted(ev.ToolStarted)}
    ends: dict[str, list[Any]] = {key: [] for key in started}
    for happened in case.watched.events:
        event = happened.entry.event
        if happened.verdict == "accepted" and isinstance(event, ev.ToolResult | ev.HumanResolved):
            key = getattr(event, "call", None) or call_key(event.turn, event.step, event.index)
            ends.setdefault(key, []).append(event)
    for key, events in ends.items():
        if not are_lawful(events):
            told = [getattr(event, "via", "person") + " " + event.outcome for event in events]
            yield f"call {key} (started: {key in started}) has the ends {told}"


def nothing_is_owed(case: Case) -> Iterator[str]:
    """I17: the session rests, unfrozen, and wake has no row for it."""
    views = case.watched.views
    if views.frozen is not None:
        yield f"frozen at {views.frozen.offset}: {views.frozen.why}"
    owed = case.stage.owed(case.person.session_id)
    if owed:
        yield f"owes {owed}"
    open_calls: list[Call] = [c for c in views.turn.calls if c.status != "done"]
    if open_calls:
        yield f"has open calls {open_calls}"


WITNESSES: tuple[Callable[[Case], Iterator[str]], ...] = (
    every_request_is_legal,
    every_model_call_was_claimed,
    the_answers_are_what_was_said,
    every_message_is_answered_once,
    the_ledger_agrees,
    every_call_ends_lawfully,
    nothing_is_owed,
    aside.what_is_adopted_was_made_before,
    aside.every_work_ends_once,
    aside.no_more_calls_than_claims,
    aside.a_short_form_has_its_whole,
    aside.nothing_is_forgotten,
    *pushed.WITNESSES,
)


def violations(stage: Stage, people: list[Person]) -> list[str]:
    """Everything that is wrong with these sessions."""
    found = []
    for person in people:
        case = Case.of(stage, person)
        for witness in WITNESSES:
            found += [f"{person.session_id} {witness.__name__}: {why}" for why in witness(case)]
    return found


def the_store_is_the_fold(stage: Stage, worker: str, people: list[Person]) -> list[str]:
    """I6: the store holds byte for byte what the test has folded itself. Both must be at rest."""
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


def _differs(watched: Watched, held: Any) -> Iterator[str]:
    if held is None:
        yield f"{watched.session_id}: the store does not know it"
        return
    theirs = dict(view_parts(held))
    for view, data in view_parts(watched.views):
        if theirs[view] != data:
            yield f"{watched.session_id}: the store has another {view}"


def stores_have_reached(stage: Stage, worker: str) -> bool:
    """Whether the stores of a worker are where the test's reader is."""
    directory = stage.settings_of(worker).state_dir / "store" / (stage.prefix + SESSION_EVENTS)
    for partition, offset in stage.cursor.items():
        store = open_readonly(directory / str(partition))
        try:
            if store.cursor.offset < offset:
                return False
        finally:
            store.close()
    return True

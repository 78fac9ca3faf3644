"""The commands of simulated people, by name: legal, late, repeated, wrong or pointless.

Each command returns the events of one request, computed from the views that the person sees.
`chosen` picks a command that fits these views.
"""

import json
from dataclasses import replace
from typing import Any

from foldlog.log.partition import partition_for
from foldlog.processors.fold.rulings.producers import RULES
from foldlog.processors.fold.transitions import TRANSITIONS
from foldlog.producers.fork import without_chunks, without_skipped
from foldlog.schemas import events as ev
from foldlog.schemas.ids import PARTITION_KEY, call_key
from foldlog.schemas.seed import MEDIA_TYPE, seal
from foldlog.schemas.topics import SESSION_EVENTS

UNREPEATED = (ev.ApprovalDecided, ev.HumanResolved, ev.SessionTerminated)
CHANNELS = ("simulation", "push:a", "push:a", "push:b")
TRIGGERS = ("start_build", "todo_done_build", "publish", "revert", "open_existing", "nonsense")


def opened(person: Any) -> ev.SessionOpened:
    """The event with which this person opens a session."""
    name = "nobody" if person.agentless else person.world.agent.name
    return ev.SessionOpened(user_id=person.user_id, agent=name, rules=RULES)


def _content(person: Any, message_id: str, more: str = "") -> ev.Body:
    text = [{"type": "text", "text": f"<{person.session_id}:{message_id}>{more}"}]
    return person.world.blobs.body(json.dumps(text).encode(), "application/json")


def a_message(person: Any, when_busy: str, message_id: str | None = None) -> ev.MessageReceived:
    """A new message. Its text contains its id, so that a request shows which messages it
    contains."""
    person.messages += 1
    message_id = message_id or f"m{person.messages}"
    more, tokens = "", person.rng.choice((5, 5, 5, 300))
    if person.world.scenario.compacts:
        more = " as said" * person.rng.choice((0, 10, 100, 100, 300))
        tokens = 15 + len(more) // 3
    body = _content(person, message_id, more)
    event = ev.MessageReceived(
        message_id=message_id,
        role="user",
        content=body,
        tokens=tokens,
        channel=person.rng.choice(CHANNELS) if person.world.scenario.pushes else "simulation",
        when_busy=when_busy,
        by_user=person.user_id,
    )
    person.sent.append(event)
    return event


def say(person: Any) -> list:
    return [a_message(person, person.rng.choice(("queue", "queue", "interrupt", "steer")))]


def queue(person: Any) -> list:
    return [a_message(person, "queue") for _ in range(person.rng.choice((1, 2, 3)))]


def steer(person: Any) -> list:
    return [a_message(person, "steer")]


def interrupt(person: Any) -> list:
    return [a_message(person, "interrupt")]


def say_again(person: Any) -> list:
    return [person.rng.choice(person.sent)] if person.sent else say(person)


def say_wrongly(person: Any) -> list:
    """An invalid message: a reused id, no text, a bad id, a wrong role, or another user's name."""
    event = a_message(person, "queue")
    text = b'[{"type":"text","text":"  "}]'
    reused = person.sent[0].message_id
    wrong = (
        {"message_id": reused, "content": _content(person, reused, "otherwise")},
        {"content": ev.Body(inline=text), "message_id": f"e{person.messages}"},
        {"content": ev.Body(inline=b"not JSON"), "message_id": f"j{person.messages}"},
        {"message_id": "no id, this"},
        {"role": "system", "message_id": f"r{person.messages}"},
        {"by_user": "somebody-else", "message_id": f"u{person.messages}"},
    )
    person.sent.pop()
    return [replace(event, **person.rng.choice(wrong))]


def open_again(person: Any) -> list:
    event = opened(person)
    return [person.rng.choice((event, replace(event, user_id="thief"), replace(event, rules=9)))]


def cancel(person: Any) -> list:
    """A cancel, at once or after the step, with or without the turn and the phase that the person
    saw."""
    rng, views = person.rng, person.views
    person.commands += 1
    number = views.turn.number if views else 1
    turn = rng.choice((None, None, number, number, number, number + 1, max(1, number - 1)))
    phase = views.state.phase if views else "chatting"
    event = ev.CancelRequested(
        cancel_id=f"c{person.commands}",
        mode=rng.choice(("now", "now", "now", "after_step")),
        turn=turn,
        seen_phase=rng.choice((None, None, phase, "verifying")),
        reason="simulated",
        by_user=person.user_id,
    )
    return [event] * rng.choice((1, 1, 1, 2))


def trigger(person: Any) -> list:
    person.commands += 1
    phase = person.views.state.phase if person.views else "chatting"
    legal = [word for word in TRANSITIONS[phase] if word not in ("open_existing", "cancel")]
    use_legal = legal and person.rng.random() < 0.7
    event = ev.PhaseTriggered(
        command_id=f"t{person.commands}",
        trigger=person.rng.choice(legal if use_legal else TRIGGERS),
        by_user=person.user_id,
    )
    return [event] * person.rng.choice((1, 1, 2))


def lock(person: Any) -> list:
    person.commands += 1
    name = person.rng.choice(("project-1", "project-2", "no id!", "z" * 128))
    return [
        ev.ProjectLocked(command_id=f"l{person.commands}", project_id=name, by_user=person.user_id)
    ]


def _calls(person: Any, *statuses: str) -> list:
    views = person.views
    if views is None:
        return []
    calls = (*views.turn.calls, *views.turn.doubts)
    return [call for call in calls if call.status in statuses]


def decide(person: Any) -> list:
    """Allow or deny a call that waits for approval; sometimes with other arguments, or a call that
    no longer waits."""
    rng = person.rng
    calls = _calls(person, "asks") or _calls(person, "proposed", "started", "done")
    if not calls:
        return say(person)
    call = rng.choice(calls)
    sha = call.args_sha256 if rng.random() < 0.7 else "0" * 64
    event = ev.ApprovalDecided(
        call=call.key,
        args_sha256=sha,
        decision=rng.choice(("allow", "allow", "deny")),
        remember=rng.random() < 0.2,
        by_user=person.user_id,
        grant=rng.choice(("same", "same", "")),
    )
    return [event] * rng.choice((1, 1, 2))


def resolve(person: Any) -> list:
    """Resolve a call that is in doubt, rightly or wrongly, or a call that is not in doubt."""
    rng = person.rng
    calls = _calls(person, "doubt", "contradicted") or _calls(person, "started", "done")
    key = rng.choice(calls).key if calls else rng.choice(("1.1.0", "not a call"))
    event = ev.HumanResolved(
        call=key,
        outcome=rng.choice(("happened", "did_not_happen")),
        content=ev.Body(inline=b"seen by a person"),
        by_user=person.user_id,
    )
    return [event]


def terminate(person: Any) -> list:
    person.left = min(person.left, 2)
    return [ev.SessionTerminated(reason="simulated", by_user=person.user_id)]


def garbage(person: Any) -> list:
    """Records that are not events, under every kind of key."""
    rng = person.rng
    name = rng.choice((b"NEW_THING", b"GEN_CHUNK", b""))
    key = rng.choice((None, None, "not an id!", b"\xff\xfe", "k" * 300, b"", PARTITION_KEY))
    headers = [("t", name), ("w", b"producer")] if name else []
    if rng.random() < 0.15:  # an unknown event that must be understood freezes its session
        headers = [("t", rng.choice((b"MESSAGE_RECEIVED", b"NEW_THING"))), ("m", b"1")]
    person.append_raw(rng.choice((b"", b"\xc3\x01garbage", b"x" * 40)), headers, key)
    return []


def forge(person: Any) -> list:
    """An event of a worker's type that a client writes."""
    number = person.views.turn.number if person.views else 1
    basis = person.views.turn.basis if person.views else 0
    place = {"turn": number, "step": 1, "index": 0, "attempt": 1}
    event = person.rng.choice(
        (
            ev.TurnEnded(turn=number, reason="end_turn", basis=basis, views_sha=b""),
            ev.ToolFailedUncertain(**place, reason="forged"),
            ev.Refused(offset=0, code="forged", detail=""),
            ev.HumanNeeded(call="1.1.0", why="forged"),
        )
    )
    person.send(event)
    return []


def _seed(person: Any, upto: int, without: tuple[int, ...]) -> ev.BlobRef:
    """A seed with the records of the person's session up to an offset, stored."""
    place = partition_for(person.session_id, person.world.partitions)
    records = person.world.log.topic(SESSION_EVENTS).partitions[place].records
    key = person.session_id.encode()
    own = [record for record in records if record.key == key and record.offset <= upto]
    kept = without_skipped(without_chunks(own), without)
    return person.world.blobs.store(seal(person.session_id, kept), MEDIA_TYPE)


def fork(person: Any) -> list:
    """A fork of the session, whose last result is edited. Nobody speaks to it."""
    history = person.world.witness.history.get(person.session_id)
    offset, views = history[-1] if history else (0, None)
    if views is None or not views.turn.known or views.frozen:
        return say(person)
    person.commands += 1
    opening = replace(
        opened(person),
        agent=views.turn.agent,
        parent_session=person.session_id,
        parent_offset=offset,
        seed_ref=_seed(person, offset, views.skipped),
    )
    name = f"{person.session_id[:120]}-{person.commands}"
    person.send(opening, to=name)
    results = [row for row in views.context.fragments if row.kind == "result"]
    if results:
        place = (results[-1].turn, results[-1].step, results[-1].index)
        edited = ev.ResultReplaced(
            call=call_key(*place), outcome="ok", content=ev.Body(inline=b"edited"), tokens=2,
            reason="simulated", by_user=person.user_id,
        )
        person.send(edited, to=name)
    return []


def poison(person: Any) -> list:
    """A record that freezes the session."""
    person.append_raw(b"", [("t", b"NEW_THING"), ("w", b"producer"), ("m", b"1")])
    return []


def skip(person: Any) -> list:
    """Continue a frozen session without the record that froze it."""
    history = person.world.witness.history.get(person.session_id)
    views = history[-1][1] if history else None
    if views is None or views.frozen is None:
        return say(person)
    without = (*views.skipped, views.frozen.offset)
    event = ev.RecordSkipped(
        offset=views.frozen.offset,
        seed_ref=_seed(person, history[-1][0], without),
        reason="simulated",
        by_user=person.user_id,
    )
    return [event] * person.rng.choice((1, 1, 2))


def flood(person: Any) -> list:
    """More refused or queued messages than a view keeps."""
    if person.rng.random() < 0.7:
        return [e for _ in range(70) for e in say_wrongly(person)]
    return [a_message(person, "queue") for _ in range(260)]


COMMANDS = {
    function.__name__: function
    for function in (
        say,
        queue,
        steer,
        interrupt,
        say_again,
        say_wrongly,
        open_again,
        cancel,
        trigger,
        lock,
        decide,
        resolve,
        terminate,
        garbage,
        forge,
        fork,
        poison,
        skip,
        flood,
    )
}


def chosen(person: Any) -> str:
    """The name of a command: mostly one for which a call waits, otherwise one drawn by the
    scenario's weights."""
    rng = person.rng
    if _calls(person, "asks") and rng.random() < 0.8:
        return "decide"
    if _calls(person, "doubt", "contradicted") and rng.random() < 0.4:
        return "resolve"
    habits = person.world.scenario.habits
    return rng.choices(list(habits), list(habits.values()))[0]


def answers(person: Any, views: Any) -> list:
    """The true answer for every call that waits for a person."""
    found = []
    for call in (*views.turn.calls, *views.turn.doubts):
        if call.status in ("doubt", "contradicted"):
            happened = person.world.has_executed(person.session_id, call.key)
            found.append(
                ev.HumanResolved(
                    call=call.key,
                    outcome="happened" if happened else "did_not_happen",
                    content=ev.Body(inline=b"looked it up"),
                    by_user=views.state.user_id,
                )
            )
        elif call.status == "asks":
            found.append(
                ev.ApprovalDecided(
                    call=call.key,
                    args_sha256=call.args_sha256,
                    decision="allow",
                    remember=False,
                    by_user=views.state.user_id,
                )
            )
    return found

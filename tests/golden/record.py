"""Records the golden sessions: `python -m foldlog.tests.golden.record [NAME ...]`.

Without names, the command updates only the expected outcome of the existing records. Use this after
you change a fold on purpose, and review the difference. With names, the command plays and records
those sessions again. Never record a session again if it came from a user.
"""

import sys
from collections.abc import Callable

from foldlog.schemas import events as ev
from foldlog.tests.golden.golden import (
    SESSION_ID,
    SESSIONS,
    blobs_of,
    expected,
    names,
    records,
    write,
    write_expected,
)
from foldlog.tests.kit.agents import LIMITS, MINUTE, variant
from foldlog.tests.kit.answers import Use, complete, dumps, text, thinking
from foldlog.tests.kit.background_ends import ends_of
from foldlog.tests.kit.history import History, opened

LOOK, POST = Use("look", '{"where":"there"}', "a"), Use("post", '{"text":"dear"}', "b")
CHARGE = Use("charge", '{"cents":3}', "c")
READ = Use("read", "{}", "d")


def conversation() -> History:
    """Two turns with thinking, a tool, a remembered approval and a large answer."""
    s = opened(SESSION_ID)
    s.say("hello ü", "m1")
    s.answer(thinking("who is it?"), "good day", read=90)
    s.say("buy two", "m2")
    s.answer(thinking("", "sig+/=="), "buying", CHARGE, LOOK, read=180)
    s.allow("2.1.0", remember=True)
    s.work()
    s.result("2.1.1", "seen", reminders=("mind the price",))
    s.result("2.1.0", '{"cents":3}', triggers=(ev.Trigger(trigger="start_build"),))
    s.answer("again", Use("charge", '{"cents":4}', "c"), read=260)
    s.result("2.2.0", '{"cents":4}')
    s.answer("bought two. " * 40, read=320)
    s.append(ev.GenSent(turn=2, step=3, channel="sse"), "consumers")
    return s


def crash_and_resume() -> History:
    """The worker dies during an answer, and during a tool call that may be retried."""
    s = opened(SESSION_ID)
    s.say("go", "m1")
    s.work()
    first = s.place
    s.chunk("half", 0)
    s.chunk(" a sent", 1)
    s.take("w1/2").work()
    s.append(complete(first, [text("half a sentence")], "end_turn", s.blobs), "models")
    s.answer("looking", LOOK)
    s.take("w2/1")
    s.later(2 * MINUTE + LIMITS.start_window_ms + LIMITS.margin_ms).work()
    s.result("1.1.0", "from the first", attempt=1)
    s.result("1.1.0", "from the second", attempt=2)
    s.work()
    s.fail(retry_at=s.at + 1_000)
    s.later(1_000).answer("done")
    return s


def doubt_resolved() -> History:
    """It is in doubt whether a letter was sent. A person reports that it was not sent, and a later
    result contradicts the person."""
    s = opened(SESSION_ID)
    s.say("send it", "m1")
    s.answer(POST)
    s.take("w1/2").work()
    s.discharge("T6")
    s.uncertain("1.1.0")
    s.work()
    s.resolve("1.1.0", "did_not_happen", "no letter came")
    s.answer("then it was not sent")
    s.result("1.1.0", "sent after all", attempt=1)
    s.work()
    s.resolve("1.1.0", "happened", "it came a day late")
    s.say("and?", "m2")
    s.answer("it came")
    return s


def cancel_with_partial() -> History:
    """One turn is cancelled during an answer, another during a tool call."""
    s = opened(SESSION_ID)
    s.trigger("start_build", "t1")
    s.say("tell me all", "m1")
    s.work()
    s.chunk("once upon")
    s.cancel("c1", turn=1, seen_phase="building")
    s.cancel("c2")
    s.stopped(thinking("long"), "once upon", Use("look", "{}", "cut"))
    s.work()
    s.say("short then", "m2")
    s.answer(POST, LOOK)
    s.cancel("c3", turn=2)
    s.later(LIMITS.grace_ms).work()
    s.say("what now", "m3")
    s.answer("all is well")
    s.result("2.1.0", "it was posted", attempt=1)
    s.say("good", "m4")
    s.answer("yes")
    return s


def steer_and_interrupt() -> History:
    """Messages that queue, steer and interrupt; a paused turn; and a refusal."""
    s = opened(SESSION_ID)
    s.say("one", "m1")
    s.say("two", "m2")
    s.answer(LOOK)
    s.say("left", "m3", when_busy="steer")
    s.say("later", "m4")
    s.result("1.1.0", "a fork")
    use = dumps({"type": "server_tool_use", "id": "srv1", "name": "web", "input": {}})
    s.answer("searching", use, stop="pause_turn")
    s.say("no, this", "m5", when_busy="interrupt")
    s.stopped()
    s.work()
    s.answer("no", stop="refusal")
    s.say("please", "m6")
    s.answer("yes")
    return s


def terminate() -> History:
    """The session refuses events of every kind, has undecodable records, and ends."""
    s = History(SESSION_ID).take()
    s.say("too early", "m0")
    s.work().open()
    s.open()
    s.say("", "m1", raw=b"[]")
    s.say("go", "m1")
    s.say("go", "m1")
    s.lock("p1", "l1")
    s.lock("p2", "l2")
    s.trigger("publish", "t1")
    s.cancel("c1", by="bob")
    s.append_raw(b"\x00\x01", (("t", b"SOMETHING_ELSE"),))
    s.append_raw(None, ())
    s.answer(CHARGE)
    s.allow("1.1.0", sha="other")
    s.say("wait", "m2")
    s.terminate()
    s.work()
    s.say("anybody?", "m3")
    s.work()
    return s


def compaction() -> History:
    """A long session: short forms that are adopted at once or later; summaries that are adopted,
    written while the session is idle, aborted, or skipped; and extracted memories."""
    s = opened(SESSION_ID, agent=variant(memory=True))
    for number in range(7):
        s.say(f"{number}: " + "tell me more. " * 150, f"m{number}")
        s.answer(thinking(f"hm {number}"), "more it is", read=600 * (number + 1))
        run_background(s)
    s.say("read it", "m7")
    s.answer(READ, read=5_000)
    s.result("8.1.0", "a row like the one before it\n" * 80)
    s.discharge("B1")
    run_background(s, "80 equal rows")
    s.answer(thinking("then"), READ, read=6_000)
    s.result("8.2.0", "a line like the one before it\n" * 90)
    s.work()
    run_background(s, "The person wants more. A tool said that all rows are equal.")
    s.answer("all equal", read=7_000)
    run_background(s)
    s.later(10 * MINUTE).say("and now?", "m8")
    s.answer("now as well", read=4_500)
    s.say("again", "m9")
    s.answer(READ, read=8_000)
    s.cancel("c1")
    s.work()
    s.later(LIMITS.grace_ms).work()
    return s


def adapter_items() -> History:
    """The items of another framework: batches of items, two writers that remove the same last item,
    and the removal of all items."""
    s = opened(SESSION_ID)
    batches = (("b1", '[{"role":"user","content":"hé"}]', 1), ("b2", "[1,2]", 2))
    for name, items, number in batches:
        body = ev.Body(inline=items.encode())
        event = ev.ItemAdded(item_id=name, content=body, items=number, by_user="ana")
        s.append(event, "producer")
        s.append(event, "producer")
    for command, index, seen in (("c1", 1, 2), ("c2", 1, 2), ("c3", 0, 3)):
        taken = ev.ItemRetracted(
            item_id="b2", index=index, seen=seen, command_id=command, by_user="ana"
        )
        s.append(taken, "producer")
    wrong = ev.ItemAdded(item_id="b3", content=ev.Body(inline=b"[0]"), items=2, by_user="ana")
    s.append(wrong, "producer")
    s.append(ev.ItemRetracted(item_id="", all=True, command_id="c4", by_user="ana"), "producer")
    s.append(event, "producer")
    return s


def run_background(s: History, text: str = "So far nothing but more of it.") -> None:
    """Completes the claimed background work."""
    while any(owed.row == "B2" for owed in s.owed()):
        discharged = s.discharge("B2")
        for _, begin in discharged.begun:
            for event in ends_of(begin, begin.task, s.agent, text, s.blobs):
                s.append(event, "background")


PLAYS: dict[str, Callable[[], History]] = {
    play.__name__: play
    for play in (
        conversation,
        crash_and_resume,
        doubt_resolved,
        cancel_with_partial,
        steer_and_interrupt,
        terminate,
        compaction,
        adapter_items,
    )
}


def main(wanted: list[str]) -> None:
    """Records the named sessions, or updates the expected outcome of all of them."""
    SESSIONS.mkdir(exist_ok=True)
    for name in wanted:
        s = PLAYS[name]()
        assert s.views.frozen is None
        write(name, s.records, s.blobs.held)
    if not wanted:
        for name in names():
            write_expected(name, records(name), blobs_of(expected(name)))


if __name__ == "__main__":
    main(sys.argv[1:])

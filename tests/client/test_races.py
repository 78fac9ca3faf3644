"""Concurrent commands: the order in the log decides; one wins, and the other is refused (S0.10,
S0.11, P11)."""

import threading
from collections.abc import Callable

from foldlog.client.log_client import LogClient
from foldlog.client.outcomes import CommandRefused
from foldlog.client.session import Session
from foldlog.tests.kit.played import memory_log, settings_in
from foldlog.tests.kit.waiting import PATIENCE_S, joined

RACES = 60


def race(*commands: Callable[[], object]) -> list[object]:
    """Run these commands at the same time, and return each command's decision or refusal."""
    start = threading.Barrier(len(commands))
    results: list[object] = [None] * len(commands)

    def run(place: int) -> None:
        start.wait(PATIENCE_S)
        try:
            results[place] = commands[place]()
        except CommandRefused as refused:
            results[place] = refused

    threads = [
        threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(commands))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        joined(thread)
    return results


def two_tabs(tmp_path):
    log = memory_log(threaded=True)
    return LogClient(settings_in(tmp_path), log), LogClient(settings_in(tmp_path), log)


def test_S0_11_publish_and_cancel_at_once_exactly_one_wins(tmp_path):
    one, two = two_tabs(tmp_path)
    for number in range(RACES):
        name = f"s{number}"
        Session(one, name).open()
        Session(one, name).trigger("start_build")
        Session(one, name).trigger("todo_done_build")
        published, cancelled = race(
            lambda name=name: Session(one, name).trigger("publish"),
            lambda name=name: Session(two, name).cancel(seen_phase="verifying"),
        )
        phase = Session(one, name).views().state.phase
        lost = [r for r in (published, cancelled) if isinstance(r, CommandRefused)]
        assert len(lost) == 1
        assert phase == ("chatting" if lost[0] is published else "done")
        assert str(lost[0]) in (
            "invalid transition: phase=chatting, event=publish",
            "the phase is done, no longer verifying",
        )


def test_S0_3_two_locks_at_once_exactly_one_wins(tmp_path):
    one, two = two_tabs(tmp_path)
    for number in range(RACES):
        name = f"s{number}"
        Session(one, name).open()
        results = race(
            lambda name=name: Session(one, name).lock("p1"),
            lambda name=name: Session(two, name).lock("p2"),
        )
        (lost,) = [r for r in results if isinstance(r, CommandRefused)]
        assert str(lost) == "project_id already locked"
        assert Session(one, name).views().state.project_id == ("p2" if results[0] is lost else "p1")


def test_S0_10_a_message_sent_twice_at_once_to_a_new_session_is_accepted_once(tmp_path):
    one, two = two_tabs(tmp_path)
    for number in range(RACES):
        name = f"s{number}"
        results = race(
            lambda name=name: Session(one, name).say("hi", message_id="m1"),
            lambda name=name: Session(two, name).say("hi", message_id="m1"),
        )
        assert sorted(decision.verdict for decision in results) == ["accepted", "duplicate"]
        assert len(Session(one, name).views().messages.received) == 1

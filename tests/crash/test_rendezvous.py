"""S0.7 on a broker: a worker's page of a user lists the open sessions, also after kill -9."""

import json
import urllib.error
import urllib.request

import pytest

from foldlog.consumers.tabs import Tabs
from foldlog.tests.crash.fleet import await_that

pytestmark = [pytest.mark.broker, pytest.mark.crash]


def page(hand, user: str = "tester") -> list[str] | None:
    """The sessions that the running worker lists for a user; None while it does not answer."""
    web = hand.noted().get("web")
    try:
        with urllib.request.urlopen(f"{web}/users/{user}", timeout=20) as answer:
            return [tab["session_id"] for tab in json.loads(answer.read())["tabs"]]
    except (urllib.error.URLError, ValueError, ConnectionError):
        return None


def await_page(hand, wanted: list[str]) -> None:
    """Until the page lists these sessions. Raises TimeoutError with what it lists instead."""
    seen: list[str] | None = None

    def is_listed() -> bool:
        nonlocal seen
        seen = page(hand)
        return seen == wanted

    try:
        await_that(f"the page lists {wanted}", is_listed)
    except TimeoutError as late:
        said = hand.log.read_text("utf-8", "replace")[-2_000:]
        why = f"{late}, but {seen}, of {hand.noted()}; ended: {hand.ended()}; it said: {said}"
        raise TimeoutError(why) from late


def test_S0_7_the_page_of_a_user_survives_a_kill_and_so_does_what_nobody_was_told(stage):
    hand = stage.hand()
    hand.start()
    for name in ("one", "two"):
        stage.sessions.open(name, agent="helper")
    await_that("both are listed", lambda: sorted(page(hand) or ()) == ["one", "two"])
    assert page(hand, "nobody") == []
    hand.arm("store.written:1")  # folded and in the store, nobody was told
    stage.sessions.terminate("one")
    hand.await_end()
    hand.start()
    await_page(hand, ["two"])  # told by the next worker
    tabs = Tabs(stage.log)
    try:
        await_that("the gateway's view has it", lambda: tabs.look(0.1) or tabs.caught_up.is_set())
        assert [tab.session_id for tab in tabs.open_sessions("tester")] == ["two"]
    finally:
        tabs.close()

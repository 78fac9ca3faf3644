"""Takes pictures of every page and state of the inspector, to review them by looking at each:
`make pictures ARGS="[DIRECTORY [PART OF A NAME]]"`.

The sessions are played on a log in memory, over the last hours. test_pictures.py opens each state
without taking its picture.
"""

import json
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Error as PlaywrightError, sync_playwright

from foldlog.log import MemoryLog
from foldlog.producers import Sessions
from foldlog.schemas import events as ev
from foldlog.schemas.events.parts import AgentDigest
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import topics
from foldlog.tests.kit.chromium import OPTIONS, chromium_path
from foldlog.tests.kit.played import PARTITIONS, Played, settings_in
from foldlog.tests.web.gateway.served import SECRET, served
from foldlog.tests.web.inspector.conftest import PRICE

AGENTS = ("shop", "research", "billing")
SERVED = tuple(AgentDigest(name=name, digest="d") for name in AGENTS[:2])
PICTURES = Path("build", "pictures")
WIDTHS = {1440: 900, 1024: 768, 390: 844}
TITLES = (
    "Change the delivery address of order 10517", "Which suppliers raised prices since June?",
    "Translate the returns page into Polish", "Cancel the subscription of T. Okafor",
    "Where is parcel PX-2201?", "Compare the three bids for the new warehouse",
    "Write to everyone who ordered the recalled kettle", "Sort the reviews of the oak table",
    "Find duplicate invoices of last month", "Draft the answer to the complaint of Frau Lindemann",
)
REPEATED = 3
"""How many sessions that are done have the same title."""

LONG_TITLE = "Summarise_everything_that_was_said_about_the_broken_lamp_" * 3
ANSWER = """Two things are wrong with **order 10482**:

| Item | Ordered | Delivered |
|---|---|---|
| Arc floor lamp | 1 | 1, *broken* |
| Bulb E27 | 2 | none |

1. The lamp can be refunded: `129.00 EUR`.
2. The bulbs were never packed.

```python
refund(order_id=10482, amount="129.00", currency="EUR")
```"""
PICTURE_OF_LAMP = (220, 140)
TIMEOUT_MS = 20_000
SETTLE_MS = 700


class Worker(Played):
    """A played worker that announces the agents that it serves."""

    def take(self, owner: str | None = None) -> "Worker":
        self.owner = owner or self.owner
        for role in ("sessions", "models", "tools"):
            taken = ev.PartitionTaken(role=role, owner=self.owner, agents=SERVED)
            self.epochs[role] = self.append(taken, role, PARTITION_KEY)
        return self

    def ask(self) -> None:
        """Let the newest step's call wait for approval, until tomorrow."""
        turn = self.views.turn
        call = turn.calls[0]
        asked = ev.ToolInvoked(
            turn=call.turn, step=call.step, index=0, call_id=call.call_id, name=call.name,
            effect="once", approval="ask", expires_at=self.now_ms() + 86_400_000, basis=turn.basis,
        )
        self.append(asked, "sessions")


class Stage:
    """An installation whose clock the script moves."""

    def __init__(self, directory: Path, ms: int) -> None:
        self.ms = ms
        self.log = MemoryLog(topics(PARTITIONS), clock_ms=lambda: self.ms, threaded=True)
        prices = directory / "prices.json"
        model = {"model": "claude-test", **{name: 400 * usd for name, usd in PRICE.items()}}
        prices.write_text(json.dumps({"version": "2026-11", "prices": [model]}))
        self.directory, self.settings = directory, replace(settings_in(directory), prices=prices)
        self.sessions = Sessions(self.log, self.settings)

    def open(self, name: str, text: Any, agent: str = "shop", **more: Any) -> Worker:
        self.sessions.open(name, agent=agent)
        self.sessions.say(name, text, message_id="m1", **more)
        played = Worker(self.log, name, "worker-4c/1")
        played.now_ms = lambda: self.ms
        return played.take()

    def after(self, ms: float) -> None:
        self.ms += round(ms)

    def step(self, played: Played, text: str, *calls: Any, ms: float = 2_000) -> None:
        played.call()
        self.after(30)
        played.start()
        self.after(ms / 2)
        played.chunk(text[: len(text) // 2])
        self.after(ms / 2)
        played.complete(text, calls)

    def tool(self, played: Played, result: str, ms: float = 300, index: int = 0) -> None:
        played.invoke(index, effect="once")
        played.tool_start(index)
        self.after(ms)
        played.tool_result(result, index)
        self.after(20)

    def lamp(self) -> Path:
        """A small picture of no lamp at all."""
        width, height = PICTURE_OF_LAMP
        rows = b"".join(
            b"\0" + bytes((x * 255 // width, 120, y * 255 // height)[n] for x in range(width)
                          for n in range(3)) for y in range(height))

        def chunk(kind: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + kind + data + struct.pack(
                ">I", zlib.crc32(kind + data))

        head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        path = self.directory / "lamp.png"
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
                         + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
        return path


def play(stage: Stage, repeated: int = REPEATED) -> None:
    """Play the sessions of the pictures, oldest first."""
    for number, title in enumerate(TITLES * repeated):
        agent = AGENTS[number % 2]
        played = stage.open(f"done-{number}", f"{title}. Thank you.", agent)
        for place in range(1 + number % 4):
            tool = ("get_order", "search_web", "read_file")[place % 3]
            stage.step(played, "Let me look.", (tool, {"order_id": number}), ms=900 + 700 * place)
            stage.tool(played, '{"found": true}', 200 + 400 * place)
        stage.step(played, "Here is what I found.", ms=1_500)
        played.end()
        stage.after(500_000)
    stage.sessions.open("empty", agent="shop")
    ended = stage.open("ended", "Remind the courier of parcel PX-2201")
    stage.step(ended, "I reminded the courier.")
    ended.end()
    stage.sessions.terminate("ended", reason="The parcel has arrived.")
    _long_title(stage)
    _forked(stage)
    _rich(stage)
    lamp = _lamp(stage)
    failed = stage.open("failed", "Weekly report on late deliveries", "research")
    failed.call()
    for attempt in range(4):
        failed.start()
        stage.after(1_200)
        failed.fail(permanent=attempt == 3)
        stage.after(9_000)
    failed.end("failed")
    doubt = stage.open("doubt", "Invoice for Nordlicht GmbH, with the new address")
    args = {"invoice": "2026-0714", "to": "buchhaltung@nordlicht.example"}
    stage.step(doubt, "I send the invoice now.", ("send_invoice", args))
    doubt.invoke()
    doubt.tool_start()
    stage.after(10_000)
    doubt.uncertain(reason="no answer from the mail service for 10 s")
    stage.after(60_000)
    stage.open("unserved", "Charge the invoices of October", "billing")
    stage.after(20_000)
    _ask(stage, lamp)
    working = stage.open("working", "Which lamps are sold out?", "research")
    working.call()
    working.start()
    stage.after(1_000)
    for word in "Four lamps are sold out at the moment: the arc floor lamp,".split():
        working.chunk(f"{word} ")


def _long_title(stage: Stage) -> None:
    played = stage.open("long-title", f"{LONG_TITLE} شكرا", "research")
    stage.step(played, "", ("read", {"path": "x" * 300, "deep": {"a": [1, {"b": "c" * 90}]}}))
    stage.tool(played, json.dumps({"lines": ["y" * 200] * 3, "ok": True}))
    stage.step(played, "z" * 400 + " done")
    played.end()
    stage.after(120_000)


def _forked(stage: Stage) -> None:
    played = stage.open("fork-parent", "Offer a discount to order 10490")
    stage.step(played, "I would offer 10 %.")
    played.end()
    stage.after(60_000)


def _rich(stage: Stage) -> None:
    said = "What is wrong with order 10482? She sent this picture."
    played = stage.open("rich", said, attach=[stage.lamp()])
    thought = "She says that it is broken. " * 12
    thinking = {"type": "thinking", "thinking": thought, "signature": ""}
    call = {"type": "tool_use", "id": "t1", "name": "get_order", "input": {"order_id": 10482}}
    played.call()
    played.start()
    stage.after(1_800)
    played.complete(
        content=ev.Body(inline=json.dumps([thinking, call]).encode()),
        calls=[("get_order", {"order_id": 10482})], call_id="t1",
    )
    stage.tool(played, json.dumps({"order_id": 10482, "items": [
        {"name": "Arc floor lamp", "price": "129.00"}, {"name": "Bulb E27", "price": "4.50"}],
        "customer": "Maya Lindqvist", "paid": True}), 84)
    stage.step(played, ANSWER, ms=5_000)
    played.end()
    stage.after(90_000)


def _lamp(stage: Stage) -> Worker:
    """Two turns: a lost worker, an hour of silence, and a call in doubt that a person settles."""
    played = stage.open("lamp", "Broken lamp in order 10482. What did she order?")
    stage.step(played, "Let me look.", ("get_order", {"order_id": 10482}), ms=2_400)
    stage.tool(played, '{"items": ["Arc floor lamp"], "total": "129.00"}', 140)
    played.call()
    played.start()
    stage.after(2_000)
    played.chunk("She ordered")
    stage.after(12_100)
    played.resume("worker-9e/1")
    stage.after(3_200)
    played.complete("She ordered one **arc floor lamp**, for 129.00 EUR.")
    played.end()
    stage.after(343_000)
    stage.sessions.say("lamp", "Book the return for Tuesday", message_id="m2")
    calls = ("book_pickup", {"day": "Tuesday"}), ("notify", {"by": "mail"})
    stage.step(played, "Booking it.", *calls)
    played.invoke(0)
    played.tool_start(0)
    stage.tool(played, "sent", 900, 1)
    stage.after(9_000)
    played.uncertain(0, "no answer for 10 s")
    stage.after(41_000)
    stage.sessions.resolve("lamp", "2.1.0", "happened", report="The courier has the booking.")
    stage.after(200)
    stage.step(played, "The courier comes on Tuesday.", ms=3_100)
    played.end()
    stage.after(1_500_000)
    return played


def _ask(stage: Stage, played: Worker) -> None:
    played.take("worker-9e/1")  # other sessions have taken its partition
    stage.sessions.say("lamp", "Good. Refund her the lamp.", message_id="m3")
    arguments = {"order_id": 10482, "amount": "129.00", "currency": "EUR",
                 "reason": "Arc floor lamp arrived broken"}
    text = "I will refund the full price to the card she paid with."
    stage.step(played, text, ("refund", arguments), ms=2_600)
    played.ask()
    stage.after(90_000)


EVERY = tuple((width, theme) for width in WIDTHS for theme in ("light", "dark"))
FEW = ((1440, "light"), (1440, "dark"), (1024, "light"), (390, "light"))
LIGHT = ((1440, "light"), (390, "light"))
BOTH = ((1440, "light"), (1440, "dark"))
PHONE = ((390, "light"), (390, "dark"))
ONE = ((1440, "light"),)


class Shot(NamedTuple):
    """One state: its link, a text that it shows, what is done before the picture, and the widths
    and themes."""

    name: str
    link: str
    shows: str = ""
    act: Callable[[Any], object] = lambda page: None
    views: tuple[tuple[int, str], ...] = EVERY


def tab(name: str, then: Callable[[Any], object] = lambda page: None) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        if page.viewport_size["width"] < 1100:
            page.locator(".handle").click()
        page.get_by_role("tab", name=name).click()
        then(page)
    return act


def pressed(keys: str) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        page.locator("h1").first.click()
        for key in keys.split():
            page.keyboard.press(key)
            page.wait_for_timeout(250)
    return act


def columns(page: Any) -> None:
    page.get_by_label("Columns", exact=True).click()


def opened_calls(page: Any) -> None:
    page.locator(".steps summary").first.wait_for()
    for call in page.locator(".steps summary").all():
        call.click()


def whole(page: Any) -> None:
    if page.viewport_size["width"] > 760:
        page.get_by_role("button", name="Show the whole session").click()


def tool_chosen(page: Any) -> None:
    whole(page)
    page.get_by_label("Show the calls of").select_option("book_pickup")


def picking(page: Any) -> None:
    tab("compare", lambda page: page.get_by_role("button", name="Pick on").click())(page)


def signed_in(token: str) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
    return act


def picked(page: Any) -> None:
    page.get_by_label("Select all").first.check()


def states(offsets: dict[str, int], fork: str) -> list[Shot]:
    """Every state of a gateway that responds, in every view. `offsets`: places in the session
    `lamp`; `fork`: the id of a fork."""
    return [
        Shot("home", "#/", "waiting for you"),
        Shot("running", "#/s/working", "Four lamps are sold out"),
        Shot("waits", "#/s/lamp", "Allow refund", whole),
        Shot("doubt", "#/s/doubt", "Did send_invoice happen?"),
        Shot("failed", "#/s/failed", "The model was overloaded"),
        Shot("no-worker", "#/s/unserved", "No worker serves the agent"),
        Shot("ended", "#/s/ended", "The parcel has arrived."),
        Shot("empty", "#/s/empty", "No messages yet."),
        Shot("error", "#/s/nobody", "All sessions"),
        Shot("past", f"#/s/lamp@{offsets['GEN_RESUMED']}", "This is the past", whole),
        Shot("fork", f"#/s/{fork}", "Forked from"),
        Shot("compare", f"#/s/{fork}", "Between", tab("compare")),
    ]


def details(offsets: dict[str, int]) -> list[Shot]:
    """The parts of the pages, in a few views."""
    wide = tab("compare", lambda page: page.keyboard.press("w"))
    return [
        Shot("home-waiting", "#/waiting", views=(*LIGHT, (1024, "dark"))),
        Shot("home-sessions", "#/sessions", views=((1440, "dark"), (1024, "light"), *PHONE)),
        Shot("home-filtered", "#/sessions?status=done&agent=shop&find=order", views=LIGHT),
        Shot("home-none", "#/sessions?find=zzzz", views=ONE),
        Shot("home-columns", "#/sessions", act=columns, views=BOTH),
        Shot("home-picked", "#/sessions", act=picked, views=LIGHT[:1] + ((1024, "dark"),)),
        Shot("home-cost", "#/cost", views=FEW),
        Shot("home-search", "#/?q=lamp", views=(*BOTH, (390, "light"))),
        Shot("home-search-none", "#/?q=zzzz", views=ONE),
        Shot("home-keys", "#/", act=pressed("?"), views=LIGHT),
        Shot("lamp-request", "#/s/lamp", act=tab("request"), views=BOTH),
        Shot("lamp-events", "#/s/lamp", act=tab("events"), views=LIGHT),
        Shot("lamp-budget", "#/s/lamp", act=tab("budget"), views=LIGHT),
        Shot("lamp-cost", "#/s/lamp", act=tab("cost"), views=LIGHT),
        Shot("lamp-compare", "#/s/lamp", act=tab("compare"), views=LIGHT),
        Shot("lamp-picking", "#/s/lamp", act=picking, views=LIGHT),
        Shot("lamp-full", "#/s/lamp", act=wide, views=BOTH),
        Shot("lamp-tool", "#/s/lamp", act=tool_chosen, views=BOTH),
        Shot("lamp-keys", "#/s/lamp", act=pressed("?"), views=ONE),
        Shot("past-doubt", f"#/s/lamp@{offsets['TOOL_FAILED_UNCERTAIN']}",
             views=(*BOTH, (390, "dark"))),
        Shot("past-none", "#/s/lamp@0", views=ONE),
        Shot("rich", "#/s/rich", act=opened_calls, views=FEW),
        Shot("long-title", "#/s/long-title", act=opened_calls, views=LIGHT),
        Shot("sheet", "#/s/lamp", act=tab("why"), views=(*PHONE, (1024, "light"))),
    ]


SIGN_IN = Shot("sign-in", "#/", "Sign in to see your sessions")
REFUSED = Shot("sign-in-refused", "#/", "was not made by this installation", signed_in("abc"))
FIRST = Shot("first-visit", "#/", "No sessions yet")
LOST = [
    Shot("home-lost", "#/", "No answer from the gateway"),
    Shot("lamp-lost", "#/s/lamp", "No answer from the gateway"),
]
"""The states of a gateway that needs tokens, that has no sessions, that is lost."""


def shown(page: Any, url: str, shot: Shot) -> None:
    """Bring the page into a state, and wait until it shows what it must show."""
    page.goto("about:blank")
    page.goto(f"{url}/{shot.link}")
    page.locator("h1").first.wait_for(state="attached")
    shot.act(page)
    if shot.shows:
        page.get_by_text(shot.shows).locator("visible=true").first.wait_for()


def take(page: Any, shot: Shot, target: Path, view: tuple[int, str]) -> None:
    """Take the picture of a page that shows a state."""
    page.wait_for_timeout(SETTLE_MS)
    path = target / f"{shot.name}-{view[0]}-{view[1]}.png"
    page.screenshot(path=path)
    print(path.name, flush=True)


class Playing(NamedTuple):
    """A gateway over the played sessions: its address, and its states."""

    url: str
    states: list[Shot]
    details: list[Shot]


@contextmanager
def playing(directory: Path, repeated: int = REPEATED) -> Iterator[Playing]:
    """Serve the played sessions until the block ends."""
    (directory / "measured").mkdir()
    measured = Stage(directory / "measured", 0)
    play(measured, repeated)
    stage = Stage(directory, round(time.time() * 1000) - measured.ms)
    play(stage, repeated)
    with served(stage.log, stage.settings, directory / "gateway") as running:
        with running.http() as http:
            found = http.get("/inspector/api/sessions/lamp/events").json()
            kind, offset = found["fields"].index("type"), found["fields"].index("offset")
            offsets = {row[kind]: row[offset] for row in found["events"]}
            parent = http.get("/inspector/api/sessions/fork-parent/events").json()["events"]
            fork = http.post("/v1/sessions/fork-parent/fork", json={"at": parent[-1][offset]})
            forked = fork.json()["session_id"]
            stage.sessions.say(forked, "Make it 15 %", message_id="f1")
        yield Playing(running.url, states(offsets, forked), details(offsets))


@contextmanager
def unplayed(directory: Path, secret: str | None = None) -> Iterator[str]:
    """Serve a log without sessions until the block ends, and yield the address."""
    log = MemoryLog(topics(PARTITIONS), threaded=True)
    with served(log, settings_in(directory), directory / "gateway", secret=secret) as running:
        yield running.url


class Camera:
    """Takes the pictures of states whose names contain `wanted`."""

    def __init__(self, browser: Any, target: Path, wanted: str) -> None:
        self._browser, self._target, self._wanted = browser, target, wanted

    def page(self, view: tuple[int, str]) -> Any:
        """A page with the width and the theme of a view."""
        width, theme = view
        context = self._browser.new_context(
            viewport={"width": width, "height": WIDTHS[width]}, color_scheme=theme,
            has_touch=width < 760, is_mobile=width < 760, locale="en-GB",
        )
        context.set_default_timeout(TIMEOUT_MS)
        return context.new_page()

    def take_all(self, url: str, shots: list[Shot]) -> None:
        """Take the pictures of all wanted states of a gateway. A state that does not come is
        reported, and its picture shows what came."""
        views = [(view, shot) for shot in shots if self._wanted in shot.name for view in shot.views]
        views.sort(key=itemgetter(0))
        for view, group in groupby(views, itemgetter(0)):
            page = self.page(view)
            for _, shot in group:
                try:
                    shown(page, url, shot)
                except PlaywrightError as error:
                    print(f"{shot.name}: {error}", flush=True)
                take(page, shot, self._target, view)
            page.context.close()

    def opened(self, url: str, shots: list[Shot]) -> list[tuple[Any, Shot, tuple[int, str]]]:
        """Pages that show the wanted states, before their gateway ends."""
        found = []
        for shot in shots:
            for view in shot.views if self._wanted in shot.name else ():
                found.append((self.page(view), shot, view))
                shown(found[-1][0], url, shot._replace(shows="refund"))
        return found

    def close(self, pages: list[tuple[Any, Shot, tuple[int, str]]]) -> None:
        """Take the pictures of opened pages, and close them."""
        for page, shot, view in pages:
            page.get_by_text(shot.shows).first.wait_for()
            take(page, shot, self._target, view)
            page.context.close()


def main(target: Path = PICTURES, wanted: str = "") -> None:
    """Write the pictures whose names contain `wanted`."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        directory = Path(name)
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=OPTIONS)
        camera = Camera(browser, target, wanted)
        with playing(directory) as found:
            camera.take_all(found.url, found.states + found.details)
            opened = camera.opened(found.url, LOST)
        camera.close(opened)
        for shots, secret in (([FIRST], None), ([SIGN_IN, REFUSED], SECRET)):
            empty = Path(tempfile.mkdtemp(dir=directory))
            with unplayed(empty, secret) as url:
                camera.take_all(url, shots)
        browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]), *sys.argv[2:])

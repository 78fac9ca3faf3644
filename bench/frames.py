"""inspector_frames: how long the frames of the inspector take in a real Chromium, beside a bare
page.

A session grows to 10,000 events while its page is used: its slider is dragged, it plays, J and K
are held down, its events and its conversation are scrolled. Then the table of 1,000 sessions is
scrolled. The bare page is HTML without a script, with as many rows. It is only scrolled, while the
same events arrive at the same gateway and a plain socket reads them, so the machine is as busy.
Frames are counted where they are drawn, in the page: one action in each, and the time to the next.
"""

import socket
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

from playwright.sync_api import Page, sync_playwright

from foldlog.bench.history import Session
from foldlog.bench.measure import Installation, Missing, Ratio, spread_of
from foldlog.bench.viewers import Gateway, gateway
from foldlog.client.session_fold import SessionFold
from foldlog.log.partition import partition_for
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.chromium import OPTIONS, chromium_path

DESK = {"width": 1440, "height": 900}
EVENTS = 10_000
SESSIONS = 1_000
EVENTS_A_S = 40.0  # a fast model, whose chunks are 25 to 40 a second
FRAMES = 300  # of each action in each run
SHOWN_S = 1.0  # until the gateway has written that an answer was shown, if someone watches
PATIENCE_S = 120
LIVE = "live"

ACT = """([action, frames]) => new Promise((done) => {
  const roll = (box, n) => { box.scrollTop = 40 * (n < frames / 2 ? n : frames - n); };
  const find = (what) => document.querySelector(what);
  const press = (key) =>
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const act = {
    scrub: (n) => {
      const slider = find(".tl-slider");
      slider.value = Math.round((slider.max * n) / frames);
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    },
    play: (n) => n === 0 && find("[aria-label=Play]").click(),
    "J and K": (n) => n % 2 || press(n < frames / 2 ? "k" : "j"),
    events: (n) => roll(find("[role=listbox]"), n),
    conversation: (n) => roll(find(".lines"), n),
    list: (n) => roll(find("#talk"), n),
  }[action];
  const times = [];
  let last = null;
  const frame = () => {
    const now = performance.now();
    if (last !== null) times.push(now - last);
    last = now;
    if (times.length === frames) return void done(times);
    act(times.length);
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""

IN_A_SESSION = {"scrub": "1", "play": "1", "J and K": "1", "events": "3", "conversation": "1"}
"""The actions on the page of a session, and the key of the part of the pane that is open."""
ACTIONS = (*IN_A_SESSION, "list")


def inspector_frames(here: Installation, runs: int) -> Ratio:
    """The time of a frame (p95) of the slowest action, divided by that of a bare page with as many
    rows."""
    _write_sessions(here)
    growing = _Growing(here)
    growing.grow(1)
    frames: dict[str, list[float]] = {}
    with gateway(here) as running, _page() as page, ThreadPoolExecutor(1) as pool:
        for _ in range(runs):
            arriving = pool.submit(growing.grow, EVENTS // runs)
            home = f"http://127.0.0.1:{running.port}/#"
            with _watched(running):
                _use_a_bare_page(page, EVENTS, frames.setdefault("bare events", []))
            _use_a_session(page, f"{home}/s/{LIVE}", frames)
            page.goto("about:blank")
            with _watched(running):
                _use_a_bare_page(page, SESSIONS, frames.setdefault("bare list", []))
                page.goto(f"{home}/sessions")
                page.get_by_role("table", name="Sessions").wait_for()
                frames.setdefault("list", []).extend(page.evaluate(ACT, ["list", FRAMES]))
                arriving.result(PATIENCE_S + 3 * EVENTS / EVENTS_A_S)
    growing.close()
    p95 = {name: _p95_of_runs(times) for name, times in frames.items()}
    bare = {name: p95["bare list" if name == "list" else "bare events"] for name in ACTIONS}
    ratios = {
        name: [mine / base for mine, base in zip(p95[name], bare[name], strict=True)]
        for name in ACTIONS
    }
    median = statistics.median
    worst = max(ACTIONS, key=lambda name: median(ratios[name]))
    shown = ", ".join(f"{n} {median(p95[n]):.1f} ({median(ratios[n]):.1f})" for n in ACTIONS)
    note = (f"p95 in ms (and divided by its bare page): {shown}; bare events "
            f"{median(p95['bare events']):.1f}, bare list {median(p95['bare list']):.1f}; "
            f"{FRAMES * runs} frames each, while {EVENTS:,} events arrive, {EVENTS_A_S:.0f} a "
            "second")
    return Ratio("inspector_frames", median(p95[worst]), median(bare[worst]), "ms",
                 median(ratios[worst]), runs, "at most 2", note, spread=spread_of(ratios[worst]))


def _p95_of_runs(times: list[float]) -> list[float]:
    runs = (times[n : n + FRAMES] for n in range(0, len(times), FRAMES))
    return [statistics.quantiles(run, n=20)[-1] for run in runs]


@contextmanager
def _watched(running: Gateway) -> Iterator[None]:
    """Let a plain socket read the growing session until the block ends. No page may show the
    session meanwhile: each viewer makes the gateway write that an answer was shown."""
    viewer = running.watch(LIVE)

    def read() -> None:
        while viewer.recv(65536):
            pass

    reading = threading.Thread(target=read)
    reading.start()
    try:
        yield
    finally:
        viewer.shutdown(socket.SHUT_RDWR)
        reading.join(PATIENCE_S)
        viewer.close()


def _use_a_bare_page(page: Page, rows: int, frames: list[float]) -> None:
    page.goto("about:blank")  # the inspector's page refuses foreign HTML
    page.set_content(_bare(rows))
    frames.extend(page.evaluate(ACT, ["list", FRAMES]))


def _use_a_session(page: Page, url: str, frames: dict[str, list[float]]) -> None:
    page.goto(url)
    page.get_by_text("Live", exact=True).wait_for()
    page.locator(".tl .hit").first.wait_for()
    for action, part in IN_A_SESSION.items():
        page.keyboard.press(part)
        frames.setdefault(action, []).extend(page.evaluate(ACT, [action, FRAMES]))
        stop = page.get_by_role("button", name="Stop playing")
        if stop.count():
            stop.click()
        page.locator("h1").click()  # so that keys go to the page
        page.keyboard.press("l")


def _bare(rows: int) -> str:
    """A page of rows that has no script."""
    row = "<p style='height:30px;margin:0'>{0} The model goes on with its answer <i>+40 ms</i></p>"
    drawn = "".join(row.format(number) for number in range(rows))
    return f"<main id=talk style='height:100vh;overflow-y:auto'>{drawn}</main>"


@contextmanager
def _page() -> Iterator[Page]:
    """A page in a real Chromium, until the block ends."""
    path = chromium_path()
    if path is None:
        raise Missing("no Chromium found: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        page = browser.new_page(viewport=DESK)
        page.set_default_timeout(PATIENCE_S * 1000)
        yield page
        browser.close()


def _write_sessions(here: Installation) -> None:
    """Write the sessions of the list, each with one short turn."""
    producer, partitions = here.log.producer(), here.settings.partitions
    offsets = {p: count(end) for p, end in here.log.end_offsets(SESSION_EVENTS).items()}
    for name in (f"listed-{number}" for number in range(SESSIONS)):
        session = Session(name, offsets[partition_for(name, partitions)])
        for writer, event in (*session.opened(), *session.short_turn()):
            producer.append(SESSION_EVENTS, name, encode(event), headers_for(event, writer))
    assert producer.flush(PATIENCE_S) == 0
    producer.close()


class _Growing:
    """A session that grows by whole turns, in real time.

    The gateway writes after a turn that its answer was shown. Each turn waits for that, because a
    decision names the offset of its basis.
    """

    def __init__(self, here: Installation) -> None:
        self._here, self._producer = here, here.log.producer()
        self._partition = partition_for(LIVE, here.settings.partitions)
        self._offset = 0
        self._session = Session(LIVE, iter(self._next_offset, None))
        self._write(self._session.opened())

    def grow(self, events: int) -> None:
        """Write turns of at least this many events together."""
        while events > 0:
            events -= self._write(self._session.turn())

    def close(self) -> None:
        """Check that every event was accepted."""
        self._producer.close()
        seen = SessionFold(self._here.log, LIVE).upto(self._end())
        assert all(event.ruling.accepted for event in seen), "the log has ignored events"

    def _write(self, events: Iterator) -> int:
        written, until = 0, time.monotonic() + SHOWN_S
        while (end := self._end()) == self._offset and time.monotonic() < until:
            time.sleep(0.01)
        self._offset = end
        for writer, event in events:
            self._producer.append(SESSION_EVENTS, LIVE, encode(event), headers_for(event, writer))
            written += 1
            time.sleep(1 / EVENTS_A_S)
        assert self._producer.flush(PATIENCE_S) == 0
        return written

    def _end(self) -> int:
        return self._here.log.end_offsets(SESSION_EVENTS)[self._partition]

    def _next_offset(self) -> int:
        self._offset += 1
        return self._offset - 1

"""The Python API: a reply streams once, ends with its turn, and uses the same fold as decisions."""

import asyncio
import gc
import inspect
import threading
import warnings
from functools import partial

import pytest

from foldlog.client.aio import AsyncConnection, AsyncSession, aconnect
from foldlog.client.connection import Connection, connect
from foldlog.client.events import (
    Answered,
    ApprovalAsked,
    Discarded,
    DoubtResolved,
    InDoubt,
    MessageReceived,
    RecordedEvent,
    SessionEvent,
    Token,
    ToolFinished,
    TurnEnded,
    Waiting,
)
from foldlog.client.outcomes import CommandRefused, NoAnswerYet, UnknownMessage
from foldlog.client.session import BACKLOG_MAX, BadCursor, ReplyEnded, Session, StreamOverrun
from foldlog.client.show import UnknownSession
from foldlog.log.errors import LogUnreachable, Refused, SettingsError
from foldlog.schemas.events import AgentDigest, PartitionTaken
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.tests.kit.played import Played, memory_log, settings_in
from foldlog.tests.kit.waiting import PATIENCE_S, joined


@pytest.fixture
def log():
    return memory_log(threaded=True)


@pytest.fixture
def foldlog(log, tmp_path):
    with connect(settings_in(tmp_path), log=log) as connection:
        yield connection


@pytest.fixture
def session(foldlog):
    return foldlog.open("s1", agent="shop")


def texts(events: list[SessionEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Token))


def asks_to_charge(log) -> Played:
    """Starts a worker whose model asks for a charge that waits for approval."""
    played = Played(log, "s1")
    played.propose("", ("charge", {"cents": 5}))
    played.invoke(approval="ask")
    return played


def test_a_reply_yields_each_token_once_and_ends_with_its_turn(session, log):
    reply = session.send("hi")
    Played(log, "s1").answer("It is four.")
    events = list(reply)
    assert texts(events) == "It is four."
    assert [type(event) for event in events[-2:]] == [Answered, TurnEnded]
    assert not any(isinstance(event, MessageReceived) for event in events)
    assert reply.answer().text == str(reply.answer()) == "It is four."


def test_answer_waits_for_a_worker_in_another_thread(session, log):
    reply = session.send("hi")
    worker = threading.Thread(target=lambda: Played(log, "s1").answer("four"))
    worker.start()
    assert reply.answer(timeout_s=60).text == "four"
    joined(worker)


def test_no_answer_in_time_is_an_error_and_the_reply_goes_on(session, log):
    reply = session.send("hi")
    with pytest.raises(NoAnswerYet, match=r"not answered after 0 s.*It is kept"):
        reply.answer(timeout_s=0)
    Played(log, "s1").answer("four")
    assert reply.answer().text == "four"


def test_an_approval_in_the_middle_of_a_reply_loses_no_event(session, log):
    reply = session.send("charge me")
    played = asks_to_charge(log)
    seen = []
    for event in reply:
        seen.append(event)
        match event:
            case ApprovalAsked(tool="charge", arguments={"cents": 5}) as ask:
                assert str(ask) == 'ApprovalAsked charge (1.1.0): {"cents": 5}'
                session.approve(ask)
                played.tool_start()
                played.tool_result("charged")
                played.answer("done")
    assert texts(seen) == "done"
    (finished,) = [event for event in seen if isinstance(event, ToolFinished)]
    assert (finished.outcome, finished.text) == ("ok", "charged")


def test_S1_an_approval_is_bound_to_the_arguments_that_were_shown(session, log):
    reply = session.send("charge me")
    asks_to_charge(log)
    ask = reply.until(ApprovalAsked)
    forged = type(ask)(**{**_fields(ask), "arguments_sha256": "0" * 64})
    with pytest.raises(CommandRefused):
        session.approve(forged)
    session.deny(ask)


def _fields(event: SessionEvent) -> dict:
    return {name: getattr(event, name) for name in event.__dataclass_fields__}


def test_a_doubt_is_resolved_with_what_the_person_knows(session, log):
    reply = session.send("charge me")
    played = Played(log, "s1")
    played.propose("", ("charge", {"cents": 5}))
    played.invoke()
    played.tool_start()
    played.uncertain()
    doubt = reply.until(InDoubt)
    with pytest.raises(Refused, match="happened= is empty"):
        session.resolve(doubt, happened=" ")
    with pytest.raises(Refused, match="give either"):
        session.resolve(doubt)
    assert session.state().doubts[0].call == doubt.call and session.state().status == "doubt"
    session.resolve(doubt, happened="receipt 17")
    assert session.state().doubts == ()
    assert isinstance(reply.until(RecordedEvent), DoubtResolved), "one event for each doubt"
    assert [event.call for event in session.history() if isinstance(event, InDoubt)] == ["1.1.0"]


def test_until_reports_a_reply_that_ended_without_the_event(session, log):
    reply = session.send("hi")
    Played(log, "s1").answer("four")
    with pytest.raises(ReplyEnded, match="without ApprovalAsked: its turn ended with end_turn"):
        reply.until(ApprovalAsked)


def test_the_end_of_a_failed_turn_has_the_reason_of_its_last_attempt(session, log):
    reply = session.send("hi")
    played = Played(log, "s1")
    played.call()
    for attempt in (1, 2):
        played.start()
        played.fail(permanent=attempt == 2)
    played.end("failed", limit=2, used=2)
    (ended,) = [event for event in reply if isinstance(event, TurnEnded)]
    why = "the model call failed (attempt 2 of 2): overloaded: the provider is overloaded"
    assert str(ended) == f"TurnEnded 1: failed ({why})"
    assert (session.history()[-1].detail, reply.answer().note) == (why, why)
    with pytest.raises(ReplyEnded, match="its turn ended with failed .the model call failed"):
        session.reply(reply.message_id).until(ApprovalAsked)


def test_an_attempt_that_nothing_may_repeat_is_not_counted_against_the_limit(session, log):
    reply = session.send("hi")
    played = Played(log, "s1")
    played.call()
    played.start()
    played.fail(permanent=True)
    played.end("failed", limit=5, used=1)
    (ended,) = [event for event in reply if isinstance(event, TurnEnded)]
    assert ended.detail.startswith("the model call failed (attempt 1): overloaded: ")


def test_a_message_id_again_sends_nothing_and_gives_the_same_reply(session, log):
    first = session.send("hi", message_id="m1")
    Played(log, "s1").answer("four")
    events = list(first)
    end = session.views().turn
    again = session.send("hi", message_id="m1")
    assert [str(event) for event in again] == [str(event) for event in events]
    assert again.answer() == first.answer() and session.views().turn == end
    assert next(iter(session.reply("m1"))).cursor == events[0].cursor
    with pytest.raises(UnknownMessage):
        session.reply("m2")


def test_a_queued_message_gets_its_own_turn_only(session, log):
    session.send("one", message_id="m1")
    played = Played(log, "s1")
    played.call()
    second = session.send("two", message_id="m2")
    played.start()
    played.complete("first answer")
    played.end()
    played.answer("second answer")
    assert texts(list(second)) == "second answer" and second.answer().turn == 2


@pytest.mark.parametrize("stop", range(5))
def test_S2_4_a_stream_continues_at_any_cursor_without_gap_or_repetition(session, log, stop):
    stream = session.events()
    session.send("hi")
    Played(log, "s1").answer("It is four.")
    whole = _until_end(stream)
    assert len(whole) == 5
    cursor = whole[stop].cursor
    continued = _until_end(session.events(cursor), len(whole) - stop - 1)
    assert [str(event) for event in continued] == [str(event) for event in whole[stop + 1 :]]


def _until_end(stream, count: int | None = None) -> list[SessionEvent]:
    events = []
    while count != len(events):
        event = stream.take()
        if event is None:
            stream.pump()
            continue
        events.append(event)
        if isinstance(event, TurnEnded) and count is None:
            break
    return events


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.x", "-1.0", "99999.0", "1" * 50 + ".0"])
def test_bad_input_a_cursor_of_no_event_is_refused(session, cursor):
    with pytest.raises(BadCursor):
        session.events(cursor)


def test_a_lost_attempt_is_discarded_and_the_next_ones_tokens_follow(session, log):
    reply = session.send("hi")
    played = Played(log, "s1")
    played.call()
    played.start()
    played.chunk("wro")
    played.resume()
    played.seq = 0
    played.chunk("right")
    played.complete("right")
    played.end()
    events = list(reply)
    (at,) = [n for n, event in enumerate(events) if isinstance(event, Discarded)]
    assert texts(events[:at]) == "wro" and texts(events[at:]) == "right"


def test_a_session_without_a_worker_says_so_once(session, monkeypatch):
    monkeypatch.setattr("foldlog.client.session.PATIENCE_S", 0.0)
    waiting = session.send("hi").until(Waiting)
    assert "no worker has responded" in waiting.reason and "shop" in waiting.reason


def test_a_stream_of_all_events_says_that_no_worker_answers(session, monkeypatch):
    """The defect: only a reply did, so a script that continued at a cursor hung silently."""
    monkeypatch.setattr("foldlog.client.outcomes.SOON_S", 0.0)
    stream = session.events()
    stream.pump()
    assert stream.is_idle, "no turn is open"
    session.send("hi")
    assert "no worker has responded" in stream.until(Waiting, timeout_s=0).reason


@pytest.mark.parametrize(
    ("stops_at", "why"),
    [("no worker", "no worker has responded"), ("no agent", "Did you mean shop"),
     ("approval", "foldlog approve s1 1.1.0"), ("doubt", "foldlog resolve s1 1.1.0")],
)  # fmt: skip
def test_a_script_that_drops_events_logs_at_once_why_it_waits(
    foldlog, log, monkeypatch, caplog, stops_at, why
):
    """The defect: a script that waited for its answer, or for one kind of event, hung silently."""
    monkeypatch.setattr("foldlog.client.outcomes.SOON_S", 0.0)
    session = foldlog.open("s1", agent="shpo" if stops_at == "no agent" else "shop")
    reply = session.send("charge me")
    played = Played(log, "s1")
    if stops_at == "no agent":
        served = (AgentDigest(name="shop", digest="0" * 64),)
        for role in ("sessions", "models"):
            taken = PartitionTaken(role=role, owner="w1/1", agents=served)
            played.append(taken, role, PARTITION_KEY)
    if stops_at in ("approval", "doubt"):
        played.propose("", ("charge", {"cents": 5}))
        played.invoke(approval="ask" if stops_at == "approval" else "none")
    if stops_at == "doubt":
        played.tool_start()
        played.uncertain()
    for wait in (reply.answer, partial(session.reply(reply.message_id).until, TurnEnded)):
        caplog.clear()
        with pytest.raises(NoAnswerYet):
            wait(timeout_s=0)
        (waits,) = caplog.records
        assert why in waits.getMessage()



def test_a_stream_that_nobody_reads_is_cut_with_the_cursor_to_continue(session, log, monkeypatch):
    monkeypatch.setattr("foldlog.client.session.BACKLOG_MAX", 3)
    unread, reply = session.events(), session.send("hi")
    Played(log, "s1").answer("It is four.")
    reply.answer()
    with pytest.raises(StreamOverrun, match="Continue with events") as overrun:
        _until_end(unread)
    missed = _until_end(session.events(overrun.value.cursor))
    assert isinstance(missed[-1], TurnEnded) and BACKLOG_MAX == 10_000


def test_a_reply_that_is_dropped_keeps_no_events(session, log):
    session.send("hi")
    assert len(session._feed.streams) == 0


def test_history_state_request_and_fork(session, log, foldlog):
    session.send("What is two and two?\nPlease.")
    assert str(session.state()).startswith("s1 (shop, ana) no worker, turn 1, "), "as in the list"
    Played(log, "s1").answer("four")
    history = session.history()
    assert [type(event).__name__ for event in history] == [
        "MessageReceived", "Answered", "TurnEnded"
    ]
    state = session.state()
    assert state.title == "What is two and two? Please." and state.status == "idle"
    assert str(state).startswith("s1 (shop, ana) idle, turn 1, ")
    request = session.request("1.1")
    assert request.agrees and request.json["messages"][0]["role"] == "user"
    assert str(request).endswith("equal to its claim")
    with pytest.raises(Refused, match=r"TURN\.STEP"):
        session.request("one")
    forked = session.fork(history[-1])
    assert [str(e) for e in forked.history()][:2] == [str(e) for e in history][:2]
    assert {s.session_id for s in foldlog.sessions(agent="shop")} == {"s1", forked.id}
    assert foldlog.sessions(status="busy") == foldlog.sessions(user="eve") == []


def test_sessions_belong_to_users(foldlog, session):
    with pytest.raises(CommandRefused, match="already open"):
        foldlog.open("s1", agent="shop", user="eve")
    with pytest.raises(UnknownSession):
        foldlog.session("none")
    assert foldlog.session("s1").state().user == "ana"


def test_every_event_prints_as_one_line(session, log):
    stream = session.events()
    session.send("two\nlines")
    played = Played(log, "s1")
    played.answer("an\nanswer")
    for event in _until_end(stream):
        assert "\n" not in str(event) and str(event).startswith(type(event).__name__)


# ---- a user's mistakes, and a log that goes away -------------------------------------------------


@pytest.mark.parametrize("cursor", ["banana", "1", "-1.0", "².0", 17, "history"])
def test_bad_input_a_wrong_cursor_says_where_cursors_come_from(session, log, cursor):
    session.send("hi")
    wrong = session.history()[0] if cursor == "history" else cursor
    with pytest.raises(BadCursor, match=r"is not a cursor of session s1. Use the `cursor`"):
        session.events(wrong)
    with pytest.raises(BadCursor, match="beyond the end of session s1's partition"):
        session.events("99999.0")


@pytest.mark.parametrize("mistake", [
    lambda s: s.request(1.1), lambda s: s.request("x"), lambda s: s.fork("1.0"),
    lambda s: s.views(at=99_999), lambda s: s.send("hi").until("Token"),
    lambda s: s.send("hi", when_busy="never"), lambda s: s.approve(17), lambda s: s.reply("m9"),
])
def test_bad_input_a_wrong_argument_of_a_session_is_refused_in_a_sentence(session, mistake):
    with pytest.raises(Refused, match=r"\w+ \w+ \w+"):
        mistake(session)


@pytest.mark.parametrize("mistake", [
    lambda c: c.open(17), lambda c: c.open("a b"), lambda c: c.session(17),
    lambda c: c.sessions(status="asleep"),
])
def test_bad_input_a_wrong_argument_of_a_connection_is_refused_in_a_sentence(foldlog, mistake):
    with pytest.raises(Refused, match=r"\w+ \w+ \w+"):
        mistake(foldlog)


def test_bad_input_an_address_in_place_of_settings_names_the_setting():
    with pytest.raises(SettingsError, match="KAFKA_BOOTSTRAP_SERVERS"):
        connect("localhost:9092")


def test_a_session_of_another_user_or_agent_says_which_it_is(foldlog, session):
    with pytest.raises(CommandRefused, match="s1 is already open, for another user"):
        foldlog.open("s1", agent="shop", user="eve")
    with pytest.raises(CommandRefused, match="s1 is already open, with agent shop, not bakery"):
        foldlog.open("s1", agent="bakery")


def test_a_closed_connection_says_that_it_is_closed(log, tmp_path):
    connection = connect(settings_in(tmp_path), log=log)
    session = connection.open("s1", agent="shop")
    connection.close()
    for use in (connection.open, connection.sessions, lambda: connection.session("s1"),
                session.state, session.history, session.fork, session.cancel, session.terminate,
                lambda: session.send("hi"), lambda: session.request("1.1"), session.events):
        with pytest.raises(Refused, match="was closed"):
            use()


def test_a_log_that_goes_away_in_the_middle_of_a_stream_is_an_event(log, tmp_path, monkeypatch):
    monkeypatch.setattr("foldlog.client.session.PATIENCE_S", 0.0)
    log = LogThatGoes(log)
    with connect(settings_in(tmp_path), log=log) as foldlog:
        session = foldlog.open("s1", agent="shop")
        reply, stream = session.send("hi"), session.events()
        played = Played(log.log, "s1")
        played.call()
        played.start()
        played.chunk("It is ")
        assert reply.until(Token).text == "It is "
        log.is_away = True
        for each in (reply, stream):
            waiting = each.until(Waiting)
            assert "the broker is away" in waiting.reason
            assert "continues by itself" in waiting.reason
        with pytest.raises(NoAnswerYet, match="the broker is away"):
            reply.answer(timeout_s=0)
        log.is_away = False
        played.complete("It is four.")
        played.end()
        assert reply.answer(timeout_s=60).text == "It is four."


class LogThatGoes:
    """A log whose broker can go down: reads then return nothing, and queries raise."""

    def __init__(self, log) -> None:
        self.log, self.is_away = log, False

    def __getattr__(self, name: str):
        return getattr(self.log, name)

    def end_offsets(self, topic: str):
        if self.is_away:
            raise LogUnreachable("the broker is away")
        return self.log.end_offsets(topic)


# ---- asyncio -------------------------------------------------------------------------------------


def test_S0_the_example_of_the_documentation_runs_under_asyncio(log, tmp_path):
    async def main() -> str:
        printed = ""
        async with aconnect(settings_in(tmp_path), log=log) as connection:
            session = await connection.open("s1", agent="shop", user="ana")
            worker = asyncio.ensure_future(asyncio.to_thread(_ask_when_sent, log))
            async for event in session.send("Refund order 17"):
                match event:
                    case Token(text=text):
                        printed += text
                    case ApprovalAsked() as ask:
                        await worker
                        await session.approve(ask)
                        await asyncio.to_thread(_finish, log)
        return printed

    assert asyncio.run(main()) == "refunded"


def _ask_when_sent(log) -> None:
    played = Played(log, "s1")
    played.wait(lambda views: views.turn.open)
    asks_to_charge(log)


def _finish(log) -> None:
    played = Played(log, "s1")
    played.take()
    played.tool_start()
    played.tool_result("ok")
    played.answer("refunded")


def test_awaiting_a_reply_gives_its_answer_and_the_loop_keeps_running(log, tmp_path):
    async def main() -> None:
        async with aconnect(settings_in(tmp_path), log=log) as connection:
            session = await connection.open("s1", agent="shop")
            reply = session.send("hi", message_id="m1")
            waiting = asyncio.ensure_future(reply.answer())
            ticks = 0
            while not (await session.views()).turn.open:
                ticks += 1
            await asyncio.to_thread(lambda: Played(log, "s1").answer("four"))
            assert (await waiting).text == "four"
            assert (await session.reply("m1")).text == "four"

    asyncio.run(main())


NEVER_SENT = pytest.mark.filterwarnings("ignore:the message of session.send")


@NEVER_SENT
def test_an_attribute_of_the_answer_says_how_to_wait_for_the_answer(session, log, tmp_path):
    reply = session.send("hi", message_id="m1")
    with pytest.raises(AttributeError, match=r"its answer arrives. Write `reply.answer\(\).te"):
        reply.text  # noqa: B018
    with pytest.raises(AttributeError, match="'Reply' object has no attribute 'txt'$"):
        reply.txt  # noqa: B018
    assert repr(reply) == (
        "<Reply to message m1 of session s1: iterate over it for its events, or call "
        "reply.answer()>"
    )

    async def main() -> None:
        async with aconnect(settings_in(tmp_path), log=log) as connection:
            reply = (await connection.open("s1", agent="shop")).send("hi")
            with pytest.raises(AttributeError, match=r"Write `\(await session.send\(...\)\).text`"):
                reply.text  # noqa: B018
            assert "await it for its answer" in repr(reply)

    asyncio.run(main())


def test_a_reply_of_connect_says_what_to_write_in_place_of_await(session):
    async def main() -> None:
        await session.send("hi")

    with pytest.raises(TypeError, match=r"`await` needs a session of foldlog.aconnect\(\).*answer"):
        asyncio.run(main())


def test_an_async_reply_that_nobody_awaits_warns_that_nothing_was_sent(log, tmp_path):
    async def main() -> None:
        async with aconnect(settings_in(tmp_path), log=log) as connection:
            session = await connection.open("s1", agent="shop")
            with pytest.warns(RuntimeWarning, match="was never sent: await the reply"):
                session.send("hi")
                gc.collect()
            assert await session.history() == []
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                reply = await session.send("hi").begin()
                del reply
                gc.collect()

    asyncio.run(main())


def test_a_forgotten_await_is_an_error_that_says_what_to_write(log, tmp_path):
    """The defect: a "coroutine" or "_Connecting" object had no attribute."""
    async def main() -> None:
        with pytest.warns(RuntimeWarning, match=r"Write `await foldlog.aconnect\(...\)`"):
            with pytest.raises(AttributeError, match=r"Write `await foldlog.aconnect\(...\)`"):
                aconnect(settings_in(tmp_path), log=log).open("s1")
            gc.collect()
        async with aconnect(settings_in(tmp_path), log=log) as connection:
            with pytest.warns(RuntimeWarning, match=r"Write `await log.open\(...\)`"):
                with pytest.raises(AttributeError, match="Write `await log.open"):
                    connection.open("s1", agent="shop").send("hi", message_id="m1")
                gc.collect()
            assert await connection.sessions() == []
            opening = asyncio.create_task(connection.open("s1", agent="shop"))
            session = await asyncio.wait_for(opening, PATIENCE_S)
            with pytest.warns(RuntimeWarning, match=r"session.terminate\(...\) was not awaited"):
                session.terminate()
            assert (await session.state()).status == "idle"
            assert asyncio.iscoroutinefunction(session.terminate)

    asyncio.run(main())


def test_begin_sends_the_message_and_raises_what_it_is_refused_for(log, tmp_path):
    async def main() -> None:
        async with aconnect(settings_in(tmp_path), log=log) as connection:
            session = await connection.open("s1", agent="shop")
            reply = await session.send("hi", message_id="m1").begin()
            assert (await session.views()).messages.received.last("m1") is not None
            await asyncio.to_thread(lambda: Played(log, "s1").answer("four"))
            assert texts([event async for event in reply]) == "four"
            with pytest.raises(Refused, match="message is empty"):
                await session.send("").begin()
            with pytest.raises(BadCursor):
                await session.events("banana").begin()

    asyncio.run(main())


def test_a_cancelled_wait_loses_no_event(log, tmp_path):
    async def main() -> list[SessionEvent]:
        async with aconnect(settings_in(tmp_path), log=log) as connection:
            session = await connection.open("s1", agent="shop")
            reply = session.send("hi")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await reply.until(Token)
            await asyncio.to_thread(lambda: Played(log, "s1").answer("four"))
            return [event async for event in reply]

    assert texts(asyncio.run(main())) == "four"


def test_a_reply_is_whole_though_nobody_keeps_its_session(foldlog, log):
    reply = foldlog.open("s1", agent="shop").send("hi")
    gc.collect()
    Played(log, "s1").answer("It is four.")
    assert reply.answer().text == "It is four."


def test_a_session_that_nobody_keeps_closes_its_reader(foldlog):
    closing = foldlog.open("s2")._feed._close_fold
    gc.collect()
    assert not closing.alive


def test_a_stream_of_a_closed_session_says_that_it_was_closed(session):
    reply = session.send("hi")
    session.close()
    with pytest.raises(Refused, match="was closed here, so nothing more is read from it"):
        reply.answer(timeout_s=1)


def test_a_closed_async_connection_says_that_it_is_closed(log, tmp_path):
    async def main() -> None:
        async with aconnect(settings_in(tmp_path), log=log) as connection:
            session = await connection.open("s1", agent="shop")
        for use in (connection.open, connection.sessions, session.state, session.history):
            with pytest.raises(Refused, match="was closed"):
                await use()

    asyncio.run(main())


@NEVER_SENT
def test_bad_input_a_wrong_cursor_and_a_wrong_class_are_refused_under_asyncio(log, tmp_path):
    async def main() -> None:
        async with aconnect(settings_in(tmp_path), log=log) as connection:
            session = await connection.open("s1", agent="shop")
            with pytest.raises(BadCursor):
                await session.events("banana").until(Token)
            with pytest.raises(Refused, match="event class"):
                await session.send("hi").until("Token")
            with pytest.raises(UnknownSession, match="there is no session none"):
                await connection.session("none")

    asyncio.run(main())


def test_an_answer_is_regenerated_under_asyncio(log, tmp_path):
    async def main() -> None:
        async with aconnect(settings_in(tmp_path), log=log) as connection:
            session = await connection.open("s1", agent="shop")
            await session.send("hi", message_id="m1").begin()
            await asyncio.to_thread(lambda: Played(log, "s1").answer("four"))
            forked, reply = await session.regenerate()
            assert forked.id != "s1" and reply.message_id == "m1"
            assert [event.text for event in await forked.history()] == ["hi"]

    asyncio.run(main())


@pytest.mark.parametrize(
    "blocking, awaited", [(Session, AsyncSession), (Connection, AsyncConnection)]
)
def test_asyncio_has_every_method_with_the_same_parameters(blocking, awaited):
    other_name = {"close": "aclose"}
    for name, method in vars(blocking).items():
        if inspect.isfunction(method) and name[0] != "_":
            theirs = getattr(awaited, other_name.get(name, name))
            assert inspect.signature(theirs).parameters == inspect.signature(method).parameters

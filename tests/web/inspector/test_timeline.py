"""The timeline: at every offset its views equal those of a fold up to that offset.

The tests also check the JSON that is made from these views.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore

import pytest

from foldlog.client.session_fold import SessionFold
from foldlog.client.show import known, now_ms, owed_json, request_of
from foldlog.client.transcript_stream import INITIAL, see
from foldlog.processors.advice.prices import list_prices
from foldlog.processors.store.views_codec import view_hashes
from foldlog.processors.wake.budget import Rules
from foldlog.producers import BlobMissing, Sessions
from foldlog.schemas import events as ev
from foldlog.schemas.events.parts import BlobRef, Body
from foldlog.tests.kit.played import memory_log, settings_in
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.web.inspector.sessions import Place, asking, long, turn
from foldlog.web.inspector import api
from foldlog.web.inspector.compare import differences
from foldlog.web.inspector.timeline import (
    Timeline,
    Timelines,
    TooManyTimelines,
    UnknownOffset,
)

PRICES = list_prices()


@pytest.fixture
def place(tmp_path):
    return Place(memory_log(threaded=True), settings_in(tmp_path))


def no_blob(ref):
    raise BlobMissing(f"there is no blob {ref.sha256}")


def timeline_of(place, session_id="s1"):
    return Timelines(place.log, no_blob).of(session_id)


def folds_at(place, session_id, offset):
    """The session folded up to an offset, as the command line folds it."""
    fold = SessionFold(place.log, session_id)
    known(fold, offset)
    return fold


def test_the_views_at_an_offset_equal_those_of_a_fold_up_to_it(place):
    place.talk("s1", 2)
    timeline = timeline_of(place)
    assert len(timeline.moments) > 20
    for moment in timeline.moments:
        fold = folds_at(place, "s1", moment.entry.offset)
        assert view_hashes(moment.views) == view_hashes(fold.views)
        assert moment.views.stream == fold.views.stream


def test_the_owed_rows_of_a_moment_equal_those_of_wake(place):
    asking(place, "s1")
    timeline = timeline_of(place)
    rows = set()
    for moment in timeline.moments:
        found = api.moment_json(timeline, moment, no_blob, PRICES)["wake"]
        fold = folds_at(place, "s1", moment.entry.offset)
        owed = owed_json(fold.views, moment.holders, moment.now_ms, Rules())
        assert [{name: row[name] for name in owed[n]} for n, row in enumerate(found)] == owed
        assert moment.now_ms <= now_ms(fold)
        assert all(row["why"] for row in found)
        rows |= {row["row"] for row in found}
    assert {"N3", "S1", "T1", "T2w"} <= rows


@pytest.mark.parametrize("effect, rows", [
    ("once", {"T6"}), ("idempotent", {"T5r", "T6r"}), ("pure", {"T5r", "T6r"}),
])
def test_what_follows_the_loss_of_a_worker_depends_on_the_effect_of_the_call(place, effect, rows):
    """A call with the effect `once` never runs again by itself, so T5r is no possible next step."""
    _, played = place.open("s1", "charge it")
    played.propose("Charging.", ("charge", {}))
    played.invoke(effect=effect)
    played.tool_start()
    timeline = timeline_of(place)
    (row,) = api.moment_json(timeline, timeline.moments[-1], no_blob, PRICES)["wake"]
    assert row["row"] == "T4"
    assert {one["row"] for one in row["next"] if one["when"] == "The worker is lost"} == rows


def test_the_holders_are_those_of_the_moment(place):
    place.talk("s1", 1)
    timeline = timeline_of(place)
    first, last = timeline.moments[0], timeline.moments[-1]
    assert first.holders.holder("models") is None
    assert last.holders.holder("models").owner == "w1/1"


def test_a_timeline_continues_when_the_log_has_grown(place):
    played = place.talk("s1", 1)
    timelines = Timelines(place.log, no_blob)
    before = timelines.of("s1")
    moments = list(before.moments)
    Sessions(place.log, place.settings).say("s1", "again", message_id="again")
    turn(played, 2, 3)
    after = timelines.of("s1")
    assert after is before and len(after.moments) > len(moments)
    assert all(a is b for a, b in zip(after.moments, moments, strict=False))
    fresh = Timeline(place.log, "s1").extend()
    assert [m.entry.offset for m in fresh.moments] == [m.entry.offset for m in after.moments]
    assert view_hashes(fresh.moments[-1].views) == view_hashes(after.moments[-1].views)


def test_an_offset_between_two_events_is_the_moment_of_the_first(place):
    place.talk("s1", 1)
    timeline = timeline_of(place)
    offsets = [moment.entry.offset for moment in timeline.moments]
    gap = next(a for a, b in zip(offsets, offsets[1:], strict=False) if b > a + 1)
    assert timeline.at(gap + 1) is timeline.at(gap)
    assert timeline.at(10**9) is timeline.at() is timeline.moments[-1]


def test_an_offset_before_the_first_event_is_refused(place):
    before = place.talk("s0", 1)
    other = next(name for name in map(str, range(99))
                 if Timeline(place.log, name).partition == before.fold.partition)
    with pytest.raises(UnknownOffset, match="has no events"):
        timeline_of(place, other).at()
    place.talk(other, 1)
    timeline = timeline_of(place, other)
    begins = timeline.moments[0].entry.offset
    assert begins > 0 and timeline.known
    with pytest.raises(UnknownOffset, match=f"begins at offset {begins} "):
        timeline.at(begins - 1)


def test_ten_thousand_events_share_their_rows(place):
    long(place, "s1")
    timeline = timeline_of(place)
    assert len(timeline.moments) > 10_000
    rows = timeline.moments[-1].views.transcript.lines
    for moment in timeline.moments[:: 500]:
        assert rows.extends(moment.views.transcript.lines)
    page = api.events_json(timeline, 0)
    assert page["next"] == api.PAGE_EVENTS < page["count"]


def test_only_the_most_recently_used_timelines_are_kept(place):
    for name in ("a", "b", "c"):
        place.talk(name, 1)
    timelines = Timelines(place.log, no_blob, sessions_max=2)
    a, _b = timelines.of("a"), timelines.of("b")
    assert timelines.of("a") is a
    timelines.of("c")
    assert timelines.of("a") is a
    small = Timelines(place.log, no_blob, events_max=1)
    a = small.of("a")
    assert small.of("a") is a
    small.of("b")
    assert small.of("a") is not a


def test_few_sessions_are_folded_at_once_for_one_user(place, monkeypatch):
    """Each fold reads a whole partition. Without a limit, one user's folds could occupy every
    thread of the gateway."""
    for name in ("a", "b", "c"):
        place.talk(name, 1)
    timelines, released, begun = Timelines(place.log, no_blob), Event(), Semaphore(0)
    extend = Timeline.extend

    def extend_when_released(timeline):
        begun.release()
        assert released.wait(20)
        return extend(timeline)

    monkeypatch.setattr(Timeline, "extend", extend_when_released)
    with ThreadPoolExecutor(8) as threads:
        folding = [threads.submit(timelines.of, name, "ana") for name in ("a", "b")]
        for _ in folding:
            assert begun.acquire(timeout=90)
        with pytest.raises(TooManyTimelines):
            timelines.of("c", "ana")
        others = [threads.submit(timelines.of, *args) for args in (("a", "ana"), ("c", "ben"))]
        for _ in others:
            assert begun.acquire(timeout=90)
        released.set()
        assert all(future.result(PATIENCE_S).known for future in folding + others)
    assert timelines.of("c", "ana").known
    place.talk("d", 1)
    assert timelines.of("d", "ana").known, "finished folds no longer count"


def test_the_list_has_every_event_and_no_text_of_a_chunk(place):
    played = place.talk("s1", 1)
    played.send(ev.GenChunk(turn=1, step=9, attempt=1, seq=0, block=0, kind="text",
                            delta="SECRET"), "models")
    assert played.producer.flush(10) == 0
    page = api.events_json(timeline_of(place))
    events = [dict(zip(page["fields"], row, strict=True)) for row in page["events"]]
    assert [e["offset"] for e in events] == sorted({e["offset"] for e in events})
    text = json.dumps([e["summary"] for e in events if e["type"] == "GEN_CHUNK"])
    assert "word" not in text and "SECRET" not in text and "6 characters of text" in text
    assert events[-1]["verdict"] == "ignored" and events[-1]["code"]
    called = next(e for e in events if e["type"] == "MESSAGE_RECEIVED")
    assert called["summary"].startswith("question 1")


def test_a_moment_has_a_prefix_of_the_lines_and_the_output_streamed_so_far(place):
    place.talk("s1", 2, chunks=4)
    timeline = timeline_of(place)
    lines = api.lines_json(timeline, no_blob)["lines"]
    viewer = INITIAL
    fold = SessionFold(place.log, "s1", chunks=True)
    for seen in fold.upto(fold.end()):
        viewer, _ = see(viewer, seen)
        found = api.moment_json(timeline, timeline.at(seen.entry.offset), no_blob, PRICES)
        rows = seen.views.transcript.lines
        assert found["lines"] == len(rows)
        assert [line["offset"] for line in lines[: found["lines"]]] == [r.offset for r in rows]
        streamed = "".join(part["text"] for part in (found["open"] or {"parts": []})["parts"])
        assert streamed == "".join(token.text for token in viewer.tokens)


def test_the_request_of_a_moment_equals_the_one_that_was_sent(place):
    place.talk("s1", 2)
    timeline = timeline_of(place)
    assert api.request_json(timeline, timeline.at(1), no_blob) is None
    steps = set()
    for moment in timeline.moments:
        found = api.request_json(timeline, moment, no_blob)
        if found is None:
            continue
        number, step = map(int, found["step"].split("."))
        sent = request_of(SessionFold(place.log, "s1"), number, step, no_blob)
        assert (found["body"].encode(), found["sha256"]) == (sent.body, sent.sha256)
        is_claimed = moment.entry.offset > found["offset"]
        assert found["agrees"] is (True if is_claimed else None)
        steps.add(found["step"])
    assert steps == {"1.1", "1.2", "2.1", "2.2"}


def test_a_claim_of_other_bytes_does_not_agree(place):
    _, played = place.open("s1", "hi")
    played.call()
    claim = played._claim() | {"request_sha256": "0" * 64}
    played.append(ev.GenStart(**claim), "models")
    timeline = timeline_of(place)
    found = api.request_json(timeline, timeline.at(), no_blob)
    assert found["agrees"] is False and found["claims"][0]["agrees"] is False


def test_a_comparison_reports_exactly_the_differences(place):
    place.talk("s1", 2)
    timeline = timeline_of(place)
    for moment in timeline.moments:
        assert differences(moment.views, moment.views) == []
    ended = next(m for m in timeline.moments if isinstance(m.entry.event, ev.TurnEnded))
    before = timeline.moments[ended.place - 1]
    found = api.compare_json(timeline, before, ended, no_blob)
    by_path = {d["path"]: d for d in found["differences"]}
    assert by_path["turn.open"]["before"] == "true" and by_path["turn.open"]["after"] == "false"
    assert [p for p, d in by_path.items() if d["kind"] == "added" and "lines" in p] == [
        f"transcript.lines[{len(before.views.transcript.lines)}]"]
    assert found["requests"]["sha256"][0] == found["requests"]["sha256"][1]
    back = api.compare_json(timeline, ended, before, no_blob)
    assert {d["path"] for d in back["differences"]} == set(by_path)
    far = api.compare_json(timeline, timeline.at(20), timeline.at(), no_blob)["requests"]
    assert 0 < far["same_bytes"] < far["bytes"][0] < far["bytes"][1]


@pytest.mark.parametrize(("one", "other", "same"), [
    (b"", b"", 0), (b"a", b"", 0), (b"abc", b"abd", 2), (b"abc", b"abc", 3), (b"xbc", b"abc", 0),
])
def test_shared_bytes(one, other, same):
    assert api.shared_bytes(one, other) == api.shared_bytes(other, one) == same


def test_missing_content_is_reported_in_its_place(place):
    _, played = place.open("s1", "hi")
    played.call()
    played.start()
    ref = BlobRef(sha256="f" * 64, bytes=9, media_type="application/json")
    played.complete(content=Body(ref=ref))
    timeline = timeline_of(place)
    lines = api.lines_json(timeline, no_blob)["lines"]
    assert lines[-1]["content"] == f"[there is no blob {'f' * 64}]"
    found = api.moment_json(timeline, timeline.at(), no_blob, PRICES)
    assert "there is no blob" in found["event"]["not_resolved"]


def test_cost_and_budget_of_a_moment(place):
    place.talk("s1", 2)
    timeline = timeline_of(place)
    first, last = timeline.moments[0], timeline.moments[-1]
    assert api.cost_of(timeline, first, PRICES)["total"]["attempts"] == 0
    cost = api.cost_of(timeline, last, PRICES)
    assert cost["total"]["attempts"] == 4
    assert [(row["model"], row["attempts"]) for row in cost["models"]] == [("claude-test", 4)]
    assert [(row["tool"], row["calls"]) for row in cost["tools"]] == [("read_file", 2)]
    fills = api.fills_json(timeline, last, no_blob)["steps"]
    assert [row["step"] for row in fills] == ["1.1", "1.2", "2.1", "2.2"]
    assert fills[0]["parts"]["results"] == 0 < fills[1]["parts"]["results"]
    budget = api.moment_json(timeline, last, no_blob, PRICES)["budget"]
    assert (budget["soft"], budget["hard"]) == (1, 2)
    assert budget["last_step"] == 15


def test_a_reader_finds_the_request_of_every_moment_while_the_timeline_grows(place):
    place.talk("s1", 2)
    timeline, newest = Timeline(place.log, "s1", no_blob), []

    class Steps(list):
        def append(self, step):
            newest.append(timeline.at().place)  # as another thread may do
            super().append(step)

    timeline.steps = Steps()
    timeline.extend()
    assert len(newest) == 4
    assert all(seen < step for seen, step in zip(newest, timeline.steps, strict=True))

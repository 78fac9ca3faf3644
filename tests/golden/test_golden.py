"""Recorded sessions are regression tests: they must fold to the outcome of their recording.

If a change of the outcome is intended, give the reason in the commit and update the outcome with
`python -m foldlog.tests.golden.record`. A request's sha256 may only change together with BUILDER.
"""

import json

import pytest

from foldlog.schemas.codec import entry_of
from foldlog.schemas.events import BY_NAME
from foldlog.tests.golden.golden import (
    blobs_of,
    expected,
    folded,
    names,
    record_in,
    records,
    to_line,
)
from foldlog.tests.golden.record import PLAYS

SAME_BYTES = ("window-3",)  # window-4 differs only where the prompt has what differs by user


@pytest.mark.parametrize("name", names())
def test_S2_10_a_recorded_session_folds_to_its_recorded_outcome(name):
    then = expected(name)
    now = folded(records(name), blobs_of(then))
    if now["builder"] != then["builder"]:
        now["requests"] = then["requests"]
    for what in then:
        if what != "builder":
            assert now[what] == then[what], what


@pytest.mark.parametrize("name", names())
def test_S2_11_any_past_request_is_rebuilt_and_matches_the_hash_in_its_claim(name):
    log, then = records(name), expected(name)
    claims, builders = {}, set()
    for record in log:
        event = entry_of(record).event
        if hasattr(event, "request_sha256"):
            builders.add(event.builder)
            if event.builder in (then["builder"], *SAME_BYTES):
                claims[f"{event.turn}.{event.step}"] = event.request_sha256
    assert bool(builders) == bool(then["requests"]), "a session without requests has no claims"
    assert claims or then["builder"] not in builders
    assert claims.items() <= then["requests"].items()


def test_every_play_has_a_recorded_session():
    assert names() == sorted(PLAYS)


@pytest.mark.parametrize("name", names())
def test_a_record_survives_a_round_trip_through_its_line(name):
    for record in records(name):
        assert record_in(to_line(record)) == record


def test_the_recorded_sessions_contain_most_event_types_and_every_verdict():
    types, verdicts = set(), set()
    for name in names():
        types |= {record.header("t").decode() for record in records(name) if record.header("t")}
        verdicts |= {ruling.split()[-1] for ruling in expected(name)["rulings"]}
    later = "DELIVERY SKIPPED REPLACED OWNER_GONE".split()  # newer than the recordings
    missing = {
        name
        for name in set(BY_NAME) - types
        if not any(word in name for word in later)
    }
    assert missing <= {"APPROVAL_EXPIRED", "REMINDER_ADDED"}, missing
    assert {"accepted", "duplicate", "superseded", "unreadable", "project_locked"} <= verdicts


def test_a_changed_history_has_another_outcome():
    name = "conversation"
    log, then = records(name), expected(name)
    without_the_last_message = [
        record for record in log if record.header("t") != b"MESSAGE_RECEIVED" or record.offset < 9
    ]
    now = folded(without_the_last_message, blobs_of(then))
    assert now["views"] != then["views"] and now["rulings"] != then["rulings"]
    assert json.dumps(then)

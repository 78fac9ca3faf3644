"""Doctor names the channels that can't be reached or aren't known, and what never came."""

from dataclasses import replace
from types import SimpleNamespace

from foldlog.consumers.doctor.channels import SHOWN_MAX, channels
from foldlog.log.channels import Channel
from foldlog.tests.laws.history import History, opened

CRM = Channel(name="crm", url="https://crm.example/x", secret_env="CRM_SECRET", secret="s")
KNOWN = {"crm": CRM}


def pushed(session_id: str = "s1") -> History:
    s = opened(session_id)
    s.say(channel="push:crm")
    return s.answer("hi")


def found(known, *histories: History) -> list[tuple[str, str]]:
    everything = SimpleNamespace(sessions={s.session_id: s.views for s in histories})
    return [(finding.level, finding.text) for finding in channels(everything, known)]


def test_where_no_channel_is_named_nothing_is_said():
    assert found({}, opened()) == []


def test_a_channel_that_is_owed_answers_and_is_in_no_settings_is_a_problem():
    ((level, text),) = found({}, pushed())
    assert level == "problem" and "1 answers are pending for push:crm" in text


def test_a_secret_that_is_not_set_is_a_problem_once_somebody_waits():
    bare = {"crm": replace(CRM, secret=None)}
    assert [level for level, _ in found(bare, opened())] == ["note"]
    ((level, text),) = found(bare, pushed())
    assert level == "problem" and "CRM_SECRET is not set" in text


def test_what_fails_is_told_with_its_reason_and_what_is_well_is_well():
    assert found(KNOWN, pushed()) == [("ok", "push:crm: 1 answers are pending")]
    failing = [pushed(f"s{n}") for n in range(SHOWN_MAX + 2)]
    for s in failing:
        s.undelivered("push:crm")
    told = found(KNOWN, *failing)
    assert "failed 1 times; the last error: unreachable: nobody is there" in told[1][1]
    assert told[-1] == ("note", "2 more failing deliveries")


def test_what_was_given_up_is_told_and_no_longer_owed():
    s = pushed()
    s.undelivered("push:crm", permanent=True)
    told = found(KNOWN, s)
    assert told[0] == ("ok", "push:crm: 0 answers are pending")
    assert "answer 1.1 was never delivered to push:crm after 1 attempts: unreachable" in told[1][1]
    assert told[2] == ("note", "1 deliveries were given up in total")


def test_a_session_that_has_ended_waits_for_nothing():
    s = pushed()
    s.terminate()
    assert found({}, s) == []


def test_an_entry_that_can_not_be_used_is_a_problem():
    everything = SimpleNamespace(sessions={})
    (one,) = channels(everything, {}, ["foldlog.toml, channels.crm: url is no url"])
    assert (one.level, one.text) == ("problem", "foldlog.toml, channels.crm: url is no url")
    assert "correct the setting" in one.do


def test_neither_url_nor_secret_is_told():
    assert "crm.example" not in repr(found(KNOWN, pushed()))

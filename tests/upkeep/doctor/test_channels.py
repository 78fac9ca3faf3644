"""`doctor` on push channels: unknown channels, failing channels, and deliveries that were given
up."""

from dataclasses import replace
from types import SimpleNamespace

from foldlog.log.channels import Channel
from foldlog.tests.kit.history import History, opened
from foldlog.upkeep.doctor.channels import SHOWN_MAX, channels

CRM = Channel(name="crm", url="https://crm.example/x", secret_env="CRM_SECRET", secret="s")
KNOWN = {"crm": CRM}


def pushed(session_id: str = "s1") -> History:
    s = opened(session_id)
    s.say(channel="push:crm")
    return s.answer("hi")


def found(known, *histories: History) -> list[tuple[str, str]]:
    everything = SimpleNamespace(sessions={s.session_id: s.views for s in histories})
    return [(finding.level, finding.text) for finding in channels(everything, known)]


def test_without_channels_there_are_no_findings():
    assert found({}, opened()) == []


def test_pending_answers_for_an_unconfigured_channel_are_a_problem():
    ((level, text),) = found({}, pushed())
    assert level == "problem" and "1 answers are pending for push:crm" in text


def test_a_missing_secret_is_a_problem_once_an_answer_is_pending():
    bare = {"crm": replace(CRM, secret=None)}
    assert [level for level, _ in found(bare, opened())] == ["note"]
    ((level, text),) = found(bare, pushed())
    assert level == "problem" and "CRM_SECRET is not set" in text


def test_failing_deliveries_are_reported_with_the_reason():
    assert found(KNOWN, pushed()) == [("ok", "push:crm: 1 answers are pending")]
    failing = [pushed(f"s{n}") for n in range(SHOWN_MAX + 2)]
    for s in failing:
        s.undelivered("push:crm")
    findings = found(KNOWN, *failing)
    assert "failed 1 times; the last error: unreachable: nobody is there" in findings[1][1]
    assert findings[-1] == ("note", "2 more failing deliveries")


def test_a_delivery_given_up_is_reported_and_no_longer_pending():
    s = pushed()
    s.undelivered("push:crm", permanent=True)
    findings = found(KNOWN, s)
    assert findings[0] == ("ok", "push:crm: 0 answers are pending")
    given_up = "answer 1.1 was never delivered to push:crm after 1 attempts: unreachable"
    assert given_up in findings[1][1]
    assert findings[2] == ("note", "1 deliveries were given up in total")


def test_a_terminated_session_has_no_pending_deliveries():
    s = pushed()
    s.terminate()
    assert found({}, s) == []


def test_an_invalid_channel_setting_is_a_problem():
    everything = SimpleNamespace(sessions={})
    (one,) = channels(everything, {}, ["foldlog.toml, channels.crm: url is no url"])
    assert (one.level, one.text) == ("problem", "foldlog.toml, channels.crm: url is no url")
    assert "correct the setting" in one.do


def test_findings_contain_neither_url_nor_secret():
    assert "crm.example" not in repr(found(KNOWN, pushed()))

"""The audit report: every text is escaped, the page loads nothing, and it shows who did what and
why."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from foldlog.client.visible import is_hidden
from foldlog.processors.advice.prices import list_prices
from foldlog.reports.exports.audit import audit_page
from foldlog.reports.exports.blocks import Contents
from foldlog.reports.exports.reading import read_log
from foldlog.reports.exports.timeline import Axis, Mark, lasting, svg
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.golden import golden
from foldlog.tests.kit import answers
from foldlog.tests.kit.agents import variant
from foldlog.tests.kit.answers import usage
from foldlog.tests.kit.history import opened as opened_history
from foldlog.tests.kit.played import memory_log, opened, settings_in
from foldlog.tests.reports.exports.logs import WORLDS, Recorded, golden_log, random_log

EVIL = '<script>alert(1)</script><img src=x onerror=alert(2)>" onload="x \u202eevil\x1b[2J</pre>'
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Collects the tags, attributes and text of a page. Fails if tags are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.text, self.open = set(), set(), [], []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {(tag, name) for name, _ in attrs}
        if tag not in VOID and tag not in ("circle", "rect", "line", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in ("circle", "rect", "line", "path"):
            return
        assert self.open.pop() == tag, tag

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {(tag, name) for name, _ in attrs}

    def handle_data(self, data):
        self.text.append(data)


def page_of(source, session_id=None) -> str:
    contents = Contents(source.read)
    name = session_id or source.session_id
    facts = read_log(source.log, (name,), contents).sessions[name]
    return audit_page(facts, contents, list_prices())


def known(source) -> bool:
    found = read_log(source.log, None, Contents(source.read)).sessions.get(source.session_id)
    return found is not None and found.views.turn.known


def test_a_report_of_any_session_is_valid_and_loads_nothing():
    sources = [golden_log(name) for name in golden.names()]
    sources += [random_log(seed, forged=forged) for seed in WORLDS for forged in (False, True)]
    for source in filter(known, sources):
        text = page_of(source)
        page = Page(text)
        assert not page.tags & set("script img iframe link object embed base form".split())
        assert not {name for _, name in page.attributes} & {"src", "href", "action", "srcset"}
        assert not [name for _, name in page.attributes if name.startswith("on")]
        assert "url(" not in text and "@import" not in text and "default-src 'none'" in text
        ElementTree.fromstring(re.search(r"<svg.*</svg>", text, re.DOTALL).group())
        assert text == page_of(source), "the same log gives the same bytes"


class LogSource:
    """A log without blobs that has the same methods as Recorded."""

    def __init__(self, log, session_id="s1"):
        self.log, self.session_id = log, session_id

    def read(self, ref):
        raise AssertionError("nothing is in a blob")


def test_every_text_from_the_log_is_escaped(tmp_path):
    log = memory_log()
    sessions, played = opened(log, settings_in(tmp_path))
    sessions.say("s1", EVIL, message_id="m1")
    played.propose(EVIL, ("charge", {"note": EVIL}))
    played.invoke(approval="ask")
    sessions.decide("s1", "1.1.0", "allow", args_sha256=played.views.turn.calls[0].args_sha256)
    played.tool_start()
    played.uncertain(reason=EVIL)
    sessions.resolve("s1", "1.1.0", "happened", report=EVIL)
    played.call()
    played.start()
    played.fail(permanent=True)
    played.end("failed")
    sessions.cancel("s1", reason=EVIL, turn=1)
    text = page_of(LogSource(log))
    page = Page(text)
    assert not page.tags & {"script", "img"} and "\u202e" not in text and "\x1b" not in text
    assert "".join(page.text).count("alert(1)") >= 5
    for word in ("charge", "1.1.0", "happened", "ana", "w1/1", "overloaded", "\\u202e"):
        assert word in text, word


def test_the_report_shows_who_allowed_what_and_the_proof(tmp_path):
    text = page_of(golden_log("conversation"))
    assert re.search(r'2\.1\.0.*?tag ok">allow</span> ana', text, re.DOTALL)
    assert "grant" in text and "How to check this report" in text
    assert "and later calls" not in text and "every later call of charge" in text, "an old grant"
    assert 'tag warn">unproven<' in text, "older records have no origin"
    assert re.search(r"<b>[1-9]\d*</b><span>actions of people without proof", text)
    doubt = page_of(golden_log("doubt_resolved"))
    assert "in doubt" in doubt and "says" in doubt


def test_each_request_of_background_work_is_a_row_and_summed():
    s = opened_history(golden.SESSION_ID, agent=variant(memory=True))
    s.say("I like tea.")
    s.answer("So do I.")
    (work,) = [work for work in s.views.background.works if work.kind == "memory"]
    earlier = (ev.Try(model="cheap", usage=usage(100_000, 7_000)),)
    s.append(answers.done("memory", work.upto, work.attempt, earlier=earlier), "background")
    text = "|".join(Page(page_of(Recorded(s.records, {}, golden.SESSION_ID))).text)
    requests = text[text.index("try 1 request 1"):]
    expected = ("failed", "7,000", "try 1 request 2", "complete", "background", "7,005")
    places = [requests.index(word) for word in expected]
    assert places == sorted(places)


def test_a_missing_blob_and_a_truncated_text_are_marked(tmp_path):
    source = golden_log("conversation")
    source.blobs.clear()
    assert "Missing content" in page_of(source) and "[content is missing]" in page_of(source)
    log = memory_log()
    sessions, _ = opened(log, settings_in(tmp_path))
    sessions.say("s1", "word " * 9_000, message_id="m1")
    text = page_of(LogSource(log))
    assert "43,800 characters more" in text and "characters more: see the bundle" in text
    assert log.end_offsets(SESSION_EVENTS)


def test_long_pauses_are_shortened_and_time_is_monotonic():
    marks = [Mark("people", at, at, "person", "") for at in (0, 500, 3_600_000, 3_601_000)]
    axis = Axis(marks)
    ((_, silence),) = axis.gaps
    assert silence == 3_599_500
    places = [axis.x(mark.begin) for mark in marks]
    assert places == sorted(places) and len(set(places)) == 4


@pytest.mark.parametrize("ms, text", [
    (0, "0.0 s"), (12, "12 ms"), (1_500, "1.5 s"), (90_000, "1.5 min"), (7_200_000, "2 h"),
    (864_000_000, "10 d"),
])
def test_durations_are_printed_for_people(ms, text):
    assert lasting(ms) == text


def test_an_empty_session_has_a_timeline(tmp_path):
    log = memory_log()
    opened(log, settings_in(tmp_path))
    facts = read_log(log, ("s1",), Contents(LogSource(log).read)).sessions["s1"]
    assert svg(facts).startswith("<svg")


def test_E11_no_part_of_the_arguments_is_hidden(tmp_path):
    log, settings = memory_log(), settings_in(tmp_path)
    sessions, played = opened(log, settings)
    sessions.say("s1", "go \u3164\u200b", message_id="m1")
    args = {"command": "ls \U000e0072" + " " * 500 + "rm" + "x" * 50_000, "zz": "last \u200d"}
    played.propose("", ("run", args))
    played.invoke(approval="ask")
    contents = Contents(played.read)
    page = audit_page(read_log(log, ("s1",), contents).sessions["s1"], contents, list_prices())
    text = "".join(Page(page).text).replace("more", "")
    assert "ls \\u{e0072}⟨␠×500⟩rm" in text and "last \\u200d" in text
    assert text.count("x") > 2 * 50_000, "whole in the story and in the table of calls"
    assert not any(is_hidden(char) for char in text if char != "\n")

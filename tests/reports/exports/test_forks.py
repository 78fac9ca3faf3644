"""A fork is exported with the events that it inherits, and its bundle replays without the
parent."""

import sqlite3

import pytest

from foldlog.client.log_client import LogClient
from foldlog.client.session_fold import SessionFold
from foldlog.log.bundle_file import read_bundle
from foldlog.processors.advice.prices import list_prices
from foldlog.reports.exports.blocks import Contents
from foldlog.reports.exports.bundle import verify
from foldlog.reports.exports.formats import FORMATS, Export
from foldlog.tests.kit.played import Played, memory_log, opened, settings_in

TEXTS = ["Be brief.", "hello", "buying", "charged", "done", "fork", "yes"]


@pytest.fixture
def forked(tmp_path):
    """A client, and three sessions: one that called a tool, its fork f1, and f2, a fork of f1."""
    log, settings = memory_log(), settings_in(tmp_path / "home")
    sessions, played = opened(log, settings)
    sessions.say("s1", "hello", message_id="m1")
    played.propose("buying", ("charge", {"cents": 3}))
    played.run_tool("charged")
    played.answer("done")
    client = LogClient(settings, log, user="ana")
    client.branching().fork("s1", name="f1")
    sessions.say("f1", "fork", message_id="m2")
    branch = Played(log, "f1")
    branch.fold = SessionFold(log, "f1", read=client.read_blob)
    branch.answer("yes")
    client.branching().fork("f1", name="f2")
    return client


def exported(client: LogClient, name: str, session: str, path):
    contents = Contents(client.read_blob)
    job = Export(client.log, (session,), contents, list_prices(), path, False, lambda *_: None)
    FORMATS[name].write(job)
    return path


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("session", ["f1", "f2"])
def test_a_fork_is_exported_with_its_inherited_calls(forked, tmp_path, name, session):
    path = exported(forked, name, session, tmp_path / "x")
    if name == "rubyllm":
        rows = sqlite3.connect(path).execute("SELECT content FROM messages ORDER BY id").fetchall()
        assert [row[0] for row in rows] == TEXTS
    if name == "audit":
        page = path.read_text()
        assert all(text in page for text in TEXTS[1:]) and "It was forked from" in page
    if name == "jsonl":
        calls = (path / "tool_calls.jsonl").read_text()
        assert '"name":"charge"' in calls and '"args":{"cents": 3}' in calls
    if name == "vercel":
        ((state,),) = sqlite3.connect(path).execute(
            "SELECT tool_state FROM parts WHERE type = 'tool-charge'").fetchall()
        assert state == "output-available"


@pytest.mark.parametrize("session", ["f1", "f2"])
def test_S2_11_the_bundle_of_a_fork_replays_without_its_parent(forked, tmp_path, session):
    bundle = read_bundle(exported(forked, "bundle", session, tmp_path / "x"))
    blobs = dict(bundle.blobs())
    replayed, differences = verify(bundle, lambda ref: blobs[ref.sha256])
    assert differences == [] and replayed.views.frozen is None
    assert len(replayed.views.messages.received) == 2


def test_an_edited_result_is_in_the_audit_and_in_the_bundle(forked, tmp_path):
    again = forked.branching().rerun("s1", "declined", call="1.1.0", reason="what if")
    page = exported(forked, "audit", again.session_id, tmp_path / "page").read_text()
    assert all(text in page for text in ("charged", "declined", "replaced", "what if"))
    bundle = read_bundle(exported(forked, "bundle", again.session_id, tmp_path / "bundle"))
    blobs = dict(bundle.blobs())
    replayed, differences = verify(bundle, lambda ref: blobs[ref.sha256])
    assert differences == [] and replayed.views.replaced == ("1.1.0",)

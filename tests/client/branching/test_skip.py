"""`foldlog skip`: a frozen session continues without the record that froze it, for every reader."""

from time import monotonic

import pytest

from foldlog.client.branching import CanNotFork
from foldlog.client.log_client import LogClient
from foldlog.client.outcomes import CommandRefused
from foldlog.client.session import Session
from foldlog.log.blobs import open_blobs
from foldlog.log.partition import partition_for
from foldlog.processors.store.views_codec import view_hashes
from foldlog.producers.fork import skip_record, store_seed
from foldlog.reports.replay import Replay
from foldlog.schemas import codec
from foldlog.schemas.topics import DEAD_LETTERS, SESSION_EVENTS
from foldlog.tests.cli.harness import make_shell
from foldlog.tests.client.branching.branched import answers_of, lines_of, talk, views_of
from foldlog.tests.kit.played import settings_in
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.web.gateway.tail import Tail

POISON = b"\xc3\x01" + b"\1" * 8 + b"of another version"
HEADERS = (("t", b"FROM_THE_FUTURE"), ("w", b"producer"), ("m", b"1"))


def poison(client, session_id="s1", value=POISON, headers=HEADERS) -> int:
    """Append a record that freezes a session, and return its offset."""
    partition = partition_for(session_id, len(client.log.end_offsets(SESSION_EVENTS)))
    return client.log.store(SESSION_EVENTS, partition, session_id.encode(), value, headers).offset


def say_to_frozen(client, word: str) -> None:
    """Send a message to a frozen session. It takes effect only after a skip."""
    with pytest.raises(CommandRefused, match=r"takes effect once .*`foldlog skip`"):
        Session(client, "s1").say(f"say {word}", message_id=f"m-{word}")


class OneByOne:
    """A reader that returns one record per poll, so that the store is written after each record."""

    def __init__(self, reader):
        self._reader = reader

    def poll(self, timeout_s):
        return self._reader.poll(timeout_s, 1)


def gateway_views(client, directory):
    """The session's views in a gateway that reads the whole log and stores the views."""
    tail = Tail(client.log, directory, lambda _line: None, client.read_blob)
    reader = client.log.reader(SESSION_EVENTS, tail.places())
    end = monotonic() + PATIENCE_S
    while tail.lag():
        assert monotonic() < end, "the gateway stopped reading"
        tail._poll(OneByOne(reader))
    views = tail.views("s1")
    reader.close()
    tail.close()
    return views


def test_law_13_a_session_continues_without_the_record_and_later_events_take_effect(client):
    played = talk(client, "s1", "one")
    offset = poison(client)
    say_to_frozen(client, "two")
    skipped = client.branching().skip("s1", reason="a bad deploy")
    assert (skipped.offset, skipped.uncounted) == (offset, ())
    views = views_of(client, "s1")
    assert views.frozen is None and views.turn.open and views.skipped == (offset,)
    played.fold = client.fold("s1")
    played.answer("here is two")
    assert answers_of(views_of(client, "s1")) == ["here is one", "here is two"]


def test_every_reader_folds_a_skip_to_the_same_views(client, tmp_path):
    """The readers are a gateway that folded the record before the skip, a gateway that starts
    later, and a replay."""
    talk(client, "s1", "one")
    poison(client)
    say_to_frozen(client, "two")
    assert gateway_views(client, tmp_path / "before").frozen is not None
    client.branching().skip("s1")
    talk(client, "s1", "three")
    ours = view_hashes(views_of(client, "s1"))
    assert view_hashes(gateway_views(client, tmp_path / "before")) == ours
    assert view_hashes(gateway_views(client, tmp_path / "fresh")) == ours
    assert view_hashes(gateway_views(client, tmp_path / "fresh")) == ours, "as it was stored"
    assert Replay(client.log, "s1", read=client.read_blob).run().sessions["s1"].hashes == ours


def test_a_version_that_understands_a_skipped_record_still_skips_it(client, tmp_path, monkeypatch):
    """Later decisions rely on the skip. If the record were folded after all, the session would
    change."""
    talk(client, "s1", "one")
    (value, headers) = next(
        (record.value, record.headers)
        for number in client.log.end_offsets(SESSION_EVENTS)
        for record in client.log.records(SESSION_EVENTS, number)
        if record.header("t") == b"MESSAGE_RECEIVED"
    )
    value = value.replace(b"m-one", b"m-new").replace(b"say one", b"say new")
    understood = codec.decode

    def old_version(data: bytes):
        if data == value:
            raise codec.Undecodable("of a newer version")
        return understood(data)

    with monkeypatch.context() as patch:
        patch.setattr(codec, "decode", old_version)
        poison(client, value=value, headers=headers)
        say_to_frozen(client, "two")
        client.branching().skip("s1")
        played = talk(client, "s1", "three")
        then = view_hashes(views_of(client, "s1"))
        assert played
    assert view_hashes(views_of(client, "s1")) == then
    assert view_hashes(gateway_views(client, tmp_path / "upgraded")) == then
    assert view_hashes(gateway_views(client, tmp_path / "upgraded")) == then, "as it was stored"


def test_a_command_sent_to_a_frozen_session_takes_effect_after_the_skip(client):
    talk(client, "s1", "one")
    poison(client)
    with pytest.raises(CommandRefused):
        Session(client, "s1").lock("p1")
    assert client.branching().skip("s1").decision.views.state.project_id == "p1"


def test_a_fork_of_a_session_with_a_skip_begins_as_it_is(client):
    talk(client, "s1", "one")
    poison(client)
    client.branching().skip("s1")
    talk(client, "s1", "two")
    client.branching().fork("s1", name="f1")
    fork = views_of(client, "f1")
    assert fork.frozen is None and lines_of(fork) == lines_of(views_of(client, "s1"))
    offset = poison(client, "f1")
    assert client.branching().skip("f1").offset == offset, "a fork can be skipped too"
    assert lines_of(views_of(client, "f1")) == lines_of(fork)
    talk(client, "f1", "three")


def test_each_record_that_freezes_a_session_is_skipped_separately(client):
    talk(client, "s1", "one")
    first, second = poison(client), poison(client)
    say_to_frozen(client, "two")
    again = client.branching().skip("s1", first).decision.views
    assert again.frozen.offset == second and again.skipped == (first,)
    assert client.branching().skip("s1", second).decision.views.turn.open
    assert views_of(client, "s1").skipped == (first, second)


@pytest.mark.parametrize("records", [1, 2])
def test_a_name_that_was_poisoned_before_it_was_opened_can_be_used(client, tmp_path, records):
    """The defect: `foldlog skip` refused it for ever, and doctor advised `foldlog skip`."""
    offsets = tuple(poison(client) for _ in range(records))
    assert gateway_views(client, tmp_path / "before") is None
    for offset in offsets:
        views = client.branching().skip("s1", offset).decision.views
    assert (views.frozen, views.skipped, views.turn.known) == (None, offsets, False)
    talk(client, "s1", "one")
    ours = view_hashes(views_of(client, "s1"))
    assert answers_of(views_of(client, "s1")) == ["here is one"]
    assert view_hashes(gateway_views(client, tmp_path / "before")) == ours
    assert view_hashes(gateway_views(client, tmp_path / "fresh")) == ours
    with pytest.raises(CanNotFork, match="is not frozen"):
        client.branching().skip("s1")


def test_an_opening_that_was_sent_after_the_poison_takes_effect_with_the_skip(client, tmp_path):
    offset = poison(client)
    client.writer.open("s1", agent="default", user="ana")
    with LogClient(settings_in(tmp_path, "eve"), client.log) as someone:
        with pytest.raises(CanNotFork, match="belongs to another user"):
            someone.branching().skip("s1", offset)
    views = client.branching().skip("s1", offset).decision.views
    assert (views.frozen, views.state.user_id) == (None, "ana")
    talk(client, "s1", "one")
    client.branching().fork("s1", name="f1")
    assert lines_of(views_of(client, "f1")) == lines_of(views_of(client, "s1"))
    again = poison(client)
    assert client.branching().skip("s1").offset == again, "also after the opening was in a seed"
    assert answers_of(views_of(client, "s1")) == ["here is one"]


def test_law_3_only_the_owner_skips_in_the_fold(client):
    """A RECORD_SKIPPED of another user whose seed has the owner's opening changes nothing."""
    offset = poison(client)
    client.writer.open("s1", agent="default", user="ana")
    partition = partition_for("s1", len(client.log.end_offsets(SESSION_EVENTS)))
    opening = client.log.records(SESSION_EVENTS, partition)[offset + 1 :]
    seed = store_seed(open_blobs(client.settings), "s1", opening, None)
    skip_record(client.writer, "s1", offset, seed, user="eve")
    with client.fold("s1") as folded:
        assert folded.to_end().frozen.offset == offset
    assert client.branching().skip("s1").decision.views.state.user_id == "ana"


def test_doctor_does_not_advise_a_skip_for_a_key_that_can_be_no_session(tmp_path, capsys):
    shell = make_shell(tmp_path, capsys)
    with LogClient(shell.settings, shell.log) as client:
        poison(client, "no id")
        home = partition_for("s1", len(client.log.end_offsets(SESSION_EVENTS)))
        client.log.store(SESSION_EVENTS, (home + 1) % 4, b"s1", POISON, HEADERS)
    found = [f for f in shell("doctor --json").json if f["check"] == "frozen"]
    assert [(f["level"], f["do"]) for f in found] == [("note", "")] * 2
    assert "is of no session (s1)" in found[1]["text"]


@pytest.mark.parametrize(
    ("session_id", "offset", "user", "why"),
    [
        ("s1", 0, "ana", r"is frozen at offset \d+, not at 0"),
        ("s2", None, "ana", "is not frozen"),
        ("nobody", None, "ana", "there is no session nobody"),
        ("s1", None, "eve", "belongs to another user"),
    ],
)
def test_bad_input_only_the_record_that_froze_a_session_can_be_skipped(
    client, tmp_path, session_id, offset, user, why
):
    talk(client, "s1", "one")
    talk(client, "s2", "one")
    poison(client)
    ends = client.log.end_offsets(SESSION_EVENTS)
    with (
        LogClient(settings_in(tmp_path, user), client.log) as someone,
        pytest.raises(CanNotFork, match=why),
    ):
        someone.branching().skip(session_id, offset)
    assert client.log.end_offsets(SESSION_EVENTS) == ends


def test_law_3_a_duplicate_skip_takes_effect_once(client):
    talk(client, "s1", "one")
    poison(client)
    written = client.branching().skip("s1").decision.offset
    talk(client, "s1", "two")
    before = views_of(client, "s1")
    partition = partition_for("s1", len(client.log.end_offsets(SESSION_EVENTS)))
    record = client.log.records(SESSION_EVENTS, partition)[written]
    poison(client, value=record.value, headers=record.headers)
    assert views_of(client, "s1") == before


def test_a_skip_whose_seed_is_lost_leaves_the_session_frozen(client):
    talk(client, "s1", "one")
    offset = poison(client)
    client.branching().skip("s1")
    for path in client.settings.blobs_dir.glob("??/*"):
        path.unlink()
    assert views_of(client, "s1").frozen.offset == offset


def test_doctor_names_the_record_and_the_command_that_skips_it(tmp_path, capsys):
    shell = make_shell(tmp_path, capsys)
    with LogClient(shell.settings, shell.log) as client:
        talk(client, "s1", "one")
        offset = poison(client)
    found = [f for f in shell("doctor --json").json if f["check"] == "frozen"]
    assert f"s1 is frozen at offset {offset}" in found[0]["text"]
    assert "fingerprint" in found[0]["text"]
    assert found[0]["do"].startswith(f"foldlog skip s1 --offset {offset}")
    refused = shell(f"skip s1 --offset {offset + 1}")
    assert refused.code == 1 and f"not at {offset + 1}" in refused.err
    result = shell(f"skip s1 --offset {offset}")
    assert result.code == 0 and f"continues without the record at offset {offset}" in result.out
    assert [f for f in shell("doctor --json").json if f["check"] == "frozen"] == []
    assert "is not frozen" in shell("skip s1 --json").err


def dead_letter(log, session_id: str, offset: int) -> None:
    """Write a dead letter as the worker of the session's partition writes it."""
    partition = partition_for(session_id, len(log.end_offsets(SESSION_EVENTS)))
    place = {"topic": SESSION_EVENTS, "partition": str(partition), "offset": str(offset)}
    headers = [(f"__dlq.errors.{name}", value.encode()) for name, value in place.items()]
    log.producer().append(DEAD_LETTERS, session_id, POISON, headers)


def test_a_skipped_dead_letter_is_not_a_problem_for_doctor(tmp_path, capsys):
    """The defect: after `foldlog skip`, the dead letter remained a PROBLEM until its retention
    ended."""
    shell = make_shell(tmp_path, capsys)

    def letters() -> list[tuple[str, str]]:
        found = [f for f in shell("doctor --json").json if f["check"] == "dead letters"]
        return [(f["level"], f["text"]) for f in found]

    with LogClient(shell.settings, shell.log) as client:
        for name in ("s1", "s2"):
            talk(client, name, "one")
            dead_letter(shell.log, name, poison(client, name))
        first, second = (views_of(client, name).frozen.offset for name in ("s1", "s2"))
        dead_letter(shell.log, "s4", first)  # the same offset, in another partition
    assert letters()[0] == ("problem", "3 records could not be decoded; the last of them:")
    assert shell("skip s1").code == 0
    left, *shown = letters()
    more = "and 1 more that `foldlog skip` passed over"
    text = f"2 records could not be decoded, {more}; the last of them:"
    assert left == ("problem", text)
    assert sorted(text for _, text in shown) == sorted([
        f"offset {first}, partition {partition_for('s4', 4)}, topic {SESSION_EVENTS}",
        f"offset {second}, partition {partition_for('s2', 4)}, topic {SESSION_EVENTS}",
    ])


def test_doctor_reports_that_all_dead_letters_were_skipped(tmp_path, capsys):
    shell = make_shell(tmp_path, capsys)
    with LogClient(shell.settings, shell.log) as client:
        talk(client, "s1", "one")
        for _ in range(7):  # more than LETTERS_MAX
            dead_letter(shell.log, "s1", poison(client))
            assert shell("skip s1").code == 0
    (found,) = [f for f in shell("doctor --json").json if f["check"] == "dead letters"]
    assert found["level"] == "ok" and found["do"] == ""
    assert found["text"] == "7 records could not be decoded; `foldlog skip` passed over all of them"

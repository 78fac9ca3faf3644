"""`send`, `open`, `cancel`, `terminate`, `phase`, `lock`: the output is the fold's decision."""

import json
import os
import threading

from foldlog.processors.store.state_dir import StateDir
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.cli.harness import make_shell
from foldlog.tests.kit.played import Played
from foldlog.tests.kit.waiting import joined


def test_a_first_message_opens_the_session(shell):
    ran = shell("send s1", "hello there", "--message-id=m1")
    assert (ran.code, ran.out) == (0, "message m1: turn 1 (offset 1)\n")
    assert "s1" in shell("sessions").out
    assert shell("send s1 more --message-id m2").out.startswith("message m2: turn 1")


def test_an_invalid_message_opens_no_session(shell):
    """The defect: the message was refused, but left an empty session behind."""
    assert shell("send s1", "").code == 1
    assert shell("send s1 hi --attach /not/there.png").code == 1
    assert shell("sessions --json").json == []


def test_a_message_that_waits_for_a_turn_is_reported_as_waiting(shell):
    shell("send s1 hi")
    Played(shell.log, "s1").call()
    assert "waits behind turn 1" in shell("send s1 more").out


def test_S0_10_the_second_sender_of_a_message_gets_the_same_answer(shell):
    shell("send s1 hi --message-id m1")
    Played(shell.log, "s1").answer("hello")
    again = shell("send s1 hi --message-id m1")
    assert (again.code, "done before, nothing changed" in again.out) == (0, True)
    first = shell("send s1 hi --message-id m1 --wait --json").json
    second = shell("send s1 hi --message-id m1 --wait --json").json
    assert first == second and first[0]["text"] == "hello"
    assert list(first[0])[:5] == ["session", "turn", "reason", "text", "offset"]
    refused = shell("send s1 ho --message-id m1")
    assert refused.code == 1 and "used with other content" in refused.err


def test_send_wait_prints_the_answer_and_nothing_else(tmp_path, capsys):
    shell = make_shell(tmp_path, capsys, threaded=True)
    shell("open s1")
    played = Played(shell.log, "s1")

    def work():
        played.wait(lambda views: views.turn.open)
        played.answer("the answer is \x1b[31m42")

    worker = threading.Thread(target=work)
    worker.start()
    ran = shell("send s1 question --wait")
    joined(worker)
    assert (ran.code, ran.out, ran.err) == (0, "the answer is \\x1b[31m42\n", "")


def test_S2_4_a_printed_answer_is_recorded_as_sent_once(shell):
    shell("send s1 hi --message-id m1")
    played = Played(shell.log, "s1")
    played.answer("hello")
    for _ in range(2):
        shell("send s1 --message-id m1 --wait")
    (sent,) = played.views.transcript.sent
    assert (sent.turn, sent.step, sent.channel) == (1, 1, "cli")
    events = shell("tail s1 --json").json
    assert [event["writer"] for event in events if event["type"] == "GEN_SENT"] == ["consumers"]


def test_send_wait_without_a_worker_ends_with_the_command_to_wait_again(shell):
    waited = shell("send s1 hi --message-id m1 --wait --timeout 0")
    assert waited.code == 1
    assert "not answered yet" in waited.err and "--message-id m1 --wait" in waited.err


def test_send_wait_reports_at_once_what_a_person_must_do(shell):
    shell("send s1 pay --message-id m1")
    played = Played(shell.log, "s1")
    played.propose("", ("charge", {"cents": 5}))
    played.invoke(approval="ask")
    waited = shell("send s1 --message-id m1 --wait --timeout 0")
    assert waited.code == 1
    assert waited.err.startswith("charge waits for approval: `foldlog approve s1 1.1.0` or `deny`")
    assert "continues when that is settled" in waited.err


def test_send_without_wait_reports_that_no_worker_answers(shell):
    """The defect: `send` printed that a turn had begun, and no answer ever came."""
    partition = "no worker has taken its partition yet"
    ran = shell("send s1 hi --message-id m1 --json")
    assert ran.json[0]["verdict"] == "accepted" and partition in ran.err
    Played(shell.log, "s1").take()
    assert shell("send s1 hi --message-id m2").err == "", "w1, on another machine, may be running"
    state_dir = shell.settings.state_dir
    ours = StateDir(state_dir)
    ours.close()
    Played(shell.log, "s1").take(f"{ours.worker_id}/1")
    assert "the worker that had its partition is not running" in shell("send s1 again").err
    (state_dir / "worker.json").write_text(json.dumps({"pid": os.getpid(), "web": "http://::1:1"}))
    assert shell("send s1 more").err == ""


def test_send_wait_reports_a_cancelled_or_failed_turn(shell):
    shell("send s1 hi --message-id m1")
    played = Played(shell.log, "s1")
    played.call()
    played.start()
    shell("cancel s1")
    played.stopped("half")
    played.end("cancelled")
    waited = shell("send s1 --message-id m1 --wait")
    assert (waited.code, waited.out, waited.err) == (0, "half\n", "turn 1 ended: cancelled\n")
    shell("send s1 more --message-id m2")
    played.call()
    played.start()
    played.fail(permanent=True)
    played.end("failed")
    waited = shell("send s1 --message-id m2 --wait")
    assert waited.code == 1 and "overloaded" in waited.err


def test_a_message_from_stdin(shell):
    assert shell("send s1 -", stdin="a\nlong\nmessage").code == 0
    event = shell("tail s1 --json").json[-1]
    assert json.loads(event["content"]["inline"])[0]["text"] == "a\nlong\nmessage"
    assert event["channel"] == "cli"


def test_bad_input_is_refused_and_nothing_is_produced(shell):
    for command in (("send s1", ""), ("send", "a b", "hi"), ("send s1 hi --message-id", "ä")):
        refused = shell(*command)
        assert refused.code == 1 and refused.err.startswith("refused: "), command
    before = shell.log.end_offsets(SESSION_EVENTS)
    assert shell("send s1", " ").code == 1
    assert sum(shell.log.end_offsets(SESSION_EVENTS).values()) - sum(before.values()) <= 1


def test_waiting_for_an_unknown_message_is_refused(shell):
    shell("open s1")
    assert "has no message m9" in shell("send s1 --message-id m9 --wait").err


def test_open_reports_user_and_agent(shell):
    assert "session s1 is open: user ana, agent shop" in shell("open s1 --agent shop").out
    assert "done before" in shell("open s1 --agent shop").out
    refused = shell("open s1 --agent other")
    assert (refused.code, refused.err) == (1, "refused: the session is already open\n")
    assert shell("open s2 --user bob").code == 0


def test_S0_6_cancel_is_for_the_same_user_only(shell):
    shell("send s1 hi")
    refused = shell("cancel s1 --user eve")
    assert refused.code == 1 and "belongs to another user" in refused.err
    assert "turn 1 is cancelled" in shell("cancel s1").out
    assert "done before" in shell("cancel s1").out


def test_S0_11_the_loser_of_a_race_gets_a_clear_error(shell):
    shell("open s1")
    for trigger in ("start_build", "todo_done_build", "publish"):
        assert shell(f"phase s1 {trigger}").code == 0
    lost = shell("cancel s1 --seen-phase verifying")
    assert (lost.code, lost.err) == (1, "refused: the phase is done, no longer verifying\n")


def test_cancel_of_nothing_is_refused(shell):
    shell("open s1")
    assert "invalid transition: phase=chatting, event=cancel" in shell("cancel s1").err
    assert "no turn is running" in shell("cancel s1 --after-step").err
    assert "turn 3 is not running" in shell("cancel s1 --turn 3").err


def test_after_step_is_reported(shell):
    shell("send s1 hi")
    assert "turn 1 stops after this step" in shell("cancel s1 --after-step").out


def test_S0_4_phase_reports_the_phase_or_the_refusal(shell):
    shell("open s1")
    assert shell("phase s1 start_build").out.startswith("the phase is building")
    refused = shell("phase s1 publish")
    assert refused.err == (
        "legal in phase building: todo_done_build, cancel\n"
        "refused: invalid transition: phase=building, event=publish\n"
    )
    (done,) = shell("phase s1 todo_done_build --json").json
    assert (done["verdict"], done["phase"]) == ("accepted", "verifying")


def test_S0_3_lock_once(shell):
    shell("open s1")
    assert shell("lock s1 p1").out.startswith("the project is p1")
    assert shell("lock s1 p2").err == "refused: project_id already locked\n"


def test_terminate(shell):
    shell("open s1")
    assert "is terminated" in shell("terminate s1 --reason enough").out
    assert "open a new one" in shell("send s1 hello?").err
    assert shell("sessions --json").json[0]["status"] == "terminated"


def test_an_argument_that_is_not_utf8_is_refused_in_one_line(shell):
    for command in (["send", "s\udcff", "hi"], ["show", "s\udcff"], ["open", "s\udcff"]):
        ran = shell(command[0], *command[1:])
        assert ran.code in (1, 2) and ran.err.count("\n") == 1, ran.err


def test_the_reason_why_nothing_can_be_cancelled_or_decided_is_printed(shell):
    assert "there is no session" in shell("approve s1 1.1.0").err
    shell("open s1")
    assert "no turn runs in session s1" in shell("cancel s1").err
    shell("terminate s1")
    again = shell("open s1")
    assert (again.code, "session s1 is terminated" in again.err) == (0, True)


def test_a_user_without_sessions_is_not_an_empty_log(shell):
    assert "no sessions yet" in shell("sessions --user eve").err
    shell("open s1")
    assert "no sessions of user eve" in shell("sessions --user eve").err


def test_an_offset_beyond_the_end_is_reported(shell):
    shell("open s1")
    assert shell("show s1").err == ""
    late = shell("show s1 --at 999")
    assert (late.code, "offset 999 is not written yet" in late.err) == (0, True)


def test_a_huge_message_is_cut_in_the_overview(shell):
    shell("send s1", "x" * 100_000 + "\nthe end")
    shown = shell("show s1").out
    assert len(shown) < 6_000 and "[1000" in shown
    assert len(shell("show s1 --view transcript").out) > 100_000

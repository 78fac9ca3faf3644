"""The laws of compaction: what a request may omit and when, and that it omits nothing else."""

import json
import re
from collections import Counter
from typing import Any

from foldlog.processors.fold.cut_points import is_fixed
from foldlog.processors.fold.projections.background import RESULTS_MAX, SUMMARIES
from foldlog.processors.fold.projections.turn_view import REMINDERS_MAX
from foldlog.processors.request.build import context_of
from foldlog.processors.request.frames import framed
from foldlog.processors.request.left_out import as_sent, is_left_out
from foldlog.processors.request.summary import FRAME
from foldlog.processors.wake.budget import Budget
from foldlog.processors.wake.decide import rules_of
from foldlog.schemas import events as ev
from foldlog.schemas.ids import call_key
from foldlog.schemas.value import replace
from foldlog.tests.kit.agents import SMALL
from foldlog.tests.kit.api_rules import OPAQUE
from foldlog.tests.kit.history import Step
from foldlog.tests.kit.invariants import work_delays_no_step
from foldlog.tests.laws.law import law
from foldlog.tests.laws.random_history import RandomHistory
from foldlog.tests.laws.test_request_laws import SPOKEN, requests

KEPT = 12  # S3.4
FRAME_CHARS = 700  # of the frame of a summary, which its tokens do not include


def accepted(history: RandomHistory, kind: type) -> list[Step]:
    """The accepted steps of an event type."""
    return [s for s in history.steps if s.ruling.accepted and isinstance(s.entry.event, kind)]


def messages(fragments: list[Any]) -> int:
    """The number of messages that these fragments make: roles alternate, so neighbours of one role
    are one message."""
    roles = [fragment.kind in SPOKEN for fragment in fragments]
    return sum(n == 0 or role != roles[n - 1] for n, role in enumerate(roles))


def text_of(history: RandomHistory, body: ev.Body | None) -> str:
    return (body.inline or b"").decode("utf-8", "replace") if body is not None else ""


# -- the cut --------------------------------------------------------------------------------------


@law(forged=True)
def test_constraint_1_the_boundary_lies_within_the_conversation(history):
    for made in requests(history):
        row, count = made.row, len(made.step.views.context.fragments)
        assert 0 <= row.start <= row.fragments <= count
        assert row.start < row.fragments or row.start == 0
        assert 0 <= row.bound_from <= row.fragments
    for step in history.steps:
        view, count = step.views.compaction, len(step.views.context.fragments)
        for summary in (view.candidate, view.checkpoint):
            assert summary is None or 0 < summary.kept_from < count


@law()
def test_S3_4_a_summary_keeps_the_newest_12_messages_verbatim(history):
    """A request over the hard cap is an exception, because otherwise no request would ever fit
    again."""
    for number, step in enumerate(history.steps):
        if isinstance(step.entry.event, ev.ContextCompacted) and step.ruling.accepted:
            event, fragments = step.entry.event, list(step.views.context.fragments)
            if messages(fragments[event.kept_from :]) >= KEPT:
                continue
            since = [n for n in range(number + 1) if history.steps[n].entry.offset >= event.upto]
            known = {history.rules[n] for n in since}  # an edited agent has another budget
            at = [history.steps[n].views for n in since]
            assert any(Budget(views, rules).needs_room for views in at for rules in known)


@law(forged=True)
def test_S3_4_no_cut_splits_a_call_from_its_result_or_a_parallel_group(history):
    for made in requests(history):
        fragments = list(made.step.views.context.fragments)
        kept = fragments[made.row.start : made.row.fragments]
        answered = {(f.turn, f.step) for f in kept if f.kind == "assistant"}
        for fragment in kept:
            assert fragment.kind != "result" or (fragment.turn, fragment.step) in answered


@law()
def test_S1_B_the_kept_part_is_the_end_of_the_whole_conversation(history):
    for made in requests(history):
        row, views = made.row, made.step.views
        if not row.start:
            continue
        whole = replace(row, start=0, checkpoint=None)
        shown, all_of_it = (
            blocks(context_of(views.context, views.compaction, request, history.blobs.read))
            for request in (row, whole)
        )
        kept = shown[1:]  # after the summary
        assert all_of_it[len(all_of_it) - len(kept) :] == kept


def blocks(context: Any) -> list[Any]:
    """Every block of the messages except thinking, without ids. Where an earlier call is omitted,
    the ids of calls may differ, and with them the thinking that was signed for them."""
    found = []
    for message in context.messages:
        for text in message.blocks:
            block = json.loads(text)
            if block["type"] not in OPAQUE:
                found.append((message.role, {k: v for k, v in block.items() if "id" not in k}))
    return found


@law()
def test_S2_5_a_sliding_window_shows_no_more_messages_than_its_size(history):
    """A request shows one message more if a cut would otherwise separate a call from its result."""
    for made in requests(history):
        name, fragments = made.row.strategy, list(made.step.views.context.fragments)
        if name.startswith("sliding_window_") and not is_fixed(made.row.params):
            size = int(name.removeprefix("sliding_window_"))
            assert messages(fragments[made.row.start : made.row.fragments]) <= size + 1


@law()
def test_S1_C_with_fixed_thinking_nothing_moves_while_calls_are_answered(history):
    """A summary that replaces every answer is an exception, because then no thinking has to be
    repeated. So is content that the provider refused: the answer before it is sent as text."""
    made = requests(history)
    for one, other in zip(made, made[1:], strict=False):
        if is_fixed(other.row.params) and other.row.step > 1:
            fragments = list(other.step.views.context.fragments)[other.row.start :]
            answers = any(fragment.kind in (*SPOKEN, "result") for fragment in fragments)
            refused = other.row.left_out != one.row.left_out
            assert other.shape == one.shape or not answers or refused
            assert other.row.prefixes == one.row.prefixes
            assert (other.row.params, other.row.strategy) == (one.row.params, one.row.strategy)


# -- checkpoints and short forms in force ----------------------------------------------------------


@law(forged=True)
def test_S1_B_a_checkpoint_never_steps_back_and_a_candidate_is_adopted_once(history):
    adopted = Counter()
    for step in history.steps:
        before, after = step.before.compaction, step.views.compaction
        assert after.compacted_upto >= before.compacted_upto
        if after.checkpoint != before.checkpoint:
            assert isinstance(step.entry.event, ev.LlmCalled) and after.checkpoint is not None
            assert after.checkpoint == before.candidate and after.candidate is None
            adopted[after.checkpoint.offset] += 1
            if before.checkpoint is not None:
                assert after.checkpoint.kept_from > before.checkpoint.kept_from
                assert after.checkpoint.upto >= before.checkpoint.upto
        elif after.candidate != before.candidate:
            assert isinstance(step.entry.event, ev.ContextCompacted)
    assert all(times == 1 for times in adopted.values())


@law(forged=True)
def test_S1_B_only_an_adopting_step_changes_what_is_in_force(history):
    for step in history.steps:
        if isinstance(step.entry.event, ev.LlmCalled) and step.ruling.accepted:
            event, view = step.entry.event, step.views.compaction
            assert view.compacted_upto >= event.compacted_upto
            if event.strategy == "compacted":
                checkpoint = view.checkpoint.offset if view.checkpoint is not None else None
                assert event.checkpoint == checkpoint
            else:
                assert event.checkpoint is None
        else:
            before, after = step.before.compaction, step.views.compaction
            assert (after.checkpoint, after.compacted_upto) == (
                before.checkpoint, before.compacted_upto
            )


@law()
def test_constraint_2_a_short_form_is_shown_iff_it_was_early_or_adopted(history):
    sent_at: dict[int, int] = {}  # the ordinal of a result -> offset of its first request
    shorts = {s.entry.event.call: s.entry for s in accepted(history, ev.ResultCompacted)}
    for made in requests(history):
        row = made.row
        for place in range(row.fragments):
            sent_at.setdefault(place, row.offset)
        shown = results_of(made.request)
        for place in range(row.start, row.fragments):
            fragment = made.step.views.context.fragments[place]
            if fragment.kind != "result" or is_left_out(place, row):
                continue
            entry = shorts.get(call_key(fragment.turn, fragment.step, fragment.index))
            if entry is not None and entry.offset > row.offset:
                entry = None  # the short form did not exist yet
            early = entry is not None and entry.offset < sent_at[place]
            in_force = early or (entry is not None and entry.offset <= row.compacted_upto)
            body = entry.event.short if in_force else fragment.body
            text = (text_of(history, body) + fragment.text) or "(empty)"
            if not shown[text] and is_fixed(row.params):
                text = framed("call_result", text)  # the answer that called is sent as text
            assert shown[text] > 0
            shown[text] -= 1
        assert not +shown, "every result that is shown is one of the conversation"


def results_of(request: bytes) -> Counter:
    """How often the request contains each result, also as text."""
    return Counter(
        block["content"] if block["type"] == "tool_result" else block["text"]
        for message in json.loads(request)["messages"]
        for block in message["content"]
        if block["type"] == "tool_result" or block.get("text", "").startswith("<call_result")
    )


@law(forged=True)
def test_constraint_2_a_call_has_one_short_form_and_keeps_it(history):
    shorts = accepted(history, ev.ResultCompacted)
    calls = [step.entry.event.call for step in shorts]
    assert len(calls) == len(set(calls))
    kept = {short.call: short for short in history.views.compaction.shorts}
    for step in shorts:
        short = kept[step.entry.event.call]
        assert (short.offset, short.body) == (step.entry.offset, step.entry.event.short)


@law(forged=True)
def test_S1_E_the_savings_of_short_forms_not_adopted_yet_are_counted(history):
    for step in history.steps:
        view = step.views.compaction
        begin = view.checkpoint.kept_from if view.checkpoint is not None else 0
        savings = [
            short.saved
            for short in view.shorts
            if not short.early and short.offset > view.compacted_upto and short.place >= begin
        ]
        assert view.waiting == sum(savings)


# -- reminders and summaries in requests -----------------------------------------------------------


@law(forged=True)
def test_constraint_6_a_reminder_is_sent_once_and_then_stays(history):
    sent: Counter = Counter()
    for step in accepted(history, ev.LlmCalled):
        waiting = {reminder.reminder_id for reminder in step.before.turn.reminders}
        assert waiting.issuperset(step.entry.event.reminders)
        sent.update(step.entry.event.reminders)
        left = {reminder.reminder_id for reminder in step.views.turn.reminders}
        assert left == waiting.difference(step.entry.event.reminders)
    assert all(times == 1 for times in sent.values())
    shown = [f for f in history.views.context.fragments if f.kind == "reminder"]
    assert len(shown) == sum(sent.values())
    assert len(history.turn.reminders) <= REMINDERS_MAX


@law()
def test_constraint_6_a_request_has_each_reminder_once_and_all_pending_ones(history):
    for made in requests(history):
        left = [r.reminder_id[1:].partition(".")[0] for r in made.step.views.turn.reminders]
        read_to = history.decided_at(made.step)  # an id begins with the offset of its event
        assert all(int(offset) > read_to for offset in left), "no reminder is left for later"
        row, fragments = made.row, made.step.views.context.fragments
        sent = [as_sent(fragments[place], place, row) for place in range(row.start, row.fragments)]
        wanted = Counter(f"Reminder: {f.text}" for f in sent if f.kind == "reminder")
        texts = Counter(
            block["text"]
            for message in json.loads(made.request)["messages"]
            for block in message["content"]
            if message["role"] == "user" and block.get("text", "").startswith("Reminder: ")
        )
        assert texts == wanted


@law()
def test_S3_4_a_summary_cannot_close_its_frame(history):
    closing = re.compile(rf"<\s*/\s*{FRAME}", re.IGNORECASE)
    for made in requests(history):
        if made.row.checkpoint is None:
            continue
        first = json.loads(made.request)["messages"][0]
        if first["role"] == "assistant":
            assert first["content"][0]["type"] == "compaction", "as the provider signed it"
            continue
        text = first["content"][0]["text"]
        assert len(closing.findall(text)) == 1 and text.endswith(f"</{FRAME}>")


# -- the budget ------------------------------------------------------------------------------------


@law(forged=True)
def test_constraint_5_the_last_step_has_all_input_and_output_of_the_last_answer(history):
    for step in history.steps:
        event, view = step.entry.event, step.views.context
        if step.ruling.accepted and isinstance(event, ev.GenComplete):
            used = event.usage
            read = used.cache_read_tokens + used.cache_write_5m_tokens + used.cache_write_1h_tokens
            assert view.last_step_tokens == used.input_tokens + read + used.output_tokens
        else:
            assert view.last_step_tokens == step.before.context.last_step_tokens


@law()
def test_S3_6_no_decided_request_exceeds_the_hard_cap(history):
    for step in accepted(history, ev.LlmCalled):
        assert 0 <= step.entry.event.prompt_tokens <= SMALL.hard_tokens


@law()
def test_S3_6_an_adopted_summary_makes_the_request_shorter(history):
    made = requests(history)
    for one, other in zip(made, made[1:], strict=False):
        fresh = other.row.checkpoint is not None and other.row.checkpoint != one.row.checkpoint
        if fresh and one.step.entry.event.strategy == "compacted":
            row, views = other.row, other.step.views
            kept = replace(row, start=one.row.start, checkpoint=one.row.checkpoint)
            sizes = [
                sum(len(text) for message in shown.messages for text in message.blocks)
                for shown in (
                    context_of(views.context, views.compaction, request, history.blobs.read)
                    for request in (row, kept)
                )
            ]
            assert sizes[0] < sizes[1] + FRAME_CHARS


# -- background work -------------------------------------------------------------------------------


@law(forged=True)
def test_S1_H_background_work_is_bounded_to_one_summary_at_a_time(history):
    for step in history.steps:
        view = step.views.background
        assert len(view.results) <= RESULTS_MAX
        assert sum(work.kind in SUMMARIES for work in view.works) <= 1
        names = [(work.kind, work.upto) for work in view.works]
        assert len(names) == len(set(names))


@law(forged=True)
def test_law_5_work_stays_claimed_until_done_and_each_claim_is_a_new_attempt(history):
    attempts: dict[tuple[str, int], int] = {}
    for step in history.steps:
        event = step.entry.event
        if not step.ruling.accepted:
            continue
        if isinstance(event, ev.BackgroundStarted):
            name = (event.kind, event.upto)
            assert event.attempt == attempts.get(name, 0) + 1
            attempts[name] = event.attempt
        elif isinstance(event, ev.BackgroundDone):
            assert event.attempt <= attempts.pop((event.kind, event.upto))
        if step.views.turn.terminated and not step.views.turn.open:
            attempts.clear()  # no worker continues the work of an ended session
        running = {(w.kind, w.upto): w.attempt for w in step.views.background.works}
        assert running == attempts


@law()
def test_constraint_3_an_abort_stops_background_work(history):
    for step in history.steps:
        closing = step.views.turn.closing
        if closing is None or closing.reason not in ("cancelled", "terminated"):
            continue
        before = {(w.kind, w.upto) for w in step.before.background.works}
        for work in step.views.background.works:
            assert work.stop or (work.kind, work.upto) not in before
        started = isinstance(step.entry.event, ev.BackgroundStarted) and step.ruling.accepted
        assert not started or step.before.turn.closing is None


@law(forged=True)
def test_S1_H_background_work_changes_no_context(history):
    """Claims and candidates leave the context unchanged: only an LLM_CALLED adopts a candidate."""
    background = (
        ev.BackgroundStarted, ev.BackgroundDone, ev.ResultCompacted, ev.ContextCompacted,
        ev.CompactionSkipped,
    )
    for step in history.steps:
        if isinstance(step.entry.event, background):
            before, after = step.before.context, step.views.context
            assert (after.fragments, after.request) == (before.fragments, before.request)
            assert step.views.state == step.before.state
            assert step.views.transcript == step.before.transcript


@law()
def test_a_step_waits_for_background_work_only_where_it_would_not_fit(history):
    for step in history.steps[-20:]:
        work_delays_no_step(step, rules_of(history.agent), step.at)

"""Wrong rules: each function takes a rule of the real code and returns one with a certain fault.

plants.py lists the places in which they are planted. The simulator imports nothing from here.
"""

from dataclasses import replace as changed
from typing import Any

from foldlog.processors.fold.projections import context
from foldlog.processors.fold.ruling import ACCEPTED, DUPLICATE
from foldlog.processors.request.build import request_sha256
from foldlog.schemas import events as ev
from foldlog.schemas.value import replace


def accepts(right: Any) -> Any:
    """A rule that accepts the events that the right rule calls superseded, duplicate or stale."""

    def wrong(views: Any, event: Any) -> Any:
        ruling = right(views, event)
        return ACCEPTED if ruling.code in ("superseded", "duplicate", "stale") else ruling

    return wrong


def no_basis(right: Any) -> Any:
    def wrong(views: Any, event: Any) -> Any:
        basis = event.basis if hasattr(event, "basis") else 0
        return right(replace(views, turn=replace(views.turn, basis=basis)), event)

    return wrong


def not_closing(right: Any) -> Any:
    def wrong(views: Any, event: Any) -> Any:
        return right(replace(views, turn=replace(views.turn, closing=None)), event)

    return wrong


def not_late(right: Any) -> Any:
    def wrong(views: Any, event: Any) -> Any:
        ruling = right(views, event)
        late = ruling.code == "late" and views.turn.generation is not None
        return ACCEPTED if late else ruling

    return wrong


def no_duplicates(right: Any) -> Any:
    def wrong(views: Any, event: Any) -> Any:
        ruling = right(views, event)
        return ACCEPTED if ruling is DUPLICATE else ruling

    return wrong


def always(value: Any) -> Any:
    """A rule that always returns the same value."""
    return lambda right: lambda *args, **more: value


def with_facts(lanes: str, **facts: Any) -> Any:
    """A match of WAKE that gets wrong facts in some lanes."""

    def wrong_match(right: Any) -> Any:
        return lambda lane, known: right(lane, {**known, **facts} if lane in lanes else known)

    return wrong_match


def ignores(*kinds: type) -> Any:
    """A fold that ignores events of these types."""

    def wrong_fold(right: Any) -> Any:
        def wrong(view: Any, entry: Any, *rest: Any) -> Any:
            return view if isinstance(entry.event, kinds) else right(view, entry, *rest)

        return wrong

    return wrong_fold


def sets_after(kind: type, **fields: Any) -> Any:
    """A fold that sets fields after each event of a type."""

    def wrong_fold(right: Any) -> Any:
        def wrong(view: Any, entry: Any, *rest: Any) -> Any:
            after = right(view, entry, *rest)
            return replace(after, **fields) if isinstance(entry.event, kind) else after

        return wrong

    return wrong_fold


def void_for_gone(right: Any) -> Any:
    def wrong(claim: Any, holder: Any, now: int, deadline: int, margin: int) -> str:
        status = right(claim, holder, now, deadline, margin)
        return "void" if status == "gone" else status

    return wrong


def gone_at_once(right: Any) -> Any:
    def wrong(claim: Any, holder: Any, now: int, deadline: int, margin: int) -> str:
        status = right(claim, holder, now, deadline, margin)
        older = holder is not None and claim.epoch < holder.epoch
        return "gone" if status == "other" and older else status

    return wrong


def no_retries(right: Any) -> Any:
    def wrong(lane: str, facts: dict) -> Any:
        row = right(lane, facts)
        return None if row is not None and row.id == "S1r" else row

    return wrong


def skips_a_message(right: Any) -> Any:
    def wrong(views: Any, agent: Any, store_body: Any) -> list:
        events = right(views, agent, store_body)
        return [
            changed(e, includes=e.includes[1:]) if isinstance(e, ev.LlmCalled) else e
            for e in events
        ]

    return wrong


def forgets_to_close(right: Any) -> Any:
    def wrong(call: Any) -> Any:
        return None if call.status in ("proposed", "asks") else right(call)

    return wrong


def arguments_in_the_state(right: Any) -> Any:
    def wrong(state: Any, entry: Any, *views: Any) -> Any:
        after = right(state, entry, *views)
        if after.pending_tool is not None:
            long = replace(after.pending_tool, name="x" * 900)
            after = replace(after, pending_tool=long)
        return after

    return wrong


def drops_a_fragment(right: Any) -> Any:
    def wrong(view: Any, entry: Any, *rest: Any) -> Any:
        after = right(view, entry, *rest)
        if isinstance(entry.event, ev.TurnEnded) and len(after.fragments) > 1:
            kept = context.initial().fragments.append(*list(after.fragments)[1:])
            after = replace(after, fragments=kept)
        return after

    return wrong


def another_request(right: Any) -> Any:
    def wrong(self: Any, views: Any, read_blob: Any) -> Any:
        built = right(self, views, read_blob)
        return built._replace(sha256=request_sha256(built.request + b" "))

    return wrong


def cursor_first(right: Any) -> Any:
    def wrong(self: Any, changed: Any, streamed: Any, *args: Any) -> Any:
        right(self, {}, {}, *args)
        return right(self, changed, streamed, *args)

    return wrong


def only_the_turn_counts(right: Any) -> Any:
    def wrong(self: Any, session_id: str, before: Any, views: Any) -> None:
        if views.turn is before.turn and session_id not in self.dirty:
            self._hot[session_id] = views
            self.streamed[session_id] = views
        else:
            right(self, session_id, before, views)

    return wrong


def any_take_will_do(right: Any) -> Any:
    def wrong(self: Any, number: int, *more: Any) -> None:
        right(self, number, *more)
        self.takes_from = 0

    return wrong


def begins_again(right: Any) -> Any:
    def wrong(self: Any, held: Any, views: Any, owed: Any, agent: Any) -> Any:
        if owed.owed == "begin":
            self._begun.pop(views.session_id, None)
        return right(self, held, views, owed, agent)

    return wrong


def begins_at_any_time(right: Any) -> Any:
    def wrong(self: Any, name: str, owed: Any, claim: Any, agent: Any, now: int) -> Any:
        for_ever = changed(agent.limits, start_window_ms=10**9)
        return right(self, name, owed, claim, changed(agent, limits=for_ever), now)

    return wrong


def model_calls_at_any_time(right: Any) -> Any:
    def wrong(self: Any, name: str, owed: Any, claim: Any, agent: Any, now: int) -> Any:
        late = right(self, name, owed, claim, agent, now)
        return None if owed.role == "models" else late

    return wrong


def asks_early(right: Any) -> Any:
    def wrong(self: Any, held: Any, views: Any, owed: Any, agent: Any, now: int) -> Any:
        return right(self, held, views, owed, agent, now + 10**9)

    return wrong


def never_gone_repeats(right: Any) -> Any:
    def wrong(call: Any, why: str, *, may_have_run: bool = False) -> Any:
        return right(replace(call, attempt=1), why)

    return wrong


def turn_runs(right: Any) -> Any:
    def wrong(turn: Any, call: Any, event: Any) -> Any:
        return right(replace(turn, closing=None), call, event)

    return wrong


def always_contradicts(right: Any) -> Any:
    def wrong(turn: Any, call: Any, event: Any) -> Any:
        status, attempt, outcome, _ = right(turn, call, event)
        return status, attempt, outcome, True

    return wrong


def shown_arguments(right: Any) -> Any:
    def wrong(turn: Any, call: Any, event: Any) -> Any:
        status, _, *others = right(turn, call, event)
        return status, "shown", *others

    return wrong


def raises(right: Any) -> Any:
    def wrong(view: Any, entry: Any, event: Any) -> Any:
        assert event.mode != "after_step", "planted"
        return right(view, entry, event)

    return wrong


def forgets_the_outbox(right: Any) -> Any:
    def wrong(self: Any) -> None:
        self.disk.outbox.clear()

    return wrong


def counts_twice(right: Any) -> Any:
    def wrong(view: Any, entry: Any) -> Any:
        after = right(view, entry)
        spent = after.output_tokens - view.output_tokens
        return replace(after, output_tokens=after.output_tokens + spent)

    return wrong


def ignores_should_stop(right: Any) -> Any:
    def wrong(views: Any, rules: Any) -> Any:
        reason = right(views, rules)
        return None if reason == "should_stop" else reason

    return wrong


def keeps_the_token(right: Any) -> Any:
    def wrong(state: Any, entry: Any, *views: Any) -> Any:
        after = right(state, entry, *views)
        if isinstance(entry.event, ev.TurnEnded):
            after = replace(after, cancel_token=state.cancel_token)
        return after

    return wrong


def names_nothing(right: Any) -> Any:
    def wrong(views: Any, *ends: Any) -> Any:
        return changed(right(views, *ends), views_sha=b"")

    return wrong


def omits_later_answers(right: Any) -> Any:
    def wrong(view: Any, entry: Any, *rest: Any) -> Any:
        late = isinstance(entry.event, ev.GenComplete) and entry.event.step > 1
        return view if late else right(view, entry, *rest)

    return wrong

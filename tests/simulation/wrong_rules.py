"""Wrong rules: each is a rule of the real code with a certain fault.

A wrong rule takes the right rule and then the arguments of that rule. plants.py lists the places in
which wrong rules are planted. The simulator and the state search import nothing from here.
"""

from dataclasses import replace as changed

from foldlog.processors.fold.calls import ALLOWED, ASKS
from foldlog.processors.fold.projections import context, partition
from foldlog.processors.fold.ruling import ACCEPTED, DUPLICATE
from foldlog.processors.request.build import request_sha256
from foldlog.processors.store.clocks import Anchor
from foldlog.processors.wake.table import Action
from foldlog.schemas import events as ev
from foldlog.schemas.value import replace


def always(value):
    """A rule that always returns the same value."""
    return lambda right, *args, **more: value


# -- rulings ---------------------------------------------------------------------------------------


def accepts(right, views, event):
    """Accepts the events that the right rule calls superseded, duplicate or stale."""
    ruling = right(views, event)
    return ACCEPTED if ruling.code in ("superseded", "duplicate", "stale") else ruling


def no_basis(right, views, event):
    return right(replace(views, turn=replace(views.turn, basis=event.basis)), event)


def not_closing(right, views, event):
    return right(replace(views, turn=replace(views.turn, closing=None)), event)


def not_late(right, views, event):
    ruling = right(views, event)
    late = ruling.code == "late" and views.turn.generation is not None
    return ACCEPTED if late else ruling


def no_duplicates(right, views, event):
    ruling = right(views, event)
    return ACCEPTED if ruling is DUPLICATE else ruling


# -- facts of a call -------------------------------------------------------------------------------


def turn_runs(right, turn, call, event):
    return right(replace(turn, closing=None), call, event)


def always_allowed(right, turn, call, event):
    return right(turn, call, changed(event, decision="allow"))


def always_contradicts(right, turn, call, event):
    status, attempt, outcome, _ = right(turn, call, event)
    return status, attempt, outcome, True


def shown_arguments(right, turn, call, event):
    status, _, *others = right(turn, call, event)
    return status, "shown", *others


# -- folds -----------------------------------------------------------------------------------------


def ignores(*kinds):
    """A fold that ignores events of these types."""

    def wrong_fold(right, view, entry, *rest):
        return view if isinstance(entry.event, kinds) else right(view, entry, *rest)

    return wrong_fold


def sets_after(kind, **fields):
    """A fold that sets fields after each event of a type."""

    def wrong_fold(right, view, entry, *rest):
        after = right(view, entry, *rest)
        return replace(after, **fields) if isinstance(entry.event, kind) else after

    return wrong_fold


def sets_in_a_fork(right, parent, entry):
    return replace(right(parent, entry), cancel_token="c0")


def raises(right, view, entry, event):
    assert event.mode != "after_step", "planted"
    return right(view, entry, event)


def forgets_to_close(right, call):
    return None if call.status in ("proposed", "asks") else right(call)


def arguments_in_the_state(right, state, entry, *views):
    after = right(state, entry, *views)
    if after.pending_tool is None:
        return after
    return replace(after, pending_tool=replace(after.pending_tool, name="x" * 900))


def keeps_the_token(right, state, entry, *views):
    after = right(state, entry, *views)
    ended = isinstance(entry.event, ev.TurnEnded)
    return replace(after, cancel_token=state.cancel_token) if ended else after


def drops_a_fragment(right, view, entry, *rest):
    after = right(view, entry, *rest)
    if isinstance(entry.event, ev.TurnEnded) and len(after.fragments) > 1:
        kept = context.initial().fragments.append(*list(after.fragments)[1:])
        after = replace(after, fragments=kept)
    return after


def counts_twice(right, view, entry):
    after = right(view, entry)
    return replace(after, output_tokens=2 * after.output_tokens - view.output_tokens)


def omits_later_answers(right, view, entry, *rest):
    late = isinstance(entry.event, ev.GenComplete) and entry.event.step > 1
    return view if late else right(view, entry, *rest)


def forgets_tried_work(right, view, *rest):
    return replace(right(view, *rest), tried_upto=-1, tried_tokens=0)


def forgets_the_newer(right, view, entry, *rest):
    """The request that adopts a summary has the new summary, but the next request begins with the
    earlier summary again."""
    after = right(view, entry, *rest)
    moved = after.checkpoint_at != view.checkpoint_at and view.checkpoint_at is not None
    return replace(after, checkpoint_at=view.checkpoint_at) if moved else after


# -- WAKE and decisions ----------------------------------------------------------------------------


def with_facts(lanes, **facts):
    """A match of WAKE that gets wrong facts in some lanes."""

    def wrong_match(right, lane, known):
        return right(lane, {**known, **facts} if lane in lanes else known)

    return wrong_match


def without_rows(*ids):
    """A WAKE table that lacks some rows."""

    def wrong_match(right, lane, facts):
        row = right(lane, facts)
        return None if row is not None and row.id in ids else row

    return wrong_match


def allowed_for_asks(right, lane, facts):
    """A call that waits for approval counts as allowed."""
    asks = lane == "T" and facts["status"] == ASKS
    return right(lane, {**facts, "status": ALLOWED} if asks else facts)


def status_for(status, wrong_status):
    """A claim status that has one wrong value."""

    def wrong_rule(right, *args):
        found = right(*args)
        return wrong_status if found == status else found

    return wrong_rule


def gone_at_once(right, claim, holder, *rest):
    status = right(claim, holder, *rest)
    older = holder is not None and claim.epoch < holder.epoch
    return partition.GONE if status == partition.OTHER and older else status


def any_epoch_is_mine(right, claim, holder, *rest):
    """Every claim of the same worker is of this process."""
    same = holder and partition.worker_id(claim.owner) == partition.worker_id(holder.owner)
    return partition.MINE if same else right(claim, holder, *rest)


def takes_work_over_at_once(right, moment, claim, role, deadline):
    status = right(moment, claim, role, deadline)
    at_once = role == "background" and status == partition.OTHER
    return partition.GONE if at_once else status


def waits_for_work(right, moment):
    return None if moment.views.background.works else right(moment)


def ignores_should_stop(right, views, rules):
    reason = right(views, rules)
    return None if reason == "should_stop" else reason


def skips_a_message(right, views, agent, store_body):
    events = right(views, agent, store_body)
    return [
        changed(e, includes=e.includes[1:]) if isinstance(e, ev.LlmCalled) else e for e in events
    ]


def names_nothing(right, views, *ends):
    return changed(right(views, *ends), views_sha=b"")


def cuts_one_later(right, fragments, *rest):
    cut = right(fragments, *rest)
    return None if cut is None or cut + 1 >= len(fragments) else cut + 1


# -- requests --------------------------------------------------------------------------------------


def another_request(right, self, views, read_blob):
    built = right(self, views, read_blob)
    return built._replace(sha256=request_sha256(built.request + b" "))


def shows_every_short_form(right, view, call, compacted_upto):
    return view.shorts.last(call)


# -- the store and the outbox ----------------------------------------------------------------------


def cursor_first(right, self, changed_views, streamed, *args):
    right(self, {}, {}, *args)
    return right(self, changed_views, streamed, *args)


def facts_later(right, self, changed_views, streamed, *more):
    *others, facts = more
    frozen = right(self, changed_views, streamed, *others)
    right(self, {}, {}, *others, facts)
    return frozen


def never_fails(right, self, lane, error):
    right(self, lane, "")


def only_the_turn_counts(right, self, session_id, before, views):
    if views.turn is before.turn and session_id not in self.dirty:
        self._hot[session_id] = views
        self.streamed[session_id] = views
    else:
        right(self, session_id, before, views)


def any_take_will_do(right, self, number, *more):
    right(self, number, *more)
    self.takes_from = 0


def loses_the_newest(right, self):
    """An outbox that forgets the newest outcome when it is opened again."""
    return right(self)[:-1]


def forgets_the_outbox(right, self):
    self.disk.outbox.clear()


# -- the worker ------------------------------------------------------------------------------------


def begins_again(right, self, owned, due):
    if due.obligation.owed == Action.BEGIN:
        self._begun.forget(due.session_id)
    return right(self, owned, due)


def begins_at_any_time(right, self, name, owed, claim, agent, now):
    for_ever = changed(agent.limits, start_window_ms=10**9)
    return right(self, name, owed, claim, changed(agent, limits=for_ever), now)


def model_calls_at_any_time(right, self, name, owed, claim, agent, now):
    late = right(self, name, owed, claim, agent, now)
    return None if owed.role == "models" else late


def asks_early(right, self, due, begun):
    return right(self, due._replace(now=due.now + 10**9), begun)


def never_gone_repeats(right, call, why, *, may_have_run=False):
    return right(replace(call, attempt=1), why)


def no_margin(right, self, due, holder):
    """A deadline without the time until the tool begins."""
    return changed(right(self, due, holder), deadline=due.now)


def never_superseded(right, self, owned):
    """A role stays held that was ever held in this assignment."""
    owned.wrongly_held = getattr(owned, "wrongly_held", frozenset()) | right(self, owned)
    return owned.wrongly_held


def waits_for_ever(right, self, session_id):
    """A lost record stays in flight, and for ever."""

    def failed(why):
        for key, one in self._awaited.items():
            self._awaited[key] = one._replace(until_ms=10**15)

    return failed


def produced_when_read(right, record, read_at):
    """A record counts as produced when it is read."""
    return Anchor(read_at, read_at, record.timestamp_ms)

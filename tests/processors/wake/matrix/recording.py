"""A history that records which fields of the views are read and written at each point of a turn.

A field is written if it differs before and after the fold of an accepted event. To find the fields
that are read, the real decision, builder or task gets views that record every access.
"""

from typing import Any

from foldlog.processors.fold.views import SessionViews
from foldlog.processors.request.build import request_bytes
from foldlog.processors.wake.background_tasks import is_made, task_of
from foldlog.processors.wake.budget import Budget
from foldlog.processors.wake.decide import Sources, decide, no_layers, no_todos, rules_of
from foldlog.processors.wake.facts import Inputs, Obligation, _next
from foldlog.processors.wake.matrix import BY_KIND, DECIDED_AT, WRITTEN_AT
from foldlog.schemas import events as ev
from foldlog.schemas.events import BY_CLASS
from foldlog.schemas.value import Value
from foldlog.tests.kit.history import History

Touched = set[tuple[str, str]]
"""(letter of a point, "view.field")."""

VIEWS = tuple(
    name for name in SessionViews.__struct_fields__ if name not in ("session_id", "frozen")
)


class Recorder:
    """A value that calls `note` with the name of each field that is read."""

    def __init__(self, value: Any, note, name: str = "") -> None:
        self._value, self._note, self._name = value, note, name

    def __getattr__(self, field: str) -> Any:
        derived = getattr(type(self._value), field, None)
        if isinstance(derived, property):  # the fields that the property reads count
            return derived.__get__(self)
        found = getattr(self._value, field)
        if not self._name and field in VIEWS:
            return Recorder(found, self._note, field)
        if self._name:
            self._note(f"{self._name}.{field}")
        return found


def kind_of(event: Any, views: SessionViews) -> str:
    """The kind of background work that an event belongs to."""
    if hasattr(event, "kind"):
        return event.kind
    if isinstance(event, ev.ResultCompacted):
        return "result"
    return "context" if views.turn.open else "resume"


def written_at(event: Any, views: SessionViews) -> str:
    """The point of a turn at which an event writes, or '' if the event does not belong to a
    turn."""
    name = BY_CLASS[type(event)].name
    where = WRITTEN_AT[name]
    if isinstance(where, dict):
        return where[kind_of(event, views)]
    if name == "LLM_CALLED":
        return where[0] if event.step == 1 else where[1]
    return where


class RecordingHistory(History):
    """Collects `reads`, `writes` and `built` while the history is played."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.reads: Touched = set()
        self.writes: Touched = set()
        self.built: set[str] = set()  # fields that the builder of requests reads
        self.read_layers, self.read_todos = no_layers, no_todos
        super().__init__(*args, **more)

    def append_raw(self, *args: Any, **more: Any):
        before, count = self.views, len(self.steps)
        ruling = super().append_raw(*args, **more)
        if len(self.steps) > count and ruling.accepted:
            event = self.steps[-1].entry.event
            letter = written_at(event, before) if type(event) in BY_CLASS else "C"
            for view in VIEWS:
                old, new = getattr(before, view), getattr(self.views, view)
                for field in new.__struct_fields__ if isinstance(new, Value) else ():
                    if letter and getattr(old, field) != getattr(new, field):
                        self.writes.add((letter, f"{view}.{field}"))
        return ruling

    def recording(self, letter: str) -> Any:
        """The current views, in a form that records reads for this point."""
        return Recorder(self.views, lambda field: self.reads.add((letter, field)))

    def owed(self) -> tuple[Obligation, ...]:
        found = super().owed()
        if any(owed.lane == "N" for owed in found):  # a step, the end of its turn, or a wait
            common = {"gate": "live", "closing": False}
            rules, views = rules_of(self.agent), self.recording("F")
            inputs = Inputs(views, self.holders, self.at, rules, common, Budget(views, rules))
            _next(inputs)
        return found

    def do(self, owed: Obligation):
        where = DECIDED_AT.get(owed.owed, "")
        if owed.owed == "BACKGROUND_STARTED":
            discharged = super().do(owed)
            work = self.views.background.works[-1]
            views = self.recording(BY_KIND[work.kind])
            assert not is_made(views, work)
            task_of(views, work, self.agent, self.blobs.read)
            return discharged
        if owed.owed in ("GEN_START", "GEN_RESUMED"):
            request_bytes(Recorder(self.views, self.built.add), self.blobs.read)
            self.reads |= {(where, field) for field in self.built}
        elif where:
            letter = where[min(self.turn.step, len(where) - 1)]
            sources = Sources(self.blobs.body, self.blobs.read, self.read_layers, self.read_todos)
            decide(owed, self.recording(letter), self.agent, sources)
        return super().do(owed)

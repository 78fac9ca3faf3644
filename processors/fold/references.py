"""References to the subject of an obligation or an effect: a turn, a step, a call and so on."""

from typing import NamedTuple

from ...schemas.ids import call_key


class TurnRef(NamedTuple):
    """A turn."""

    turn: int


class StepRef(NamedTuple):
    """A step of a turn, which also identifies the step's model call."""

    turn: int
    step: int


class CallRef(NamedTuple):
    """A tool call."""

    turn: int
    step: int
    ordinal: int  # `index` is a method of tuples

    @property
    def key(self) -> str:
        """The key of the call, TURN.STEP.INDEX."""
        return call_key(*self)


class WorkRef(NamedTuple):
    """Background work, by its kind and the offset up to which it covers the session."""

    kind: str
    upto: int


class DeliveryRef(NamedTuple):
    """A delivery, by its number in the session."""

    number: int


class RefusalRef(NamedTuple):
    """The answer to an event that was refused, by the event's offset."""

    offset: int


Subject = TurnRef | StepRef | CallRef | WorkRef | DeliveryRef | RefusalRef

"""The type of the tables that list the ruling function of each event type."""

from collections.abc import Callable
from typing import Any

from ..ruling import Ruling
from ..views import SessionViews

Judges = dict[type, Callable[[SessionViews, Any], Ruling]]
"""Ruling functions by event type. Each takes the views before an event, and the event. The event
has the type under which the function is listed. The type of a dict cannot express this, so the
event is Any."""

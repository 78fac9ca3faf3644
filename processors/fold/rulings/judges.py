"""The type of the tables that name the ruling of each event type."""

from collections.abc import Callable
from typing import Any

from ..ruling import Ruling
from ..views import SessionViews

Judges = dict[type, Callable[[SessionViews, Any], Ruling]]
"""By event type; each takes the views before an event of its type, and the event."""

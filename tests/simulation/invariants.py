"""Every invariant, in the order in which they are checked."""

from foldlog.tests.kit.invariants import AT_EACH_RECORD
from foldlog.tests.simulation.checks_background import BACKGROUND
from foldlog.tests.simulation.checks_decisions import DECIDED
from foldlog.tests.simulation.checks_delivery import DELIVERY
from foldlog.tests.simulation.checks_effects import EFFECTS
from foldlog.tests.simulation.checks_facts import FACTS
from foldlog.tests.simulation.checks_limits import LIMITS
from foldlog.tests.simulation.checks_requests import REQUESTS
from foldlog.tests.simulation.checks_resumed import RESUMED
from foldlog.tests.simulation.checks_state import STATE
from foldlog.tests.simulation.checks_stores import STORES
from foldlog.tests.simulation.checks_wake import WAKE
from foldlog.tests.simulation.invariant import at_each_record

SHARED = tuple(at_each_record(rule) for rule in AT_EACH_RECORD)
ALL = (
    *SHARED, *STATE, *EFFECTS, *DECIDED, *LIMITS, *REQUESTS, *WAKE, *BACKGROUND, *DELIVERY, *STORES,
    *RESUMED, *FACTS,
)
BY_NAME = {invariant.__name__: invariant for invariant in ALL}

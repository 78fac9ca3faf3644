"""Bugs in the work on one session: functions of WAKE and of the request that raise for it."""

from foldlog.processors.request.rendered import Renderings
from foldlog.processors.wake import budget, facts
from foldlog.processors.wake.budget import Budget, Once
from foldlog.processors.worker import worker as worker_module
from foldlog.tests.kit.manual_worker import SESSION


def fails_for_session(monkeypatch, owner, name) -> list[bool]:
    """Lets a function raise for one session, as long as the list has a member."""
    before, active = getattr(owner, name), [True]
    is_property = isinstance(before, Once)
    call = before.compute if is_property else before

    def raising(*args, **kwargs):
        found = (arg._views if isinstance(arg, Budget) else arg for arg in args)
        views = next(arg for arg in found if hasattr(arg, "session_id"))
        if active and views.session_id == SESSION:
            raise KeyError("a bug")
        return call(*args, **kwargs)

    monkeypatch.setattr(owner, name, property(raising) if is_property else raising)
    return active


PLACES = [
    (worker_module, "wake"), (facts, "step_due"), (budget, "plan"), (budget, "must_shorten"),
    (Renderings, "request"), (Budget, "works"),
]

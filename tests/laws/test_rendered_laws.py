"""The law of renderings: continued from step to step or built at once, a request is the same."""

from foldlog.processors.request.build import request_sha256
from foldlog.processors.request.rendered import Rendering, Renderings
from foldlog.tests.laws.law import law
from foldlog.tests.laws.test_request_laws import says_something_new


@law(forged=True)
def test_law_11_a_request_that_is_continued_is_the_one_that_is_built(world):
    rendering = Rendering()
    for step in world.steps:
        if step.entry.offset % 3 == 0:  # as a worker does between turns; here at any moment
            rendering.go_on(step.views, world.blobs.read)
        if not says_something_new(step):
            continue
        built = rendering.request(step.views, world.blobs.read)
        assert built.request == world.request_at(step)
        assert built.sha256 == request_sha256(built.request)


@law()
def test_law_11_a_rendering_may_be_asked_for_any_past_in_any_order(world):
    renderings, steps = Renderings(), [s for s in world.steps if says_something_new(s)]
    for step in [*steps[::3], *reversed(steps[::5]), *steps[-2:]]:
        built = renderings.request(step.views, world.blobs.read)
        assert built.request == world.request_at(step)


@law()
def test_law_1_a_forgotten_rendering_costs_time_only(world):
    renderings = Renderings(bytes_max=1)
    for step in world.steps[::2]:
        if says_something_new(step):
            built = renderings.request(step.views, world.blobs.read)
            assert built.request == world.request_at(step)
            assert not renderings._held

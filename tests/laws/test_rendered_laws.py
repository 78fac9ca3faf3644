"""The law of renderings: a request is the same whether it is continued from step to step or built
at once."""

from foldlog.processors.request.build import request_sha256
from foldlog.processors.request.rendered import Rendering, Renderings
from foldlog.tests.laws.law import law
from foldlog.tests.laws.test_request_laws import changes_the_request


@law(forged=True)
def test_law_11_a_continued_request_equals_the_built_one(world):
    rendering = Rendering()
    for step in world.steps:
        if step.entry.offset % 3 == 0:  # a worker does this between turns, the test at any time
            rendering.render_ahead(step.views, world.blobs.read)
        if not changes_the_request(step):
            continue
        built = rendering.request(step.views, world.blobs.read)
        assert built.request == world.request_at(step)
        assert built.sha256 == request_sha256(built.request)


@law()
def test_law_11_a_rendering_builds_any_past_request_in_any_order(world):
    renderings, steps = Renderings(), [s for s in world.steps if changes_the_request(s)]
    for step in [*steps[::3], *reversed(steps[::5]), *steps[-2:]]:
        built = renderings.request(step.views, world.blobs.read)
        assert built.request == world.request_at(step)


@law()
def test_law_1_a_forgotten_rendering_costs_time_only(world):
    renderings = Renderings(bytes_max=1)
    for step in world.steps[::2]:
        if changes_the_request(step):
            built = renderings.request(step.views, world.blobs.read)
            assert built.request == world.request_at(step)
            assert not renderings._renderings

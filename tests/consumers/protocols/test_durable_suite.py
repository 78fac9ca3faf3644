"""What the conformance suite of Durable Streams does not exclude passes. Slow: make durable."""

from foldlog.tests.consumers.protocols.durable_suite import EXCLUDED, SLOW, is_excluded, outcomes
from foldlog.tests.structure.tree import ROOT

PAGE = ROOT / "docs" / "durable-streams.md"


def test_S2_the_suites_quick_cases_pass_but_for_those_that_are_excluded(node, tmp_path):
    said = outcomes(node, tmp_path, f"^(?!.*({'|'.join(SLOW)}))")
    wrong = {c: why for c, why in said.items() if why != "passed" and not is_excluded(c)}
    assert not wrong
    assert len(said) > 200


def test_every_excluded_case_is_on_the_page_with_its_reason():
    page = PAGE.read_text("utf-8")
    missing = [case for case, why in EXCLUDED.items() if case not in page]
    reasons = [why for why in EXCLUDED.values() if why != "as above" and why not in page]
    assert not missing and not reasons

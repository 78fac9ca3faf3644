"""The conformance suite of Durable Streams passes, except for the excluded cases.

`make durable` also runs the slow cases.
"""

from foldlog.tests.consumers.protocols.durable_suite import EXCLUDED, SLOW, failures, outcomes
from foldlog.tests.structure.tree import ROOT

PAGE = ROOT / "docs" / "durable-streams.md"


def test_S2_the_quick_cases_of_the_suite_pass_unless_they_are_excluded(node, tmp_path):
    results = outcomes(node, tmp_path, f"^(?!.*({'|'.join(SLOW)}))")
    assert not failures(results)
    assert len(results) > 200


def test_every_excluded_case_is_on_the_page_with_its_reason():
    page = PAGE.read_text("utf-8")
    missing = [case for case, why in EXCLUDED.items() if case not in page]
    reasons = [why for why in EXCLUDED.values() if why != "as above" and why not in page]
    assert not missing and not reasons

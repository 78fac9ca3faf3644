"""The grammar of a call's ends accepts the sequences that the rulings accept, and no others."""

import pytest

from foldlog.schemas import events as ev
from foldlog.tests.kit import answers
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.ends import are_lawful
from foldlog.tests.kit.history import History, with_calls

POST = Use("post", '{"text":"dear"}', "b")
CALL = "1.1.0"
PEOPLE = {"happened", "did_not_happen"}


def after(*ends: str) -> tuple[History, list]:
    """Ends a call in doubt in these ways, in order. Returns the history and the ends that were
    accepted."""
    s = with_calls(POST)
    s.uncertain(CALL)
    s.work()
    accepted = []
    for end in ends:
        if end in PEOPLE:
            ruling = s.resolve(CALL, end)
        else:
            via, outcome = end.split()
            ruling = s.result(CALL, "late", outcome, attempt=1, via=via)
        event = s.steps[-1].entry.event
        if ruling.accepted:
            accepted.append(event)
        s.work()
    return s, accepted


@pytest.mark.parametrize(
    "ends",
    [
        ("tool ok",),
        ("tool error",),
        ("happened",),
        ("did_not_happen",),
        ("reconciler not_run",),
        ("did_not_happen", "tool ok", "happened"),
        ("did_not_happen", "tool ok", "did_not_happen"),
        ("happened", "tool not_run", "happened"),
        ("reconciler not_run", "tool ok", "happened"),
    ],
)
def test_a_lawful_sequence_of_ends_is_accepted_whole(ends):
    s, accepted = after(*ends)
    assert len(accepted) == len(ends) and are_lawful(accepted)
    assert "T7" not in s.rows()


@pytest.mark.parametrize(
    "ends",
    [
        ("tool ok", "tool ok"),
        ("tool ok", "did_not_happen"),
        ("tool not_run", "tool ok"),
        ("happened", "tool ok"),
        ("did_not_happen", "tool not_run"),
        ("reconciler not_run", "tool error"),
        ("reconciler ok", "tool error"),
        ("did_not_happen", "tool ok", "happened", "tool ok"),
        ("did_not_happen", "tool ok", "did_not_happen", "tool ok"),
        ("did_not_happen", "tool ok", "happened", "did_not_happen"),
    ],
)
def test_nothing_is_accepted_after_a_final_end(ends):
    _, accepted = after(*ends)
    assert len(accepted) < len(ends) and are_lawful(accepted)


def test_an_unsettled_contradiction_is_not_an_end():
    _, accepted = after("did_not_happen", "tool ok")
    assert len(accepted) == 2
    assert not are_lawful(accepted) and are_lawful(accepted, at_rest=False)


def test_other_sequences_are_not_lawful():
    ok, no = answers.result((1, 1, 0), 1, "x", "ok"), answers.result((1, 1, 0), 1, "x", "not_run")
    by_person = {
        outcome: ev.HumanResolved(call=CALL, outcome=outcome, content=ev.Body(), by_user="ana")
        for outcome in PEOPLE
    }
    denied, seen = by_person["did_not_happen"], by_person["happened"]
    for ends in (
        [], [ok, ok], [no, ok], [no, ok, seen], [denied, no, denied], [seen, ok, seen],
        [denied, denied], [denied, ok, seen, seen], [ok, denied], [denied, seen, ok],
    ):  # fmt: skip
        assert not are_lawful(ends), ends

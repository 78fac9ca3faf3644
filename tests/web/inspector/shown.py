"""Finds parts of the inspector's page, and events among the moments that the page shows."""

import re
from typing import Any

from playwright.sync_api import expect

from foldlog.web.inspector.timeline import Moment


def conversation(page: Any) -> Any:
    """The lines of the conversation."""
    return page.get_by_role("log", name="Conversation")


def at(page: Any, offset: int) -> None:
    """Wait until the page shows this moment."""
    page.get_by_role("status").get_by_text(re.compile(f"Right after offset {offset}, ")).wait_for()


def of_type(moments: list[Moment], kind: type) -> list[Moment]:
    """The moments of one type of event."""
    return [moment for moment in moments if isinstance(moment.entry.event, kind)]


def offset_of(moments: list[Moment], kind: type, number: int = 0) -> int:
    """The offset of the first, or a later, event of a type."""
    return of_type(moments, kind)[number].entry.offset


def refused_without_a_report(page: Any, field: Any, button: Any) -> None:
    """Check that a blank report on a call in doubt is refused in place, and nothing is sent."""
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    for blank in ("", "  "):
        field.fill(blank)
        expect(page.get_by_role("alert")).to_have_count(0)
        button.click()
        expect(field).to_be_focused()
        expect(field).to_have_accessible_description(
            "Nothing was reported yet. Write what happened: the model gets it as the result."
        )
    field.fill("x")
    expect(page.get_by_role("alert")).to_have_count(0)
    assert "POST" not in sent

"""The state of a session for Python users, and the requests that it sent to the model."""

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ..processors.advice.prices import load_prices
from ..processors.fold.projections.partition import PartitionView
from ..processors.fold.projections.turn_view import Call
from ..processors.fold.views import SessionViews
from .events import ApprovalAsked, InDoubt, of_line
from .log_client import LogClient
from .printable import text_of
from .show import Request
from .spending import session_cost
from .status import Reason as Reason, Situation, Status as Status, situation_of
from .waiting import asking, doubtful, lines_of_doubts, what_it_waits_for

PICODOLLARS = Decimal(10) ** -12


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """A session at one moment. `waits_for`: what its turn waits for, or "".

    `reason`: why it has its status. `until`: when that changes by itself (Unix ms), or None.
    `cost_usd`: the cost of all model calls so far, None if the price of a model is unknown.
    """

    session_id: str
    user: str
    agent: str
    status: Status
    reason: Reason
    until: int | None
    turn: int
    phase: str
    project_id: str | None
    title: str
    waits_for: str
    approvals: tuple[ApprovalAsked, ...]
    doubts: tuple[InDoubt, ...]
    cost_usd: Decimal | None

    def __str__(self) -> str:
        cost = "cost unknown" if self.cost_usd is None else f"${self.cost_usd:.4f}"
        waits = f": {self.waits_for}" if self.waits_for else ""
        words = Situation(self.status, self.reason).words
        return (
            f"{self.session_id} ({self.agent}, {self.user}) {words}, turn {self.turn}, "
            f"{cost}{waits}"
        )


def state_of(views: SessionViews, holders: PartitionView, client: LogClient) -> SessionState:
    """The state of a known session."""
    cost = session_cost(views.ledger, load_prices(client.settings.prices))
    return SessionState(
        session_id=views.session_id,
        user=views.state.user_id,
        agent=views.turn.agent,
        **situation_of(views, holders)._asdict(),
        turn=views.turn.number,
        phase=views.state.phase,
        project_id=views.state.project_id,
        title=title_of(views, client),
        waits_for=what_it_waits_for(views, holders).text,
        approvals=_events(views, asking(views.turn), ApprovalAsked, client),
        doubts=_events(views, doubtful(views.turn), InDoubt, client),
        cost_usd=None if cost.unpriced else cost.picodollars * PICODOLLARS,
    )


TITLE_CHARS_MAX = 60


def title_of(views: SessionViews, client: LogClient) -> str:
    """The first words of the first message."""
    for line in views.transcript.lines:
        if line.kind == "message":
            inline = line.body.inline if line.body is not None else None
            text = " ".join(text_of(inline or b"").split())
            return text if len(text) <= TITLE_CHARS_MAX else f"{text[: TITLE_CHARS_MAX - 1]}…"
    return ""


def _events(
    views: SessionViews, calls: list[Call], kind: type, client: LogClient
) -> tuple[Any, ...]:
    rows = views.transcript.lines
    if kind is ApprovalAsked:
        lines = {line.call: line for line in rows if line.kind == "asks"}
    else:
        lines = lines_of_doubts(views)
    found = (lines.get(call.key) for call in calls)
    return tuple(
        of_line(views.session_id, line, line.offset, f"{line.offset + 1}.0", client.read_blob, rows)
        for line in found
        if line is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request as it was sent, rebuilt from the log.

    `body`: its bytes, which are JSON.
    `agrees`: whether the claim of the model call contains the SHA-256 of these bytes.
    """

    step: str
    body: bytes
    sha256: str
    agrees: bool

    @classmethod
    def of(cls, step: str, found: Request) -> "ModelRequest":
        """Convert the request that `client/show.py` rebuilt."""
        return cls(step=step, body=found.body, sha256=found.sha256, agrees=found.agrees)

    @property
    def json(self) -> dict[str, Any]:
        """The request as a dictionary: model, system, tools, messages."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    def __str__(self) -> str:
        verdict = "equal to its claim" if self.agrees else "NOT equal to its claim"
        messages = len(self.json["messages"])
        return (
            f"request {self.step}: {messages} messages, {len(self.body):,} bytes, sha256 "
            f"{self.sha256[:12]}, {verdict}"
        )

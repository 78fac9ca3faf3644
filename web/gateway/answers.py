"""What the JSON answers of the gateway's own API contain, as /openapi.json declares it.

Declared only: no answer is checked or changed while the gateway runs. Tests compare each answer
with its model.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from .errors import STATUS


class Problem(BaseModel):
    """Why a request had no effect. code: for machines. detail: for people."""

    code: str
    detail: str


class Decided(BaseModel):
    """A command is in effect. offset: that of its record. verdict: `accepted`, or `duplicate` if an
    earlier one did the same. turn, phase: of the session after it.
    """

    session_id: str
    offset: int
    verdict: str
    turn: int
    phase: str


class Sent(Decided):
    """A message is in effect, under this id."""

    message_id: str


class Forked(Decided):
    """The new session; its history is that of parent_session up to parent_offset. message_id: the
    message that was sent to it, if one was."""

    parent_session: str
    parent_offset: int
    message_id: str | None


class ListedSession(BaseModel):
    """A session in a list. reason: why it has its status. until: when that changes by itself, Unix
    ms. updated_at: Unix ms."""

    session_id: str
    user_id: str
    agent: str
    phase: str
    project_id: str | None
    turn: int
    status: str
    reason: str
    until: int | None
    updated_at: int
    partition: int


class Sessions(BaseModel):
    """Sessions, most recently changed first. more: how many the limit left out."""

    sessions: list[ListedSession]
    more: int


class WaitingCall(BaseModel):
    """A call that has no result. expires_at: when its approval expires, Unix ms; 0: never. args:
    the arguments as a text in `inline`, or the blob that has them in `ref`."""

    key: str
    call_id: str
    name: str
    status: str
    attempt: int
    args_sha256: str
    expires_at: int
    args: dict[str, Any]


class SessionNow(ListedSession):
    """A session. open: whether a turn runs, and `step` is its step. queued: the ids of messages for
    later turns. cursor: where a viewer resumes."""

    state: dict[str, Any]
    open: bool
    step: int
    waits: list[WaitingCall]
    queued: list[str]
    offset: int
    cursor: str


class BlobReference(BaseModel):
    """A blob: its SHA-256 in hex, and its size."""

    sha256: str
    bytes: int


class TranscriptLine(BaseModel):
    """A line of a transcript. at: Unix ms. code: an outcome, a decision or a class of errors. text:
    a note for people. replaced: a person replaced the result in this fork. refused: why triggers of
    a result were refused. content: blocks, arguments or a text. ref: the blob that has the full
    content."""

    kind: str
    turn: int
    step: int
    offset: int
    at: int
    name: str
    call: str
    code: str
    text: str
    replaced: bool = False
    refused: list[str] = []
    content: Any = None
    ref: BlobReference | None = None


class Transcript(BaseModel):
    """A transcript, oldest line first."""

    session_id: str
    lines: list[TranscriptLine]


class OpenSession(BaseModel):
    """An open session. opened_at: Unix ms."""

    session_id: str
    phase: str
    project_id: str | None
    opened_at: int


class Tabs(BaseModel):
    """A user's open sessions, newest first."""

    tabs: list[OpenSession]


class TabSession(BaseModel):
    """The session of a tab, and whether it was opened just now."""

    session_id: str
    new: bool


Responses = dict[int | str, dict[str, Any]]


def ok(model: type[BaseModel], code: int = 200) -> Responses:
    """The declaration of a route whose answer is of this model."""
    return {code: {"model": model}}


def _problems() -> Responses:
    codes: dict[int, list[str]] = {}
    for _, status, code in STATUS:
        codes.setdefault(status, []).append(code)
    found: Mapping[int, list[str]] = {400: [], **codes}
    return {
        status: {"model": Problem, "description": ", ".join(f"`{code}`" for code in names)}
        for status, names in sorted(found.items())
    } | {"default": {"model": Problem, "description": "The request had no effect"}}


PROBLEMS = _problems()
"""The declaration of the refusals that any route may answer with."""

"""Why background work had no result: one code for each reason, and the only texts for people.

BACKGROUND_DONE records the code and the text. Readers decide by the code, never by the text.
"""

from enum import StrEnum
from typing import Any

from ...schemas import events as ev
from ..fold.projections.background import TOO_LITTLE


class WorkEnd(StrEnum):
    """Why work had no result. OWN_MODEL_*: the model is the one that answers in the session."""

    ABORTED = "aborted"
    STOPPED = "stopped"
    NOT_BEGUN = "not_begun"
    NOTHING_LEFT = "nothing_left"
    TOO_LITTLE = TOO_LITTLE
    TOO_LATE = "too_late"
    ATTEMPTS_USED_UP = "attempts_used_up"
    CONTENT_LOST = "content_lost"
    TASK_DIED = "task_died"
    MODEL_FAILED = "model_failed"
    MODEL_REFUSED = "model_refused"
    OWN_MODEL_FAILED = "own_model_failed"
    OWN_MODEL_REFUSED = "own_model_refused"
    NOT_SUMMARIZED = "not_summarized"
    SUMMARY_EMPTY = "summary_empty"
    SUMMARY_TOO_LONG = "summary_too_long"
    SHORT_EMPTY = "short_empty"
    SHORT_TOO_LONG = "short_too_long"
    COMPACTOR_FAILED = "compactor_failed"
    MEMORY_UNUSABLE = "memory_unusable"
    MEMORY_NOT_WRITTEN = "memory_not_written"
    NO_MEMORY = "no_memory"


WORDS: dict[WorkEnd, str] = {
    WorkEnd.ABORTED: "the turn was aborted",
    WorkEnd.STOPPED: "it was stopped",
    WorkEnd.NOT_BEGUN: "{detail}",
    WorkEnd.NOTHING_LEFT: "nothing is left to be done",
    WorkEnd.TOO_LITTLE: "too little lies before the newest messages, which stay unchanged",
    WorkEnd.TOO_LATE: "it did not end within {limit_ms} ms",
    WorkEnd.ATTEMPTS_USED_UP: "its attempts are used up",
    WorkEnd.CONTENT_LOST: "the content to summarize is lost: {detail}",
    WorkEnd.TASK_DIED: "its task died: {detail}",
    WorkEnd.MODEL_FAILED: "{model} failed: {error}: {detail}",
    WorkEnd.MODEL_REFUSED: "{model} refused",
    WorkEnd.OWN_MODEL_FAILED: "{model} failed: {error}: {detail}",
    WorkEnd.OWN_MODEL_REFUSED: "{model} refused",
    WorkEnd.NOT_SUMMARIZED: "the provider could not summarize",
    WorkEnd.SUMMARY_EMPTY: "the summary is empty",
    WorkEnd.SUMMARY_TOO_LONG: "the summary has {tokens} tokens, what it stands for {covers}",
    WorkEnd.SHORT_EMPTY: "the short form is empty",
    WorkEnd.SHORT_TOO_LONG: "the short form has {tokens} tokens, the result {covers}",
    WorkEnd.COMPACTOR_FAILED: "the tool's compactor failed: {detail}",
    WorkEnd.MEMORY_UNUSABLE: "{detail}",
    WorkEnd.MEMORY_NOT_WRITTEN: "memory was not written: {detail}",
    WorkEnd.NO_MEMORY: "this worker keeps no memory",
}
WHY_CHARS_MAX = 500


def in_words(code: WorkEnd, **values: Any) -> str:
    """Why work had no result, for people."""
    return WORDS[code].format(**values)[:WHY_CHARS_MAX]


def without_result(
    kind: str, upto: int, attempt: int, code: WorkEnd, **values: Any
) -> ev.BackgroundDone:
    """The outcome of work that had no result."""
    why = in_words(code, **values)
    return ev.BackgroundDone(kind=kind, upto=upto, attempt=attempt, ok=False, why=why, code=code)

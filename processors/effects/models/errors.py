"""What an attempt that failed means: one table from class to policy, and how long to wait.

The SDK's retries are off: every retry is a new attempt of its own, owed by the WAKE table. A
failure is decided on the API's error code first, then its type, then the status: a mid-stream
error comes under status 200, and a spend limit may be a 400. This file knows no SDK and no clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The facts of one failure, as far as they are known.

    source: `status` (the API answered with an error), `event` (an error inside a stream), or the
    class itself where nobody answered. type, code: `error.type` and `error.details.error_code`.
    retry_after_ms: what a retry-after header asked for; None when there was none.
    sent: False where no connection was made, so that nothing of the request reached anybody.
    """

    source: str
    message: str
    status: int | None = None
    type: str | None = None
    code: str | None = None
    retry_after_ms: int | None = None
    request_id: str | None = None
    sent: bool = True


class AttemptFailed(Exception):
    """An attempt ended without a whole answer; carries the facts."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


class Backoff(NamedTuple):
    """Exponential: `first_ms` before the second attempt, doubled each time, at most `most_ms`."""

    first_ms: int
    most_ms: int


class Policy(NamedTuple):
    """What follows from a class of failure.

    backoff None: no further attempt can help, a person or another request must. shared: the whole
    API key waits, not only this session. advice: the end of the sentence that people read.
    """

    backoff: Backoff | None
    shared: bool
    advice: str


# A lost connection is most often over at once, and the cached prefix makes a retry cheap.
SOON = Backoff(500, 8_000)
# A server that is ill or full needs longer, and five attempts then span about half a minute.
LATER = Backoff(2_000, 60_000)
# Longest retry-after that is honoured. Rate limits refill within a minute; the header has no upper
# limit of its own, and eleven days would park a session without anybody having decided so.
RETRY_AFTER_MOST_MS = 10 * 60 * 1000

_NOBODY = "no retry: the same request fails again"
_OPERATOR = "no retry: somebody has to change the account or the settings"
_RETRY = "the same request may be tried again; what came is kept for viewers only"
_UNSENT = (
    "the same request may be tried again; nothing was sent and nothing billed: is the base URL "
    "right, and is its server (or the proxy on the way) up?"
)

POLICY: dict[str, Policy] = {
    # class             (backoff, shared, advice)
    "bad_request": Policy(None, False, _NOBODY + "; the request was built wrong, which is a bug"),
    "context_too_long": Policy(None, False, _NOBODY + "; the context must get shorter"),
    "request_too_large": Policy(None, False, _NOBODY + "; compact, or move content to blobs"),
    "file_refused": Policy(None, False, _NOBODY + "; it goes on without the files that were sent"),
    "thinking_refused": Policy(None, False, _NOBODY + "; what was thought is left out from now on"),
    "unprocessable": Policy(None, False, _NOBODY),
    "client_error": Policy(None, False, _NOBODY),
    "authentication": Policy(None, False, _OPERATOR + " (the API key)"),
    "permission": Policy(None, False, _OPERATOR + " (permissions of the key)"),
    "not_found": Policy(None, False, _OPERATOR + " (model name or base URL)"),
    "billing": Policy(None, False, _OPERATOR + " (billing)"),
    "spend_limit": Policy(None, False, _OPERATOR + "; a spend limit is reached, waiting is no use"),
    "conflict": Policy(None, False, _NOBODY),
    "client_closed": Policy(None, False, "no retry: the request was given up on this side"),
    "rate_limit": Policy(LATER, True, "every session of the key waits, then " + _RETRY),
    "overloaded": Policy(LATER, True, "every session of the key waits, then " + _RETRY),
    "timeout": Policy(LATER, False, _RETRY + "; this attempt may have been billed"),
    "api_error": Policy(LATER, False, _RETRY),
    "transport": Policy(SOON, False, _RETRY + "; this attempt may have been billed"),
    "truncated": Policy(SOON, False, _RETRY),
    "stalled": Policy(SOON, False, _RETRY),
    "malformed": Policy(SOON, False, _RETRY),
    "internal": Policy(LATER, False, _RETRY + "; this is a bug of foldlog, please report it"),
}

_CLASS_OF_CODE = {
    "enforced_spend_limit_reached": "spend_limit",
    "contract_spend_limit_reached": "spend_limit",
    "linked_organization_spend_limit_reached": "spend_limit",
    "linked_organization_billing_unavailable": "billing",
    "compaction_unavailable": "overloaded",
    # A signed summary that is no longer known, as after a change of the key, stands at the head of
    # every request: it must give way to one of our own, which is what a context too long asks for.
    "compaction_signature_invalid": "context_too_long",
    "compaction_content_mismatch": "context_too_long",
    "compaction_tool_changes_mismatch": "context_too_long",
}
_CLASS_OF_TYPE = {
    "invalid_request_error": "bad_request",
    "authentication_error": "authentication",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "billing_error": "billing",
    "timeout_error": "timeout",
    "conflict_error": "conflict",
    "request_too_large": "request_too_large",
    "rate_limit_error": "rate_limit",
    "api_error": "api_error",
    "overloaded_error": "overloaded",
}
_CLASS_OF_STATUS = {
    400: "bad_request",
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    413: "request_too_large",
    422: "unprocessable",
    429: "rate_limit",
    499: "client_closed",
    504: "timeout",
    529: "overloaded",
}
# Causes of a 400 that have no type or code of their own, only words (documented as 400 too, those
# of images as users of the API report them). What is too long or too large changes what is owed
# next (a shorter context), the rest only what people are told.
_CLASS_OF_WORDS = (
    ("prompt is too long", "context_too_long"),
    ("exceed context limit", "context_too_long"),
    ("too many images", "request_too_large"),
    ("too much media", "request_too_large"),
    ("many-image requests", "request_too_large"),  # over 20 of them, one over 2,000 pixels a side
    # A file that can't be read would be in every later request, too.
    ("could not process image", "file_refused"),
    ("could not process pdf", "file_refused"),
    ("the pdf specified", "file_refused"),  # "was not valid", "is password protected"
    ("pdf pages may be provided", "file_refused"),
    ("the image appears to be", "file_refused"),  # of another type than it says
    ("image exceeds", "file_refused"),
    ("image dimensions exceed", "file_refused"),
    # A signature that is not taken any more, as after a change of the account or by a proxy.
    ("invalid signature in thinking block", "thinking_refused"),
    ("invalid `signature` in `thinking` block", "thinking_refused"),
    ("blocks in the latest assistant message cannot be modified", "thinking_refused"),
    # With a fixed thinking budget a call can't be said without its thinking; a summary stands for
    # both.
    ("expected `thinking` or `redacted_thinking`", "context_too_long"),
    ("api usage limits", "spend_limit"),
    ("spend limit", "spend_limit"),
    ("credit balance is too low", "billing"),
)


def class_of(trouble: Trouble) -> str:
    """The class of a failure: a key of POLICY."""
    if trouble.source not in ("status", "event"):
        return trouble.source if trouble.source in POLICY else "internal"
    if trouble.code in _CLASS_OF_CODE:
        return _CLASS_OF_CODE[trouble.code]
    found = _CLASS_OF_TYPE.get(trouble.type or "") or _of_status(trouble)
    if found == "bad_request":
        if trouble.status == 422:
            return "unprocessable"
        words = trouble.message.lower()
        return next((name for text, name in _CLASS_OF_WORDS if text in words), found)
    if found == "rate_limit" and trouble.source == "status" and trouble.retry_after_ms is None:
        # A 429 that does not say when is the tier's spend cap: waiting minutes does not clear it.
        # An error event can not carry the header, so its silence means nothing.
        return "spend_limit"
    return found


def advice_of(trouble: Trouble) -> str:
    """What people are told to do about it."""
    return POLICY[class_of(trouble)].advice if trouble.sent else _UNSENT


def _of_status(trouble: Trouble) -> str:
    if trouble.source == "event" or trouble.status is None:
        return "api_error"  # an error type that we do not know, without a status to go by
    if trouble.status >= 500:
        return _CLASS_OF_STATUS.get(trouble.status, "api_error")
    return _CLASS_OF_STATUS.get(trouble.status, "client_error")


def wait_ms(policy: Policy, *, attempt: int, identity: str, retry_after_ms: int | None) -> int:
    """Milliseconds from now to the next attempt, 0 for a policy without one.

    Attempts count from 1. The jitter, half to whole of the step, comes from the identity of the
    claim and not from chance: two workers that report the same attempt say the same.
    A retry-after is a minimum, up to our own limit; the back-off on top of it spreads sessions.
    """
    if policy.backoff is None:
        return 0
    # 2**20 steps pass any limit here, and a shift by a huge attempt number would eat the memory.
    step_ms = min(policy.backoff.first_ms << min(max(attempt - 1, 0), 20), policy.backoff.most_ms)
    share = int.from_bytes(sha256(identity.encode()).digest()[:4]) / 2**32
    asked_ms = min(retry_after_ms or 0, RETRY_AFTER_MOST_MS)
    return asked_ms + int(step_ms * (0.5 + share / 2))


def retry_after_ms(headers: Mapping[str, str], now: datetime) -> int | None:
    """What `retry-after-ms` or `retry-after` (seconds or a date) asks for; None without either.

    A date counts from the server's own `date` header, or from `now`. What can not be read is 0:
    the server did ask to come back, and our own back-off then says when.
    """
    for name, unit_ms in (("retry-after-ms", 1), ("retry-after", 1000)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            asked_ms = float(text) * unit_ms
        except ValueError:
            asked_ms = _date_ms(text, headers.get("date"), now)
        if not asked_ms > 0:  # NaN too
            return 0
        return int(min(asked_ms, 2**53))  # "1e999" is infinite
    return None


def _date_ms(text: str, server_date: str | None, now: datetime) -> float:
    at, since = _date(text), _date(server_date) or now
    try:
        return (at - since).total_seconds() * 1000 if at else 0
    except TypeError:  # one of the two names no time zone: RFC 9110 allows GMT only
        return 0


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if text else None
    except (ValueError, OverflowError):
        return None

"""Classifies failed attempts: one table from class to policy, and the delay of the next attempt.

The SDK's retries are off: every retry is a new attempt that a row of WAKE asks for. A failure is
classified by the error code that the API sent, otherwise by the error type, otherwise by the HTTP
status. The status comes last, because an error in mid-stream has status 200, and a spend limit may
have status 400.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The known facts of one failure.

    source: `status` (the API answered with an error), `event` (an error inside a stream), or, if
    there was no answer, the class of the failure (a key of POLICY). type, code: `error.type` and
    `error.details.error_code`. retry_after_ms: the delay in a retry-after header; None without one.
    sent: False if no connection was made, so that no part of the request was received.
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
    """An attempt ended without a complete answer. `trouble` has the facts."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


class Cause(StrEnum):
    """A cause that a class of failure does not state. UNSENT: no part of the request was sent.
    SCRIPT_ENDED: the script of the scripted server has no answer; the code that it sends."""

    UNSENT = "unsent"
    SCRIPT_ENDED = "script_ended"


class Backoff(NamedTuple):
    """An exponential back-off: `first_ms` before the second attempt, doubled each time,
    at most `most_ms`."""

    first_ms: int
    most_ms: int


class Policy(NamedTuple):
    """The consequences of a class of failure.

    backoff: the delay of the next attempt; None if only a person or another request can help.
    shared: the whole API key waits, not only this session. advice: the advice to people, with which
    the detail of GEN_FAILED ends.
    """

    backoff: Backoff | None
    shared: bool
    advice: str


# A lost connection usually works again at once, and the cached prefix makes a retry cheap.
SOON = Backoff(500, 8_000)
# A failing or overloaded server needs longer: five attempts then take about half a minute.
LATER = Backoff(2_000, 60_000)
# A rate limit without a stated end usually refills within a minute, and few attempts are left.
SLOWER = Backoff(10_000, 60_000)
# The longest retry-after that is obeyed. Rate limits refill within a minute, but the header has no
# limit: eleven days would block a session without a person's consent.
RETRY_AFTER_MOST_MS = 10 * 60 * 1000

# A 429 without retry-after is the API's spend cap, which a wait of minutes does not clear, or an
# ordinary rate limit whose header a gateway dropped. It is retried once, and a second time if the
# step has attempts left before this number. Then it counts as a spend limit.
BARE = "rate_limit_bare"
BARE_ATTEMPTS = 3

_NEVER = "no retry: the same request fails again"
_OPERATOR = "no retry: a person must correct the account or the settings"
_RETRY = "the same request may be tried again; what came is kept for viewers only"
_UNSENT = (
    "the same request may be tried again; nothing was sent and nothing billed: is the base URL "
    "right, and is its server (or the proxy on the way) up?"
)

_SCRIPT_ENDED = "no retry: the script of the scripted model has no answer for this request"

ADVICE: dict[str, str] = {Cause.UNSENT: _UNSENT, Cause.SCRIPT_ENDED: _SCRIPT_ENDED}

POLICY: dict[str, Policy] = {
    # class             (backoff, shared, advice)
    "bad_request": Policy(None, False, _NEVER + "; newer content and files are left out once"),
    "setting_refused": Policy(None, False, _OPERATOR + " (the agent's model, params or tools)"),
    "context_too_long": Policy(None, False, _NEVER + "; the context must get shorter"),
    "request_too_large": Policy(None, False, _NEVER + "; compact, or move content to blobs"),
    "file_refused": Policy(None, False, _NEVER + "; the session continues without the files"),
    "thinking_refused": Policy(None, False, _NEVER + "; earlier thinking is left out from now on"),
    "client_error": Policy(None, False, _NEVER),
    "authentication": Policy(None, False, _OPERATOR + " (the API key)"),
    "permission": Policy(None, False, _OPERATOR + " (permissions of the key)"),
    "not_found": Policy(None, False, _OPERATOR + " (model name or base URL)"),
    "billing": Policy(None, False, _OPERATOR + " (billing)"),
    "spend_limit": Policy(None, False, _OPERATOR + "; the spend limit is reached, do not wait"),
    "conflict": Policy(None, False, _NEVER),
    "client_closed": Policy(None, False, "no retry: the request was given up on this side"),
    "rate_limit": Policy(LATER, True, "every session of the key waits, then " + _RETRY),
    BARE: Policy(
        SLOWER,
        True,
        "no retry-after: a rate limit behind a gateway, or a spend limit; every session of the key "
        "waits, then " + _RETRY,
    ),
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
    # Every request begins with the signed summary. If the provider no longer knows it, for example
    # after the key changed, foldlog's own summary must replace it, as for a context that is too
    # long.
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
    422: "bad_request",
    429: "rate_limit",
    499: "client_closed",
    504: "timeout",
    529: "overloaded",
}
# Causes of a 400 that have only a message and no type or code (they are documented as 400; those of
# images are reported by users of the API). A prompt that is too long, or a refused file, leads to
# another request. The other causes change only the text for people.
_CLASS_OF_WORDS = (
    ("prompt is too long", "context_too_long"),
    ("exceed context limit", "context_too_long"),
    ("too many images", "request_too_large"),
    ("too much media", "request_too_large"),
    ("many-image requests", "request_too_large"),  # over 20 images, one over 2,000 pixels a side
    # Every later request would contain the unreadable file again.
    ("could not process image", "file_refused"),
    ("could not process pdf", "file_refused"),
    ("the pdf specified", "file_refused"),  # "was not valid", "is password protected"
    ("pdf pages may be provided", "file_refused"),
    ("the image appears to be", "file_refused"),  # of another type than declared
    ("image exceeds", "file_refused"),
    ("image dimensions exceed", "file_refused"),
    # A signature that is not accepted, as after a change of the account or behind a proxy.
    ("invalid signature in thinking block", "thinking_refused"),
    ("invalid `signature` in `thinking` block", "thinking_refused"),
    ("blocks in the latest assistant message cannot be modified", "thinking_refused"),
    # With a fixed thinking budget, a call cannot be sent without its thinking; a summary then
    # replaces both.
    ("expected `thinking` or `redacted_thinking`", "context_too_long"),
    ("api usage limits", "spend_limit"),
    ("spend limit", "spend_limit"),
    ("credit balance is too low", "billing"),
)


# A 400 that names a field of the request other than its messages: a change of the messages cannot
# help.
_SETTINGS = (
    "model max_tokens temperature top_p top_k thinking tools tool_choice system stop_sequences "
    "metadata output_config service_tier speed inference_geo container context_management "
    "mcp_servers cache_control"
).split()
_NAMES_SETTING = re.compile(rf"(?:{'|'.join(_SETTINGS)})(?:\.\w+)*: ")


def class_of(trouble: Trouble, *, attempt: int = 1, before: str = "") -> str:
    """The class of a failure: a key of POLICY. `attempt`: the number of the failed attempt;
    `before`: the class of the failure before it in this step, or ''."""
    if trouble.source not in ("status", "event"):
        return trouble.source if trouble.source in POLICY else "internal"
    if trouble.code in _CLASS_OF_CODE:
        return _CLASS_OF_CODE[trouble.code]
    found = _CLASS_OF_TYPE.get(trouble.type or "") or _of_status(trouble)
    if found == "bad_request":
        other = "setting_refused" if _NAMES_SETTING.match(trouble.message) else found
        return _of_words(trouble) or other
    # An error event in a stream cannot have the header, so its absence there means nothing.
    is_bare = trouble.source == "status" and trouble.retry_after_ms is None
    if found != "rate_limit" or not is_bare:
        return found
    if _of_words(trouble) in ("spend_limit", "billing"):
        return _of_words(trouble)
    return "spend_limit" if before == BARE and attempt >= BARE_ATTEMPTS else BARE


def _of_words(trouble: Trouble) -> str:
    words = trouble.message.lower()
    return next((name for text, name in _CLASS_OF_WORDS if text in words), "")


def cause_of(trouble: Trouble) -> str:
    """The cause of a failure if people need other advice than that of its class, else ''."""
    if trouble.code == Cause.SCRIPT_ENDED:
        return Cause.SCRIPT_ENDED
    return "" if trouble.sent else Cause.UNSENT


def advice_of(error: str, cause: str = "") -> str:
    """The advice to people about a failure of the class `error`; '' if the class is unknown. Unlike
    the rest of the detail of a GEN_FAILED, it never contains content of the session.
    """
    if cause in ADVICE:
        return ADVICE[cause]
    return POLICY[error].advice if error in POLICY else ""


def _of_status(trouble: Trouble) -> str:
    if trouble.source == "event" or trouble.status is None:
        return "api_error"  # an unknown error type without a status
    if trouble.status >= 500:
        return _CLASS_OF_STATUS.get(trouble.status, "api_error")
    return _CLASS_OF_STATUS.get(trouble.status, "client_error")


def wait_ms(policy: Policy, *, attempt: int, identity: str, retry_after_ms: int | None) -> int:
    """Milliseconds from now to the next attempt; 0 if the policy has no back-off.

    Attempts count from 1. The back-off of an attempt is multiplied by a jitter between 0.5 and 1.
    The jitter is derived from the identity of the claim and is not random, so two workers that
    report the same attempt report the same time. The back-off is added to the provider's
    retry-after (at most RETRY_AFTER_MOST_MS), so that sessions do not all retry at once.
    """
    if policy.backoff is None:
        return 0
    # 2**20 exceeds every limit; a shift by a huge attempt number would use up memory.
    step_ms = min(policy.backoff.first_ms << min(max(attempt - 1, 0), 20), policy.backoff.most_ms)
    share = int.from_bytes(sha256(identity.encode()).digest()[:4]) / 2**32
    asked_ms = min(retry_after_ms or 0, RETRY_AFTER_MOST_MS)
    return asked_ms + int(step_ms * (0.5 + share / 2))


def retry_after_ms(headers: Mapping[str, str], now: datetime) -> int | None:
    """The delay in `retry-after-ms` or `retry-after` (seconds or a date); None without either.

    A date is compared with the server's own `date` header, or with `now`. An unreadable value gives
    0, because the server asked for a retry and the back-off determines its time.
    """
    for name, unit_ms in (("retry-after-ms", 1), ("retry-after", 1000)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            asked_ms = float(text) * unit_ms
        except ValueError:
            asked_ms = _date_ms(text, headers.get("date"), now)
        if not asked_ms > 0:  # also false for NaN
            return 0
        return int(min(asked_ms, 2**53))  # "1e999" is infinite
    return None


def _date_ms(text: str, server_date: str | None, now: datetime) -> float:
    at, since = _date(text), _date(server_date) or now
    try:
        return (at - since).total_seconds() * 1000 if at else 0
    except TypeError:  # one of the two has no time zone: RFC 9110 allows GMT only
        return 0


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if text else None
    except (ValueError, OverflowError):
        return None

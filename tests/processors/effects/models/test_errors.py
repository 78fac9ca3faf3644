"""Every class of failure has a policy, and every failure of the API has a class.

Each row is an error that the Messages API documents: its status or type, and what to do.
"""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from foldlog.local.messages_api.errors import SCRIPT_ENDED
from foldlog.processors.effects.models import errors as models_errors
from foldlog.processors.effects.models.errors import (
    POLICY,
    RETRY_AFTER_MOST_MS,
    Trouble,
    advice_of,
    cause_of,
    class_of,
    retry_after_ms,
    wait_ms,
)

NOW = datetime(2026, 11, 1, 12, 0, 0, tzinfo=UTC)


def status(number, type=None, message="x", **more):
    return Trouble(source="status", status=number, type=type, message=message, **more)


def event(type, **more):
    return Trouble(source="event", status=200, type=type, message="x", **more)


CASES = [
    # (trouble, class, permanent, the whole key waits)
    (status(400, "invalid_request_error"), "bad_request", True, False),
    (status(400), "bad_request", True, False),
    *[
        (status(400, "invalid_request_error", text), "setting_refused", True, False)
        for text in (
            "temperature: Extra inputs are not permitted",
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
            "tools.0.custom.input_schema: JSON schema is invalid",
            "system: text content blocks must be non-empty",
        )
    ],
    *[
        (status(400, "invalid_request_error", text), "bad_request", True, False)
        for text in (
            "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
            "messages: text content blocks must be non-empty",
            "error: an unknown reason",
            "thinking of that is not possible: no",
        )
    ],
    (
        status(400, "invalid_request_error", "prompt is too long: 201 tokens > 200 maximum"),
        "context_too_long",
        True,
        False,
    ),
    *[
        (status(400, "invalid_request_error", f"messages.1.content.0: {words}"), name, True, False)
        for words, name in (
            ("Invalid signature in thinking block. The block is bound", "thinking_refused"),
            ("Invalid `signature` in `thinking` block", "thinking_refused"),
            ("blocks in the latest assistant message cannot be modified.", "thinking_refused"),
            ("Could not process image", "file_refused"),
            ("pdf.source.base64.data: The PDF specified was not valid.", "file_refused"),
            ("Expected `thinking` or `redacted_thinking`, but found `text`", "context_too_long"),
        )
    ],
    (
        status(400, message="You have reached your specified API usage limits."),
        "spend_limit",
        True,
        False,
    ),
    (status(401, "authentication_error"), "authentication", True, False),
    (status(402, "billing_error"), "billing", True, False),
    (status(403, "permission_error"), "permission", True, False),
    (status(404, "not_found_error"), "not_found", True, False),
    (status(408, "timeout_error"), "timeout", False, False),
    (status(409, "conflict_error"), "conflict", True, False),
    (status(413, "request_too_large"), "request_too_large", True, False),
    (status(413), "request_too_large", True, False),
    (status(418), "client_error", True, False),
    (status(422, "invalid_request_error"), "bad_request", True, False),
    (status(422), "bad_request", True, False),
    (status(429, "rate_limit_error", retry_after_ms=0), "rate_limit", False, True),
    (status(429, "rate_limit_error"), "rate_limit_bare", False, True),
    (status(429), "rate_limit_bare", False, True),
    (status(429, message="Your credit balance is too low."), "billing", True, False),
    (status(429, message="You have reached your API usage limits."), "spend_limit", True, False),
    (
        status(429, "rate_limit_error", code="enforced_spend_limit_reached", retry_after_ms=1),
        "spend_limit",
        True,
        False,
    ),
    (status(499), "client_closed", True, False),
    (status(500, "api_error"), "api_error", False, False),
    (status(502), "api_error", False, False),
    (status(503, "api_error"), "api_error", False, False),
    (status(504, "timeout_error"), "timeout", False, False),
    (status(529, "overloaded_error"), "overloaded", False, True),
    (status(529, "overloaded_error", code="compaction_unavailable"), "overloaded", False, True),
    (event("overloaded_error"), "overloaded", False, True),
    (event("rate_limit_error"), "rate_limit", False, True),
    (event("api_error"), "api_error", False, False),
    (event("timeout_error"), "timeout", False, False),
    (event("invalid_request_error"), "bad_request", True, False),
    (event("type_of_the_future"), "api_error", False, False),
    (event(None), "api_error", False, False),
    (Trouble(source="transport", message="x"), "transport", False, False),
    (Trouble(source="truncated", message="x"), "truncated", False, False),
    (Trouble(source="stalled", message="x"), "stalled", False, False),
    (Trouble(source="malformed", message="x"), "malformed", False, False),
    (Trouble(source="internal", message="x"), "internal", False, False),
]


@pytest.mark.parametrize(("trouble", "name", "permanent", "shared"), CASES)
def test_every_failure_has_its_class_and_policy(trouble, name, permanent, shared):
    assert class_of(trouble) == name
    assert (POLICY[name].backoff is None, POLICY[name].shared) == (permanent, shared)


def test_every_class_is_tested_and_every_lookup_returns_a_class():
    assert {name for _, name, _, _ in CASES} == set(POLICY)
    for table in ("_CLASS_OF_CODE", "_CLASS_OF_TYPE", "_CLASS_OF_STATUS"):
        assert set(getattr(models_errors, table).values()) <= set(POLICY)
    assert {name for _, name in models_errors._CLASS_OF_WORDS} <= set(POLICY)


@pytest.mark.parametrize(
    ("attempt", "before", "name"),
    [
        (1, "", "rate_limit_bare"),
        (2, "rate_limit_bare", "rate_limit_bare"),
        (3, "rate_limit_bare", "spend_limit"),
        (3, "overloaded", "rate_limit_bare"),
        (3, "rate_limit", "rate_limit_bare"),
        (4, "rate_limit_bare", "spend_limit"),
    ],
)
def test_a_429_without_retry_after_is_retried_before_it_counts_as_a_spend_limit(
    attempt, before, name
):
    assert class_of(status(429), attempt=attempt, before=before) == name
    timed = status(429, retry_after_ms=0)
    assert class_of(timed, attempt=attempt, before=before) == "rate_limit"


@given(st.integers(100, 999), st.none() | st.text(), st.none() | st.text())
def test_any_status_type_and_code_has_a_policy(code, type, error_code):
    for source in ("status", "event"):
        trouble = Trouble(source=source, status=code, type=type, code=error_code, message="x")
        assert class_of(trouble) in POLICY


def test_waits_grow_up_to_a_limit_and_are_not_random():
    for policy in POLICY.values():
        waits = [
            wait_ms(policy, attempt=n, identity="s 1.1", retry_after_ms=None) for n in range(1, 99)
        ]
        if policy.backoff is None:
            assert set(waits) == {0}
            continue
        assert waits == sorted(waits)
        assert policy.backoff.first_ms / 2 <= waits[0] <= policy.backoff.first_ms
        assert policy.backoff.most_ms / 2 <= waits[-1] <= policy.backoff.most_ms
        assert all(b <= 2 * a + 2 for a, b in pairwise(waits))


def test_jitter_differs_by_claim_and_is_stable():
    def waits():
        return [
            wait_ms(POLICY["overloaded"], attempt=1, identity=f"s{n} 1.1.1", retry_after_ms=None)
            for n in range(50)
        ]

    assert waits() == waits()
    assert len(set(waits())) > 40


@given(st.integers(0, 2**53), st.integers(1, 9))
def test_retry_after_is_a_minimum_up_to_our_own_limit(asked_ms, attempt):
    policy = POLICY["rate_limit"]
    wait = wait_ms(policy, attempt=attempt, identity="s 1.1.1", retry_after_ms=asked_ms)
    assert min(asked_ms, RETRY_AFTER_MOST_MS) < wait
    assert wait <= RETRY_AFTER_MOST_MS + policy.backoff.most_ms


@pytest.mark.parametrize(
    ("headers", "asked_ms"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7000),
        ({"retry-after": "0.5"}, 500),
        ({"retry-after-ms": "20", "retry-after": "9"}, 20),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "nan"}, 0),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": ""}, 0),
        ({"retry-after": "1e999"}, 2**53),
        ({"retry-after": "Sun, 01 Nov 2026 12:00:30 GMT"}, 30_000),
        ({"retry-after": "Sun, 01 Nov 2026 11:00:00 GMT"}, 0),
        (
            {
                "retry-after": "Sun, 01 Nov 2026 13:00:30 GMT",
                "date": "Sun, 01 Nov 2026 13:00:00 GMT",
            },
            30_000,
        ),
        ({"retry-after": "Sun, 01 Nov 2026 12:00:30 -0000"}, 0),
        ({"retry-after": "Sun, 01 Nov 99999 12:00:30 GMT"}, 0),
    ],
)
def test_retry_after_is_read_in_every_form(headers, asked_ms):
    assert retry_after_ms(headers, NOW) == asked_ms


def test_a_script_without_an_answer_is_not_called_a_bug_of_foldlog():
    ended = status(400, message="any words", code=SCRIPT_ENDED)
    assert class_of(ended) == "bad_request"
    advice = advice_of("bad_request", cause_of(ended))
    assert "no answer for this request" in advice and "bug" not in advice
    quoted = status(400, message="scripted server: no rule of script 'rules' matches")
    assert cause_of(quoted) == ""


def test_the_advice_follows_from_the_class_and_the_cause():
    unsent = Trouble(source="transport", message="the secret", sent=False)
    assert "nothing was sent" in advice_of("transport", cause_of(unsent))
    assert advice_of("rate_limit").startswith("every session")
    assert advice_of("agent_unknown") == ""

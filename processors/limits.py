"""The limits of an agent (timeouts, sizes, retries), in one frozen object.

Each agent may change its limits, so all code reads them from the agent, never from a constant.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """An agent's limits. Every duration is in milliseconds, every size in tokens."""

    model_attempts: int = 5  # crashes count too, because the request itself may kill its worker
    tool_attempts: int = 3  # for pure and idempotent tools; a `once` tool has one attempt
    steps: int = 50  # model calls of one turn
    stall_timeout_ms: int = 60_000  # after this long without a sign of life the attempt is lost
    ping_timeout_ms: int = 600_000  # and after this long with signs of life, but no content
    tool_timeout_ms: int = 120_000  # for a tool without its own timeout
    approval_expiry_ms: int = 24 * 3600 * 1000  # how long a call waits for approval
    grace_ms: int = 5_000  # how long effects may take to end after an abort
    margin_ms: int = 10_000  # how much the clocks of two machines may differ
    start_window_ms: int = 5_000  # from producing a claim to beginning its effect; monotonic clock
    candidate_wait_ms: int = 60_000  # how long to wait for a pending compaction
    background_attempts: int = 3  # crashes of the workers that run the work
    background_timeout_ms: int = 120_000  # a summary of a long session takes tens of seconds
    delivery_attempts: int = 10  # with their pauses, enough for a channel down for three hours
    delivery_timeout_ms: int = 15_000  # for a channel that does not answer
    soft_tokens: int = 50_000  # compaction is due above this
    resume_tokens: int = 20_000  # an idle session above this gets its summary before it is needed
    short_tokens: int = 2_000  # a result of this size gets a short form at once
    hard_tokens: int = 180_000  # no request may exceed this
    result_tokens: int = 8_000  # a longer tool result is cut


DEFAULT_LIMITS = Limits()

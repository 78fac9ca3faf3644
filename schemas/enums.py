"""The enums used in events and facts, the same as in the .avsc files."""

from enum import StrEnum


class Role(StrEnum):
    """What a worker may do in a partition: decide (SESSIONS), or run one kind of effect."""

    SESSIONS = "sessions"
    MODELS = "models"
    TOOLS = "tools"
    BACKGROUND = "background"
    DELIVERY = "delivery"


class WhenBusy(StrEnum):
    QUEUE = "queue"
    INTERRUPT = "interrupt"
    STEER = "steer"


class CancelMode(StrEnum):
    NOW = "now"
    AFTER_STEP = "after_step"


class Decision(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


class Resolution(StrEnum):
    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"


class Effect(StrEnum):
    PURE = "pure"
    IDEMPOTENT = "idempotent"
    ONCE = "once"


class Approval(StrEnum):
    NONE = "none"
    ASK = "ask"
    DENY = "deny"


class EndReason(StrEnum):
    END_TURN = "end_turn"
    STOP_TOOL = "stop_tool"
    MAX_STEPS = "max_steps"
    MAX_TOKENS = "max_tokens"
    SHOULD_STOP = "should_stop"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    REFUSAL = "refusal"
    BUDGET_EXCEEDED = "budget_exceeded"
    FAILED = "failed"
    FORKED = "forked"


class Outcome(StrEnum):
    OK = "ok"
    ERROR = "error"
    NOT_RUN = "not_run"
    CANCELLED = "cancelled"


class Via(StrEnum):
    TOOL = "tool"
    RECONCILER = "reconciler"


class Recovery(StrEnum):
    REPLACE = "replace"
    RESUME = "resume"


class ChunkKind(StrEnum):
    TEXT = "text"
    THINKING = "thinking"
    TOOL_NAME = "tool_name"
    TOOL_INPUT = "tool_input"


class ModelWork(StrEnum):
    ANSWER = "answer"
    BACKGROUND = "background"


class ApprovalAnswer(StrEnum):
    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class DoubtAnswer(StrEnum):
    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"
    LATE_RESULT = "late_result"


class TodoStatus(StrEnum):
    OPEN = "open"
    DONE = "done"
    DROPPED = "dropped"


class LookKind(StrEnum):
    """What an operator read. LIST and SEARCH concern all sessions, the others one session."""

    LIST = "list"
    SEARCH = "search"
    SESSION = "session"
    TRANSCRIPT = "transcript"
    STREAM = "stream"
    FILE = "file"
    EVENTS = "events"
    MOMENT = "moment"
    REQUEST = "request"
    COMPARISON = "comparison"
    DECISION = "decision"

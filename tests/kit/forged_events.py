"""Events with plausible wrong fields, as another user, a stale client or a bug might write them.

The fields have small numbers and few names, so they often match values in the views. For arbitrary
values of every type see tests/schemas/arbitrary.py.
"""

from dataclasses import fields
from typing import Any, Protocol

from foldlog.schemas import enums as words, events as ev
from foldlog.schemas.events import EVENT_TYPES

# Without its seed RECORD_SKIPPED freezes the session, and a history would end there.
FORGED = tuple(row for row in EVENT_TYPES if row.cls is not ev.RecordSkipped)
OWNERS = ("w1/1", "w1/2", "w2/1")
GRANTS = ("", "same", "same", '{"n":"*"}')  # the scopes of a remembered approval
CALLS = ("1.1.0", "1.1.1", "1.2.0", "2.1.0", "9.9.9", "01.1.0", "1.1", "", "x.y.z", "1.1.-1")
IDS = ("m1", "m2", "c1", "x" * 128)
ODD_IDS = ("", "a b", "#partition", "x" * 129, "ü", "a\n", "../a")
TEXTS = ("hi", "", " ", "ünï\U0001f600", '"quoted" \\ and \u2028', "\x00\x1f")
PHASE_TRIGGERS = tuple(
    "start_build todo_done_build publish revert open_existing cancel fly".split()
)
CONTENTS = (
    b'[{"type":"text","text":"hello"}]',
    b'[{"type":"text","text":"\\u00fc"}, {"type":"text","text":"two"}]',
    b' [ {"text" : "spaced" , "type":"text"} ] ',
    b'[{"type":"text","text":"  "}]',
    b'[{"type":"text","text":5}]',
    b'[{"type":"text"}]',
    b'[{"type":"text","text":"half \\ud800"}]',
    b'[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]',
    b'[{"type":"tool_result","tool_use_id":"a","content":"x"}]',
    b'[{"type":"tool_use","id":"a","name":"look","input":{}}]',
    b'[{"type":"thinking","thinking":"x","signature":"s"}]',
    b"[]",
    b"{}",
    b"null",
    b"",
    b"not json",
    b"\xff\xfe[\x00]\x00",
    '[{"type":"text","text":"sixteen"}]'.encode("utf-16"),
    b'\xef\xbb\xbf[{"type":"text","text":"bom"}]',
    b'[{"type":"text","text":"deep","x":' + b"[" * 3000 + b"]" * 3000 + b"}]",
    b"[" * 100_000,
    b'[{"type":"text","text":"n","x":NaN}]',
)
TEXTS_OF_TOOLS = (b"", b"short", b"\xff\x00")
ANSWERS = (b"[]", b'[{"type":"text","text":"said"}]')
WORDS = {
    (ev.MessageReceived, "when_busy"): words.WhenBusy,
    (ev.CancelRequested, "mode"): words.CancelMode,
    (ev.ApprovalDecided, "decision"): words.Decision,
    (ev.HumanResolved, "outcome"): words.Resolution,
    (ev.ResultReplaced, "outcome"): words.Outcome,
    (ev.ToolInvoked, "effect"): words.Effect,
    (ev.ToolInvoked, "approval"): words.Approval,
    (ev.ToolInvoked, "outcome"): words.Outcome,
    (ev.TurnEnded, "reason"): words.EndReason,
    (ev.ToolResult, "outcome"): words.Outcome,
    (ev.ToolResult, "via"): words.Via,
    (ev.GenResumed, "strategy"): words.Recovery,
    (ev.GenChunk, "kind"): words.ChunkKind,
}
KINDS = ("result", "context", "resume", "memory", "nothing")
STRATEGIES = ("full", "compacted", "sliding_window_2", "sliding_window_0", "unheard of")


class Chooser(Protocol):
    """A source of choices: a seed, or hypothesis, which shrinks a failing history."""

    def number(self, low: int, high: int) -> int: ...
    def pick(self, options: Any) -> Any: ...
    def chance(self, percent: int) -> bool: ...


class ForgedEvents:
    """Makes events of any type. `offset` and `at`: the offset and the time at the end of the
    log."""

    def __init__(self, choose: Chooser) -> None:
        self.choose = choose

    def event(self, offset: int, at: int) -> tuple[Any, str]:
        """An event of any type, and the role that writes it: mostly one that may write this
        type."""
        row = self.choose.pick(FORGED)
        others = ("producer", "sessions", "models", "tools", "background", "consumers", "")
        writer = self.choose.pick(others if self.choose.chance(15) else row.writers)
        return self.of(row.cls, offset, at), writer

    def of(self, cls: type, offset: int, at: int) -> Any:
        """An event of this class."""
        made = {f.name: self._field(cls, f.name, str(f.type), offset, at) for f in fields(cls)}
        return cls(**made)

    def _field(self, cls: type, name: str, kind: str, offset: int, at: int) -> Any:
        choose = self.choose
        if "None" in kind and choose.chance(50):
            return None
        if (cls, name) in WORDS:
            return choose.pick(tuple(WORDS[cls, name])).value
        return self._by_type(cls, name, kind, offset, at)

    def _by_type(self, cls: type, name: str, kind: str, offset: int, at: int) -> Any:
        choose = self.choose
        if "Body" in kind:
            # Workers' content enters requests unchecked: only people's content is validated.
            made = TEXTS_OF_TOOLS if cls is ev.ResultCompacted else ANSWERS
            return ev.Body(inline=choose.pick(CONTENTS if cls is ev.MessageReceived else made))
        if "ProposedCall" in kind:
            return ()  # no models role writes calls that do not match their content
        if "Trigger" in kind:
            return tuple(self._trigger() for _ in range(choose.number(0, 2)))
        if "Try" in kind:
            return tuple(self.of(ev.Try, offset, at) for _ in range(choose.number(0, 2)))
        if "AgentDigest" in kind:
            made = (ev.AgentDigest(name=choose.pick(IDS), digest="0" * 32) for _ in "ab")
            return tuple(made)
        if kind.startswith("tuple"):
            return tuple(choose.pick(IDS) for _ in range(choose.number(0, 2)))
        if "Usage" in kind:
            return ev.Usage(
                input_tokens=choose.number(0, 9), cache_read_tokens=0, cache_write_5m_tokens=0,
                cache_write_1h_tokens=0, output_tokens=1, raw=b"{}",
            )
        if "Budget" in kind:
            return ev.Budget(soft_tokens=1, hard_tokens=2)
        if "BlobRef" in kind:
            return ev.BlobRef(sha256="0" * 64, bytes=1, media_type="text/plain")
        if name == "params":
            return b"{}"
        if "bytes" in kind:
            return choose.pick((b"", b"{}", b"\x00\xff", b"12345678"))
        if "bool" in kind:
            return choose.chance(50)
        if "int" in kind:
            return self._int(name, offset, at)
        return self._text(name)

    def _trigger(self) -> ev.Trigger:
        choose = self.choose
        return ev.Trigger(
            trigger=choose.pick((None, *PHASE_TRIGGERS)),
            project_id=choose.pick((None, "p1", "p2", *ODD_IDS)),
        )

    def _int(self, name: str, offset: int, at: int) -> int:
        choose = self.choose
        match name:
            case "rules":
                return choose.pick((1, 1, 2))
            case "basis" | "epoch" | "offset" | "upto" | "checkpoint" | "compacted_upto":
                return choose.number(-1, offset + 2)
            case "kept_from":
                return choose.number(-1, 20)
            case "deadline" | "retry_at" | "expires_at" | "start_by":
                return at + choose.pick((-1000, 0, 60_000))
        return choose.number(0, 3)

    def _text(self, name: str) -> str:
        choose = self.choose
        match name:
            case "by_user" | "user_id":
                return choose.pick(("ana", "ana", "bob"))
            case "agent":
                return choose.pick(("helper", "unknown", "a b"))
            case "call":
                return choose.pick(CALLS)
            case "owner":
                return choose.pick(OWNERS)
            case "role":
                return choose.pick(("user", "assistant", "sessions", "models"))
            case "trigger":
                return choose.pick(PHASE_TRIGGERS)
            case "name":
                return choose.pick(("look", "charge", "no such tool", "\x00" * 300))
            case "stop_reason":
                return choose.pick(("end_turn", "tool_use", "max_tokens", "refusal", "pause_turn"))
            case "strategy":
                return choose.pick(STRATEGIES)
            case "kind":
                return choose.pick(KINDS)
            case "seen_phase":
                return choose.pick(("chatting", "building", "flying"))
        if name.endswith("_id"):
            return choose.pick(ODD_IDS if choose.chance(20) else IDS)
        return choose.pick(TEXTS)

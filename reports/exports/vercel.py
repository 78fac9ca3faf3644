"""Exports sessions as the Vercel AI SDK's tables of chats, messages and parts, with typed columns
and CHECK constraints.

Rows are in the order in which a person saw them: a message comes at the point at which it was sent,
even if the model got it later. An assistant message holds what one turn produced between two
incoming messages; its parts are step starts, reasoning, texts, and tool calls with their state.
Everything else that people saw (a lost attempt, a call in doubt, the reason why a turn ended) is a
part of the type `data-foldlog`.
"""

import re
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, assert_never

from ...client.printable import plain
from ...processors.fold.calls import CallStatus
from ...processors.fold.projections.ledger import Spent
from ...processors.fold.projections.transcript import Line
from ...schemas.enums import Outcome
from ...schemas.ids import call_key
from .blocks import Block, Contents, blocks, clean, strict_json, text_of as decoded, time
from .facts import CallFacts, SessionFacts
from .reading import Read
from .rows import ROLES
from .sqlite_file import Tables, json_text, schema

TOOLS_MAX = 400
"""The most tools that have their own columns, because SQLite allows 2,000.

Further tools are `dynamic-tool`.
"""
TYPES = tuple(
    "text reasoning file source_url source_document step-start dynamic-tool data-foldlog".split()
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CALLS = frozenset({"call", "asks", "result"})
"""Kinds of lines that the state of a tool's part expresses."""


def fill(read: Read, tables: Tables, contents: Contents) -> None:
    """Create and fill the tables."""
    names = (call.call.name for facts in read.sessions.values() for call in facts.calls.values())
    columns = tool_columns(names)
    tables.create(tables_sql(columns))
    for facts in read.sessions.values():
        _Chat(facts, tables, contents, columns).write()


def tool_columns(names: Iterable[str]) -> dict[str, str]:
    """The prefix of each tool's columns. Tools whose names differ only in case share columns."""
    found: dict[str, str] = {}
    by_lower: dict[str, str] = {}
    for name in sorted(set(names)):
        if _NAME.fullmatch(name) and (name.lower() in by_lower or len(by_lower) < TOOLS_MAX):
            found[name] = by_lower.setdefault(name.lower(), f"tool_{name}")
    return found


def tables_sql(columns: dict[str, str]) -> str:
    """The CREATE statements with a pair of columns and a check for each tool."""
    pairs = "\n  ".join(
        f'"{column}_input" JSON CHECK ("{column}_input" IS NULL OR json_valid("{column}_input")),\n'
        f'  "{column}_output" JSON CHECK '
        f'("{column}_output" IS NULL OR json_valid("{column}_output")),'
        for column in sorted(set(columns.values()))
    )
    checks = "\n  ".join(
        f'CONSTRAINT "tool_{name}_fields_required"\n'
        f"    CHECK (CASE WHEN type = 'tool-{name}'\n"
        f'           THEN "tool_toolCallId" IS NOT NULL AND tool_state IS NOT NULL '
        "ELSE TRUE END),"
        for name in columns
    )
    known = ", ".join(f"'{kind}'" for kind in (*TYPES, *(f"tool-{name}" for name in columns)))
    text = schema("vercel").replace("/* tools */", pairs).replace("/* checks */", checks)
    return text.replace("/* types */", f"type IN ({known})")


class _Chat:
    """Writes one session as a chat: tracks the current message, and the order of its parts."""

    def __init__(
        self, facts: SessionFacts, tables: Tables, contents: Contents, columns: dict[str, str]
    ) -> None:
        self._facts, self._tables, self._contents = facts, tables, contents
        self._columns, self._id = columns, facts.session_id
        self._seq = 0
        self._message: str | None = None
        self._turn: int | None = None
        self._order = 0
        self._messages_of_turn = dict[int, int]()
        self._spent: dict[tuple[int, int], list[Spent]] = {}
        for row in facts.views.ledger.spent:
            self._spent.setdefault((row.turn, row.step), []).append(row)

    def write(self) -> None:
        """Write the whole chat."""
        self._tables.add("chats", {"id": self._id})
        for line in self._facts.views.transcript.lines:
            match ROLES.get(line.kind):
                case "user":
                    self._user(line)
                case "assistant":
                    self._answer(line)
                case None if line.kind not in _CALLS:
                    self._other_line(line)

    def _begin(self, id: str, role: str, line: Line, metadata: dict[str, Any]) -> None:
        self._message, self._order = id, 0
        self._tables.add("messages", {
            "id": id,
            "chatId": self._id,
            "createdAt": time(line.at),
            "role": role,
            "metadata": json_text(metadata),
            "foldlog_seq": self._seq,
        })
        self._seq += 1

    def _part(self, kind: str, line: Line, **fields: Any) -> None:
        assert self._message is not None, "a part belongs to a message"
        self._tables.add("parts", {
            "id": f"{self._message}/{self._order}",
            "messageId": self._message,
            "type": kind,
            "createdAt": time(line.at),
            "order": self._order,
            **fields,
        })
        self._order += 1

    def _user(self, line: Line) -> None:
        entry = self._facts.messages.get(line.name)
        row = self._facts.views.messages.received.last(line.name)
        event = entry.event if entry is not None else None
        role = event.role if event is not None else "user"
        self._turn = None
        self._begin(f"{self._id}/{line.name}", role if role == "system" else "user", line, {
            "offset": line.offset,
            "role": role,
            "by_user": row.by_user if row is not None else None,
            "channel": getattr(event, "channel", None),
            "when_busy": getattr(event, "when_busy", None),
        })
        self._content(line)

    def _of_turn(self, line: Line) -> None:
        """Continue the assistant message of this line's turn. If this message is no longer the
        current message, begin another assistant message for the turn.
        """
        if self._turn == line.turn:
            return
        number = self._messages_of_turn.get(line.turn, 0)
        self._messages_of_turn[line.turn] = number + 1
        self._turn = line.turn
        name = f"{self._id}/turn/{line.turn}" + (f"/{number}" if number else "")
        self._begin(name, "assistant", line, {"turn": line.turn, "offset": line.offset})

    def _answer(self, line: Line) -> None:
        self._of_turn(line)
        self._part("step-start", line)
        self._content(line)
        key = (line.turn, line.step)
        self._note(line, "answer", {
            "step": line.step,
            "status": "partial" if line.kind == "partial" else "complete",
            "stop_reason": line.name,
            "model": self._facts.models.get(key),
            "spent": [plain(row) for row in self._spent.get(key, ())],
        })

    def _other_line(self, line: Line) -> None:
        """Add a line to the current message. The line is neither a message nor an answer, and it is
        not about a call.
        """
        if self._message is None:
            return  # before the first message; foldlog_events has this line
        body = self._contents.whole(line.body)
        names = ("turn", "step", "name", "call", "text")
        fields = {name: getattr(line, name) for name in names}
        self._note(line, line.kind, {**fields, "content": decoded(body) or None})

    def _note(self, line: Line, kind: str, data: dict[str, Any]) -> None:
        self._part(
            "data-foldlog",
            line,
            data_foldlog_kind=kind,
            data_foldlog_offset=line.offset,
            data_foldlog_data=json_text(data),
        )

    def _content(self, line: Line) -> None:
        content = self._contents.whole(line.body)
        if content is None:
            ref = line.body.ref if line.body is not None else None
            self._note(line, "missing", {"blob": plain(ref)})
            return
        uses = 0
        for block in blocks(content):
            match block.kind:
                case "text" if block.text("text") is not None:
                    self._part("text", line, text_text=block.text("text"), **_cited(block))
                case "thinking" if block.text("thinking") is not None:
                    signed = {"signature": block.text("signature")}
                    self._part("reasoning", line, reasoning_text=block.text("thinking"),
                               providerMetadata=json_text({"anthropic": signed}))
                case "redacted_thinking":
                    hidden = json_text({"anthropic": {"redactedData": block.text("data")}})
                    self._part("reasoning", line, reasoning_text="", providerMetadata=hidden)
                case "tool_use":
                    self._tool(line, block, uses)
                    uses += 1
                case "image" | "document" if block.attachment() is not None:
                    self._file(line, block)
                case _:
                    self._note(line, "block", {"raw": block.raw})

    def _file(self, line: Line, block: Block) -> None:
        ref = block.attachment()
        assert ref is not None
        data = self._contents.blob(ref)
        url = f"foldlog-blob:{ref.sha256}"
        if data is not None:
            url = f"data:{ref.media_type};base64,{b64encode(data).decode()}"
        self._part("file", line, file_mediaType=ref.media_type, file_url=url,
                   file_filename=block.text("title"))

    def _tool(self, line: Line, block: Block, index: int) -> None:
        known = self._facts.calls.get(call_key(line.turn, line.step, index))
        if known is None or line.name != "tool_use":
            self._note(line, "block", {"raw": block.raw})  # the call was cut off
            return
        call, column = known.call, self._columns.get(known.call.name)
        state, output, error = self._state(known)
        args = self._contents.whole(call.args)
        parsed = strict_json(args or b"")
        given = bytes(parsed).decode() if parsed is not None else json_text(decoded(args))
        fields = {f"{column or 'dynamic_tool'}_input": given}
        if output is not None:
            fields[f"{column or 'dynamic_tool'}_output"] = output
        if column is None:
            fields["dynamic_tool_toolName"] = call.name
        label = {"foldlog": {"call_id": call.call_id, "status": call.status,
                             "outcome": call.outcome, "raw": block.raw}}
        self._part(
            f"tool-{call.name}" if column is not None else "dynamic-tool",
            line,
            tool_toolCallId=call.key,
            tool_state=state,
            tool_errorText=error,
            **fields,
            providerMetadata=json_text(label),
        )

    def _state(self, known: CallFacts) -> tuple[str, str | None, str | None]:
        """(state, output as JSON, error) of a call, as the SDK's UI shows it."""
        call, result = known.call, known.results[-1].event if known.results else None
        invoked = known.invoked.event if known.invoked is not None else None
        body = result.content if result is not None else getattr(invoked, "content", None)
        text = decoded(self._contents.whole(body)) if body is not None else ""
        notice = (known.fragment.text if known.fragment is not None else "").strip()
        output = strict_json((text or "").encode("utf-8", "replace"))
        shown = bytes(output).decode() if output is not None else json_text(text)
        match call.status:
            case CallStatus.PROPOSED | CallStatus.ALLOWED | CallStatus.STARTED:
                responded = call.status == CallStatus.ALLOWED and call.decision
                return "approval-responded" if responded else "input-available", None, None
            case CallStatus.ASKS:
                return "approval-requested", None, None
            case CallStatus.DOUBT | CallStatus.CONTRADICTED:
                why = known.doubts[-1].event.reason if known.doubts else notice
                return "output-error", None, f"Outcome unknown: {why}"
            case CallStatus.DONE:
                pass
            case _:
                assert_never(call.status)
        if call.outcome == Outcome.OK:
            return "output-available", shown if body is not None else json_text(notice), None
        if call.decision in ("deny", "expired"):
            return "output-denied", None, notice or None
        missing = "" if text is not None else "[content is missing]"
        return "output-error", None, clean("\n".join(
            part for part in (text or missing, notice) if part) or call.outcome)


def _cited(block: Block) -> dict[str, Any]:
    """The fields of a text block besides its type and text, such as citations."""
    more = {name: value for name, value in block.fields.items() if name not in ("type", "text")}
    return {"providerMetadata": json_text({"anthropic": more})} if more else {}


"""Encodes the output of one attempt as AG-UI events: what each token opens, adds and closes.

The text and the calls of a step go into one message, and each thought goes into its own message.
"""

from typing import Any

from ....client.transcript_stream import Attempt, Token
from ....schemas.ids import call_key
from .messages import Event, Message, Messages, answer_id, event, thought_id


class AttemptOutput:
    """The output of one attempt so far, and which of its parts are open at the client."""

    def __init__(self, thread: str, of: Attempt) -> None:
        self.of = of
        self._place = (thread, of.turn, of.step)
        self._text = False
        self._thought: str | None = None
        self._call: dict[str, str] | None = None
        self._block: int | None = None
        self._thoughts: list[int] = []  # block numbers, in order of arrival
        self._uses = 0

    def message_ids(self) -> list[str]:
        """The ids of all messages that may have been started."""
        thoughts = [thought_id(*self._place, n) for n in range(len(self._thoughts))]
        return [*thoughts, answer_id(*self._place)]

    def take(self, token: Token) -> list[Event]:
        """The events for a token."""
        out = [] if token.block == self._block else self._block_ends()
        self._block = token.block
        match token.kind:
            case "text":
                if not self._text:
                    self._text = True
                    out.append(self._text_event("START", role="assistant"))
                out.append(self._text_event("CONTENT", delta=token.text))
            case "thinking":
                if self._thought is None:
                    self._thought = self._numbered(token.block)
                    out += _thought_starts(self._thought)
                fields = {"messageId": self._thought, "delta": token.text}
                out.append(event("REASONING_MESSAGE_CONTENT", **fields))
            case "tool_name":
                key = call_key(self.of.turn, self.of.step, self._uses)
                self._call = {"toolCallId": key, "toolCallName": token.text}
                self._uses += 1
                out.append(self._call_start(self._call))
            case "tool_input" if self._call is not None:
                out.append(_arguments(self._call["toolCallId"], token.text))
        return out

    def rest_of_calls(self, want: list[Message], have: Messages) -> list[Event]:
        """The events for those calls of a final answer that were not streamed, and for the missing
        part of the open call.
        """
        out: list[Event] = []
        for call in (call for message in want for call in message.get("toolCalls", ())):
            key, function = call["id"], call["function"]
            streamed = have.call(key)
            if streamed is None:
                ids = {"toolCallId": key, "toolCallName": function["name"]}
                arguments = _arguments(key, function["arguments"])
                out += [self._call_start(ids), arguments, _call_end(key)]
            elif self._call is not None and self._call["toolCallId"] == key:
                sent, whole = streamed["function"]["arguments"], function["arguments"]
                if whole != sent and whole.startswith(sent):
                    out.append(_arguments(key, whole.removeprefix(sent)))
        return out

    def ends(self) -> list[Event]:
        """The events that close all open parts."""
        return [*self._closing(), *([self._text_event("END")] if self._text else ())]

    def reopened(self) -> list[Event]:
        """The events that reopen the open parts, for a client that joins late and already has the
        text of these parts.
        """
        out = [self._text_event("START", role="assistant")] if self._text else []
        if self._thought is not None:
            out += _thought_starts(self._thought)
        if self._call is not None:
            out.append(self._call_start(self._call))
        return out

    def _block_ends(self) -> list[Event]:
        closing = self._closing()
        self._thought = self._call = None
        return closing

    def _closing(self) -> list[Event]:
        """The events that close the open block; a text stays open, because the next text block
        continues it.
        """
        out: list[Event] = []
        if self._thought is not None:
            out.append(event("REASONING_MESSAGE_END", messageId=self._thought))
            out.append(event("REASONING_END", messageId=f"{self._thought}/span"))
        if self._call is not None:
            out.append(_call_end(self._call["toolCallId"]))
        return out

    def _numbered(self, block: int) -> str:
        if block not in self._thoughts:
            self._thoughts.append(block)
        return thought_id(*self._place, self._thoughts.index(block))

    def _text_event(self, what: str, **fields: Any) -> Event:
        return event(f"TEXT_MESSAGE_{what}", messageId=answer_id(*self._place), **fields)

    def _call_start(self, ids: dict[str, str]) -> Event:
        return event("TOOL_CALL_START", **ids, parentMessageId=answer_id(*self._place))


def _thought_starts(message_id: str) -> list[Event]:
    return [
        event("REASONING_START", messageId=f"{message_id}/span"),
        event("REASONING_MESSAGE_START", messageId=message_id, role="reasoning"),
    ]


def _arguments(key: str, delta: str) -> Event:
    return event("TOOL_CALL_ARGS", toolCallId=key, delta=delta)


def _call_end(key: str) -> Event:
    return event("TOOL_CALL_END", toolCallId=key)

"""The script of a test: a list of the model's answers, one for each request.

    script=[says("Let me check.") + calls("look_up", order=17), says("It is on its way.")]

A request that is repeated after a crash of a worker gets the same answer again. Summaries and other
background requests do not use up answers.
"""

import difflib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..client.printable import blocks_of, whole
from ..local.messages_api import FAULTS, Reply, Request, text, thinking, tool_use
from ..log.bundle_file import read_bundle
from ..log.errors import Refused
from ..processors.agent import Agent
from ..processors.tools.tiers import resolve
from ..processors.tools.tool import check_args
from ..schemas import events as ev
from ..schemas.codec import entry_of

BACKGROUND = "(a short form of what came before)"


@dataclass(frozen=True)
class Scripted:
    """One answer.

    Join parts with `+`. `failure`: the error with which the model call fails instead.
    `is_checked`: whether a call that the agent cannot run is a mistake of the test.
    """

    blocks: tuple[dict[str, Any], ...] = ()
    failure: str = ""
    is_checked: bool = True

    def __add__(self, other: "Scripted") -> "Scripted":
        if self.failure or other.failure:
            raise TypeError("fails() is an answer of its own and cannot be joined to others")
        checked = self.is_checked and other.is_checked
        return Scripted((*self.blocks, *other.blocks), is_checked=checked)

    def unchecked(self) -> "Scripted":
        """The same answer, which may call a tool that does not exist, or with wrong arguments: the
        agent refuses such a call, and the model reads why."""
        return replace(self, is_checked=False)


def says(words: str) -> Scripted:
    """The model answers with a text."""
    return Scripted((text(words),))


def thinks(words: str) -> Scripted:
    """The model thinks before it answers."""
    return Scripted((thinking(words),))


def calls(tool: str, /, **arguments: Any) -> Scripted:
    """The model calls a tool."""
    return Scripted((tool_use(tool, arguments),))


def fails(error: str = "overloaded") -> Scripted:
    """The model call fails once, and its next attempt gets the next answer. error: the name of a
    failure, such as overloaded, rate_limit, server_error, bad_request or cut (a stream that
    breaks): docs/reference/testing.md lists them.
    """
    if error not in FAULTS:
        raise Refused(f"{error!r} is not a failure; the failures are {', '.join(FAULTS)}")
    return Scripted(failure=error)


def from_session(bundle: Path | str) -> list[Scripted]:
    """The model's answers in a recorded session, in order, from the file that `foldlog export
    SESSION --format bundle -o FILE` writes. Raises BadBundle if the file is not such a bundle."""
    found = read_bundle(Path(bundle))
    events = (entry_of(record).event for record in found.records)
    completed = (event for event in events if isinstance(event, ev.GenComplete))
    contents = (whole(event.content, lambda ref: found.blob(ref.sha256)) for event in completed)
    return [Scripted(tuple(map(_replayed, blocks_of(content)))) for content in contents]


def _replayed(recorded: dict[str, Any]) -> dict[str, Any]:
    """A recorded block in the form in which a new answer may contain it. The signature is removed,
    because the server adds its own."""
    match recorded:
        case {"type": "text", "text": str(words)}:
            return text(words)
        case {"type": "thinking", "thinking": str(words)}:
            return thinking(words)
        case {"type": "tool_use", "name": str(name), "input": arguments}:
            return tool_use(name, arguments)
    return recorded


class AnswersUnused(UserWarning):
    """The test ended before the model was asked for every answer of the script."""


class ScriptExhausted(Refused):
    """The model got more requests than the script has answers."""


def _checked(script: Iterable[Scripted | str], agents: Sequence[Agent]) -> list[Scripted]:
    """The answers of a script. Raises Refused if they contain calls that no agent can run."""
    if isinstance(script, Scripted | str) or not isinstance(script, Iterable):
        raise Refused(f"script= is a list of answers, not {script!r}. Write script=[...].")
    answers = [says(item) if isinstance(item, str) else item for item in script]
    for number, answer in enumerate(answers, 1):
        if not isinstance(answer, Scripted):
            raise Refused(
                f"answer {number} of script= is {answer!r}. An answer is a text, or what says(), "
                "calls(), thinks() or fails() of foldlog.testing make"
            )
        called = [block for block in answer.blocks if block["type"] == "tool_use"]
        for block in called if answer.is_checked else ():
            if why := _why_refused(block["name"], block["raw_input"].encode(), agents):
                raise Refused(
                    f"answer {number} of script= calls {why}. If the test is about such a call, "
                    "write .unchecked() after the answer"
                )
    return answers


def _why_refused(name: str, raw: bytes, agents: Sequence[Agent]) -> str:
    """Why every agent would refuse a call; '' if one of them would run it."""
    having = [agent for agent in agents if agent.tool(name) is not None]
    if not having:
        tools = [tool.name for agent in agents for tool in agent.tools]
        close = difflib.get_close_matches(name, tools, 1)
        hint = f", did you mean {close[0]}?" if close else "."
        known = ", ".join(tools) or "none"
        return f"{name}, which no agent of the run has{hint} Their tools: {known}"
    reasons: list[str | None] = []
    for agent in having:
        tool, why = resolve(agent, name, raw)
        reasons.append(why if tool is None else check_args(tool, raw))
    return f"{name} wrongly: {reasons[0]}" if all(reasons) else ""


class Answers:
    """Gives each request its answer from the script, in the thread of the scripted Messages API."""

    def __init__(self, script: Iterable[Scripted | str], agents: Sequence[Agent]) -> None:
        self.script = _checked(script, agents)
        self.exhausted = ""
        self._used = 0
        self._given: dict[str, tuple[int | None, Scripted]] = {}
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Reply:
        """The reply to a request."""
        with self._lock:
            if request.generation is None:
                return Reply([text(BACKGROUND)])
            label = (request.attempt_header or "").rpartition(".")[0]
            answer = self._answer_to(label, request.attempt)
        if answer.failure:
            return Reply([text("")], fault=answer.failure)
        return Reply(answer.blocks)

    def _answer_to(self, label: str, attempt: int | None) -> Scripted:
        before = self._given.get(label)
        if before is not None and (before[0] == attempt or not before[1].failure):
            return before[1]
        if self._used == len(self.script):
            self.exhausted = label
            return Scripted(failure="bad_request")
        answer = self.script[self._used]
        self._used += 1
        self._given[label] = (attempt, answer)
        return answer

    def unused(self) -> int:
        """How many answers are left."""
        return len(self.script) - self._used

    def demand_enough(self) -> None:
        """Raise ScriptExhausted if the model got more requests than there are answers."""
        if self.exhausted:
            count = len(self.script)
            raise ScriptExhausted(
                f"the script has {count} answer{'s' if count != 1 else ''}, and the model was "
                f"asked for one more (step {self.exhausted.rpartition(' ')[2]}). Add an answer to "
                "script=, or let the last one call no tool."
            )

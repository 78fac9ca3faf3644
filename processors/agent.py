"""An agent: the model, prompt, tools, limits and rules of the sessions that name it.

All workers of an installation load the same agents. An agent is data, validated when it is created,
so that a mistake prevents the start of a worker instead of failing a user's turn.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from ..schemas.canonical import compact_strict
from ..schemas.enums import Approval, Recovery
from ..schemas.ids import is_id, why_not_an_id
from ..schemas.tokens import estimate, family_of
from .fold.cut_points import window_size
from .fold.transitions import FIRST_PHASE, phases_of
from .limits import DEFAULT_LIMITS, Limits
from .mcp_server import McpServer
from .tools.by_reference import demand_importable
from .tools.tiers import SCHEMA_TOKENS, USE, arranged, tools_json
from .tools.tool import SEARCH, Tool

# The decisions of a rule, and the approval each gives a call.
DECISIONS = {"allow": Approval.NONE, "ask": Approval.ASK, "deny": Approval.DENY}
THINKING_TOKENS_MIN = 1_024  # the smallest budget that the API accepts
SHOWN_MAX = 60  # characters of a wrong value in an error
# Members of a request that foldlog sets itself. A second `compaction` or `cache_control` would turn
# every request into another one, or exceed the number of cache marks that the API accepts.
_OUR_PARAMS = frozenset(
    ("model", "max_tokens", "system", "tools", "messages", "stream", "cache_control", "compaction")
)
# Arguments of the SDK's functions. foldlog sends `params` as the body of the request, so the API
# would reject them.
_SDK_ARGUMENTS = frozenset(("betas", "extra_body", "extra_headers", "extra_query", "timeout"))


class Rule(NamedTuple):
    """A permission rule: the decision (allow, ask or deny) for tools whose name matches a glob.
    `phases`: the phases in which the rule applies; empty means all."""

    tools: str
    decision: str
    phases: tuple[str, ...] = ()

    def covers(self, name: str) -> bool:
        """Whether the rule is about the tool of this name."""
        return fnmatchcase(name, self.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """How results and conversations that are too long are shortened. `model`: the model that
    writes the short forms and summaries; a cheap one, because it reads much and writes little.
    `provider`: if true, and if the agent's own model supports it, that model writes the summaries
    instead, and the provider signs them.
    """

    model: str = "claude-haiku-5-5"
    provider: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The settings of all sessions that run this agent.

    `permissions`: rules in order; the first rule that matches a tool's name and the phase overrides
    the tool's own default. `params`: further request parameters, such as thinking. `workdir`: the
    directory that the tools read and write. `strategy`: how the model's context is built: full,
    sliding_window_N or compacted. `instructions`: whether the instruction files of the user and of
    workdir are read (the managed file always is). `directive`: the most important instruction, at
    the end of the system prompt. `tools`: the tools that the model may call. `tool_schema_tokens`:
    the limit on the schemas of all tools together in a request; tools whose schemas do not fit, and
    tools that are marked rare, are left out of requests, and the model finds them by a search.
    `mcp`: servers whose tools a worker adds when it starts. `recovery`: what happens to an answer
    whose worker died. With replace, the model starts the answer over; with resume, the model
    continues the answer if it consists of text. `memory`: whether the agent has long-term memory,
    which is in its prompt, is available to its tools, and is extracted after turns. Raises
    TypeError or ValueError, whose text names the mistake.
    """

    name: str
    model: str
    system: str = ""
    tools: tuple[Tool, ...] = ()
    mcp: tuple[McpServer, ...] = ()
    tool_schema_tokens: int = SCHEMA_TOKENS
    limits: Limits = DEFAULT_LIMITS
    max_output_tokens: int = 8_192
    permissions: tuple[Rule, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    workdir: Path | None = None
    instructions: bool = True
    directive: str = ""
    strategy: str = "compacted"
    compaction: Compaction = Compaction()
    memory: bool = False
    _params: bytes = field(default=b"", init=False, repr=False, compare=False)
    recovery: str = Recovery.REPLACE

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not is_id(self.name):
            raise ValueError(why_not_an_id("the name of an agent", str(self.name)))
        _set(self, mcp=_servers(self))
        _set(self, tools=_arranged(self))
        _set(self, permissions=_rules(self))
        if self.workdir is not None:
            _set(self, workdir=Path(self.workdir).absolute())
        self._check_types()
        self._check_numbers()
        if not isinstance(self.model, str) or not self.model.strip():
            raise ValueError(f"agent {self.name} needs the name of a model")
        self._check_prompt()
        try:
            if not isinstance(self.strategy, str):
                raise ValueError(f"strategy must be a string, not {_cut(self.strategy)}")
            window_size(self.strategy)
        except ValueError as error:
            raise ValueError(f"agent {self.name}: {error}") from None
        if self.recovery not in list(Recovery):
            words = " or ".join(Recovery)
            raise ValueError(f"agent {self.name}: recovery is {words}, not {self.recovery!r}")
        self._check_params()
        self._check_thinking()
        _set(self, _params=self._params_json())
        self._check_cache_marks()

    def tool(self, name: str) -> Tool | None:
        """The tool of this name, or None if the agent has none."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def approval(self, name: str, phase: str = FIRST_PHASE) -> Approval:
        """Whether a call of this tool in this phase runs, needs approval or is denied. The tool's
        own `phases` are checked before. Raises KeyError if the agent has no such tool."""
        for rule in self.permissions:
            if rule.covers(name) and (not rule.phases or phase in rule.phases):
                return DECISIONS[rule.decision]
        found = self.tool(name)
        if found is None:
            raise KeyError(f"agent {self.name} has no tool {name!r}")
        return found.approval

    def depends_on_phase(self, tool: Tool) -> bool:
        """Whether the decision on a call of the tool depends on the session's phase."""
        return bool(tool.phases) or any(
            rule.phases and rule.covers(tool.name) for rule in self.permissions
        )

    def tools_json(self) -> bytes:
        """The tool schemas of a request, as compact JSON: the same bytes for the same tools."""
        return tools_json(self.tools)

    def params_json(self) -> bytes:
        """The parameters of a request except model, system, tools and messages, as compact JSON."""
        return self._params

    def _params_json(self) -> bytes:
        try:
            return compact_strict({"max_tokens": self.max_output_tokens, **self.params}).encode()
        except (TypeError, ValueError) as error:
            raise TypeError(f"params of agent {self.name} are not JSON: {error}") from error

    def _check_types(self) -> None:
        for what, kind in (("limits", Limits), ("compaction", Compaction)):
            given = getattr(self, what)
            if not isinstance(given, kind):
                wanted = f"{kind.__name__}(...), not {_cut(given)}"
                raise TypeError(f"agent {self.name}: {what} must be {wanted}")
        if not isinstance(self.compaction.model, str) or not self.compaction.model.strip():
            raise ValueError(f"agent {self.name}: compaction needs the name of a model")
        switches = {what: getattr(self, what) for what in ("instructions", "memory")}
        switches["compaction.provider"] = self.compaction.provider
        for what, given in switches.items():
            if not isinstance(given, bool):
                wrong = f"{what} must be True or False, not {_cut(given)}"
                raise TypeError(f"agent {self.name}: {wrong}")

    def _check_numbers(self) -> None:
        numbers = {f"limits.{f.name}": getattr(self.limits, f.name) for f in fields(Limits)}
        numbers["max_output_tokens"] = self.max_output_tokens
        numbers["tool_schema_tokens"] = self.tool_schema_tokens
        for name, number in numbers.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError(f"agent {self.name}: {name} must be 1 or more, not {number!r}")
        if self.limits.soft_tokens > self.limits.hard_tokens:
            raise ValueError(f"agent {self.name}: soft_tokens must not exceed hard_tokens")

    def _check_params(self) -> None:
        if not isinstance(self.params, Mapping):
            wrong = f"params must be a dict, not {_cut(self.params)}"
            raise TypeError(f"agent {self.name}: {wrong}")
        for names, why in (
            (_OUR_PARAMS, "which foldlog sets itself"),
            (_SDK_ARGUMENTS, "which only the SDK's functions have: params are the request's body"),
        ):
            reserved = sorted(names & set(self.params))
            if reserved:
                wrong = f"params must not set {', '.join(reserved)}, {why}"
                raise ValueError(f"agent {self.name}: {wrong}")

    def _check_cache_marks(self) -> None:
        """Rejects a cache mark inside a parameter. A request may have at most four cache marks, and
        foldlog sets up to four itself. The property `cache_control` of an output schema is no
        mark."""
        layer: list[Any] = [json.loads(self._params)]
        while layer:
            maps = [value for value in layer if isinstance(value, dict)]
            for mark in (each.get("cache_control") for each in maps):
                if isinstance(mark, dict) and mark.get("type") == "ephemeral":
                    wrong = "params must not set cache_control, which foldlog sets itself"
                    raise ValueError(f"agent {self.name}: {wrong}")
            members: list[Iterable[Any]] = [each.values() for each in maps]
            members += [value for value in layer if isinstance(value, list)]
            layer = [value for group in members for value in group]

    def _check_thinking(self) -> None:
        """Rejects a thinking budget that leaves no tokens for the answer, as the API would."""
        thinking = self.params.get("thinking")
        if not isinstance(thinking, Mapping) or thinking.get("type") != "enabled":
            return
        budget: Any = thinking.get("budget_tokens")
        most = self.max_output_tokens
        is_number = isinstance(budget, int) and not isinstance(budget, bool)
        if not is_number or not THINKING_TOKENS_MIN <= budget < most:
            raise ValueError(
                f"agent {self.name}: budget_tokens of its thinking must be at least "
                f"{THINKING_TOKENS_MIN} and below max_output_tokens ({most}), not {_cut(budget)}"
            )

    def _check_prompt(self) -> None:
        for what in ("system", "directive"):
            if not isinstance(getattr(self, what), str):
                raise TypeError(f"the {what} prompt of agent {self.name} must be text")
        family, most = family_of(self.model), self.limits.hard_tokens
        tokens = estimate(self.system, family) + estimate(self.directive, family)
        if tokens > most:  # every turn except the first would end with budget_exceeded
            raise ValueError(
                f"agent {self.name}: its prompt has about {tokens} tokens, and no request may have "
                f"more than {most} (limits.hard_tokens)"
            )


def _set(agent: Agent, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(agent, name, value)


def _tools(agent: Agent) -> tuple[Tool, ...]:
    tools = tuple(_many(agent, "tools", agent.tools))
    seen: set[str] = set()
    for tool in tools:
        if not isinstance(tool, Tool):
            shown = getattr(tool, "__name__", repr(tool))
            raise TypeError(f"agent {agent.name}: {shown} is not a tool, decorate it with @tool")
        if tool.name in seen:
            raise ValueError(f"agent {agent.name} has two tools named {tool.name!r}")
        seen.add(tool.name)
        if tool.isolate:
            _demand_importable(agent, tool)
    if agent.memory is True:  # any other value is rejected later
        from .tools.memory import with_memory_tools  # imported only for agents with memory

        try:
            return with_memory_tools(tools)
        except ValueError as error:
            raise ValueError(f"agent {agent.name}: {error}") from None
    return tools


def _demand_importable(agent: Agent, tool: Tool) -> None:
    try:
        demand_importable(tool)
    except ValueError as error:
        raise ValueError(f"agent {agent.name}: {error}") from None


def _arranged(agent: Agent) -> tuple[Tool, ...]:
    tools = arranged(_tools(agent), agent.tool_schema_tokens)
    search = {tool.name for tool in tools if tool.tier == SEARCH}
    clash = next((tool.name for tool in tools if tool.name in search and tool.tier != SEARCH), None)
    if clash is not None:  # two tools of one name: the provider rejects every request
        raise ValueError(
            f"agent {agent.name}: the name {clash!r} is reserved for the tool search, which finds "
            "tools that are rare or do not fit; rename your tool"
        )
    return tools


def _servers(agent: Agent) -> tuple[McpServer, ...]:
    servers = tuple(_many(agent, "mcp", agent.mcp))
    for server in servers:
        if not isinstance(server, McpServer):
            raise TypeError(f"agent {agent.name}: {server!r} is not an McpServer")
    names = [server.name for server in servers]
    if len(set(names)) < len(names):
        raise ValueError(f"agent {agent.name} has two MCP servers of the same name")
    return servers


def _rules(agent: Agent) -> tuple[Rule, ...]:
    rules = []
    for given in _many(agent, "permissions", agent.permissions):
        try:
            rule = Rule(*given)
        except TypeError:
            raise TypeError(
                f"agent {agent.name}: the rule {given!r} is not (tools, decision) or (tools, "
                "decision, phases)"
            ) from None
        what = f"agent {agent.name}: phases of the rule for {rule.tools!r}"
        rule = rule._replace(phases=phases_of(rule.phases, what))
        if rule.decision not in DECISIONS:
            raise ValueError(
                f"agent {agent.name}: the rule for {rule.tools!r} has {rule.decision!r}, which is "
                f"not one of {', '.join(DECISIONS)}"
            )
        if rule.tools == USE:
            raise ValueError(f"agent {agent.name}: a rule must name the tool itself, not {USE}")
        of_server = any(rule.tools.startswith(server.prefix) for server in agent.mcp)
        known = of_server or agent.tool(rule.tools) is not None
        if not any(c in rule.tools for c in "*?[") and not known:
            # A misspelt `deny` would silently allow.
            raise ValueError(
                f"agent {agent.name}: one of its rules is for tool {rule.tools!r}, which it does "
                "not have"
            )
        rules.append(rule)
    return tuple(rules)


def _many(agent: Agent, what: str, given: Any) -> Iterable[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"agent {agent.name}: {what} must be a list, not {_cut(given)}")
    return given


def _cut(given: Any) -> str:
    shown = repr(given)
    return shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}..."

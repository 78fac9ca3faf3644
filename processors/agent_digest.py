"""Digests of agents, by which workers compare the agents they serve.

A digest covers the settings that affect the log: the model and its parameters, the prompt, the
tools, the limits. It excludes settings that differ between machines (directories, the code of
functions) and secrets (addresses, headers and variables of MCP servers). It is computed from
canonical JSON, so every process and every version of Python computes the same digest.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from ..schemas.canonical import compact_ascii_sorted
from ..schemas.events.parts import AgentDigest
from .agent import Agent, Rule
from .limits import DEFAULT_LIMITS, Limits
from .mcp_server import McpServer
from .tools.tool import Tool

PART_CHARS = 8  # hex characters of each part
SHOWN_MAX = 5  # differing agents that are named
ADDED = ("ping_timeout_ms",)  # limits that are younger than the digest


def parts_of(agent: Agent) -> dict[str, Any]:
    """The settings that a digest covers, as JSON values by name. The digests of the parts are
    joined in this order."""
    return {
        "model": {
            "model": agent.model,
            "params": json.loads(agent.params_json()),
            "strategy": agent.strategy,
            "recovery": str(agent.recovery),
            "compaction": asdict(agent.compaction),
        },
        "prompt": {
            "system": agent.system,
            "directive": agent.directive,
            "instructions": agent.instructions,
            "memory": agent.memory,
        },
        "tools": {
            "tools": [_tool(tool) for tool in agent.tools],
            "mcp": [_server(server) for server in agent.mcp],
            "permissions": [_rule(rule) for rule in agent.permissions],
            "schema_tokens": agent.tool_schema_tokens,
        },
        "limits": _limits(agent.limits),
    }


def _limits(limits: Limits) -> dict[str, int]:
    """The limits without those of ADDED that have their default: versions without them compute the
    same digest."""
    return {
        name: value
        for name, value in asdict(limits).items()
        if name not in ADDED or value != getattr(DEFAULT_LIMITS, name)
    }


def _rule(rule: Rule) -> list[Any]:
    """The rule; without phases as in versions that did not know them."""
    named = [rule.tools, str(rule.decision)]
    return [*named, list(rule.phases)] if rule.phases else named


def _tool(tool: Tool) -> dict[str, Any]:
    phases = {"phases": list(tool.phases)} if tool.phases else {}  # as in versions without phases
    return {
        **tool.entry,
        "effect": str(tool.effect),
        "approval": str(tool.approval),
        "timeout_ms": tool.timeout_ms,
        "result_tokens": tool.result_tokens,
        "cache_ttl_ms": tool.cache_ttl_ms,
        "stops": tool.stops,
        "tier": tool.tier,
        "reconciles": tool.reconciler is not None,
        "compacts": tool.compactor is not None,
        **phases,
    }


def _server(server: McpServer) -> dict[str, Any]:
    return {
        "name": server.name,
        "allow": server.allow,
        "rare": server.rare,
        "effects": list(server.effects.items()),  # the first that matches counts
        "approvals": list(server.approvals.items()),
        "trust_hints": server.trust_hints,
        "timeout_s": float(server.timeout_s),
    }


PARTS = ("model", "prompt", "tools", "limits")


def digest_of(agent: Agent) -> AgentDigest:
    """The agent's name and the concatenated digests of its parts."""
    parts = parts_of(agent)
    assert tuple(parts) == PARTS
    return AgentDigest(name=agent.name, digest="".join(map(_hex, parts.values())))


def _hex(value: Any) -> str:
    return sha256(compact_ascii_sorted(value).encode()).hexdigest()[:PART_CHARS]


def digests_of(agents: Iterable[Agent]) -> tuple[AgentDigest, ...]:
    """The digests of several agents, sorted by name."""
    return tuple(sorted(map(digest_of, agents), key=lambda agent: agent.name))


def digest_of_all(agents: Iterable[AgentDigest]) -> str:
    """One digest of a set of agents, 16 hex characters."""
    named = sorted((agent.name, agent.digest) for agent in agents)
    return sha256(json.dumps(named).encode()).hexdigest()[:16]


def differences(
    ours: Iterable[AgentDigest], theirs: Iterable[AgentDigest],
    our_place: str = "here", their_place: str = "there",
) -> list[str]:
    """The differences between our agents and another worker's, one line per agent."""
    here, there = _by_name(ours), _by_name(theirs)
    found = []
    for name in sorted(here.keys() | there.keys()):
        if name not in there:
            found.append(f"agent {name} is only {our_place}")
        elif name not in here:
            found.append(f"agent {name} is only {their_place}")
        elif here[name] != there[name]:
            found.append(f"agent {name} has another {_parts(here[name], there[name])}")
    more = len(found) - SHOWN_MAX
    return found if more <= 0 else [*found[:SHOWN_MAX], f"and {more} more"]


def _by_name(agents: Iterable[AgentDigest]) -> Mapping[str, str]:
    return {agent.name: agent.digest for agent in agents}


def _parts(here: str, there: str) -> str:
    starts = [number * PART_CHARS for number in range(len(PARTS))]
    pairs = zip(PARTS, starts, strict=True)
    which = [
        part for part, start in pairs
        if here[start : start + PART_CHARS] != there[start : start + PART_CHARS]
    ]
    return " and ".join(which) or "digest"

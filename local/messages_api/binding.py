"""Checks preserved thinking and compaction: seals bind a block to the conversation before it.

This file defines a prefix (system, tools and every earlier block, without cache marks) and checks
the sealed blocks that a request sends back.

A thinking block is bound to the hash chain of all earlier blocks that are not thinking, and to the
thinking block before it. So thinking may be removed from the front, but not from the middle, and
nothing else may change. A compaction block contains the hash chain of the blocks that it replaces,
so that later turns still match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .errors import invalid
from .models import facts_of
from .request import blocks_of
from .seal import canonical, digest, seal, unseal
from .shape import BINDING_BETA

THINKING = ("thinking", "redacted_thinking")
COMPACTION_BETA = "compact-2026-09-04"
# The value of a chain that cannot be continued. It differs from every digest.
_BROKEN = "broken"

Transformation = dict[str, str]


@dataclass(frozen=True, slots=True)
class Prefix:
    """Digests of everything before a place in a conversation."""

    system: str
    tools: str
    chain: str = ""
    thinking: str = ""
    role: str = ""
    compacted: bool = False

    def after(self, role: str, block: Mapping[str, Any]) -> Prefix:
        """The prefix of the place after this block."""
        if block.get("type") == "compaction":
            return self._after_compaction(block)
        # The block after a compaction must have another role than the last block it covers.
        chain = _BROKEN if self.compacted and role in (self.role, "system") else self.chain
        if block.get("type") in THINKING:
            mark = _mark(block)
            return replace(self, chain=chain, thinking=mark, role=role, compacted=False)
        chain = digest(chain.encode(), role.encode(), canonical(block))
        return replace(self, chain=chain, role=role, compacted=False)

    def _after_compaction(self, block: Mapping[str, Any]) -> Prefix:
        sealed = unseal(block.get("signature"))
        if block.get("content") is None or sealed is None:
            return self
        covered = {key: sealed[key] for key in ("chain", "thinking", "role")}
        return replace(self, **covered, compacted=True)


def _mark(block: Mapping[str, Any]) -> str:
    return digest((block.get("signature") or block.get("data") or "").encode())


def places(body: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(path, role, block) of every block of the messages."""
    for i, message in enumerate(body["messages"]):
        for j, block in enumerate(blocks_of(message["content"])):
            yield f"messages.{i}.content.{j}", message["role"], block


def first_prefix(body: Mapping[str, Any]) -> Prefix:
    """The prefix of the first message: system and tools, without deferred tools."""
    tools = [tool for tool in body.get("tools") or () if not tool.get("defer_loading")]
    return Prefix(digest(canonical(blocks_of(body.get("system")))), digest(canonical(tools)))


def last_prefix(body: Mapping[str, Any]) -> Prefix:
    """The prefix of the model's next block."""
    prefix = first_prefix(body)
    for _, role, block in places(body):
        prefix = prefix.after(role, block)
    return prefix


def sign_thinking(block: Mapping[str, Any], prefix: Prefix, model: str) -> dict[str, Any]:
    """The block with its seal: `signature`, or `data` if the thinking is redacted."""
    shown = block.get("thinking", "")
    sealed = seal(
        {
            "kind": block["type"],
            "model": model,
            "system": prefix.system,
            "tools": prefix.tools,
            "chain": prefix.chain,
            "thinking": prefix.thinking,
            "shown": digest(shown.encode()),
            "inner": block.get("data"),
        }
    )
    return {**block, "signature" if block["type"] == "thinking" else "data": sealed}


def sign_compaction(block: Mapping[str, Any], prefix: Prefix) -> dict[str, Any]:
    """The block with its signature; a failed compaction (content null) gets none."""
    if block.get("content") is None:
        return {**block, "content": None}
    payload = {
        "kind": "compaction",
        "chain": prefix.chain,
        "thinking": prefix.thinking,
        "role": prefix.role,
        "content": digest(block["content"].encode()),
    }
    return {**block, "signature": seal(payload)}


def check_binding(body: Mapping[str, Any], betas: frozenset[str]) -> list[Transformation]:
    """Check every sealed block, and return the dropped blocks for `input_transformations`.

    Raises ApiError (400) for a block that does not belong in its place, unless `drop_block` is set.
    """
    _check_compactions(body, betas)
    dropped: list[Transformation] = []
    dropping = _drops(body)
    prefix = first_prefix(body)
    dropped_in = ""
    for path, role, block in places(body):
        if block.get("type") in THINKING:
            message = path.rpartition(".content.")[0]
            why = _why_unbound(block, prefix, body["model"], path)
            # A mismatch also drops the rest of that message's thinking.
            if dropped_in == message and why is None:
                why = "", "prefix_binding_mismatch"
            if why is not None:
                sentence, reason = why
                if reason == "prefix_binding_mismatch" and not dropping:
                    raise invalid(_bound_elsewhere(path, sentence, betas))
                dropped.append({"type": "thinking_dropped", "path": path, "reason": reason})
                dropped_in = message
        prefix = prefix.after(role, block)
    return dropped


def _drops(body: Mapping[str, Any]) -> bool:
    controls = (body.get("thinking") or {}).get("block_binding") or {}
    return controls.get("prefix_mismatch_behavior") == "drop_block"


def _why_unbound(
    block: Mapping[str, Any], prefix: Prefix, model: str, path: str
) -> tuple[str, str] | None:
    """Why a thinking block does not belong after this prefix, as (sentence, reason); None if it
    does."""
    sealed = unseal(block.get("signature") if block["type"] == "thinking" else block.get("data"))
    shown = digest(block.get("thinking", "").encode())
    if sealed is None or sealed["kind"] != block["type"] or sealed["shown"] != shown:
        name = "signature" if block["type"] == "thinking" else "data"
        raise invalid(f"{path}: Invalid `{name}` in `{block['type']}` block")
    if sealed["model"] != model:
        return "", "model_binding_mismatch"
    if not facts_of(model).preserved:
        return None
    reason = "prefix_binding_mismatch"
    if sealed["system"] != prefix.system:
        sentence = "The `system` prompt differs from the one this block was created with."
        return sentence, reason
    if sealed["tools"] != prefix.tools:
        return "The `tools` differ from those this block was created with.", reason
    if sealed["chain"] != prefix.chain:
        return "The messages before this block differ from those it was created with.", reason
    # No earlier thinking is left: it was removed from the front, which is allowed.
    if prefix.thinking and sealed["thinking"] != prefix.thinking:
        sentence = (
            "The `thinking` block that preceded this one when it was created is missing from "
            "this request."
        )
        return sentence, reason
    return None


def _bound_elsewhere(path: str, sentence: str, betas: frozenset[str]) -> str:
    needs = (
        ""
        if BINDING_BETA in betas
        else f" That setting requires the `{BINDING_BETA}` value in the `anthropic-beta` header."
    )
    return (
        f"{path}: Invalid `signature` in `thinking` block. The block is bound to a different "
        "conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` "
        f'to "drop_block".{needs} {sentence}'
    )


def _check_compactions(body: Mapping[str, Any], betas: frozenset[str]) -> None:
    found = [(path, block) for path, _, block in places(body) if block.get("type") == "compaction"]
    if not found:
        return
    if not any(beta.startswith("compact-") for beta in betas):
        raise invalid(
            f"{found[0][0]}: Input tag 'compaction' found using 'type' does not match "
            "any of the expected tags"
        )
    if len(found) > 1:
        raise invalid(
            f"{found[1][0]}: only one `compaction` block is allowed", "compaction_block_ambiguous"
        )
    path, block = found[0]
    if path != "messages.0.content.0":
        raise invalid(
            f"{path}: a `compaction` block must be the first block of the first message",
            "compaction_block_misplaced",
        )
    if block.get("content") is None:
        return
    sealed = unseal(block.get("signature"))
    if sealed is None or sealed["kind"] != "compaction":
        raise invalid(
            f"{path}: Invalid `signature` in `compaction` block", "compaction_signature_invalid"
        )
    if sealed["content"] != digest(block["content"].encode()):
        raise invalid(
            f"{path}: the `compaction` block's content was changed", "compaction_content_mismatch"
        )

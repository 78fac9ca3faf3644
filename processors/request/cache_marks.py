"""Cache marks: the positions up to which the provider may cache a request.

A request has at most four, the most that the API accepts:

1. the end of what an agent's users share: its tools and the blocks of its system prompt before the
   first one that differs by user; the end of the tools if no block differs
2. the end of the system prompt
3. the end of the user message before the newest
4. the end of the newest user message

The third had a mark in the previous request too. Without a mark at the same position in this
request, the provider might not find the cached part, because it searches back 20 blocks at most,
and a step with many parallel calls has more. Marks are added last; comparisons of requests ignore
them.
"""

from collections.abc import Iterable, Sequence

from .blocks import Message
from .prefix import shared_blocks

MARK = ',"cache_control":{"type":"ephemeral"}}'  # 5 minutes; every step refreshes it
# The shortest prefix that any model caches, in tokens: a mark on a shorter prefix has no effect.
MIN_TOKENS = 512
CHARS_PER_TOKEN = 4  # more than any text has, so that no mark is set on too short a prefix


def marked_request(
    parts: list[str], system: Sequence[str], tools: Sequence[str], messages: Sequence[Message]
) -> bytes:
    """The request as bytes: `parts`, then system, tools and messages with their cache marks."""
    shared = shared_blocks(tuple(system))
    marks_shared = 0 < shared < len(system) and _is_long((*tools, *system[:shared]))
    if system:
        texts = [*(_marked(system[:shared]) if marks_shared else system[:shared]), *system[shared:]]
        long = _is_long((*tools, *system))
        parts.append(f'"system":[{",".join(_marked(texts) if long else texts)}]')
    if tools:
        marked = _is_long(tools) and not marks_shared
        parts.append(f'"tools":[{",".join(_marked(tools) if marked else tools)}]')
    parts.append(f'"messages":[{marked_messages(messages)}]')
    return ("{" + ",".join(parts) + "}").encode()


def marked_messages(messages: Sequence[Message]) -> str:
    """Messages as JSON text, with cache marks on the newest two user messages."""
    users = [n for n, message in enumerate(messages) if message.role == "user"][-2:]
    return ",".join([message_json(message, n in users) for n, message in enumerate(messages)])


def _is_long(texts: Iterable[str]) -> bool:
    return sum(map(len, texts)) >= MIN_TOKENS * CHARS_PER_TOKEN


def message_json(message: Message, marked: bool) -> str:
    """A message as JSON text."""
    blocks = _marked(message.blocks) if marked else message.blocks
    return f'{{"role":"{message.role}","content":[{",".join(blocks)}]}}'


def _marked(blocks: Sequence[str]) -> list[str]:
    """The blocks with a cache mark on the last one."""
    return [*blocks[:-1], blocks[-1].rstrip()[:-1] + MARK]

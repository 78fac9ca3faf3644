"""Facts about models: prefill, preserved thinking, cache minimum, characters per token.

The table has a row for each pattern of names. An unknown name gets the strictest row, because a
request that is valid for this row is valid for every model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Measured against the documented counters; see `tokens.py` for how they are used.
_NEW_FAMILY_CHARS_PER_TOKEN = 2.6
_OLD_FAMILY_CHARS_PER_TOKEN = 3.4


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The facts about one kind of model.

    prefill: whether the last message may be an assistant's.
    preserved: whether thinking is bound to its prefix.
    cache_tokens_min: the shortest prefix that is cached; shorter prefixes cause no error.
    chars_per_token: the number for estimates.
    omits_thinking: whether `display` defaults to omitted.
    """

    prefill: bool = False
    preserved: bool = True
    cache_tokens_min: int = 512
    chars_per_token: float = _NEW_FAMILY_CHARS_PER_TOKEN
    omits_thinking: bool = True


_OLD = ModelFacts(True, False, 1024, _OLD_FAMILY_CHARS_PER_TOKEN, False)
# The first pattern that matches wins; `(?!-?\d)` keeps opus-5 from matching opus-5-5.
MODELS: tuple[tuple[str, ModelFacts], ...] = (
    (r"(fable|mythos)-5-[12]|(opus|sonnet|haiku)-5-5", ModelFacts()),
    (r"(opus|fable|mythos)-5(?!-?\d)", ModelFacts(preserved=False)),
    (r"sonnet-5(?!-?\d)|opus-4-8", ModelFacts(preserved=False, cache_tokens_min=1024)),
    (r"opus-4-7", ModelFacts(preserved=False, cache_tokens_min=2048)),
    (
        r"(opus|sonnet)-4-6",
        ModelFacts(False, False, 4096, _OLD_FAMILY_CHARS_PER_TOKEN, False),
    ),
    (r"(haiku|opus)-4-5", ModelFacts(True, False, 4096, _OLD_FAMILY_CHARS_PER_TOKEN, False)),
    (r"sonnet-4|opus-4|claude-3|claude-2", _OLD),
)


def facts_of(model: str) -> ModelFacts:
    """The row of a model; an unknown name counts as the newest kind."""
    for pattern, facts in MODELS:
        if re.search(pattern, model):
            return facts
    return ModelFacts()

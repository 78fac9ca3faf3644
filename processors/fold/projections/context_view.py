"""The context of a session: computed by the context fold, read by requests."""

from ....schemas.events import Body
from ....schemas.tokens import NEW
from ....schemas.value import Value
from ..rows import Rows
from .prefixes import Prefix


class Fragment(Value):
    """One piece of the conversation. `kind`: user, reminder, assistant, partial, result.

    `text`: a reminder, a result made by the fold, or the text appended to a result's body.
    `total`: estimated tokens of this and every earlier fragment.
    """

    kind: str
    turn: int
    step: int
    index: int
    offset: int
    body: Body | None
    text: str = ""
    call_id: str = ""
    error: bool = False
    stop_reason: str = ""
    total: int = 0


class Request(Value):
    """A step's request. `fragments`, `prefixes`: how many of them there were.

    `start`: the first fragment it contains; earlier ones are in the summary at `checkpoint` or
    left out. `bound_from`: thinking before this fragment was signed for another prefix, or refused.
    `files_after`: the model could not read a file at or before this offset: none of those is sent.
    `checkpoint`, `compacted_upto`: as in LLM_CALLED.
    """

    turn: int
    step: int
    fragments: int
    prefixes: int
    model: str
    params: bytes
    strategy: str
    offset: int
    start: int = 0
    bound_from: int = 0
    checkpoint: int | None = None
    compacted_upto: int = -1
    files_after: int = -1


class ContextView(Value):
    """Fragments and prefixes, the newest request, and their tokens.

    `anchor_tokens`: all input and output of the last response; `tail_tokens`: the estimate of
    everything after it. Both are counted for the family `counts`: that of the newest request's
    model, or the newest family in an old log that lacks the tokens of its prefix.
    `last_step_tokens`: input and output of the last response, also of a refused one.
    `answered_at`: broker time of the last response, Unix ms.
    """

    fragments: Rows[Fragment]
    prefixes: Rows[Prefix]
    request: Request | None = None
    prefix_sha: str = ""
    anchor_tokens: int = 0
    tail_tokens: int = 0
    last_step_tokens: int = 0
    answered_at: int = 0
    counts: str = NEW


def fragment_tokens(fragments: Rows[Fragment], start: int, end: int | None = None) -> int:
    """Estimated tokens of the fragments from `start` to before `end` (one, if it is None)."""
    end = start + 1 if end is None else end
    if end <= start:
        return 0
    return fragments[end - 1].total - (fragments[start - 1].total if start else 0)


def place_of_result(view: ContextView, turn: int, step: int, index: int) -> int | None:
    """The ordinal of the fragment that answers a call, or None. Newest first: most are recent."""
    for place in range(len(view.fragments) - 1, -1, -1):
        fragment = view.fragments[place]
        if (fragment.turn, fragment.step) < (turn, step):
            return None
        answers = (fragment.kind, fragment.turn, fragment.step, fragment.index)
        if answers == ("result", turn, step, index):
            return place
    return None

"""The values of the context view: the context fold computes them, and requests read them."""

from ....schemas.events import Body
from ....schemas.ids import parse_call_key
from ....schemas.tokens import NEW
from ....schemas.value import Value
from ..rows import Rows
from .prefixes import Prefix


class Fragment(Value):
    """One piece of the conversation. `kind`: user, reminder, assistant, partial or result.

    `text`: a reminder, a result whose text the fold wrote, or text to append to a result's body.
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


class LeftOut(Value):
    """The fragments from `begin` up to, but not including, `end` are left out, because the provider
    refused a request that contained them: results, reminders and messages. The messages of `turn`
    keep their text.

    `files`: all files before `end` are left out, too.
    `accepted`: the provider answered a request without them; later requests leave them out only
        then.
    """

    begin: int
    end: int
    turn: int
    files: bool
    accepted: bool = False

    def keeps(self, fragment: Fragment) -> bool:
        """Whether the text of a fragment in the range is sent."""
        return fragment.kind == "user" and fragment.turn == self.turn


class Request(Value):
    """A step's request. `fragments`, `prefixes`: how many fragments and prefixes the view had when
    the step was decided.

    `start`: the first fragment of the request; earlier fragments are in the summary at `checkpoint`
        or left out.
    `bound_from`: the thinking before this fragment was signed for another prefix, or refused.
    `files_after`: files at or before this offset are not sent, because the model could not read one
        of them.
    `left_out`: the content that the request does not contain, because the provider refused it.
    `refused`: the model refused to answer this request.
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
    left_out: tuple[LeftOut, ...] = ()
    refused: bool = False


class ContextView(Value):
    """The conversation's fragments and prefixes, the newest request, and token counts.

    `anchor_tokens`: all input and output of the last response.
    `tail_tokens`: an estimate of everything after that response.
    `counts`: the family for which both are counted: that of the newest request's model, or the
        newest family if an old log lacks the tokens of the prefix.
    `last_step_tokens`: input and output of the last response, even if that response was a refusal.
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
    """Estimated tokens of the fragments from `start` up to, but not including, `end`. Without
    `end`, only the fragment `start` is counted."""
    end = start + 1 if end is None else end
    if end <= start:
        return 0
    return fragments[end - 1].total - (fragments[start - 1].total if start else 0)


def place_of_result(view: ContextView, turn: int, step: int, index: int) -> int | None:
    """The ordinal of the fragment with the result of a call, or None. Searches the newest first."""
    for place in range(len(view.fragments) - 1, -1, -1):
        fragment = view.fragments[place]
        if (fragment.turn, fragment.step) < (turn, step):
            return None
        answers = (fragment.kind, fragment.turn, fragment.step, fragment.index)
        if answers == ("result", turn, step, index):
            return place
    return None


def place_of_call(view: ContextView, key: str) -> int | None:
    """The same for the key of the call."""
    parts = parse_call_key(key)
    return None if parts is None else place_of_result(view, *parts)

"""The content that requests leave out, because the provider refused a request that contained it.

LLM_CALLED decides to leave content out (wake/budget.py), and the fold records which fragments these
are. A note takes their place, so that the model knows of the gap. The log keeps the content. Pure.
"""

from ...schemas.value import replace
from ..fold.projections.context_view import Fragment, Request

LEFT_OUT = "left_out"  # the kind of a fragment that is only a note
WITHOUT_FILES = "without_files"  # the kind of a message whose files are left out
_WHY = "the provider refused a request that contained it"
NOTES = {
    "result": f"[The result of a tool is left out here: {_WHY}.]",
    "reminder": f"[A reminder is left out here: {_WHY}.]",
    "user": f"[A message is left out here: {_WHY}.]",
}


def is_left_out(place: int, request: Request) -> bool:
    """Whether the request leaves out the content at `place`, or sends only the text of an answer
    there."""
    return any(one.begin <= place < one.end for one in request.left_out)


def thinking_from(request: Request) -> int:
    """The first fragment whose thinking the request may contain. Thinking that was signed for files
    which are now left out is refused."""
    ends = (one.end for one in request.left_out if one.files)
    return max(request.bound_from, *ends, 0)


def as_sent(fragment: Fragment, place: int, request: Request) -> Fragment:
    """The fragment at `place`, or what the request contains in its place."""
    for one in request.left_out:
        inside = one.begin <= place < one.end
        if inside and fragment.kind in NOTES and not one.keeps(fragment):
            return replace(fragment, kind=LEFT_OUT, body=None, text=NOTES[fragment.kind])
        if fragment.kind == "user" and place < one.end and (inside or one.files):
            fragment = replace(fragment, kind=WITHOUT_FILES)
    return fragment

"""Encodes frames as plain JSON, for the gateway's own stream and the inspector.

    token    {turn, step, attempt, block, kind, text}   a piece of the model's output
    dropped  {turn, step, attempt, why}                 discard what was shown of this attempt
    settled  {turn, step, attempt, line}                its content is final
    told     {line}                                     a message, call, result, approval, end
"""

import json
from typing import Any, assert_never

from ...client.history import Frame
from ...client.printable import no_text, shown, whole
from ...client.transcript_stream import Attempt, Dropped, LineAdded, Settled, Shown, Token
from ...processors.fold.projections.transcript import REPLACED, Line
from ...schemas.canonical import compact
from ...schemas.events.parts import ReadBlob
from .exact import value_of

WHOLE = frozenset({"message", "answer", "partial"})
"""Kinds of lines that are sent with their full content.

Lines of tools have the part that is in the log, and a reference.
"""


NAMES: dict[type, str] = {
    Token: "token", Dropped: "dropped", Settled: "settled", LineAdded: "told"
}


def name_of(frame: Frame) -> str:
    """The name of a frame's event, which is also the value of `type` in its JSON."""
    return NAMES[type(frame.shown)]


def thing_json(thing: Shown, read: ReadBlob) -> dict[str, Any]:
    """One shown item as JSON."""
    name = {"type": NAMES[type(thing)]}
    match thing:
        case Token():
            piece = {"block": thing.block, "kind": str(thing.kind), "text": thing.text}
            return {**name, **_of(thing.of), **piece}
        case Dropped():
            return {**name, **_of(thing.of), "why": thing.why}
        case Settled():
            return {**name, **_of(thing.of), "line": line_json(thing.line, read)}
        case LineAdded():
            return {**name, "line": line_json(thing.line, read)}
        case _:
            assert_never(thing)


def frame_json(frame: Frame, read: ReadBlob) -> dict[str, Any]:
    """A frame as JSON: the item, the cursor to resume from, and whether the item is live."""
    return {**thing_json(frame.shown, read), "cursor": frame.cursor, "live": frame.live}


def frame_text(frame: Frame, read: ReadBlob) -> str:
    """The compact JSON text of a frame. Nearly every frame is a token, so tokens take a faster way
    to the same text.
    """
    thing = frame.shown
    if type(thing) is not Token:
        return compact(frame_json(frame, read))
    of, live = thing.of, "true" if frame.live else "false"
    return (
        f'{{"type":"token","turn":{of.turn},"step":{of.step},"attempt":{of.attempt},'
        f'"block":{thing.block},"kind":"{thing.kind}","text":{compact(thing.text)},'
        f'"cursor":"{frame.cursor}","live":{live}}}'
    )


def line_json(line: Line, read: ReadBlob) -> dict[str, Any]:
    """A line of the transcript as JSON.

    `content`: blocks, arguments or a text, in which numbers that no double represents are strings.
    `code`: an outcome, a decision, or the class of an error.
    `text`: a note for people.
    `replaced`: a person replaced the result in this fork.
    `refused`: why triggers of a result were refused.
    `ref`: the blob with the full content of a large line.
    """
    out: dict[str, Any] = {
        "kind": line.kind,
        "turn": line.turn,
        "step": line.step,
        "offset": line.offset,
        "at": line.at,
        "name": line.name,
        "call": line.call,
        "code": line.code,
        "text": line.text or no_text(line, read),
    }
    if line.cause == REPLACED:
        out["replaced"] = True
    if line.refused:
        out["refused"] = [each.detail for each in line.refused]
    if line.body is not None:
        out["content"] = _content(line, read)
        if line.body.ref is not None:
            out["ref"] = {"sha256": line.body.ref.sha256, "bytes": line.body.ref.bytes}
    return out


def _content(line: Line, read: ReadBlob) -> Any:
    data = whole(line.body, read if line.kind in WHOLE else None)
    try:
        value = value_of(data)
        if b"\\ud" in data.lower():
            json.dumps(value, ensure_ascii=False).encode()  # refuses a lone surrogate
        return value
    except ValueError:
        return shown(data)


def _of(attempt: Attempt) -> dict[str, int]:
    return attempt._asdict()

"""What a person may say: a JSON array of text blocks, and nothing in them but their text.

It goes into every later request as the bytes that came, so whatever the Messages API would refuse
there, or a reader could not parse, would end its session for good.
"""

from typing import Literal

import msgspec


class TextBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """{"type": "text", "text": "..."}; of a key that comes twice, both must do."""

    type: Literal["text"]
    text: str


_BLOCKS = msgspec.json.Decoder(list[TextBlock])


def texts_of(content: bytes) -> list[str]:
    """The texts of a message's blocks. Raises ValueError for whatever is no array of text blocks.

    Half of a surrogate pair and nesting that no parser's stack bears are refused like the rest.
    """
    try:
        return [block.text for block in _BLOCKS.decode(content)]
    except RecursionError as deep:
        raise ValueError(str(deep)) from deep
